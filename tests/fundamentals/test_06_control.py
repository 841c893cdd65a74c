"""What an operator may do to a running instance: suspend, resume, cancel, abort, fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import Conflict
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

REMINDER = {
    "name": "reminder",
    "entry": "pause",
    "nodes": [
        {"id": "pause", "kind": "wait_timer", "delay": 3600.0},
        {"id": "remind", "kind": "task", "handler": "remind"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "pause>remind", "source": "pause", "target": "remind"},
        {"id": "remind>end", "source": "remind", "target": "end"},
    ],
}


class Gate:
    """A handler that stands still until it is let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, ctx: Context, data: Any) -> str:
        self.reached.set()
        await self.opened.wait()
        return "through"


@pytest.fixture
async def gate(engine: Engine) -> AsyncIterator[Gate]:
    gate = Gate()
    engine.register("gate", gate)
    engine.register("after", Gate())
    await engine.publish(Flow("gated").step("gate", "gate").step("after", "after").build())
    async with engine.worker():
        yield gate
        gate.opened.set()


@pytest.fixture
async def reminder(engine: Engine) -> str:
    async def remind(ctx: Context, data: Any) -> str:
        return "reminded"

    engine.register("remind", remind)
    await engine.publish(REMINDER)
    instance = await engine.start("reminder")
    await engine.drain(timeout=30)
    return instance.id


async def test_a_suspended_instance_waits_for_its_resume(engine: Engine, reminder: str) -> None:
    suspended = await engine.suspend(reminder, by="ada", reason="AUDIT")
    assert (suspended.status, suspended.reason) == ("suspended", "AUDIT")

    await advance(engine, hours=2)
    await engine.drain(timeout=30)
    assert (await engine.get(reminder)).status == "suspended"

    assert (await engine.resume(reminder, by="ada")).status == "running"
    await engine.drain(timeout=30)
    assert (await engine.get(reminder)).status == "completed"


async def test_events_are_kept_while_suspended(engine: Engine) -> None:
    await engine.publish(Flow("parcel").wait_event("arrived").build())
    parcel = await engine.start("parcel")
    await engine.drain(timeout=30)
    await engine.suspend(parcel.id)
    assert (await engine.signal(parcel.id, "arrived", {"at": "noon"})).status == "suspended"
    resumed = await engine.resume(parcel.id)
    assert (resumed.status, resumed.data) == ("completed", {"at": "noon"})


async def test_events_for_now_are_refused_while_suspended(engine: Engine) -> None:
    await engine.publish(Flow("parcel").wait_event("arrived").build())
    parcel = await engine.start("parcel")
    await engine.drain(timeout=30)
    await engine.suspend(parcel.id)
    with pytest.raises(Conflict) as refusal:
        await engine.signal(parcel.id, "arrived", early=False)
    assert refusal.value.code == "INSTANCE_SUSPENDED"


async def test_a_result_that_comes_while_suspended_is_kept(engine: Engine, gate: Gate) -> None:
    instance = await engine.start("gated")
    await asyncio.wait_for(gate.reached.wait(), 10)
    await engine.suspend(instance.id)
    gate.opened.set()
    async with asyncio.timeout(10):
        while (await engine.steps(instance.id))[0].status != "completed":
            await asyncio.sleep(0.01)
    assert (await engine.get(instance.id)).status == "suspended"
    assert [s.name for s in await engine.steps(instance.id) if s.behaviour == "work"] == ["gate"]


async def test_cancelling_ends_what_waits_at_once(engine: Engine, reminder: str) -> None:
    cancelled = await engine.cancel(reminder, by="ada", reason="no longer needed")
    assert (cancelled.status, cancelled.reason) == ("cancelled", "no longer needed")
    await advance(engine, hours=2)
    await engine.drain(timeout=30)
    assert [s.status for s in await engine.steps(reminder) if s.name == "pause"] == ["skipped"]
    with pytest.raises(Conflict):
        await engine.cancel(reminder)


