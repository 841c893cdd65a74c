"""What the database refuses even to its owner: facts and notices rewritten, deliveries that go back, new names."""

from __future__ import annotations

import psycopg
import pytest
from orders import answer, office

from holdfast import Engine

pytestmark = pytest.mark.anyio

REFUSED, UNIQUE = "HF002", "23505"
STATUSES = ("pending", "delivered", "processed", "failed", "expired", "abandoned")


def refused(dsn: str, statement: str, *values: object, code: str = REFUSED) -> None:
    with psycopg.connect(dsn) as db, pytest.raises(psycopg.Error) as caught:
        db.execute(statement, values)
    assert caught.value.sqlstate == code, statement


async def test_a_fact_is_evidence(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    refused(engine.dsn, "update holdfast.acks set body = '{}'")
    refused(engine.dsn, "delete from holdfast.acks")


async def test_a_delivery_is_evidence_and_there_is_one_per_fact_and_consumer(engine: Engine) -> None:
    await office(engine, consumers=("ledger", "bank"))
    await engine.trigger("prod", "order", "O-1", "Check")
    refused(engine.dsn, "delete from holdfast.ack_consumers")
    refused(engine.dsn, "update holdfast.ack_consumers set seq = seq + 1")
    refused(
        engine.dsn,
        "update holdfast.ack_consumers set consumer_id = (select id from holdfast.consumers where name = 'bank')"
        " where consumer_id = (select id from holdfast.consumers where name = 'ledger')",
        code=UNIQUE,
    )
    refused(engine.dsn, "insert into holdfast.ack_consumers select * from holdfast.ack_consumers", code=UNIQUE)


async def test_the_status_of_a_delivery_goes_forward(engine: Engine) -> None:
    """Out of `processed` there is one way: a replay, which gives the fact again."""
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    await answer(engine, "→ Checked")
    for status in STATUSES:
        if status not in ("processed", "pending"):
            refused(engine.dsn, "update holdfast.ack_consumers set status = %s", status)


async def test_a_consumer_keeps_its_name(engine: Engine) -> None:
    await office(engine)
    refused(engine.dsn, "update holdfast.consumers set name = 'bank'")
    refused(
        engine.dsn,
        "update holdfast.consumers set registered_at = registered_at - interval '1 day' where name = 'ledger'",
    )


async def test_a_notice_never_changes(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    await answer(engine, "→ Checked", "failed", message="no ink")
    assert len((await engine.notices()).items) == 1
    refused(engine.dsn, "update holdfast.notices set message = 'all is well'")


async def test_an_activity_keeps_what_it_is_about_and_a_frozen_one_its_status(engine: Engine) -> None:
    await office(engine)
    order = await engine.trigger("prod", "order", "O-1", "Check")
    work = await engine.activity(order.instance, "Review", status="Asked", by="ann")
    refused(engine.dsn, "update holdfast.activities set actor = 'ben'")
    await engine.freeze_activity(order.instance, work.id, by="ann")
    refused(engine.dsn, "update holdfast.activities set status = 'Approved'")


async def test_one_instance_per_blueprint_and_reference(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    await engine.trigger("prod", "order", "O-2", "Check")
    refused(
        engine.dsn,
        "insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state,"
        " data, input, idempotency_key, business_key, created_at, updated_at)"
        " select overlay(i.id::text placing '00' from 15 for 2)::uuid, i.bucket, i.org_id, i.definition_id, i.flow,"
        " i.flow_version, 'pending', 0, '{}', '{}', '{}', i.idempotency_key, i.business_key, now(), now()"
        " from holdfast.instances i where i.business_key = 'O-1'",
        code=UNIQUE,
    )
