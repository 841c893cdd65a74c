"""Waiting: for an event of this instance, for an event by key, for a moment, for another flow."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import Conflict, Forbidden, Refused
from holdfast.testing import advance

pytestmark = pytest.mark.anyio


def waiting(name: str, wait: dict[str, Any], **node: Any) -> dict[str, Any]:
    """A task, a wait and an end."""
    return {
        "name": name,
        "entry": "begin",
        "nodes": [
            {"id": "begin", "kind": "task", "handler": "begin"},
            {"id": "wait", "kind": "wait_event", "wait": wait, **node},
            {"id": "end", "kind": "end"},
            {"id": "late", "kind": "terminal"},
        ],
        "edges": [
            {"id": "begin>wait", "source": "begin", "target": "wait"},
            {"id": "wait>end", "source": "wait", "target": "end"},
            {"id": "wait>late", "source": "wait", "target": "late", "on": "timeout"},
        ],
    }


@pytest.fixture
async def port(engine: Engine) -> Engine:
    @engine.handler("begin")
    async def begin(ctx: Context, data: Any) -> Any:
        return data

    await engine.publish(waiting("parcel", {"event": "arrived"}, deadline=3 * 86_400.0))
    await engine.publish(waiting("patient", {"event": "arrived", "early": True}))
    await engine.publish(waiting("ship", {"event": "docked", "key": "input.ship"}))
    await engine.publish(waiting("guarded", {"event": "arrived"}, guard="parcels.accept"))
    return engine


async def outcome(engine: Engine, id: str) -> str | None:
    return next(s.outcome for s in await engine.steps(id) if s.name == "wait")


async def test_an_event_goes_to_the_instance_that_waits_for_it(port: Engine) -> None:
    parcel = await port.start("parcel", {"weight": 3})
    await port.drain(timeout=30)
    parcel = await port.signal(parcel.id, "arrived", {"at": "noon"})
    assert (parcel.status, parcel.data) == ("completed", {"at": "noon"})


async def test_an_event_nobody_waits_for_is_refused(port: Engine) -> None:
    parcel = await port.start("parcel")
    await port.drain(timeout=30)
    with pytest.raises(Refused) as refusal:
        await port.signal(parcel.id, "lost")
    assert refusal.value.code == "EVENT_NOT_EXPECTED"
    await port.signal(parcel.id, "arrived")
    with pytest.raises(Conflict) as over:
        await port.signal(parcel.id, "arrived")
    assert over.value.code == "INSTANCE_OVER"


async def test_a_declared_event_may_come_early(port: Engine) -> None:
    patient = await port.start("patient")
    patient = await port.signal(patient.id, "arrived", {"at": "dawn"})
    assert patient.status == "running"
    await port.drain(timeout=30)
    patient = await port.get(patient.id)
    assert (patient.status, patient.data) == ("completed", {"at": "dawn"})


async def test_a_signal_with_an_id_counts_once(port: Engine) -> None:
    parcel = await port.start("parcel")
    await port.drain(timeout=30)
    id = uuid4()
    done = await port.signal(parcel.id, "arrived", {"at": "noon"}, id=id)
    assert done.status == "completed"
    again = await port.signal(parcel.id, "arrived", {"at": "noon"}, id=id)
    assert again.version == done.version
    with pytest.raises(Conflict) as refusal:
        await port.signal(parcel.id, "arrived", {"at": "midnight"}, id=id)
    assert refusal.value.code == "SIGNAL_ID_REUSED"


async def test_acting_may_need_a_capability(port: Engine) -> None:
    parcel = await port.start("guarded")
    await port.drain(timeout=30)
    with pytest.raises(Forbidden) as refusal:
        await port.signal(parcel.id, "arrived", by="bob")
    assert refusal.value.code == "CAPABILITY_MISSING"
    done = await port.signal(parcel.id, "arrived", by="ada", capabilities=["parcels.accept"])
    assert done.status == "completed"


async def test_an_event_by_key_reaches_every_wait_with_that_key(port: Engine) -> None:
    crew = [await port.start("ship", {"ship": "Argo"}) for _ in range(3)]
    other = await port.start("ship", {"ship": "Nautilus"})
    await port.drain(timeout=30)

    await port.signal_key("docked", "Argo", {"pier": 4})
    await port.drain(timeout=30)

    assert [(await port.get(i.id)).data for i in crew] == [{"pier": 4}] * 3
    assert (await port.get(other.id)).status == "running"


async def test_an_event_by_key_may_come_before_the_wait(port: Engine) -> None:
    await port.signal_key("docked", "Argo", {"pier": 4})
    ship = await port.start("ship", {"ship": "Argo"})
    await port.drain(timeout=30)
    assert (await port.get(ship.id)).data == {"pier": 4}


async def test_an_early_event_is_kept_for_a_week(port: Engine) -> None:
    await port.signal_key("docked", "Argo")
    await advance(port, days=8)
    ship = await port.start("ship", {"ship": "Argo"})
    await port.drain(timeout=30)
    assert (await port.get(ship.id)).status == "running"


async def test_a_deadline_ends_the_wait(port: Engine) -> None:
    parcel = await port.start("parcel")
    await port.drain(timeout=30)
    await advance(port, days=2, hours=23)
    await port.drain(timeout=30)
    assert (await port.get(parcel.id)).status == "running"
    await advance(port, hours=2)
    await port.drain(timeout=30)
    assert (await port.get(parcel.id)).status == "completed"
    assert await outcome(port, parcel.id) == "timeout"
    assert (await port.steps(parcel.id, all=True))[-1].name == "late"


async def test_a_timer_waits_three_days(engine: Engine) -> None:
    await engine.publish(
        {
            "name": "pause",
            "entry": "pause",
            "nodes": [{"id": "pause", "kind": "wait_timer", "delay": 3 * 86_400.0}, {"id": "end", "kind": "end"}],
            "edges": [{"id": "e", "source": "pause", "target": "end"}],
        }
    )
    pause = await engine.start("pause")
    await engine.drain(timeout=30)
    assert (await engine.get(pause.id)).waiting_until is not None
    await advance(engine, days=3, seconds=1)
    await engine.drain(timeout=30)
    assert (await engine.get(pause.id)).status == "completed"


PARENT: dict[str, Any] = {
    "name": "parent",
    "entry": "child",
    "nodes": [
        {"id": "child", "kind": "sub_flow", "child": {"flow": "child"}},
        {"id": "end", "kind": "end"},
        {"id": "sorry", "kind": "task", "handler": "sorry"},
    ],
    "edges": [
        {"id": "child>end", "source": "child", "target": "end"},
        {"id": "child>sorry", "source": "child", "target": "sorry", "on": "error"},
        {"id": "sorry>end", "source": "sorry", "target": "end"},
    ],
}


@pytest.fixture
async def family(engine: Engine) -> Engine:
    async def work(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("fail"):
            raise ValueError("no")
        return {"worked": True}

    @engine.handler("sorry")
    async def sorry(ctx: Context, data: Any) -> str:
        return "sorry"

    await engine.publish(Flow("child").step("work", work).build())
    await engine.publish(PARENT)
    return engine


async def test_a_flow_may_wait_for_another_flow(family: Engine) -> None:
    parent = await family.start("parent", {"n": 1})
    await family.drain(timeout=30)
    parent = await family.get(parent.id)
    assert (parent.status, parent.data) == ("completed", {"worked": True})
    [child] = (await family.list(flow="child")).items
    assert (child.parent_id, child.status, child.input) == (parent.id, "completed", {"n": 1})


async def test_a_failed_child_takes_the_error_edge(family: Engine) -> None:
    parent = await family.start("parent", {"fail": True})
    await family.drain(timeout=30)
    assert (await family.get(parent.id)).data == "sorry"


async def test_a_child_that_does_not_exist_is_an_error_of_the_step(family: Engine) -> None:
    first, *others = PARENT["nodes"]
    orphan = {**first, "child": {"flow": "nobody"}}
    await family.publish({**PARENT, "name": "lost", "nodes": [orphan, *others]})
    parent = await family.start("lost")
    await family.drain(timeout=30)
    [step] = [s for s in await family.steps(parent.id) if s.name == "child"]
    assert (step.status, step.error["code"]) == ("failed", "FLOW_UNKNOWN")
    assert (await family.get(parent.id)).data == "sorry"
