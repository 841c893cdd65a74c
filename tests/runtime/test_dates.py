"""Dates of an instance never go back: not by a wrong estimate, not by a clock that was set back, in no batch."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from letters import counter, send

from holdfast import Context, DoNotRetry, Engine, Flow, Undo
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.runtime.commit.clock import DatabaseClock
from holdfast.runtime.reads.timeline import read_timeline
from holdfast.store.commit.locks import MOMENT, Locked, dates
from holdfast.store.pg.session import Session
from holdfast.store.pg.statements import SQL
from holdfast.store.reads.instances import Step
from holdfast.store.reads.positions import read_past
from holdfast.store.reads.steps import place_of
from running import Evidence, until

HOUR = 3_600_000_000
PUT_AHEAD = """
    update holdfast.instances set version = version + 1, updated_at = updated_at + %s::interval
    where id = %s returning 1
"""
BACKWARDS = """
    with u as (update holdfast.events set created_at = created_at - version * interval '1 second' returning 1)
    select count(*) from u
"""
pytestmark = pytest.mark.anyio


async def do(ctx: Context, data: object) -> None:
    pass


async def break_off(ctx: Context, data: object) -> None:
    raise DoNotRetry("no")


async def in_order(engine: Engine, id: str) -> None:
    """Dates, pages and whole lists tell one story, and it ends with the end."""
    events, steps = await engine.events(id), await engine.steps(id, all=True)
    assert [e.created_at for e in events] == sorted(e.created_at for e in events)
    assert [s.created_at for s in steps] == sorted(s.created_at for s in steps)
    assert all(s.closed_at is None or s.closed_at >= s.created_at for s in steps)
    assert await engine.events(id, limit=1000) == events
    assert [s.id for s in await engine.steps(id, limit=1000)] == [s.id for s in steps]
    assert events[-1].type.startswith("instance_")


@pytest.mark.parametrize("behind", [500_000, 60_000_000])
async def test_no_commit_is_dated_before_the_one_it_follows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """Every second look at the clock is behind: what a process whose estimate is wrong would do."""
    engine.register("do", do)
    engine.register("break_off", break_off)
    forward, back = Flow("forward"), Flow("back")
    for n in range(6):
        forward = forward.step(f"s{n}", "do")
        back = back.step(f"s{n}", "do", undo=Undo("do", name=f"u{n}"))
    await engine.publish(forward.build())
    await engine.publish(back.step("last", "break_off").build())
    looks, true = count(), DatabaseClock.now
    monkeypatch.setattr(DatabaseClock, "now", lambda clock: true(clock) - behind * (next(looks) // 2 % 2))
    async with engine.worker():
        ids = [(await engine.start(name, {})).id for name in ("forward", "back") for _ in range(10)]
        for id in ids:
            await engine.wait(id, timeout=30)
    assert next(looks) > 20, "the estimate was used"
    for id in ids:
        await in_order(engine, id)


async def test_one_that_is_far_ahead_takes_no_other_along(engine: Engine, evidence: Evidence) -> None:
    """As after a takeover by a standby whose clock is behind: its neighbours in the batch have the date of today."""
    flow = Flow("waits").wait_event("first", "go").wait_event("second", "go").build()
    await engine.publish(flow)
    ids = [(await engine.start("waits", {})).id for _ in range(6)]
    await engine.drain(timeout=30)
    ahead = {ids[1]: "1 hour", ids[2]: "1 hour 1 millisecond", ids[4]: "1 day"}
    before = {id: await last_change(engine, id) for id in ids}
    for id, by in ahead.items():
        evidence.ask(PUT_AHEAD, by, id)
    held = {UUID(id).bytes for id in ids}
    engine.committer.hold(Locked(0, {}, {}, [], 0), held)  # until all have come, however slowly
    commits = engine.stats().commits
    sent = [asyncio.create_task(engine.signal(id, "go")) for id in ids]
    await until(lambda: len(engine.committer.buffer) == len(sent))
    engine.committer.release(held)
    answers = await asyncio.gather(*sent)
    assert engine.stats().commits == commits + 1, "one commit for all"
    hours = {id: round((await last_change(engine, id) - before[id]).total_seconds() / 3600) for id in ids}
    assert hours == {ids[0]: 0, ids[1]: 1, ids[2]: 1, ids[3]: 0, ids[4]: 24, ids[5]: 0}
    assert [a.updated_at for a in answers] == [(await engine.get(id)).updated_at for id in ids]
    for id in ids:
        await engine.signal(id, "go")
        assert (await engine.get(id)).status == "completed"
        await in_order(engine, id)


async def test_commits_of_one_moment_are_told_in_the_order_they_were_made(engine: Engine, evidence: Evidence) -> None:
    """Planted: a whole life in one microsecond, and then, for the trail, backwards."""
    engine.register("do", do)
    flow = Flow("one")
    for n in range(12):
        flow = flow.step(f"s{n}", "do")
    await engine.publish(flow.wait_event("nearly", "go").step("last", "do").build())
    async with engine.worker():
        id = (await engine.start("one", {})).id
        await engine.drain(timeout=30)
        await engine.signal(id, "go")
        await engine.wait(id, timeout=30)
    events, steps, story = await engine.events(id), await engine.steps(id, all=True), await told(engine, id)
    assert [s.name for s in steps][:-1] == [*(f"s{n}" for n in range(12)), "nearly", "last"]
    evidence.ask("select set_config('session_replication_role', 'replica', false)")  # no guard, no partition moves
    at = steps[0].created_at
    for table in ("steps", "events"):
        evidence.ask(f"with u as (update holdfast.{table} set created_at = %s returning 1) select count(*) from u", at)
    assert [s.id for s in await engine.steps(id, all=True)] == [s.id for s in steps]
    pages = [step for page in await paged(engine.steps, id) for step in page]
    assert [s.id for s in pages] == [s.id for s in steps]
    assert [s.id for s in await last_steps(engine, id, 3)] == [s.id for s in steps[-3:]]
    assert await told(engine, id) == story
    for turned in (False, True):
        if turned:
            evidence.ask(BACKWARDS)
        assert [(e.version, e.ordinal) for e in await engine.events(id)] == [(e.version, e.ordinal) for e in events]
        pages = [event for page in await paged(engine.events, id) for event in page]
        assert [(e.version, e.ordinal) for e in pages] == [(e.version, e.ordinal) for e in events]


async def told(engine: Engine, id: str) -> list[tuple[str, str]]:
    entries, _ = await read_timeline(engine, id)
    return [(entry.kind, entry.name) for entry in entries]


async def paged(read: Any, id: str) -> list[list[Any]]:
    pages = [await read(id, limit=3)]
    while pages[-1]:
        pages.append(await read(id, after=place_of(pages[-1][-1]), limit=3))
    return pages


async def last_steps(engine: Engine, id: str, most: int) -> list[Step]:
    session = await Session.open(engine.dsn)
    try:
        found = await read_past(session, engine.org, UUID(id).bytes, most)
    finally:
        await session.close()
    assert found is not None
    return found[1]


async def last_change(engine: Engine, id: str) -> datetime:
    found = (await engine.get(id)).updated_at
    assert found is not None
    return found


def instance(updated: int) -> Instance:
    return Instance(uuid4().bytes, "o", uuid4().bytes, "f", 1, 1, InstanceStatus.RUNNING, EMPTY, b"{}", updated=updated)


def test_a_commit_is_dated_by_the_clock_or_by_the_last_change_that_is_a_moment_ahead() -> None:
    assert dates(HOUR, []) == (HOUR, {})
    assert dates(HOUR, [instance(HOUR - 1), instance(0)]) == (HOUR, {})
    assert dates(HOUR, [instance(HOUR + 3), instance(HOUR + 2)]) == (HOUR + 3, {})
    assert dates(HOUR, [instance(HOUR + MOMENT)]) == (HOUR + MOMENT, {})


def test_those_further_ahead_have_dates_of_their_own_and_never_drive_each_other_on() -> None:
    far = [instance(2 * HOUR + n * MOMENT // 2) for n in range(6)]
    now, ahead = dates(HOUR, [instance(HOUR + 5), *far])
    assert now == HOUR + 5
    assert all(0 <= ahead[i.id] - i.updated <= MOMENT for i in far)
    assert len(set(ahead.values())) == 2
    assert max(ahead.values()) == max(i.updated for i in far)


# --- beside the commits -----------------------------------------------------------------------------------------------


async def put_ahead(engine: Engine, evidence: Evidence, id: str) -> datetime:
    """As after a takeover by a standby whose clock is an hour behind."""
    evidence.ask(PUT_AHEAD, "1 hour", id)
    return await last_change(engine, id)


async def test_lines_about_letters_are_not_dated_before_the_last_commit(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    date = await put_ahead(engine, evidence, id)
    send(evidence, id, "nothing_like_that")
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    await engine.requeue(letter.id, by="ann", reason="seen")
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    await engine.discard_dead_letters([letter.id], by="ann", reason="seen")
    told = [e for e in await engine.events(id) if "dead_letter" in e.type]
    assert {e.type for e in told} == {"signal_dead_lettered", "dead_letter_replayed", "dead_letter_discarded"}
    assert all(e.created_at >= date for e in told)


async def test_lines_about_effects_are_not_dated_before_the_last_commit(engine: Engine, evidence: Evidence) -> None:
    dates_seen: list[datetime] = []

    async def tell(ctx: Any, data: Any) -> None:
        dates_seen.append(await put_ahead(engine, evidence, ctx.instance))
        if ctx.attempt == 1:
            raise ValueError("again")

    engine.register_effect("tell", tell)
    nodes = [{"id": "tell", "kind": "effect", "handler": "tell", "retry": {"calls": 2}}, {"id": "end", "kind": "end"}]
    edges = [{"id": "out", "source": "tell", "target": "end"}]
    await engine.publish({"name": "telling", "entry": "tell", "nodes": nodes, "edges": edges})
    id = (await engine.start("telling")).id
    await engine.drain(timeout=30)
    told = {e.type: e.created_at for e in await engine.events(id)}
    assert told["effect_failed"] >= dates_seen[0]
    assert told["effect_delivered"] >= dates_seen[1]


async def test_the_history_of_a_task_never_goes_back(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(Flow("asks").wait_event("first", "go").human("approve", roles=["board"]).build())
    id = (await engine.start("asks")).id
    await engine.drain(timeout=30)
    date = await put_ahead(engine, evidence, id)
    await engine.signal(id, "go")
    [task] = await engine.tasks(id)
    await engine.claim(task.id, by="ann", roles=["board"])
    evidence.ask(
        "update holdfast.tasks set updated_at = updated_at + interval '1 day', version = version + 1 returning 1"
    )
    await engine.decide(task.id, by="ann", decision="confirmed", roles=["board"])
    history = [(e.type, e.created_at) for e in await engine.task_events(task.id)]
    assert [type for type, _ in history] == ["created", "claimed", "completed"]
    moments = [moment for _, moment in history]
    assert moments == sorted(moments)
    assert moments[0] >= date
    assert moments[2] - moments[1] >= timedelta(days=1)


def test_every_line_that_is_written_beside_a_commit_asks_for_the_last_one() -> None:
    """Those of a commit carry its date; all others compare their clock with the instance's."""
    beside = {
        name
        for name, statement in SQL.all.items()
        if b"insert into holdfast.events" in statement.sql
        and (b"holdfast.clock()" in statement.sql or b"date_beside" in statement.sql)
    }
    assert {"note_events", "finish_effects", "bury_signals", "bury_work", "replay_work"} <= beside
    assert {n for n in beside if b"holdfast.date_beside(" not in SQL.all[n].sql} == set()
