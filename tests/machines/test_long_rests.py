"""A machine that has rested for months is the same machine after it was carried into the present one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from machine_graphs import check_of, close_acks, consumer, watch

from holdfast import Engine, Machine, Retention
from holdfast.runtime.machines.triggers import TriggerResult
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

MONTH = timedelta(days=31)
BLUEPRINT: dict[str, Any] = {
    "name": "vendor",
    "environment": "prod",
    "version": 1,
    "states": [
        {"name": "draft", "is_initial": True},
        {"name": "review"},
        {"name": "done", "is_final": True},
    ],
    "events": [
        {"code": 1001, "name": "submit"},
        {"code": 1003, "name": "reject"},
        {"code": 1004, "name": "approve"},
    ],
    "transitions": [
        {"from": "draft", "event": "submit", "to": "review"},
        {"from": "review", "event": "reject", "to": "draft"},
        {"from": "review", "event": "approve", "to": "done"},
    ],
}


async def send(engine: Engine, event: str, **options: Any) -> TriggerResult:
    return await engine.trigger("prod", "vendor", "V-1", event, {"sent": event}, by="ann", **options)


async def vendor(engine: Engine) -> str:
    """A vendor in review, of which one consumer is told."""
    await engine.import_machine(Machine.load(BLUEPRINT))
    consumer(engine.dsn, "billing")
    return (await send(engine, "submit", request_id="r-1")).instance


async def rest(engine: Engine) -> None:
    """Ten weeks pass, and the months of the steps and events before them go."""
    await advance(engine, days=70)
    done = {u.task: u.result for u in await engine.maintain(Retention(steps=MONTH, events=MONTH))}
    assert done["carry"]["carried"] == 1
    assert done["steps"]["dropped"]
    assert done["steps"]["held"] == done["events"]["held"] == {}


async def test_its_lifecycle_tells_since_when_it_rests_and_what_led_there(engine: Engine) -> None:
    id = await vendor(engine)
    before = (await engine.lifecycle(id)).entries[-1]
    await rest(engine)
    told = await engine.lifecycle(id)
    [entry] = told.entries
    assert (told.instance.current_state, told.instance.last_event) == ("review", "submit")
    assert (entry.number, entry.id, entry.from_state, entry.event, entry.event_code, entry.actor) == (
        before.number, before.id, "draft", "submit", 1001, "ann"
    )  # fmt: skip
    assert (entry.created_at, entry.payload) == (before.created_at, {"sent": "submit"})
    await rest(engine)
    assert (await engine.lifecycle(id)).entries == told.entries

    done = await send(engine, "reject", expected=entry.number)
    assert (done.applied, done.from_state, done.to_state) == (True, "review", "draft")
    assert [e.to_state for e in (await engine.lifecycle(id)).entries] == ["review", "draft"]
    assert (await engine.rebuild(id, dry_run=True)).differences == []


async def test_a_request_is_answered_as_before(engine: Engine) -> None:
    await vendor(engine)
    first = await engine.trigger_answer("prod", "vendor", "V-1", "r-1")
    await rest(engine)
    assert await send(engine, "submit", request_id="r-1") == first
    refused = await send(engine, "submit", request_id="r-2")
    assert (refused.applied, refused.from_state) == (False, "review")
    seen = await engine.machine("prod", "vendor", "V-1")
    assert (seen.state, seen.last_event, seen.lifecycle, seen.open_acks) == ("review", "submit", 1, 1)


async def test_its_activities_stay_with_their_entry(engine: Engine) -> None:
    id = await vendor(engine)
    before = await engine.activity(id, "Review", status="begun", by="r1")
    await rest(engine)
    after = await engine.activity(id, "Review", status="approved", by="r1")
    assert (after.id, after.entry) == (before.id, before.entry)
    found: Any = await engine.activities(id)
    assert [(a.status, a.entry) for a in getattr(found, "items", found)] == [("approved", before.entry)]
    told = await engine.lifecycle(id)
    assert [a.name for a in told.entries[-1].activities] == ["Review"]
    assert told.other_activities == []


async def test_what_was_told_of_its_rest_is_not_told_again(engine: Engine) -> None:
    id = await vendor(engine)
    close_acks(engine.dsn)
    watch(engine.dsn, id, 300)
    await advance(engine, seconds=310)
    await engine.drain(timeout=30)
    assert len((await engine.notices(code="DEFAULT_STATE_STALE")).items) == 1
    _, rest_before, _ = check_of(engine.dsn, id) or (None, None, None)
    await rest(engine)
    await engine.drain(timeout=30)
    told, rest_after, _ = check_of(engine.dsn, id) or (None, None, None)
    assert (rest_after, told) == (rest_before, 2)
