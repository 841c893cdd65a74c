"""Claims of due facts: in order, counted, within limits, and without the consumer that is down."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from machine_rows import Db, add_fact, close, told
from machine_store import DELIVERED, PENDING, claim, now, register

from holdfast.core.model.timestamps import from_datetime
from holdfast.store import consumers, deliveries
from holdfast.store.pg.session import Session
from holdfast.testing import shift

pytestmark = pytest.mark.anyio


async def test_5_8_nothing_is_sent_while_something_earlier_is_open(session: Session, db: Db) -> None:
    billing = await register(session)
    first, _ = add_fact(db, 1, 1), add_fact(db, 1, 2)
    other = add_fact(db, 2, 1)
    assert {c.key.fact.fact for c in await claim(session, billing)} == {first.bytes, other.bytes}
    assert await claim(session, billing) == []
    close(db, first)
    [second] = await claim(session, billing)
    assert (second.seq, second.attempt, second.over) == (2, 1, None)


async def test_5_8_hooks_of_one_phase_go_out_together_in_order(session: Session, db: Db) -> None:
    billing = await register(session)
    add_fact(db, 1, 1)
    for ordinal in (2, 1):
        add_fact(db, 1, 1, ordinal=ordinal, kind="hook", type="gate", code=f"HOOK.{ordinal}")
    assert [c.ordinal for c in await claim(session, billing)] == [0, 2, 1]  # commits of their own


async def test_5_5_every_consumer_has_a_record_and_only_the_asked_one_is_sent_to(session: Session, db: Db) -> None:
    billing, audit = await register(session), await register(session, "audit")
    add_fact(db, 1, 1)
    assert len(await claim(session, billing)) == 1
    assert told(db, "audit") == [("V-1", 1, 0, "pending", 0, True)]  # down: no write, no attempt
    assert len(await claim(session, audit)) == 1


async def test_3_5_b_what_is_not_answered_is_sent_again_alike(session: Session, db: Db, holdfast_dsn: str) -> None:
    billing = await register(session)
    fact = add_fact(db, 1, 1)
    [first] = await claim(session, billing)
    shift(holdfast_dsn, timedelta(seconds=39))
    assert await claim(session, billing) == []
    shift(holdfast_dsn, timedelta(seconds=2))
    [again] = await claim(session, billing)
    assert (again.key, again.body, again.attempt) == (first.key, first.body, 2)
    [notice] = db.execute("select code, kind, consumer, detail from holdfast.notices").fetchall()
    assert notice == ("ACK_RETRY", "warn", "billing", {"ack_guid": str(fact), "attempt": 2, "most": 10})


async def test_3_4_delivered_waits_four_minutes_and_a_late_one_changes_nothing(
    session: Session, db: Db, holdfast_dsn: str
) -> None:
    billing = await register(session)
    fact = add_fact(db, 1, 1)
    [first] = await claim(session, billing)
    assert await deliveries.mark_delivered(session, [first.key], DELIVERED) == {first.key}
    assert await deliveries.mark_delivered(session, [first.key], DELIVERED) == set()
    shift(holdfast_dsn, timedelta(seconds=60))
    assert await claim(session, billing) == []
    shift(holdfast_dsn, timedelta(seconds=181))
    assert [c.attempt for c in await claim(session, billing)] == [2]
    close(db, fact)
    assert await deliveries.mark_delivered(session, [first.key], DELIVERED) == set()
    assert told(db, "billing")[0][3] == "processed"


async def test_3_4_retry_names_the_moment(session: Session, db: Db, holdfast_dsn: str) -> None:
    billing = await register(session)
    add_fact(db, 1, 1)
    [first] = await claim(session, billing)
    later = from_datetime(now(db) + timedelta(hours=1))
    assert await deliveries.postpone(session, [(first.key, later, "not now")]) == {first.key}
    shift(holdfast_dsn, timedelta(minutes=59))
    assert await claim(session, billing) == []
    shift(holdfast_dsn, timedelta(minutes=2))
    assert [c.attempt for c in await claim(session, billing)] == [2]


async def test_4_6_a_fact_is_not_sent_before_its_time(session: Session, db: Db, holdfast_dsn: str) -> None:
    billing = await register(session)
    starts = now(db) + timedelta(minutes=10)
    add_fact(db, 1, 1, kind="hook", type="effect", code="LATER", starts=starts)
    assert await claim(session, billing) == []
    shift(holdfast_dsn, timedelta(minutes=11))
    [sent] = await claim(session, billing)
    early = from_datetime(starts - timedelta(hours=1))
    assert await deliveries.postpone(session, [(sent.key, early, None)]) == {sent.key}
    assert len(await claim(session, billing)) == 1


async def test_3_5_b_out_of_attempts_is_not_sent(session: Session, db: Db, holdfast_dsn: str) -> None:
    billing = await register(session, max_attempts=2)
    add_fact(db, 1, 1)
    for attempt in (1, 2):
        assert [c.attempt for c in await claim(session, billing)] == [attempt]
        shift(holdfast_dsn, timedelta(seconds=41))
    [over] = await claim(session, billing)
    assert (over.over, over.attempt) == ("exhausted", 2)
    assert await claim(session, billing) == []


async def test_what_is_past_its_end_is_not_sent(session: Session, db: Db, holdfast_dsn: str) -> None:
    billing = await register(session)
    add_fact(db, 1, 1, kind="hook", type="effect", code="SOON", ends=now(db) + timedelta(minutes=1))
    shift(holdfast_dsn, timedelta(minutes=2))
    assert [(c.over, c.attempt) for c in await claim(session, billing)] == [("expired", 0)]


@pytest.mark.parametrize("answer", ["none", "delivered", "retry"])
async def test_what_has_an_end_is_over_then_whatever_was_answered(
    session: Session, db: Db, holdfast_dsn: str, answer: str
) -> None:
    """What comes behind it does not wait until it would have been sent again."""
    billing = await register(session)
    ends = now(db) + timedelta(seconds=30)
    add_fact(db, 1, 1, kind="hook", type="effect", code="SOON", ends=ends)
    [sent] = await claim(session, billing)
    if answer == "delivered":
        await deliveries.mark_delivered(session, [sent.key], DELIVERED)
    elif answer == "retry":
        await deliveries.postpone(session, [(sent.key, from_datetime(ends + timedelta(hours=1)), None)])
    assert await claim(session, billing) == []
    shift(holdfast_dsn, timedelta(seconds=31))
    assert [(c.over, c.attempt) for c in await claim(session, billing)] == [("expired", 1)]
    assert await claim(session, billing) == []  # until its commit


async def test_5_7_an_attempt_that_reached_nobody_is_given_back(session: Session, db: Db) -> None:
    billing = await register(session)
    add_fact(db, 1, 1)
    [first] = await claim(session, billing)
    assert await deliveries.give_back(session, [first]) == {first.key}
    [again] = await claim(session, billing)
    assert again.attempt == 1
    assert await deliveries.extend(session, [again], 10 * DELIVERED) == {again.key}
    assert await deliveries.extend(session, [msgspec.structs.replace(again, attempt=2)], 1) == set()


async def test_5_7_who_cannot_be_reached_is_only_probed(session: Session, db: Db, holdfast_dsn: str) -> None:
    """Whoever has not heard of the outage claims nothing, and a probe that dies burns nothing."""
    billing = await register(session, way="push")
    await consumers.beat(session, [billing.id])
    add_fact(db, 1, 1)
    await consumers.note_reach(session, billing.id, reached=False, recheck=60_000_000)
    assert await claim(session, billing) == []
    for _ in range(3):
        [probe] = await claim(session, billing, is_probe=True)
        assert (probe.attempt, probe.counted) == (1, 0)
        assert told(db, "billing") == [("V-1", 1, 0, "pending", 0, True)]
        shift(holdfast_dsn, timedelta(seconds=41))
    assert db.execute("select count(*) from holdfast.notices").fetchone() == (0,)
    await consumers.note_reach(session, billing.id, reached=True, recheck=60_000_000)
    assert [c.attempt for c in await claim(session, billing)] == [1]


async def test_5_7_who_pulls_instead_of_being_pushed_to_is_there(session: Session, db: Db) -> None:
    billing = await register(session, way="push")
    await consumers.note_reach(session, billing.id, reached=False, recheck=60_000_000)
    add_fact(db, 1, 1)
    assert await claim(session, billing) == []
    billing = await register(session)
    assert [c.attempt for c in await claim(session, billing)] == [1]


async def test_5_7_a_probe_that_reached_somebody_counts(session: Session, db: Db, holdfast_dsn: str) -> None:
    billing = await register(session)
    add_fact(db, 1, 1)
    [probe] = await claim(session, billing, is_probe=True)
    assert await deliveries.count_probe(session, probe, PENDING) == {probe.key}
    assert told(db, "billing") == [("V-1", 1, 0, "pending", 1, True)]
    assert await deliveries.count_probe(session, probe, PENDING) == set()
    assert await claim(session, billing) == []
    shift(holdfast_dsn, timedelta(seconds=41))
    [probe] = await claim(session, billing, is_probe=True)
    assert await deliveries.give_back(session, [probe]) == {probe.key}
    assert [(c.attempt, c.counted) for c in await claim(session, billing)] == [(2, 2)]


async def test_a_claim_has_no_more_than_there_is_room_for(session: Session, db: Db) -> None:
    billing, audit = await register(session), await register(session, "audit")
    for instance in range(1, 6):
        add_fact(db, instance, 1)
    assert len(await claim(session, billing, room=2)) == 2
    assert len(await claim(session, billing, audit, room=4)) == 7


async def test_a_claim_ends_with_its_bytes_for_each_consumer(
    session: Session, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing, audit = await register(session), await register(session, "audit")
    for instance in range(1, 5):
        add_fact(db, instance, 1)
    [size] = {len(c.body) for c in await claim(session, billing, room=1)}
    monkeypatch.setattr(deliveries, "CLAIM_BYTES", size + 1)
    taken = await claim(session, billing, audit)
    assert [c.key.consumer for c in taken].count(billing.id) == 2
    assert len(taken) == 4
    assert [row[4] for row in told(db, "billing")] == [1, 1, 1, 0], "what does not fit has no attempt and stays due"
    monkeypatch.setattr(deliveries, "CLAIM_BYTES", 1)
    assert len(await claim(session, billing, audit)) == 2, "the first one is always there"
    assert [row[4] for row in told(db, "billing")] == [1, 1, 1, 1]


async def test_a_removed_consumer_is_sent_nothing_and_its_facts_are_abandoned(session: Session, db: Db) -> None:
    billing = await register(session)
    for seq in (1, 2, 3):
        add_fact(db, 1, seq)
    gate = add_fact(db, 2, 1, kind="hook", type="gate", code="CHECK")
    assert await consumers.remove(session, "default", "prod", "billing", "ann")
    assert not await consumers.remove(session, "default", "prod", "billing", "ann")
    assert await claim(session, billing) == []
    [one] = await consumers.list_filling(session)
    while one is not None:
        led, gates = await consumers.step(session, one, 2)
        assert led
        if gates:
            assert [key.fact.fact for key in gates] == [gate.bytes]
            close(db, gate, "abandoned")
        one = next(iter(await consumers.list_filling(session)), None)
    assert {row[3] for row in told(db, "billing")} == {"abandoned"}


async def test_4_8_consumers_are_listed_with_their_lag(session: Session, db: Db, holdfast_dsn: str) -> None:
    await register(session, states=("Approved",))
    add_fact(db, 1, 1)
    add_fact(db, 1, 2)
    add_fact(db, 1, 3, state="Refused")
    shift(holdfast_dsn, timedelta(minutes=5))
    [found] = await consumers.list_consumers(session, "default", None, None, 50)
    assert (found.name, found.open, found.states, found.alive) == ("billing", 2, ["Approved"], True)
    assert found.behind is not None
    assert 300 <= found.behind < 400
    db.execute("update holdfast.consumer_beats set beat_at = clock_timestamp() - interval '31 seconds'")
    [found] = await consumers.list_consumers(session, "default", "prod", None, 50)
    assert not found.alive
    assert await consumers.list_consumers(session, "default", "prod", ("prod", "billing"), 50) == []
    assert await consumers.list_consumers(session, "other", None, None, 50) == []
    [behind] = await consumers.list_behind(session, 10)
    assert (behind.name, behind.open) == ("billing", 2)
