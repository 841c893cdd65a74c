"""Backfill: an object brings the past it had before its machine; all of it or nothing, and nobody is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from orders import BLUEPRINT, GATES, deliveries, office, rows

from holdfast import Engine, Machine
from holdfast.errors import Conflict, HoldfastError

pytestmark = pytest.mark.anyio

LONG_AGO = datetime(2020, 2, 1, tzinfo=UTC)
PAST: list[dict[str, Any]] = [
    {"event": 1001, "occurred_at": LONG_AGO, "by": "ann", "payload": {"n": 1}},
    {"event": "Pack", "occurred_at": (LONG_AGO + timedelta(days=2)).isoformat(), "by": "ben"},
]


async def test_the_past_is_there_and_nobody_was_told(engine: Engine) -> None:
    await engine.import_machine(Machine.load(BLUEPRINT, GATES))
    done = await engine.backfill("prod", "order", "O-1", PAST, by="import")
    assert (done.applied, done.from_state, done.to_state, done.lifecycle) == (True, "Checked", "Packed", 2)
    stands = await engine.machine("prod", "order", "O-1")
    assert (stands.state, stands.last_event, stands.data, stands.open_acks) == ("Packed", "Pack", {"n": 1}, 0)
    told = (await engine.lifecycle(done.instance)).entries[1:]
    assert [(e.to_state, e.event, e.actor) for e in told] == [("Checked", "Check", "ann"), ("Packed", "Pack", "ben")]
    assert [e.occurred_at for e in told] == [LONG_AGO, LONG_AGO + timedelta(days=2)]


async def test_the_same_past_again_changes_nothing_and_another_is_a_conflict(engine: Engine) -> None:
    await office(engine)
    first = await engine.backfill("prod", "order", "O-1", PAST)
    assert await engine.backfill("prod", "order", "O-1", PAST) == first
    with pytest.raises(Conflict) as caught:
        await engine.backfill("prod", "order", "O-1", PAST[:1])
    assert caught.value.code == "SIGNAL_ID_REUSED"
    assert (await engine.trigger("prod", "order", "O-1", "Ship")).applied
    assert [d.what for d in deliveries(engine.dsn)] == ["→ Shipped"]


async def test_an_object_with_a_history_takes_no_other(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    with pytest.raises(Conflict) as caught:
        await engine.backfill("prod", "order", "O-1", PAST)
    assert caught.value.code == "BACKFILL_TOO_LATE"


async def test_a_past_may_end(engine: Engine) -> None:
    await office(engine)
    events = [*PAST, {"event": "Ship", "occurred_at": LONG_AGO + timedelta(days=3)}]
    done = await engine.backfill("prod", "order", "O-1", events)
    assert (done.to_state, (await engine.get(done.instance)).status) == ("Shipped", "completed")


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([], "BACKFILL_INVALID"),
        ([7], "BACKFILL_INVALID"),
        ([{"event": 1001}], "BACKFILL_INVALID"),
        ([{"event": 1001, "occurred_at": "soon"}], "BACKFILL_INVALID"),
        ([{"event": 1001, "occurred_at": LONG_AGO, "when": 1}], "BACKFILL_INVALID"),
        ([*reversed(PAST)], "BACKFILL_INVALID"),
        ([{"event": "Fly", "occurred_at": LONG_AGO}], "EVENT_UNKNOWN"),
        ([PAST[0], {"event": "Ship", "occurred_at": LONG_AGO}], "BACKFILL_NOT_APPLICABLE"),
        ([PAST[0]] * 1_001, "BACKFILL_INVALID"),
    ],
)
async def test_a_past_that_cannot_be_is_refused_whole(engine: Engine, events: list[Any], code: str) -> None:
    await office(engine)
    with pytest.raises(HoldfastError) as caught:
        await engine.backfill("prod", "order", "O-1", events)
    assert caught.value.code == code
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(0,)]
