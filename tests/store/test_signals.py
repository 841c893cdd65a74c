"""Queued signals: which instances a claim takes on, and who may change what is queued for an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from store_batches import ME, batch, commit, decision, instance, new, new_id, opened, read_now

from holdfast.core.model.state import Instance
from holdfast.store.commit.locks import SIGNALS_PER_INSTANCE, lock
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

pytestmark = pytest.mark.anyio

CROWD = 300  # signals of one instance, more than a claim takes on


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    async with opened(holdfast_dsn) as session:
        yield session


@pytest.fixture
async def second(holdfast_dsn: str) -> AsyncIterator[Session]:
    """Another process, as far as the database can tell."""
    async with opened(holdfast_dsn) as session:
        yield session


async def stored(session: Session, count: int) -> list[Instance]:
    found = [instance(new_id(n % 256)) for n in range(count)]
    await commit(session, batch(await read_now(session), *(Entry(one, [decision(one)], new()) for one in found)))
    return found


async def send(session: Session, to: Sequence[Instance], at: int) -> list[bytes]:
    """A signal to each, all sent at one moment; their ids."""
    signals = [new_id(one.id[15]) for one in to]
    batch_of = [(i.id, i.id[15], id, i.org, "event", b"{}", None) for i, id in zip(to, signals, strict=True)]
    await session.once(PIN, SQL.insert_signals.rows(batch_of, at))
    return signals


async def test_many_signals_of_one_instance_leave_room_for_the_others(session: Session) -> None:
    busy, *others = await stored(session, 200)
    now = await read_now(session)
    await send(session, [busy] * CROWD, now - 1000)  # all of them older
    await send(session, others, now)
    locked = await lock(session, [], 256)
    await session.run([ROLLBACK])
    assert set(locked.instances) == {one.id for one in (busy, *others)}
    assert (locked.claimed, locked.has_more) == (200, True)
    assert sum(s.instance == busy.id for s in locked.signals) == SIGNALS_PER_INSTANCE
    assert sum(s.instance != busy.id for s in locked.signals) == len(others)


async def test_a_claim_takes_the_instances_that_have_waited_longest(session: Session, second: Session) -> None:
    members = await stored(session, 6)
    now = await read_now(session)
    for age, one in enumerate(members):
        await send(session, [one], now - age)
        await send(session, [one], now + age)  # a younger one does not count
    oldest_first = [one.id for one in reversed(members)]
    mine = await lock(session, [], 2)
    theirs = await lock(second, [], 3)  # goes on behind what is taken
    await session.run([ROLLBACK])
    await second.run([ROLLBACK])
    assert [list(mine.instances), list(theirs.instances)] == [oldest_first[:2], oldest_first[2:5]]
    assert (mine.has_more, theirs.has_more) == (True, True)
    rest = await lock(session, [], 7)
    await session.run([ROLLBACK])
    assert (rest.claimed, rest.has_more) == (6, False)


async def test_whoever_has_the_instance_has_its_signals(session: Session, second: Session) -> None:
    """Nobody else counts or buries one meanwhile, so none is missing from those that are read in their order."""
    [one] = await stored(session, 1)
    now = await read_now(session)
    [first], [younger] = await send(session, [one], now), await send(session, [one], now + 1)
    count = SQL.count_attempts.rows([(one.id, one.id[15], first, "a defect", 1)])
    bury = SQL.bury_signals.rows([(one.id, one.id[15], first, "DEFECT", b"{}", 0)], ME)
    locked = await lock(session, [], 5)
    for change in (count, bury):
        assert await alone(second, change) == []
    assert [s.id for s in locked.signals] == [first, younger]
    await session.run([ROLLBACK])
    [counted] = await alone(second, count)
    assert (counted[1], read_int(counted[2])) == (first, 1)
    locked = await lock(session, [], 5)
    assert [(s.id, s.attempts) for s in locked.signals] == [(first, 1), (younger, 0)]  # it has kept its place
    [buried] = await session.run([bury])  # with the lock, in the commit itself
    assert buried.ntuples == 1
    await session.run([ROLLBACK])


async def alone(session: Session, change: Query) -> list[list[bytes]]:
    answers = await session.run([BEGIN, PIN, change, COMMIT])
    return rows(answers[2])