async def test_cancelling_tells_a_running_handler_to_stop(engine: Engine, gate: Gate) -> None:
    instance = await engine.start("gated")
    await asyncio.wait_for(gate.reached.wait(), 10)
    assert (await engine.cancel(instance.id)).status in ("rolling_back", "cancelled")
    assert (await engine.wait(instance.id, timeout=10)).status == "cancelled"
    [step] = [s for s in await engine.steps(instance.id) if s.behaviour == "work"]
    assert (step.status, step.error["code"]) == ("skipped", "STOPPED")


async def test_what_a_told_handler_still_returns_is_recorded_and_taken_back(engine: Engine) -> None:
    begun = asyncio.Event()

    @engine.handler("careful")
    async def careful(ctx: Context, data: Any) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "tidied up"
        return "through"

    await engine.publish(Flow("careful").step("careful", "careful").build())
    async with engine.worker():
        instance = await engine.start("careful")
        await asyncio.wait_for(begun.wait(), 10)
        await engine.cancel(instance.id)
        assert (await engine.wait(instance.id, timeout=10)).status == "cancelled"
    [step] = [s for s in await engine.steps(instance.id) if s.behaviour == "work"]
    assert (step.status, step.output) == ("rolled_back", "tidied up")


async def test_cancelling_takes_back_what_nobody_has_begun(engine: Engine) -> None:
    await engine.publish(Flow("elsewhere").step("far", "far_away").build())
    instance = await engine.start("elsewhere")
    await engine.drain(timeout=30)
    assert (await engine.cancel(instance.id)).status == "cancelled"
    [step] = [s for s in await engine.steps(instance.id) if s.behaviour == "work"]
    assert step.status == "skipped"


async def test_aborting_waits_for_nobody(engine: Engine, gate: Gate) -> None:
    instance = await engine.start("gated")
    await asyncio.wait_for(gate.reached.wait(), 10)
    assert (await engine.abort(instance.id, reason="stop")).status == "aborted"
    await engine.drain(timeout=30)
    [step] = [s for s in await engine.steps(instance.id) if s.behaviour == "work"]
    assert (step.status, step.output) == ("skipped", None)
    assert engine.stats().results_rejected == 1


async def test_an_operator_may_fail_an_instance(engine: Engine, reminder: str) -> None:
    failed = await engine.force_fail(reminder, reason="broken beyond repair")
    assert (failed.status, failed.error["code"]) == ("failed", "FORCED")


async def test_deciding_on_an_old_view_is_refused(engine: Engine, reminder: str) -> None:
    seen = await engine.get(reminder)
    await engine.suspend(reminder)
    with pytest.raises(Conflict) as refusal:
        await engine.cancel(reminder, if_version=seen.version)
    assert refusal.value.code == "VERSION_CONFLICT"
    assert (await engine.get(reminder)).status == "suspended"


async def test_a_failed_step_may_be_run_again(engine: Engine) -> None:
    """With `on_error: suspend` a failure waits for a person instead of ending the instance."""
    well = asyncio.Event()

    @engine.handler("fragile")
    async def fragile(ctx: Context, data: Any) -> str:
        if not well.is_set():
            raise ValueError("not today")
        return "mended"

    await engine.publish(
        {
            "name": "mend",
            "entry": "fragile",
            "policy": {"on_error": "suspend"},
            "nodes": [{"id": "fragile", "kind": "task", "handler": "fragile"}, {"id": "end", "kind": "end"}],
            "edges": [{"id": "e", "source": "fragile", "target": "end"}],
        }
    )
    instance = await engine.start("mend")
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).status == "suspended"

    well.set()
    await engine.resume(instance.id)
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).data == "mended"
    assert [(s.status, s.run) for s in await engine.steps(instance.id) if s.name == "fragile"] == [
        ("superseded", 0),
        ("completed", 1),
    ]
