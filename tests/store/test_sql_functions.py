"""start, signal, signal_key and cancel as SQL functions, in the caller's transaction and under the caller's rights."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
import schema_rows as rows
from psycopg.types.json import Jsonb
from schema_rows import NOW, insert

from holdfast.core.model.ids import bucket_of
from holdfast.payloads import MAX_BYTES, MAX_DEPTH

pytest_plugins = ("schema_db",)

Db = psycopg.Connection[Any]


@pytest.fixture
def flow(db: Db) -> Db:
    insert(db, "definitions", rows.definition(org_id="default"))
    return db


def one(db: Db, statement: str, *arguments: Any) -> Any:
    row = db.execute(statement, arguments).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


def fails(db: Db, code: str, statement: str, *arguments: Any) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(statement, arguments)
    assert caught.value.sqlstate == code
    return caught.value


def act_as(db: Db, role: str, *granted: str) -> None:
    """Go on as a login of its own that is a member of `role`; ends with the transaction."""
    db.execute(f"create role somebody login in role {role}")
    for org in granted:
        insert(db, "tenant_grants", {"role_name": "somebody", "org_id": org})
    db.execute("set local session authorization somebody")


def nested(levels: int) -> Jsonb:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return Jsonb(value)


# Ids and clock


def test_buckets_agree_with_python(db: Db) -> None:
    for org, key in [("acme", "order-17"), ("ümlaut", "ключ"), ("", "")]:
        assert one(db, "select holdfast.bucket_of(%s, %s)", org, key) == bucket_of(org, key)


def test_new_ids_are_ordered_by_time_and_end_with_the_bucket(db: Db) -> None:
    before, first, after = one(
        db,
        "select extract(epoch from clock_timestamp())::float8, holdfast.new_id(200),"
        " extract(epoch from clock_timestamp())::float8",
    )
    assert first.version == 7
    assert first.variant == uuid.RFC_4122
    assert first.bytes[15] == 200
    assert int(before * 1000) - 1 <= int.from_bytes(first.bytes[:6], "big") <= int(after * 1000) + 1
    ids = {row[0] for row in db.execute("select holdfast.new_id() from generate_series(1, 100)")}
    assert len(ids) == 100
    assert len({value.bytes[15] for value in ids}) > 20


def test_the_clock_moves_inside_a_transaction(db: Db) -> None:
    assert one(db, "select holdfast.clock() > now()")


# start


def test_start_stores_a_pending_instance_and_its_signal(flow: Db) -> None:
    instance = one(
        flow, "select holdfast.start('order', '{\"amount\": 5}', key => 'o-17', business_key => 'b', by => 'ann')"
    )
    row = one(
        flow,
        "select bucket, org_id, flow, flow_version, status, version, state, data, input, idempotency_key,"
        " business_key, created_by from holdfast.instances where id = %s",
        instance,
    )
    amount = {"amount": 5}
    bucket = bucket_of("default", "o-17")
    assert row == (bucket, "default", "order", 1, "pending", 0, {}, amount, amount, "o-17", "b", "ann")
    assert instance.bytes[15] == bucket
    assert flow.execute("select instance_id, bucket, org_id, kind, payload from holdfast.signals").fetchall() == [
        (instance, bucket, "default", "started", {})
    ]


def test_start_stores_what_an_instance_is_found_by(flow: Db) -> None:
    instance = one(flow, 'select holdfast.start(\'order\', attributes => \'{"city": "Kiel", "size": 3}\')')
    found = "select array_agg(name order by name) from holdfast.instance_attributes where instance_id = %s"
    assert one(flow, found, instance) == ["city", "size"]


@pytest.mark.parametrize("attributes", ["[]", "5", '{"": 1}', json.dumps({"x" * 201: 1})])
def test_start_refuses_attributes_that_nothing_could_be_found_by(flow: Db, attributes: str) -> None:
    assert "attribute" in str(fails(flow, "HF422", "select holdfast.start('order', attributes => %s)", attributes))
    assert one(flow, "select count(*) from holdfast.instances") == 0


def test_a_business_key_alone_decides_the_bucket(flow: Db) -> None:
    assert one(flow, "select holdfast.start('order', business_key => 'b')").bytes[15] == bucket_of("default", "b")


def test_input_that_is_no_object_leaves_the_context_empty(flow: Db) -> None:
    instance = one(flow, "select holdfast.start('order', '[1, 2]')")
    assert one(flow, "select input, data from holdfast.instances where id = %s", instance) == ([1, 2], {})


def test_the_same_key_answers_the_same_instance(flow: Db) -> None:
    first = one(flow, "select holdfast.start('order', '{\"a\": 1, \"b\": 2}', 'k')")
    assert one(flow, "select holdfast.start('order', '{\"b\": 2, \"a\": 1}', 'k')") == first
    assert one(flow, "select count(*) from holdfast.signals") == 1
    assert str(first) in str(fails(flow, "HF409", "select holdfast.start('order', '{\"a\": 2}', 'k')"))


def test_start_takes_the_newest_published_version(flow: Db) -> None:
    insert(flow, "definitions", rows.definition(org_id="default", version=3))
    insert(flow, "definitions", rows.definition(org_id="default", version=4, status="draft", published_at=None))
    insert(flow, "definitions", rows.definition(org_id="default", version=5, status="archived"))
    versions = "select flow_version from holdfast.instances where id = holdfast.start('order', version => %s)"
    started = one(flow, "select holdfast.start('order')")
    assert one(flow, "select flow_version from holdfast.instances where id = %s", started) == 3
    started = one(flow, "select holdfast.start('order', version => 1)")
    assert one(flow, "select flow_version from holdfast.instances where id = %s", started) == 1
    for version in (2, 4, 5):
        assert f"version {version}" in str(fails(flow, "HF404", versions, version))


def test_an_organisation_comes_before_the_system(flow: Db) -> None:
    system = insert(flow, "definitions", rows.definition(org_id="_system", version=9))
    own = insert(flow, "definitions", rows.definition(org_id="acme", version=2))
    used = "select definition_id from holdfast.instances where id = %s"
    assert one(flow, used, one(flow, "select holdfast.start('order', org => 'acme')")) == own["id"]
    assert one(flow, used, one(flow, "select holdfast.start('order', org => 'globex')")) == system["id"]


def test_an_unknown_flow_is_named(db: Db) -> None:
    assert '"nope"' in str(fails(db, "HF404", "select holdfast.start('nope')"))
    envelope = {"kind": "envelope", "is_default": True, "slots": Jsonb([]), "entity_type": "invoice"}
    insert(db, "definitions", rows.definition(org_id="default", **envelope))
    fails(db, "HF404", "select holdfast.start('order')")


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("HF413", {"input": Jsonb("x" * MAX_BYTES)}),
        ("HF422", {"input": nested(MAX_DEPTH + 1)}),
        ("HF422", {"input": Jsonb({"big": 2**63})}),
        ("HF422", {"key": ""}),
        ("HF422", {"key": "k" * 501}),
        ("HF422", {"business_key": ""}),
    ],
    ids=["too large", "too deep", "beyond 64 bits", "empty key", "long key", "empty business key"],
)
def test_bad_input_is_refused_and_nothing_stored(flow: Db, code: str, arguments: dict[str, Any]) -> None:
    names = ", ".join(f"{name} => %s" for name in arguments)
    fails(flow, code, f"select holdfast.start('order', {names})", *arguments.values())
    assert one(flow, "select count(*) from holdfast.instances") == 0


def test_who_and_what_for_are_bounded_in_every_verb(flow: Db) -> None:
    """Each verb that tenants may call; a new one is tried as well."""
    takes = """
        select p.oid::regproc::text, array_to_string(array(
            select format('%%s => null::%%s', coalesce(nullif(p.proargnames[n], ''), n::text), format_type(t, null))
            from unnest(p.proargtypes) with ordinality x(t, n)
            where n <= p.pronargs - p.pronargdefaults), ', ')
        from pg_proc p
        where p.pronamespace = 'holdfast'::regnamespace and %s = any(p.proargnames)
            and has_function_privilege('holdfast_tenant', p.oid, 'execute') and p.prosecdef"""
    instance = one(flow, "select holdfast.start('order')")
    for name, most, wanted in (
        ("by", 2000, {"start", "signal", "signal_key", "cancel", "decide", "trigger", "ack"}),
        ("trace", 500, {"start", "trigger"}),
    ):
        verbs = dict(flow.execute(takes, [name]).fetchall())
        assert verbs.keys() == {f"holdfast.{verb}" for verb in wanted}
        for verb, needed in verbs.items():
            given = f"{needed}, {name} => %s".replace("instance => null", f"instance => '{instance}'")
            refusal = fails(flow, "HF422", f"select {verb}({given})", "x" * (most + 1))
            assert f"1 to {most} are allowed" in str(refusal), (verb, refusal)
    assert one(flow, "select count(*) from holdfast.signals") == 1


@pytest.mark.parametrize(
    "value", [Jsonb("x" * (MAX_BYTES - 2)), nested(MAX_DEPTH), Jsonb([2**63 - 1, -(2**63), "9" * 40, 0.1])]
)
def test_the_limits_themselves_are_legal(flow: Db, value: Jsonb) -> None:
    assert one(flow, "select holdfast.start('order', %s)", value)


@pytest.mark.parametrize("digits", ["10000000000000000000.0", "-1e19", "1e300"])
def test_a_large_number_is_a_float_where_it_is_written_as_one(flow: Db, digits: str) -> None:
    if "." in digits:
        assert one(flow, "select holdfast.start('order', %s::text::jsonb)", digits)
    else:
        assert "64 bits" in str(fails(flow, "HF422", "select holdfast.start('order', %s::text::jsonb)", digits))


# signal and cancel


@pytest.fixture
def running(flow: Db) -> uuid.UUID:
    started: uuid.UUID = one(flow, "select holdfast.start('order')")
    flow.execute("delete from holdfast.signals")
    return started


def finish(db: Db, instance: uuid.UUID) -> None:
    db.execute(
        "update holdfast.instances set status = 'completed', completed_at = now(), version = 1 where id = %s",
        (instance,),
    )


def test_signal_queues_an_event(flow: Db, running: uuid.UUID) -> None:
    signal = one(flow, "select holdfast.signal(%s, 'paid', '{\"amount\": 5}', node => 'wait', by => 'ann')", running)
    queued = flow.execute(
        "select instance_id, id, bucket, org_id, kind, payload - 'occurred_at' from holdfast.signals"
    ).fetchall()
    envelope = {"event": "paid", "payload": {"amount": 5}, "node": "wait", "actor": {"id": "ann"}}
    assert queued == [(running, signal, running.bytes[15], "default", "event", envelope)]


def test_a_signal_may_be_due_later(flow: Db, running: uuid.UUID) -> None:
    """It waits among the timers, under its own id; what it expects of the instance is no matter yet."""
    send = "select holdfast.signal(%s, 'paid', id => %s, if_version => 99, token => '0@1', {})"
    for when in ("delay => interval '1 hour'", "due_at => holdfast.clock() + interval '1 hour'"):
        signal = uuid.uuid4()
        for _ in range(2):
            assert one(flow, send.format(when), running, signal) == signal
        kept = one(flow, "select purpose, due_at - created_at, payload from holdfast.timers where id = %s", signal)
        assert kept[0] == "signal"
        assert timedelta(minutes=59) < kept[1] <= timedelta(hours=1)
        assert (kept[2]["if_version"], kept[2]["token"]) == (99, "0@1")
        assert datetime.fromisoformat(kept[2]["due_at"]) - datetime.fromisoformat(kept[2]["occurred_at"]) == kept[1]
    assert one(flow, "select count(*) from holdfast.signals") == 0


@pytest.mark.parametrize(
    "when",
    [
        "delay => interval '-1 second'",
        "due_at => 'infinity'",
        "due_at => '2300-01-01'",
        "delay => interval '101 years'",
    ],
)
def test_an_absurd_due_time_is_refused(flow: Db, running: uuid.UUID, when: str) -> None:
    fails(flow, "HF422", f"select holdfast.signal(%s, 'paid', {when})", running)
    assert one(flow, "select count(*) from holdfast.timers") == 0


def test_an_expected_version_is_checked_at_once(flow: Db, running: uuid.UUID) -> None:
    version = one(flow, "select version from holdfast.instances where id = %s", running)
    fails(flow, "HF409", "select holdfast.signal(%s, 'paid', if_version => %s)", running, version + 1)
    one(flow, "select holdfast.signal(%s, 'paid', if_version => %s)", running, version)
    assert one(flow, "select payload ->> 'if_version' from holdfast.signals") == str(version)


def test_the_same_signal_id_counts_once(flow: Db, running: uuid.UUID) -> None:
    signal = uuid.uuid4()
    send = "select holdfast.signal(%s, %s, %s, id => %s)"
    assert one(flow, send, running, "paid", Jsonb({"n": 1}), signal) == signal
    assert one(flow, send, running, "paid", Jsonb({"n": 1}), signal) == signal
    assert one(flow, "select count(*) from holdfast.signals") == 1
    fails(flow, "HF409", send, running, "paid", Jsonb({"n": 2}), signal)
    fails(flow, "HF409", send, running, "refused", Jsonb({"n": 1}), signal)
    finish(flow, running)
    assert one(flow, send, running, "paid", Jsonb({"n": 1}), signal) == signal


def test_signal_and_cancel_refuse_what_is_unknown_foreign_or_over(flow: Db, running: uuid.UUID) -> None:
    for verb in ("signal(%s, 'paid'", "cancel(%s, 'enough'"):
        assert "no instance" in str(fails(flow, "HF404", f"select holdfast.{verb})", uuid.uuid4()))
        fails(flow, "HF404", f"select holdfast.{verb}, org => 'globex')", running)
    finish(flow, running)
    for verb in ("signal(%s, 'paid'", "cancel(%s, 'enough'"):
        assert "completed" in str(fails(flow, "HF409", f"select holdfast.{verb})", running))
    assert one(flow, "select count(*) from holdfast.outbox_receipts") == 0


def test_a_signal_needs_an_event_and_a_storable_payload(flow: Db, running: uuid.UUID) -> None:
    fails(flow, "HF422", "select holdfast.signal(%s, '')", running)
    fails(flow, "HF422", "select holdfast.signal(%s, null)", running)
    fails(flow, "HF413", "select holdfast.signal(%s, 'paid', %s)", running, Jsonb("x" * MAX_BYTES))


def test_cancel_queues_a_signal(flow: Db, running: uuid.UUID) -> None:
    signal = one(flow, "select holdfast.cancel(%s, 'enough', by => 'ann')", running)
    assert flow.execute("select id, kind, payload from holdfast.signals").fetchall() == [
        (signal, "cancel", {"reason": "enough", "actor": {"id": "ann"}})
    ]


# signal_key


def wait(db: Db, key: str, **changes: Any) -> rows.Row:
    row = {
        "org_id": "default",
        "event": "paid",
        "key": key,
        "instance_id": uuid.uuid4(),
        "token": "0@3",
        "bucket": bucket_of("default", key),
        "instance_bucket": 9,
        "step_id": uuid.uuid4(),
        "created_at": NOW,
    }
    return insert(db, "key_waits", row | changes)


def test_a_keyed_event_reaches_every_wait_once(db: Db) -> None:
    waits = [wait(db, "k"), wait(db, "k"), wait(db, "k", token="0@3/0@1")]
    for other in ({"key": "other"}, {"event": "refused"}, {"org_id": "acme"}):
        wait(db, **{"key": "k"} | other)
    event = uuid.uuid4()
    for _ in range(2):
        assert one(db, "select holdfast.signal_key('paid', 'k', '{\"n\": 1}', %s, 'ann')", event) == event
    sent = db.execute("select instance_id, bucket, payload - 'occurred_at' from holdfast.signals").fetchall()
    envelope = {"event": "paid", "payload": {"n": 1}, "actor": {"id": "ann"}, "keyed": str(event)}
    assert sorted(sent, key=str) == sorted(
        [(w["instance_id"], 9, envelope | {"token": w["token"], "step": str(w["step_id"])}) for w in waits],
        key=str,
    )
    fails(db, "HF409", "select holdfast.signal_key('paid', 'k', '{\"n\": 2}', %s, 'ann')", event)


def test_an_early_keyed_event_is_kept_for_seven_days(db: Db) -> None:
    event = one(db, "select holdfast.signal_key('paid', 'k', '{\"n\": 1}')")
    kept = one(
        db, "select id, bucket, payload, extract(days from expires_at - created_at)::int from holdfast.key_events"
    )
    assert kept == (event, bucket_of("default", "k"), {"n": 1}, 7)
    assert one(db, "select count(*) from holdfast.signals") == 0


@pytest.mark.parametrize(("event", "key"), [("", "k"), ("paid", ""), (None, "k"), ("paid", None), ("e" * 201, "k")])
def test_a_keyed_event_needs_a_name_and_a_key(db: Db, event: str | None, key: str | None) -> None:
    fails(db, "HF422", "select holdfast.signal_key(%s, %s)", event, key)


def test_sender_and_waiter_of_one_key_take_turns(private_dsn: str) -> None:
    """A commit that opens a wait under the key's lock is seen by the event that waited for the lock."""
    with psycopg.connect(private_dsn) as waiter, psycopg.connect(private_dsn) as sender:
        key_row = {"org_id": "default", "event": "paid", "key": "k", "bucket": bucket_of("default", "k")}
        insert(waiter, "event_keys", key_row)
        opened = wait(waiter, "k")
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(sender.execute, "select holdfast.signal_key('paid', 'k')")
            with psycopg.connect(private_dsn, autocommit=True) as observer:
                while not one(observer, "select cardinality(pg_blocking_pids(%s)) > 0", sender.info.backend_pid):
                    assert not sent.done()
            waiter.commit()
            sent.result()
        sender.commit()
        assert one(sender, "select instance_id from holdfast.signals") == opened["instance_id"]


