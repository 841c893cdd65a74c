"""The order of the queue: priority first, waiting makes up for it, and equals go in the order they came."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
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
    instance,
    later,
    new,
    new_id,
    opened,
    read_now,
    visit,
)
from store_fill import HISTORY, QUEUES, WORKER, define, fill, stop_autovacuum
from store_plans import buffers, measure, pin

from holdfast.core.model.state import Instance
from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import HoldfastError
from holdfast.store.admin.connection import statement
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import Session
from holdfast.store.queue import work as queue
from holdfast.store.queue.work import CENTURY, POINT, ripe_at, weight_of_a_point
from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

Db = psycopg.Connection[Any]
SECOND = 1_000_000
QUEUED = {"short": 100_000, "long": 1_000_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
OFF = weight_of_a_point(None)


@pytest.fixture
async def session(holdfast_dsn: str, db: Db) -> AsyncIterator[Session]:
    for worker in (ME, OTHER):
        db.execute(
            "insert into holdfast.workers (id, host, pid, version, queues, started_at, lease_until)"
            " values (%s, 'here', 1, '1', '{main}', clock_timestamp(), clock_timestamp() + interval '1 hour')",
            [uuid.UUID(bytes=worker)],
        )
    async with opened(holdfast_dsn) as session:
        yield session


@pytest.fixture
def db(holdfast_dsn: str) -> Iterator[Db]:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        yield connection


async def enqueue(session: Session, priority: int, ago: float = 0, point: int = POINT) -> Instance:
    """An instance whose one step has waited in the queue for so many seconds."""
    now = await read_now(session) - int(ago * SECOND)
    first = instance(new_id())
    step = visit(first)
    opening = decision(first, opened=[step], dispatches=[dispatch(step, now, priority=priority)])
    await commit(session, batch(now, Entry(first, [opening], new()), leases=lambda _: False, point=point))
    return first


async def claimed(session: Session, count: int, worker: bytes = ME) -> list[bytes]:
    """Who comes first, one by one."""
    found: list[bytes] = []
    for _ in range(count):
        found += [work.instance for work in await queue.claim_work(session, ["main"], 1, worker)]
    return found


async def test_who_has_the_higher_priority_comes_first(session: Session) -> None:
    low, high, usual = [await enqueue(session, priority) for priority in (0, 100, 50)]
    assert await claimed(session, 3) == [high.id, usual.id, low.id]


@pytest.mark.parametrize("point", [POINT, OFF])
async def test_equals_come_in_the_order_they_came(session: Session, point: int) -> None:
    waiting = [await enqueue(session, 50, ago=9 - n, point=point) for n in range(9)]
    assert await claimed(session, 9) == [one.id for one in waiting]


@pytest.mark.parametrize(("waited", "equal"), [(0, 10), (100, 60), (180, 100)])
async def test_waiting_adds_half_a_point_a_second(session: Session, waited: int, equal: int) -> None:
    """After 100 seconds a step of priority 10 stands where one of 60 begins, after 180 where one of 100 does."""
    patient = await enqueue(session, 10, ago=waited + 1)
    newcomer = await enqueue(session, equal)
    assert await claimed(session, 2) == [patient.id, newcomer.id]
    patient = await enqueue(session, 10, ago=waited - 1)
    newcomer = await enqueue(session, equal)
    assert await claimed(session, 2) == [newcomer.id, patient.id]


@pytest.mark.parametrize("aging", [0, None, 0.0])
async def test_without_aging_priority_is_strict(session: Session, aging: float | None) -> None:
    point = weight_of_a_point(aging)
    patient = await enqueue(session, 10, ago=30 * 365 * 86_400, point=point)
    newcomer = await enqueue(session, 11, point=point)
    assert await claimed(session, 2) == [newcomer.id, patient.id]


async def test_a_claim_that_is_given_back_keeps_its_place(session: Session) -> None:
    patient = await enqueue(session, 50, ago=60)
    [work] = await queue.claim_work(session, ["main"], 1, ME)
    newcomer = await enqueue(session, 50)
    await queue.return_claims(session, [(work.instance, work.path, work.fence)], ME)
    assert await claimed(session, 2) == [patient.id, newcomer.id]


async def test_what_a_dead_worker_held_keeps_its_place(session: Session, db: Db) -> None:
    patient = await enqueue(session, 50, ago=60)
    await queue.claim_work(session, ["main"], 1, OTHER)
    newcomer = await enqueue(session, 50)
    db.execute("update holdfast.workers set lease_until = '2000-01-01' where id = %s", [uuid.UUID(bytes=OTHER)])
    freed, [taken] = await queue.reclaim_work(session, 10)
    assert (freed, taken.instance, taken.calls) == (1, patient.id, 1)
    assert await claimed(session, 2) == [patient.id, newcomer.id]


async def test_a_step_that_goes_back_to_the_queue_waits_from_then_on(session: Session) -> None:
    """A retry whose time has come, or the next step of a token: it has not waited for a worker before."""
    again = await enqueue(session, 50, ago=60)
    [work] = await queue.claim_work(session, ["main"], 1, ME)
    other = await enqueue(session, 50, ago=30)
    step, now = visit(again, hop=2), await read_now(session)
    next_one = dispatch(step, now, held=work.fence, fence=work.fence + 1, path=work.path)
    onward = decision(later(again), opened=[step], dispatches=[next_one])
    await commit(session, batch(now, Entry(again, [onward]), leases=lambda _: False))
    assert await claimed(session, 2) == [other.id, again.id]


def test_the_order_is_that_of_effective_priority() -> None:
    """At any moment: `priority + waited * rate`, highest first, without the ceiling of 100."""
    chance = random.Random(7)
    for _ in range(300):
        rate = chance.choice([0.5, 1, 3, 50])
        point = weight_of_a_point(rate)
        waiting = [(chance.randrange(0, 400 * SECOND), chance.randrange(101)) for _ in range(30)]
        moment = 500 * SECOND
        by_ripeness = sorted(waiting, key=lambda w: (ripe_at(w[0], w[1], point), w[0]))
        effective = [priority + (moment - since) / SECOND * rate for since, priority in by_ripeness]
        assert all(before >= after - 1e-6 * rate * 101 for before, after in pairwise(effective))


def test_nobody_who_comes_after_the_bound_overtakes() -> None:
    for rate in (0.1, 0.5, 50):
        point = weight_of_a_point(rate)
        bound = round(100 / rate * SECOND)
        assert ripe_at(0, 0, point) == bound
        assert all(ripe_at(bound + 1, priority, point) > ripe_at(0, 0, point) for priority in range(101))


def test_the_slowest_aging_still_fits_a_timestamp() -> None:
    assert weight_of_a_point(1e-12) == weight_of_a_point(0) == CENTURY
    assert weight_of_a_point(1_000_000) == 1
    for impossible in (-1, float("nan"), float("inf")):
        with pytest.raises(HoldfastError) as refused:
            weight_of_a_point(impossible)
        assert refused.value.code == "SETTING_INVALID"


async def test_the_furthest_moment_can_be_stored(session: Session, db: Db) -> None:
    now = await read_now(session)
    await enqueue(session, 0, point=OFF)
    row = db.execute("select extract(year from ripe_at)::int from holdfast.work").fetchone()
    assert row is not None
    assert row[0] > 10_000
    assert from_datetime(db.execute("select clock_timestamp()").fetchone()[0]) >= now  # type: ignore[index]


@pytest.mark.parametrize("priority", [0, 50, 100])
async def test_the_doctor_knows_how_long_strict_work_has_waited(session: Session, db: Db, priority: int) -> None:
    await enqueue(session, priority, ago=120, point=OFF)
    [(queue_name, age, _)] = db.execute(statement("doctor", "read_oldest_work")).fetchall()
    assert (queue_name, age) == ("main", pytest.approx(120, abs=30))


def test_a_claim_touches_as_many_pages_whatever_is_queued(holdfast_server: str) -> None:
    pages = {size: _pages_of_a_claim(holdfast_server, size) for size in (1_000, QUEUED)}
    assert pages[QUEUED] <= 1.5 * pages[1_000], pages


def _pages_of_a_claim(server: str, queued: int) -> int:
    with (
        copied_database(server) as database,
        psycopg.connect(database.dsn, autocommit=True, prepare_threshold=None) as db,
    ):
        stop_autovacuum(db)
        define(db)
        fill(db, HISTORY, 2_000)
        fill(db, {"work": QUEUES["work"]}, queued)
        db.execute(  # priorities from 0 to 100, mixed
            "update holdfast.work"
            " set ripe_at = ripe_at + mod(abs(hashtext(instance_id::text)), 101) * interval '2 seconds'"
        )
        db.execute("vacuum analyze holdfast.work")
        with db.transaction(force_rollback=True):
            pin(db)
            return buffers(measure(db, "claim_work", [["main"], 100, WORKER]))
