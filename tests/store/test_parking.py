"""Work that waits for a moment outside its queue."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from store_batches import ME, OTHER
from test_queue import Db, claim, db, enqueue, session

from holdfast.store.pg.session import Session
from holdfast.store.queue import work as queue
from holdfast.store.queue.work import park_work
from holdfast.testing import shift

__all__ = ["db", "session"]

pytestmark = pytest.mark.anyio

QUEUES = ["main"]


def calls(db: Db) -> list[int]:
    return [row[0] for row in db.execute("select calls from holdfast.steps order by instance_id").fetchall()]


async def test_parked_work_is_in_no_queue_until_its_moment(session: Session, db: Db, holdfast_dsn: str) -> None:
    await enqueue(session, 1)
    [work] = await claim(session)
    assert calls(db) == [1]
    await park_work(session, [(work.instance, work.path, work.fence, 60.0)], ME)
    assert calls(db) == [0]
    assert await queue.reclaim_work(session, 100) == (0, [])
    assert await claim(session) == []
    assert not await queue.is_anything_left(session, QUEUES, ME)
    due = await queue.read_next_due(session)
    assert due is not None
    assert 59 < due < 61

    shift(holdfast_dsn, timedelta(seconds=61))
    assert await queue.is_anything_left(session, QUEUES, ME)
    assert await queue.reclaim_work(session, 100) == (1, [])  # no takeover
    assert await queue.read_next_due(session) is None
    [again] = await claim(session)
    assert (again.instance, again.calls) == (work.instance, 1)
    assert again.fence > work.fence


async def test_parked_work_keeps_its_age(session: Session, db: Db) -> None:
    [old] = await enqueue(session, 1, ago=100)
    [work] = await claim(session)
    await park_work(session, [(work.instance, work.path, work.fence, 0.0)], ME)
    await enqueue(session, 3)
    await queue.reclaim_work(session, 100)
    assert (await claim(session, 1))[0].instance == old.id


async def test_only_the_holder_parks_and_only_under_its_fence(session: Session, db: Db) -> None:
    await enqueue(session, 1)
    [work] = await claim(session)
    await park_work(session, [(work.instance, work.path, work.fence, 60.0)], OTHER)
    await park_work(session, [(work.instance, work.path, work.fence - 1, 60.0)], ME)
    assert db.execute("select worker, queue from holdfast.work").fetchall() == [(UUID(bytes=ME), "main")]
    assert calls(db) == [1]


@pytest.mark.parametrize("reason", ["told to stop", "not to start"])
async def test_what_was_stopped_meanwhile_does_not_wait(session: Session, db: Db, reason: str) -> None:
    await enqueue(session, 1)
    [work] = await claim(session)
    db.execute("update holdfast.work set target = %s", [reason])
    await park_work(session, [(work.instance, work.path, work.fence, 60.0)], ME)
    assert db.execute("select worker, queue, deadline_at from holdfast.work").fetchall() == [(None, reason, None)]