# The caller's transaction


def test_visible_after_commit_and_gone_after_rollback(private_dsn: str) -> None:
    with psycopg.connect(private_dsn) as caller, psycopg.connect(private_dsn, autocommit=True) as observer:
        insert(caller, "definitions", rows.definition(org_id="default"))
        caller.commit()
        seen = "select (select count(*) from holdfast.instances), (select count(*) from holdfast.signals)"
        one(caller, "select holdfast.start('order')")
        assert one(observer, seen) == (0, 0)
        caller.rollback()
        assert one(observer, seen) == (0, 0)
        instance = one(caller, "select holdfast.start('order')")
        caller.commit()
        assert one(observer, seen) == (1, 1)
        one(caller, "select holdfast.signal(%s, 'paid')", instance)
        caller.rollback()
        assert one(observer, seen) == (1, 1)


def test_concurrent_starts_with_one_key_make_one_instance(private_dsn: str) -> None:
    with psycopg.connect(private_dsn) as admin:
        insert(admin, "definitions", rows.definition(org_id="default"))
    together = threading.Barrier(8)

    def start(_: int) -> uuid.UUID:
        with psycopg.connect(private_dsn) as connection:
            together.wait(30)
            return one(connection, "select holdfast.start('order', '{\"a\": 1}', 'k')")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    with psycopg.connect(private_dsn) as connection:
        assert one(connection, "select count(*) from holdfast.signals") == 1


