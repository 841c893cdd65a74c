"""Work, leases and timers: who gets what, in which order, and what becomes of what was lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from store_batches import (
    ME,
    OTHER,
    batch,
    commit,
    decision,
    dispatch,
    end,
    instance,
    later,
    new,
    new_id,
    opened,
    read_now,
    refused,
    release,
    run,
    visit,
)

from holdfast.core.model.decision import Timer
from holdfast.core.model.ids import timer_id
from holdfast.core.model.state import Instance
from holdfast.core.model.timestamps import from_datetime
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.queue import work as queue
from holdfast.store.queue.work import ClaimedWork
from holdfast.testing import shift

pytestmark = pytest.mark.anyio

Db = psycopg.Connection[Any]
SECOND = 1_000_000


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    async with opened(holdfast_dsn) as session:
        yield session


@pytest.fixture
async def second(holdfast_dsn: str) -> AsyncIterator[Session]:
    """Another process, as far as the database can tell."""
    async with opened(holdfast_dsn) as session:
        yield session


@pytest.fixture
def db(holdfast_dsn: str) -> Iterator[Db]:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        yield connection


async def enqueue(session: Session, count: int = 1, *, ago: float = 0, **changes: Any) -> list[Instance]:
    """Instances with one step each that nobody has claimed, enqueued so many seconds ago."""
    now = await read_now(session) - int(ago * SECOND)
    found: list[Instance] = []
    entries: list[Entry] = []
    for n in range(count):
        first = instance(new_id(n % 256))
        step = visit(first)
        work = dispatch(step, now, **changes)
        entries.append(Entry(first, [decision(first, opened=[step], dispatches=[work])], new()))
        found.append(first)
    await commit(session, batch(now, *entries, leases=lambda _: False))
    return found


async def claim(session: Session, limit: int = 10, queues: Sequence[str] = ("main",), worker: bytes = ME) -> list[Any]:
    with lively(session, worker):
        return await queue.claim_work(session, queues, limit, worker)


@contextmanager
def lively(session: Session, worker: bytes) -> Iterator[None]:
    """The worker's lease is good for the moment, as a claim demands; afterwards it is what it was."""
    id = uuid.UUID(bytes=worker)
    with psycopg.connect(session._connection.info.dsn, autocommit=True) as db:
        before = db.execute("select lease_until from holdfast.workers where id = %s", [id]).fetchone()
        if before is None:
            live(db, worker)
        db.execute("update holdfast.workers set lease_until = clock_timestamp() + interval '1 min' where id = %s", [id])
        yield
        if before is None:
            db.execute("delete from holdfast.workers where id = %s", [id])
        else:
            db.execute("update holdfast.workers set lease_until = %s where id = %s", [before[0], id])


def ids_of(claimed: Sequence[ClaimedWork]) -> list[bytes]:
    return [work.instance for work in claimed]


def live(db: Db, worker: bytes, seconds: float = 60) -> None:
    """A worker whose lease ends in so many seconds; negative: it ended."""
    db.execute(
        "insert into holdfast.workers (id, host, pid, version, queues, started_at, lease_until)"
        " values (%s, 'here', 1, '1', '{main}', clock_timestamp(), clock_timestamp() + %s)",
        [uuid.UUID(bytes=worker), timedelta(seconds=seconds)],
    )


def held(db: Db) -> dict[bytes, tuple[bytes | None, int]]:
    """Who holds the work of each instance, under which fence."""
    found = db.execute("select instance_id, worker, fence from holdfast.work").fetchall()
    return {id.bytes: (None if worker is None else worker.bytes, fence) for id, worker, fence in found}


# Claims


async def test_a_claim_brings_all_that_a_call_needs(session: Session, db: Db) -> None:
    [first] = await enqueue(session, timeout=30.0)
    [work] = await claim(session)
    assert (work.instance, work.path, work.node, work.fence, work.calls, work.hop) == (
        first.id,
        "0",
        "reserve",
        2,
        1,
        1,
    )
    assert (work.definition, work.org, work.input) == (first.definition, "acme", b'{"amount": 5}')
    [row] = db.execute(
        "select w.worker, w.fence, s.fence, s.calls, w.deadline_at between clock_timestamp() and"
        " clock_timestamp() + interval '30 seconds' from holdfast.work w join holdfast.steps s on s.id = w.step_id"
    ).fetchall()
    assert row == (uuid.UUID(bytes=ME), 2, 2, 1, True)


