"""Queued signals that ask for what is so already: repetitions are logged, and only what is left to do is a letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, Undo
from running import Evidence

SEND = """
    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
    select i.id, holdfast.new_id(i.bucket), i.bucket, i.org_id, %s, %s::jsonb, holdfast.clock()
    from holdfast.instances i where i.id = %s returning 1
"""
END = {"cancel": "cancelled", "abort": "aborted"}
pytestmark = pytest.mark.anyio


async def work(ctx: Context, data: Any) -> None:
    pass


async def fail(ctx: Context, data: Any) -> None:
    raise DoNotRetry("no")


async def read_late(engine: Engine, evidence: Evidence, id: str, kind: str) -> list[str | None]:
    """Send a signal in time, as far as its sender could know, and have it read now; the letters it leaves."""
    assert evidence.ask(SEND, kind, json.dumps({"actor": {"id": "ada"}, "reason": "no need"}), id) == 1
    await engine.drain(timeout=30)
    assert evidence.ask("select count(*) from holdfast.signals where instance_id = %s", id) == 0
    return [letter.reason for letter in await engine.dead_letters(id) if letter.source == "signal"]


async def ended(engine: Engine, flow: Flow, status: str) -> str:
    definition = flow.build()
    await engine.publish(definition)
    id = (await engine.start(definition.name)).id
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == status
    return id


@pytest.mark.parametrize("undo", [work, fail], ids=["undone", "not undone"])
async def test_a_cancel_read_after_the_rollback_it_met_is_a_repetition(
    engine: Engine, evidence: Evidence, undo: Any
) -> None:
    """What could not be undone has a letter of its own."""
    flow = Flow("trip").step("book", work, undo=Undo(undo, name="release")).step("pay", fail)
    assert await read_late(engine, evidence, await ended(engine, flow, "failed"), "cancel") == []


async def test_a_cancel_of_what_a_save_point_kept_is_no_repetition(engine: Engine, evidence: Evidence) -> None:
    """A cancel would have taken back what lies before it."""
    flow = Flow("kept").step("book", work, undo=Undo(work, name="release")).save_point("booked").step("pay", fail)
    assert await read_late(engine, evidence, await ended(engine, flow, "failed"), "cancel") == ["INSTANCE_OVER"]


async def test_a_cancel_that_undoes_nothing_any_more_is_a_letter(engine: Engine, evidence: Evidence) -> None:
    done = await ended(engine, Flow("done").step("book", work, undo=Undo(work, name="release")), "completed")
    assert await read_late(engine, evidence, done, "cancel") == ["INSTANCE_OVER"]
    forced = await ended(
        engine, Flow("forced").step("book", work, undo=Undo(work, name="release")).wait_event("go", "go"), "running"
    )
    await engine.force_fail(forced)
    assert await read_late(engine, evidence, forced, "cancel") == ["INSTANCE_OVER"]


@pytest.mark.parametrize("kind", ["cancel", "abort", "force_fail", "suspend", "resume"])
async def test_what_is_so_already_is_not_asked_for_in_vain(engine: Engine, evidence: Evidence, kind: str) -> None:
    id = await ended(engine, Flow("waits").step("book", work).wait_event("go", "go"), "running")
    if kind == "resume":
        await engine.suspend(id)
    await getattr(engine, kind)(id)
    await engine.drain(timeout=30)
    assert await read_late(engine, evidence, id, kind) == []


@pytest.mark.parametrize("kind", ["cancel", "abort"])
async def test_a_sub_flow_that_ended_before_its_parent_stopped_it_has_no_letter(
    engine: Engine, evidence: Evidence, kind: str
) -> None:
    await engine.publish(Flow("inner").wait_event("go", "go").build())
    parent = await ended(engine, Flow("outer").sub_flow("sub", "inner"), "running")
    child = str(evidence.ask("select id from holdfast.instances where parent_id = %s", parent))
    await getattr(engine, kind)(parent)
    await engine.signal(child, "go")  # the stop is queued, and not read yet
    await engine.drain(timeout=30)
    assert [(await engine.get(id)).status for id in (parent, child)] == [END[kind], "completed"]
    assert await engine.dead_letters(child) == []
    assert await read_late(engine, evidence, child, kind) == ["INSTANCE_OVER"], "a person's is one"