def test_settings_of_the_caller_stay_as_they_were(flow: Db) -> None:
    flow.execute("set local holdfast.org = 'default'")
    flow.execute("set local search_path = public")
    settings = "select name, setting from pg_settings where name not like 'plpgsql.%' order by name"
    custom = "select current_setting('holdfast.org', true), current_setting('holdfast.maintenance', true)"
    before = flow.execute(settings).fetchall(), one(flow, custom)
    instance = one(flow, "select holdfast.start('order')")
    one(flow, "select holdfast.signal(%s, 'paid')", instance)
    one(flow, "select holdfast.signal_key('paid', 'k')")
    one(flow, "select holdfast.cancel(%s, 'enough')", instance)
    assert (flow.execute(settings).fetchall(), one(flow, custom)) == before


@pytest.mark.parametrize(("setting", "hints"), [("on", 1), ("off", 0)])
def test_one_constant_wake_up_that_can_be_switched_off(private_dsn: str, setting: str, hints: int) -> None:
    with psycopg.connect(private_dsn, autocommit=True) as listener, psycopg.connect(private_dsn) as caller:
        listener.execute("listen holdfast")
        insert(caller, "definitions", rows.definition(org_id="default"))
        caller.execute("select set_config('holdfast.notify', %s, true)", (setting,))
        for _ in range(3):
            caller.execute("select holdfast.start('order')")
        caller.execute("notify holdfast, 'end of the test'")
        caller.commit()
        heard = []
        for notification in listener.notifies(timeout=30):
            if notification.payload:
                break
            heard.append(notification.payload)
        assert heard == [""] * hints


