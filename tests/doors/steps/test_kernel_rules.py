"""The rules of workflows in a running engine: who may decide, whose task it is, what the request was, time and errors.

At the end of every test the snapshot is compared with what the step rows alone tell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from steps_graphs import POLICY, edge

from holdfast import Caller, Context, Engine
from holdfast.errors import Forbidden
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

DAY = 86_400.0
FACTS = {"tenant": "context.tenant_id", "subject": "context.subject_id", "partition": "context.partition_id",
         "correlation": "context.correlation_id", "order": "workflow.order_id"}  # fmt: skip


def expense(name: str, **policy: Any) -> dict[str, Any]:
    """Approved by the boss, booked by a system, announced at best effort."""
    return {
        "name": name,
        "entry": "review",
        "kind": "steps",
        "policy": {**POLICY, **policy},
        "nodes": [
            {"id": "review", "kind": "approval", "self_approval": False, "assignee": "workflow.boss", "deadline": DAY,
             "capabilities": ["read", "sign"]},
            {"id": "book", "kind": "task", "handler": "book", "input": FACTS, "output": {"booked": "response.id"}},
            {"id": "tell", "kind": "task", "handler": "tell", "best_effort": True},
            {"id": "done", "kind": "terminal"},
            {"id": "refused", "kind": "terminal"},
            {"id": "expired", "kind": "terminal"},
        ],
        "edges": [
            edge("review", "book", "approved"), edge("review", "refused", "rejected"),
            edge("review", "expired", "withdrawn"), edge("book", "tell"), edge("tell", "done"),
        ],
    }  # fmt: skip


@pytest.fixture
async def office(engine: Engine) -> AsyncIterator[Engine]:
    @engine.handler("book")
    async def book(ctx: Context, data: Any) -> Any:
        return {"id": f"{data['tenant']}/{data['partition']}/{data['subject']}/{data['correlation']}", "secret": 1}

    @engine.handler("tell")
    async def tell(ctx: Context, data: Any) -> Any:
        raise RuntimeError("nobody listens")

    await engine.publish(expense("expense", timeout=3 * DAY, on_timeout="expired"))
    await engine.publish(expense("strict"))
    yield engine
    for instance in (await engine.list(limit=100)).items:
        assert (await engine.rebuild(instance.id, dry_run=True)).differences == []


async def begin(engine: Engine, flow: str = "expense", by: str = "ann", **options: Any) -> str:
    caller = Caller(by, partition="eu", correlation="c-1")
    instance = await engine.start(
        flow, {"order_id": "o-1", "boss": "eve", "tenant_id": "forged"}, caller=caller, **options
    )
    await engine.drain(timeout=30)
    return instance.id


@pytest.mark.parametrize("key", [None, "k-1"])
async def test_an_approval_goes_its_way(office: Engine, key: str | None) -> None:
    """With a key the start is stored first and decided upon later, by whoever comes by."""
    id = await begin(office, key=key)
    [task] = await office.tasks(id)
    assert (task.status, task.assignee) == ("assigned", "eve")
    with pytest.raises(Forbidden, match="CAPABILITY_MISSING"):
        await office.decide(task.id, by="eve", decision="approved")
    await office.decide(
        task.id, by="eve", decision="approved", data={"approved_by": "ann"}, capabilities=("read", "sign")
    )
    await office.drain(timeout=30)
    instance = await office.get(id)
    assert (instance.status, instance.data["approved_by"]) == ("completed", "eve")
    assert instance.data["booked"] == f"{office.org}/eu/ann/c-1"
    assert (instance.data["_last_error"]["step"], "secret" in instance.data) == ("tell", False)


@pytest.mark.parametrize("key", [None, "k-2"])
async def test_nobody_approves_what_they_started(office: Engine, key: str | None) -> None:
    id = await begin(office, key=key, by="eve")
    [task] = await office.tasks(id)
    with pytest.raises(Forbidden, match="SELF_APPROVAL"):
        await office.decide(task.id, by="eve", decision="approved", capabilities=("read", "sign"))
    with pytest.raises(Forbidden, match="SELF_APPROVAL"):
        await office.signal(id, "approved", by="eve", capabilities=("read", "sign"))


@pytest.mark.parametrize(("flow", "ends"), [("expense", ("completed", None)), ("strict", ("failed", "STEP_TIMEOUT"))])
async def test_a_step_that_is_too_late(office: Engine, flow: str, ends: tuple[str, str | None]) -> None:
    id = await begin(office, flow)
    await advance(office, days=2)
    await office.drain(timeout=30)
    instance = await office.get(id)
    assert (instance.status, instance.reason) == ends
    assert [task.status for task in await office.tasks(id)] == ["expired"]