async def test_work_is_claimed_by_priority(session: Session) -> None:
    [low] = await enqueue(session, priority=10)
    [high] = await enqueue(session, priority=90)
    [usual] = await enqueue(session, priority=50)
    found: list[bytes] = []
    for _ in range(3):
        found += ids_of(await claim(session, 1))
    assert found == [high.id, usual.id, low.id]


async def test_waiting_makes_up_for_priority(session: Session) -> None:
    [patient] = await enqueue(session, priority=50, ago=85)
    [urgent] = await enqueue(session, priority=90)
    [recent] = await enqueue(session, priority=50, ago=75)
    found: list[bytes] = []
    for _ in range(3):
        found += ids_of(await claim(session, 1))
    assert found == [patient.id, urgent.id, recent.id]


@pytest.mark.parametrize("queues", [("main",), ("main", "mail"), ("main", "mail", "nothing")])
async def test_a_claim_never_takes_more_than_the_limit(session: Session, db: Db, queues: tuple[str, ...]) -> None:
    await enqueue(session, 20)
    await enqueue(session, 20, queue="mail")
    assert len(await claim(session, 7, queues)) == 7
    assert db.execute("select count(*) from holdfast.work where worker is not null").fetchone() == (7,)


async def test_several_queues_are_served_by_ripeness(session: Session) -> None:
    oldest = await enqueue(session, 3, queue="mail", ago=30)
    middle = await enqueue(session, 3, ago=20)
    await enqueue(session, 3, queue="mail", ago=10)
    claimed = await claim(session, 6, ("main", "mail"))
    assert set(ids_of(claimed)) == {i.id for i in (*oldest, *middle)}


async def test_work_of_other_queues_is_never_in_the_way(session: Session, second: Session) -> None:
    """However much of it there is, however old it is, and whoever holds it locked."""
    await enqueue(session, 2_000, queue="other", ago=3600)
    [mine] = await enqueue(session)
    with lively(second, OTHER):
        await second.run([BEGIN, PIN, SQL.claim_work.arrays([["other"]], 2_000, OTHER)])
    assert ids_of(await claim(session)) == [mine.id]
    await second.run([ROLLBACK])


async def test_concurrent_claims_share_out_the_work(session: Session, second: Session) -> None:
    """The second neither waits for the first nor takes what it has, though nothing is committed yet."""
    everything = {i.id for i in await enqueue(session, 10)}
    with lively(second, OTHER):
        answers = await second.run([BEGIN, PIN, SQL.claim_work.arrays([["main"]], 6, OTHER)])
    theirs = {row[0] for row in rows(answers[2])}
    ours = set(ids_of(await claim(session)))
    await second.run([COMMIT])
    assert len(theirs) == 6
    assert ours == everything - theirs


async def test_claimed_work_is_not_claimed_again(session: Session) -> None:
    await enqueue(session, 3)
    assert len(await claim(session)) == 3
    assert await claim(session) == []


# Giving back


async def test_what_is_given_back_does_not_count_as_a_call(session: Session, db: Db) -> None:
    await enqueue(session)
    [work] = await claim(session)
    await queue.return_claims(session, [(work.instance, work.path, work.fence)], ME)
    assert held(db) == {work.instance: (None, 3)}
    assert db.execute("select calls from holdfast.steps").fetchone() == (0,)
    [again] = await claim(session)
    assert (again.calls, again.fence) == (1, 4)


async def test_only_the_holder_gives_back(session: Session, db: Db) -> None:
    await enqueue(session)
    [work] = await claim(session)
    await queue.return_claims(session, [(work.instance, work.path, work.fence)], OTHER)
    await queue.return_claims(session, [(work.instance, work.path, work.fence - 1)], ME)
    assert held(db) == {work.instance: (ME, work.fence)}
    assert db.execute("select calls from holdfast.steps").fetchone() == (1,)


async def test_a_worker_can_see_all_that_is_leased_to_it(session: Session) -> None:
    await enqueue(session, 3)
    mine = await claim(session, 2)
    await claim(session, 1, worker=OTHER)
    assert sorted(await queue.list_leased(session, ME)) == sorted((w.instance, w.path, w.fence) for w in mine)


@pytest.mark.parametrize("lease", [None, -1])
async def test_a_worker_without_a_lease_claims_nothing(session: Session, db: Db, lease: float | None) -> None:
    """It would use up a call that nobody could make: its results are refused."""
    if lease is not None:
        live(db, ME, lease)
    await enqueue(session)
    assert await queue.claim_work(session, ["main"], 10, ME) == []
    assert len(await claim(session)) == 1


# Recovery