# Whose organisation


def test_a_worker_names_any_organisation(flow: Db) -> None:
    insert(flow, "definitions", rows.definition(org_id="acme"))
    act_as(flow, "holdfast_worker")
    org_of = "select org_id from holdfast.instances where id = %s"
    assert one(flow, org_of, one(flow, "select holdfast.start('order', org => 'acme')")) == "acme"
    assert one(flow, org_of, one(flow, "select holdfast.start('order')")) == "default"
    flow.execute("set local holdfast.org = 'acme'")
    assert one(flow, org_of, one(flow, "select holdfast.start('order')")) == "acme"


def test_a_tenant_acts_for_its_own_organisation_only(db: Db) -> None:
    insert(db, "definitions", rows.definition(org_id="_system"))
    foreign = insert(db, "instances", rows.instance(org_id="globex"))
    act_as(db, "holdfast_tenant", "acme")
    instance = one(db, "select holdfast.start('order', org => 'acme')")
    one(db, "select holdfast.signal(%s, 'paid')", instance)
    one(db, "select holdfast.signal_key('paid', 'k')")
    one(db, "select holdfast.cancel(%s)", instance)
    assert "globex" in str(fails(db, "HF403", "select holdfast.start('order', org => 'globex')"))
    fails(db, "HF403", "select holdfast.signal(%s, 'paid', org => 'globex')", foreign["id"])
    fails(db, "HF404", "select holdfast.signal(%s, 'paid')", foreign["id"])
    db.execute("set local holdfast.org = 'globex'")
    fails(db, "HF403", "select holdfast.start('order')")
    fails(db, "HF403", "select holdfast.cancel(%s)", foreign["id"])


def test_a_tenant_of_several_organisations_has_to_say_which(db: Db) -> None:
    insert(db, "definitions", rows.definition(org_id="_system"))
    act_as(db, "holdfast_tenant", "acme", "globex")
    fails(db, "HF403", "select holdfast.start('order')")
    assert one(db, "select holdfast.start('order', org => 'globex')")


def test_a_tenant_without_a_grant_acts_for_nobody(db: Db) -> None:
    insert(db, "definitions", rows.definition(org_id="_system"))
    act_as(db, "holdfast_tenant")
    fails(db, "HF403", "select holdfast.start('order')")
    fails(db, "HF403", "select holdfast.start('order', org => 'default')")


def test_a_tenant_sees_the_instance_it_started(db: Db) -> None:
    insert(db, "definitions", rows.definition(org_id="_system"))
    act_as(db, "holdfast_tenant", "acme")
    instance = one(db, "select holdfast.start('order')")
    db.execute("set local holdfast.org = 'acme'")
    assert one(db, "select id, status from holdfast.instances") == (instance, "pending")
