"""Who started an instance, and with which request: known wherever a snapshot is read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from store_batches import batch, commit, decision, instance, opened, read_now

from holdfast.core.model.state import Instance
from holdfast.store.commit.locks import lock
from holdfast.store.commit.rows import Entry, NewInstance
from holdfast.store.pg.session import ROLLBACK, Session
from holdfast.store.reads.snapshots import list_unfinished, read_snapshots

pytestmark = pytest.mark.anyio

TOLD = NewInstance(b"{}", None, b'{"partition_id": "eu", "correlation_id": "c-1", "customer": 7}', "ann")
UNTOLD = NewInstance(b"{}")


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    async with opened(holdfast_dsn) as found:
        yield found


def said(found: object) -> tuple[str | None, str | None, str | None]:
    assert isinstance(found, Instance)
    return found.starter, found.partition, found.correlation


@pytest.mark.parametrize(("new", "facts"), [(TOLD, ("ann", "eu", "c-1")), (UNTOLD, (None, None, None))])
async def test_a_snapshot_tells_who_started_it(
    session: Session, new: NewInstance, facts: tuple[str | None, str | None, str | None]
) -> None:
    one = instance()
    now = await read_now(session)
    await commit(session, batch(now, Entry(one, [decision(one)], new)))
    locked = await lock(session, [(one.id, None)], 0)
    await session.run([ROLLBACK])
    read = await read_snapshots(session, one.org, [one.id])
    listed = await list_unfinished(session, one.org, one.flow, None, None, None, 5)
    for found in (locked.instances[one.id], read[one.id], listed[one.id]):
        assert said(found) == facts
        assert isinstance(found, Instance)
        assert found.updated == now
