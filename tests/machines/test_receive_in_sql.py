"""`holdfast.receive`: facts for programs that have nothing but SQL, by the engine's own rule."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from machine_rows import Db, add_fact, number
from machine_store import DELIVERED, claim, now, register
from orders import BLUEPRINT, deliveries

from holdfast import Engine, Machine
from holdfast.core.model.ack_handles import AckAddress, encode_ack
from holdfast.core.model.timestamps import from_datetime
from holdfast.store.deliveries import mark_delivered
from holdfast.store.pg.session import Session
from holdfast.testing import advance, shift

pytestmark = pytest.mark.anyio


def receive(db: Db, consumer: str = "billing", most: int = 50, **more: Any) -> list[tuple[Any, ...]]:
    named = "".join(f", {name} => %({name})s" for name in more)
    return db.execute(
        f"select ack, attempt, max_attempts, body from holdfast.receive(%(consumer)s, %(most)s, 'prod'{named})",
        {"consumer": consumer, "most": most, **more},
    ).fetchall()


def state(db: Db) -> list[tuple[Any, ...]]:
    """Deliveries as a claim leaves them; due times relative to the clock."""
    return db.execute(
        "select instance_id, seq, ordinal, status, attempts, most,"
        " round(extract(epoch from next_due - holdfast.clock()))"
        " from holdfast.ack_consumers order by instance_id, seq, ordinal"
    ).fetchall()


def refused(db: Db, *arguments: Any, **more: Any) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        receive(db, *arguments, **more)
    return caught.value.sqlstate


@pytest.mark.parametrize("micros", [0, 1, 838_000_000_123_457, -5])
def test_the_handle_is_that_of_the_engine(db: Db, micros: int) -> None:
    for n in range(4):
        instance, fact = number("instance", n), number("fact", n)
        row = db.execute(
            "select holdfast.ack_handle(%s, m.at, %s), m.at from"
            " (select timestamptz '2000-01-01 00:00:00+00' + %s * interval '1 microsecond' as at) m",
            [instance, fact, micros],
        ).fetchone()
        assert row is not None
        assert row[0] == encode_ack(AckAddress(instance.bytes, from_datetime(row[1]), fact.bytes))


async def test_it_claims_as_the_engine_does(session: Session, db: Db, holdfast_dsn: str) -> None:
    """Attempts, due times, order, room and notices: once by SQL, once by the engine, on the same facts."""
    billing = await register(session, max_attempts=2, in_flight=4)
    for instance in (1, 2, 3, 4, 5):
        add_fact(db, instance, 1)
        add_fact(db, instance, 2)
    add_fact(db, 6, 1, kind="hook", type="effect", code="SOON", ends=now(db) + timedelta(seconds=60))
    db.execute("update holdfast.ack_consumers set attempts = most where instance_id = %s", [number("instance", 5)])
    delivered = (await claim(session, billing, room=1))[0].key
    await mark_delivered(session, [delivered], DELIVERED)
    shift(holdfast_dsn, timedelta(seconds=300))
    seen: list[Any] = []
    for by_sql in (True, False):
        connection = psycopg.connect(holdfast_dsn)  # its transaction is undone: both begin alike
        rounds: list[Any] = []
        try:
            for _ in range(3):
                if by_sql:
                    found = [(ack, attempt, most) for ack, attempt, most, _ in receive(connection)]
                else:
                    rows = await claim(session, billing, room=4)
                    found = [(encode_ack(c.key.fact), c.attempt, c.most) for c in rows if c.over is None]
                reader = connection if by_sql else db
                rounds.append((sorted(found), state(reader)))
        finally:
            connection.rollback()
            connection.close()
        seen.append(rounds)
    assert seen[0] == seen[1]
    assert sorted(attempt for found, _ in seen[0] for _, attempt, _ in found) == [1, 1, 1, 2]


async def test_facts_come_in_order_with_the_body_and_count(session: Session, db: Db, holdfast_dsn: str) -> None:
    await register(session, max_attempts=3)
    first = add_fact(db, 1, 1)
    add_fact(db, 1, 2)
    [(ack, attempt, most, body)] = receive(db)
    assert (attempt, most, body["ack_guid"], body["payload"]) == (1, 3, str(first), {"n": 1})
    assert receive(db) == [], "what comes behind it waits"
    shift(holdfast_dsn, timedelta(seconds=39))
    assert receive(db) == []
    shift(holdfast_dsn, timedelta(seconds=2))
    assert receive(db) == [(ack, 2, 3, body)]
    [notice] = db.execute("select code, kind, consumer, detail from holdfast.notices").fetchall()
    assert notice == ("ACK_RETRY", "warn", "billing", {"ack_guid": str(first), "attempt": 2, "most": 3})
    shift(holdfast_dsn, timedelta(seconds=11))
    assert receive(db, pending_resend=timedelta(seconds=10)) == [], "the earlier claim said 40 seconds"
    shift(holdfast_dsn, timedelta(seconds=30))
    assert len(receive(db, pending_resend=timedelta(seconds=10))) == 1


async def test_concurrent_receivers_share_the_facts(session: Session, db: Db, holdfast_dsn: str) -> None:
    await register(session, in_flight=1000)
    for instance in range(60):
        add_fact(db, instance, 1)
        add_fact(db, instance, 2)

    def work(_: int) -> list[str]:
        with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
            found: list[str] = []
            while rows := receive(connection, most=3):
                found += [ack for ack, *_ in rows]
            return found

    with ThreadPoolExecutor(4) as threads:
        found = Counter(ack for acks in threads.map(work, range(4)) for ack in acks)
    assert len(found) == 60
    assert set(found.values()) == {1}


async def test_what_one_transaction_has_in_hand_is_passed_over(session: Session, db: Db, holdfast_dsn: str) -> None:
    await register(session)
    add_fact(db, 1, 1)
    with psycopg.connect(holdfast_dsn) as connection:
        [(_, attempt, *_)] = receive(connection)
        assert attempt == 1
        assert receive(db) == []
        connection.rollback()
    [(_, attempt, *_)] = receive(db)
    assert attempt == 1, "rolled back, the attempt was never made"


async def test_each_call_is_a_beat(session: Session, db: Db) -> None:
    await register(session)
    db.execute("update holdfast.consumer_beats set beat_at = clock_timestamp() - interval '1 hour'")
    receive(db)
    [(age,)] = db.execute("select clock_timestamp() - beat_at < interval '1 minute' from holdfast.consumer_beats")
    assert age


async def test_a_held_a_removed_a_pushed_and_an_unknown_consumer(session: Session, db: Db) -> None:
    known = await register(session)
    add_fact(db, 1, 1)
    db.execute("""update holdfast.consumers set filled_to = '{"phase": "fill"}'""")
    assert receive(db) == []
    db.execute("update holdfast.consumers set filled_to = null, way = 'push', target = '{}'")
    assert refused(db) == "HF422"
    db.execute("update holdfast.consumers set way = 'pull', removed_at = holdfast.clock()")
    assert refused(db) == "HF404"
    assert refused(db, "nobody") == "HF404"
    db.execute("update holdfast.consumers set removed_at = null where id = %s", [UUID(bytes=known.id)])
    for most in (0, -1, 1001, None):
        assert refused(db, "billing", most) == "HF422"
    assert refused(db, pending_resend=timedelta(0)) == "HF422"
    assert len(receive(db)) == 1


async def test_another_tenant_gets_nothing(session: Session, db: Db, holdfast_dsn: str) -> None:
    await register(session)
    add_fact(db, 1, 1)
    for org in ("acme", "default"):
        db.execute(f"drop role if exists billing_of_{org}")
        db.execute(f"create role billing_of_{org} in role holdfast_tenant")
        db.execute("insert into holdfast.tenant_grants (role_name, org_id) values (%s, %s)", [f"billing_of_{org}", org])
    assert refused(db, org="acme") == "HF404"
    with psycopg.connect(holdfast_dsn) as connection:
        connection.execute("set session authorization billing_of_acme")
        assert refused(connection) == "HF404"
        connection.rollback()
        connection.execute("set session authorization billing_of_acme")
        assert refused(connection, org="default") == "HF403"
        connection.rollback()
        connection.execute("set session authorization billing_of_default")
        [(ack, *_)] = receive(connection)
        answered = connection.execute("select holdfast.ack('billing', %s, environment => 'prod')", [ack]).fetchone()
        assert answered == (True,)
        connection.commit()
    for org in ("acme", "default"):
        db.execute("delete from holdfast.tenant_grants where org_id = %s", [org])
        db.execute(f"drop role billing_of_{org}")


async def office(engine: Engine, **wishes: Any) -> None:
    """A machine and a consumer that has its past."""
    await engine.import_machine(Machine.load(BLUEPRINT))
    await engine.register_consumer("prod", "ledger", **wishes)
    while (await engine.get_consumer("prod", "ledger")).filling:
        assert await engine.receive("prod", "ledger") == []


async def test_received_and_answered_in_sql_the_machine_goes_on(engine: Engine) -> None:
    await office(engine, max_attempts=1)
    await engine.trigger("prod", "order", "O-1", "Check", {"n": 1})
    with psycopg.connect(engine.dsn, autocommit=True) as db:
        [(ack, attempt, most, body)] = receive(db, "ledger")
        assert (attempt, most, body["to"], ack) == (1, 1, "Checked", deliveries(engine.dsn)[0].ack)
        with db.transaction():
            db.execute(
                "select holdfast.ack('ledger', %s, environment => 'prod', next_event => 'Pack', next_payload => '{}')",
                [ack],
            )
        await engine.drain(timeout=30)
        assert (await engine.machine("prod", "order", "O-1")).state == "Packed"
        assert len(receive(db, "ledger")) == 1
        await advance(engine, seconds=60)
        assert receive(db, "ledger") == [], "it is out of attempts"
        await engine.drain(timeout=30)
        assert (await engine.get(body["instance"])).status == "suspended"
        assert [letter.reason for letter in await engine.dead_letters(consumer="ledger")] == ["ACK_SUSPEND"]


async def test_a_fact_that_needs_no_answer_is_handed_out_once(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check", ack_required=False)
    with psycopg.connect(engine.dsn, autocommit=True) as db:
        assert len(receive(db, "ledger")) == 1
        await advance(engine, seconds=600)
        assert receive(db, "ledger") == []
        await engine.drain(timeout=30)
    assert deliveries(engine.dsn)[0].status == "processed"