async def test_work_of_a_dead_worker_is_freed_under_a_new_fence(session: Session, db: Db) -> None:
    live(db, ME, -1)
    live(db, OTHER)
    await enqueue(session, 4)
    lost = await claim(session, 2)
    kept = await claim(session, 2, worker=OTHER)
    freed, taken = await queue.reclaim_work(session, 100)
    assert (freed, {(t.instance, t.flow, t.step, t.org, t.calls) for t in taken}) == (
        2, {(w.instance, "order", "reserve", "acme", 1) for w in lost},
    )  # fmt: skip
    after = held(db)
    assert {i: after[i] for i in ids_of(lost)} == {w.instance: (None, w.fence + 1) for w in lost}
    assert {i: after[i] for i in ids_of(kept)} == {w.instance: (OTHER, w.fence) for w in kept}
    assert await queue.reclaim_work(session, 100) == (0, [])


async def test_what_a_dead_worker_brings_late_is_refused(session: Session, db: Db) -> None:
    live(db, ME, -1)
    [first] = await enqueue(session)
    [work] = await claim(session)
    await queue.reclaim_work(session, 100)
    now = await read_now(session)
    after = later(first)
    result = decision(after, closed=[end(visit(first), now, 2)], released=[release(fence=work.fence)])
    await refused(session, batch(now, Entry(first, [result])), "HF001", "delete_work")
    answers = await run(session, [SQL.find_lost_work.rows([(first.id, first.id[15], "0", work.fence)], ME)])
    assert rows(answers[2]) == [[first.id, b"0", work.fence.to_bytes(8, "big")]]


async def test_overdue_work_is_freed_even_if_its_worker_lives(session: Session, db: Db, holdfast_dsn: str) -> None:
    live(db, ME)
    await enqueue(session, 1, timeout=10.0)
    await enqueue(session, 1)
    work = await claim(session)
    assert await queue.reclaim_work(session, 100) == (0, [])
    shift(holdfast_dsn, timedelta(seconds=12))
    assert await queue.reclaim_work(session, 100) == (0, [])  # the worker itself is given a moment to notice
    shift(holdfast_dsn, timedelta(seconds=4))
    freed, [late] = await queue.reclaim_work(session, 100)
    assert (freed, late.step, late.calls) == (1, "reserve", 1)
    assert sorted((worker is None, fence) for worker, fence in held(db).values()) == [(False, 2), (True, 3)]
    assert len(work) == 2


async def test_recovery_takes_no_more_than_it_was_asked_to(session: Session, db: Db) -> None:
    live(db, ME, -1)
    await enqueue(session, 10, timeout=1.0)
    await claim(session)
    freed, taken = await queue.reclaim_work(session, 4)
    assert (freed, len(taken)) == (4, 4)


async def test_freed_work_returns_to_the_queue_of_its_present_step(session: Session, db: Db) -> None:
    live(db, ME, -1)
    [first] = await enqueue(session)
    [work] = await claim(session)
    now = await read_now(session)
    after = later(first)
    following = visit(after, hop=2)
    handed = dispatch(following, now, held=work.fence, fence=work.fence + 1, queue="mail")
    [(opened_at,)] = db.execute("select created_at from holdfast.steps").fetchall()
    closing = end(visit(first), from_datetime(opened_at), 2)
    moved = decision(after, opened=[following], closed=[closing], dispatches=[handed])
    await commit(session, batch(now, Entry(first, [moved])))
    await queue.reclaim_work(session, 100)
    assert await claim(session) == []
    assert ids_of(await claim(session, queues=("mail",))) == [first.id]


# Leases


async def test_a_lease_that_is_good_is_renewed(session: Session, db: Db) -> None:
    live(db, ME, 5)
    answers = await run(session, [SQL.renew_lease.arrays([["main"]], ME, 60.0, b"{}")])
    assert answers[2].ntuples == 1
    assert db.execute("select lease_until > clock_timestamp() + interval '50 s' from holdfast.workers").fetchone() == (
        True,
    )


@pytest.mark.parametrize("how", ["ran out", "stopped", "unknown"])
async def test_a_dead_incarnation_is_never_revived(session: Session, db: Db, how: str) -> None:
    if how != "unknown":
        live(db, ME, -1 if how == "ran out" else 60)
    if how == "stopped":
        await run(session, [SQL.stop_worker.one(ME)])
    answers = await run(session, [SQL.renew_lease.arrays([["main"]], ME, 60.0, b"{}")])
    assert answers[2].ntuples == 0
    assert db.execute("select count(*) from holdfast.workers where lease_until > clock_timestamp()").fetchone() == (0,)


