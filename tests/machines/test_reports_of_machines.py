"""Text 3.5 A, 4.9 and 4.10 on machines: made of a blueprint and a policy, moved by triggers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from machine_graphs import check_of, close_acks, consumer

from holdfast import Engine
from holdfast.runtime.commit.options import Options
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

BLUEPRINT: dict[str, Any] = {
    "name": "vendor",
    "environment": "prod",
    "version": 3,
    "states": [
        {"name": "draft", "is_initial": True},
        {"name": "review"},
        {"name": "timed"},
        {"name": "done", "is_final": True},
    ],
    "events": [
        {"code": 1001, "name": "submit"},
        {"code": 1002, "name": "edit"},
        {"code": 1003, "name": "wait"},
        {"code": 1004, "name": "approve"},
        {"code": 1010, "name": "late"},
    ],
    "transitions": [
        {"from": "draft", "event": "submit", "to": "review"},
        {"from": "draft", "event": "edit", "to": "draft"},
        {"from": "review", "event": "wait", "to": "timed"},
        {"from": "timed", "event": "late", "to": "draft"},
        {"from": "review", "event": "approve", "to": "done"},
    ],
}
POLICY: dict[str, Any] = {
    "for": {"definition": "vendor", "version": 3},
    "timeouts": [{"state": "timed", "timeout": "P2D", "timeout_event": 1010}],
}


@pytest.fixture
async def machines(holdfast_dsn: str) -> Any:
    async with Engine(holdfast_dsn, options=Options(stale_after=300.0)) as engine:
        await engine.import_machine(BLUEPRINT, POLICY)
        consumer(holdfast_dsn, "ledger")
        yield engine


async def send(engine: Engine, *events: str, **more: Any) -> str:
    for event in events:
        done = await engine.trigger("prod", "vendor", "V-1", event, {"sent": event}, by="ann", **more)
        assert done.applied, done
    return str(done.instance)


async def stale(engine: Engine) -> list[tuple[str | None, str]]:
    await engine.drain(timeout=30)
    found = (await engine.notices(code="DEFAULT_STATE_STALE")).items
    return [(notice.consumer, notice.detail["state_name"]) for notice in found]


async def test_the_lifecycle_of_a_machine(machines: Engine) -> None:
    then = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    id = await send(machines, "edit")
    await send(machines, "submit", occurred_at=then)
    await send(machines, "approve")
    document = await machines.lifecycle(id)
    about = document.instance
    assert (about.definition, about.environment, about.blueprint_version) == ("vendor", "prod", 3)
    assert (about.external_ref, about.current_state, about.last_event, about.status) == (
        "V-1",
        "done",
        "approve",
        "completed",
    )
    assert [(e.number, e.from_state, e.to_state, e.event, e.event_code, e.actor) for e in document.entries] == [
        (0, None, "draft", None, None, "ann"),
        (1, "draft", "draft", "edit", 1002, "ann"),
        (2, "draft", "review", "submit", 1001, "ann"),
        (3, "review", "done", "approve", 1004, "ann"),
    ]
    assert [e.payload for e in document.entries[1:]] == [{"sent": e.event} for e in document.entries[1:]]
    assert document.entries[2].occurred_at == then
    assert document.entries[3].occurred_at == document.entries[3].created_at


async def test_entries_have_the_numbers_that_triggers_answer(machines: Engine) -> None:
    for event in ("edit", "edit", "submit"):
        done = await machines.trigger("prod", "vendor", "V-1", event)
        written = await machines.activity(str(done.instance), "Check", status="Open", by="r1")
        assert written.entry == done.lifecycle


async def test_staleness_waits_for_acknowledgements_and_timeouts(machines: Engine) -> None:
    id = await send(machines, "submit")
    await advance(machines, seconds=1000)
    assert await stale(machines) == []  # the fact of the transition is open
    close_acks(machines.dsn)
    await advance(machines, seconds=301)
    assert await stale(machines) == [("ledger", "review")]
    await send(machines, "wait")
    close_acks(machines.dsn)
    await advance(machines, hours=2)
    assert await stale(machines) == [("ledger", "review")]
    await advance(machines, days=2)  # the timeout leads to draft
    await machines.drain(timeout=30)
    close_acks(machines.dsn)
    await advance(machines, seconds=601)
    assert (await stale(machines))[0] == ("ledger", "draft")
    assert check_of(machines.dsn, id) is not None
    await send(machines, "submit", "approve")
    await advance(machines, days=2)
    await machines.drain(timeout=30)
    assert check_of(machines.dsn, id) is None


async def test_a_transition_writes_nothing_for_staleness(machines: Engine) -> None:
    id = await send(machines, "edit")
    before = check_of(machines.dsn, id)
    with psycopg.connect(machines.dsn) as db:
        [(written,)] = db.execute("select xmin::text from holdfast.stale_checks").fetchall()
        await send(machines, "edit", "edit", "submit")
        assert db.execute("select xmin::text from holdfast.stale_checks").fetchall() == [(written,)]
    assert check_of(machines.dsn, id) == before
