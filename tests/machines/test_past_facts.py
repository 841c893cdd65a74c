"""The past of a consumer: given in order, in steps of any worker, with nothing lost, doubled or overtaken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from machine_rows import Db, add_fact, close, told
from machine_store import claim, fill, now, register

from holdfast.core.model.timestamps import from_datetime
from holdfast.store import consumers
from holdfast.store.consumers import NewConsumer
from holdfast.store.pg.session import Session

pytestmark = pytest.mark.anyio

BEGINNING = from_datetime(datetime(2000, 1, 1, tzinfo=UTC))


async def begin(session: Session, since: int | None = BEGINNING) -> consumers.KnownConsumer:
    new = NewConsumer(environment="prod", name="billing", way="pull", since=since)
    return await consumers.register(session, "default", new)


async def step(session: Session, page: int = 3) -> bool:
    [one] = await consumers.list_filling(session)
    led, _ = await consumers.step(session, one, page)
    return led


@pytest.mark.parametrize("page", [1, 3, 100])
async def test_since_the_beginning_gives_all_facts_in_order(session: Session, db: Db, page: int) -> None:
    for seq in (1, 2, 3):
        for instance in (1, 2):
            add_fact(db, instance, seq)
    billing = await begin(session)
    assert billing.is_held
    await fill(session, page)
    for seq in (1, 2, 3):
        sent = await claim(session, billing)
        assert [c.seq for c in sent] == [seq, seq]
        for one in sent:
            close(db, UUID(bytes=one.key.fact.fact))
    assert await claim(session, billing) == []


async def test_since_a_moment_gives_facts_from_then_on(session: Session, db: Db) -> None:
    add_fact(db, 1, 1)
    moment = now(db)
    add_fact(db, 1, 2)
    billing = await begin(session, from_datetime(moment))
    await fill(session)
    assert [c.seq for c in await claim(session, billing)] == [2]


async def test_since_now_gives_nothing_of_the_past(session: Session, db: Db) -> None:
    add_fact(db, 1, 1)
    await register(session)
    assert told(db, "billing") == []


async def test_a_fact_committed_while_it_is_filled_waits_for_older_ones(session: Session, db: Db) -> None:
    for seq in (1, 2, 3, 4):
        add_fact(db, 1, seq)
    billing = await begin(session)
    await step(session)  # nobody writes
    assert await step(session)  # the first page
    add_fact(db, 1, 5)
    add_fact(db, 2, 1)  # an instance of its own, but a head as long as the consumer is held
    assert not any(row[5] for row in told(db, "billing"))
    assert await claim(session, billing) == []
    await fill(session, 3)
    assert [row[:2] for row in told(db, "billing")] == [("V-1", n) for n in (1, 2, 3, 4, 5)] + [("V-2", 1)]
    assert [c.seq for c in await claim(session, billing)] == [1, 1]


async def test_a_commit_that_began_before_the_registration_is_waited_for(
    session: Session, db: Db, holdfast_dsn: str
) -> None:
    """Its facts are neither lost nor doubled, although it has not seen the consumer."""
    with psycopg.connect(holdfast_dsn) as late:
        late.execute("lock table holdfast.ack_consumers in row exclusive mode")  # as an insert that found no consumer
        add_fact(late, 1, 1, delivered=False)
        billing = await begin(session)
        assert await step(session)  # it is noted
        assert not await step(session)
        late.commit()
    assert await step(session)
    await fill(session)
    assert [c.seq for c in await claim(session, billing)] == [1]


async def test_a_commit_that_saw_it_held_is_waited_for(session: Session, db: Db, holdfast_dsn: str) -> None:
    """It made nothing due, and nobody else would."""
    billing = await begin(session)
    assert await step(session)  # nobody writes
    with psycopg.connect(holdfast_dsn) as late:
        late.execute("select")  # a transaction from here on
        add_fact(late, 1, 1)
        assert await step(session)  # the last page, which lets go
        [one] = await consumers.list_filling(session)
        assert one.filled_to is None
        assert await step(session)  # it is noted
        assert not await step(session)
        late.commit()
    await fill(session)
    assert [c.seq for c in await claim(session, billing)] == [1]


async def test_several_workers_fill_one_consumer(session: Session, db: Db) -> None:
    for seq in range(1, 8):
        add_fact(db, 1, seq)
    await begin(session)
    await step(session)
    [one] = await consumers.list_filling(session)
    assert (await consumers.step(session, one, 3))[0]
    assert not (await consumers.step(session, one, 3))[0]  # based on what is no longer so
    await fill(session, 3)
    assert [row[1] for row in told(db, "billing")] == list(range(1, 8))


async def test_a_removed_consumer_that_comes_back_misses_what_was_between(session: Session, db: Db) -> None:
    billing = await register(session)
    add_fact(db, 1, 1)
    await consumers.remove(session, "default", "prod", "billing", None)
    await fill(session)
    add_fact(db, 1, 2)
    again = await register(session)
    assert again.id == billing.id
    add_fact(db, 1, 3)
    assert [row[1:4] for row in told(db, "billing")] == [(1, 0, "abandoned"), (3, 0, "pending")]


async def test_a_replay_gives_facts_again_in_order(session: Session, db: Db) -> None:
    billing = await register(session)
    facts = [add_fact(db, 1, seq) for seq in (1, 2, 3)]
    moment = now(db)
    for fact in facts[:2]:
        await claim(session, billing)
        close(db, fact)
    [third] = await claim(session, billing)
    assert third.seq == 3
    assert await consumers.replay(session, billing.id, from_datetime(moment - timedelta(days=1)), None)
    await fill(session, 2)
    assert told(db, "billing") == [
        ("V-1", 1, 0, "pending", 1, True), ("V-1", 2, 0, "pending", 1, False), ("V-1", 3, 0, "pending", 1, False)
    ]  # fmt: skip
    assert [(c.seq, c.attempt) for c in await claim(session, billing)] == [(1, 2)]