async def test_moving_the_clock_kills_no_lease(session: Session, db: Db, holdfast_dsn: str) -> None:
    live(db, ME)
    await enqueue(session)
    await claim(session)
    shift(holdfast_dsn, timedelta(days=3))
    assert await queue.reclaim_work(session, 100) == (0, [])


async def test_only_workers_that_hold_nothing_are_forgotten(session: Session, db: Db) -> None:
    live(db, ME, -2 * 86_400)
    live(db, OTHER, -2 * 86_400)
    live(db, new_id(), -1)
    await enqueue(session)
    await claim(session)
    await queue.prune_workers(session)
    left = {row[0].bytes for row in db.execute("select id from holdfast.workers")}
    assert len(left) == 2
    assert ME in left
    assert OTHER not in left


# Timers


async def set_timers(session: Session, dues: Sequence[float]) -> Instance:
    """One instance with timers due in so many seconds."""
    now = await read_now(session)
    first = instance()
    timers = [
        Timer(timer_id(first.id, f"w{n}"), "0", f"w{n}", "timer", now + int(due * SECOND)) for n, due in enumerate(dues)
    ]
    await commit(session, batch(now, Entry(first, [decision(first, timers=timers)], new())))
    return first


def fired(db: Db) -> list[str]:
    found = db.execute("select payload ->> 'wait' from holdfast.signals where kind = 'timer' order by ripe_at")
    return [row[0] for row in found]


async def test_due_timers_become_signals_oldest_first(session: Session, db: Db, holdfast_dsn: str) -> None:
    await set_timers(session, [-1, 10, -3, -2])
    assert await queue.fire_timers(session, 2) == 2
    assert fired(db) == ["w2", "w3"]
    assert await queue.fire_timers(session, 10) == 1
    assert await queue.fire_timers(session, 10) == 0
    shift(holdfast_dsn, timedelta(seconds=10))
    assert await queue.fire_timers(session, 10) == 1
    assert fired(db) == ["w2", "w3", "w0", "w1"]


async def test_a_timer_fires_once_however_many_look(session: Session, second: Session, db: Db) -> None:
    await set_timers(session, [-1] * 500)

    async def look(by: Session) -> int:
        total = 0
        while found := await queue.fire_timers(by, 20):
            total += found
        return total

    totals = await asyncio.gather(look(session), look(second))
    rest = await queue.fire_timers(session, 500)  # of what one skipped because the other had it locked
    assert sum(totals) + rest == 500
    assert len(set(fired(db))) == 500


async def test_a_timer_that_is_being_fired_is_not_waited_for(session: Session, second: Session, db: Db) -> None:
    await set_timers(session, [-2, -1])
    await second.run([BEGIN, PIN, SQL.fire_timers.one(1)])
    assert await queue.fire_timers(session, 10) == 1
    await second.run([ROLLBACK])
    assert await queue.fire_timers(session, 10) == 1
    assert fired(db) == ["w0", "w1"]


async def test_a_timer_set_again_moves(session: Session, db: Db) -> None:
    first = await set_timers(session, [100])
    now = await read_now(session)
    again = Timer(timer_id(first.id, "w0"), "0", "w0", "timer", now - 1)
    await commit(session, batch(now, Entry(first, [decision(later(first), timers=[again])])))
    assert await queue.fire_timers(session, 10) == 1
    assert db.execute("select count(*) from holdfast.timers").fetchone() == (0,)


async def test_the_next_due_time_is_known(session: Session) -> None:
    assert await queue.read_next_due(session) is None
    await set_timers(session, [30, 20])
    due = await queue.read_next_due(session)
    assert due is not None
    assert 15 < due <= 20
    await set_timers(session, [-5])
    overdue = await queue.read_next_due(session)
    assert overdue is not None
    assert overdue < 0


# What is left


async def test_a_drain_ends_when_nothing_is_left(session: Session, db: Db) -> None:
    async def left(worker: bytes = ME, queues: Sequence[str] = ("main",)) -> bool:
        return await queue.is_anything_left(session, queues, worker)

    assert not await left()
    await enqueue(session)
    assert await left()
    assert not await left(queues=("mail",))  # nothing that these queues could do
    await claim(session)
    assert await left()
    assert not await left(OTHER)
    db.execute("delete from holdfast.work")
    await set_timers(session, [100])
    assert not await left()
    await set_timers(session, [-1])
    assert await left()
    await queue.fire_timers(session, 10)
    assert await left()
    db.execute("delete from holdfast.signals")
    assert not await left()
