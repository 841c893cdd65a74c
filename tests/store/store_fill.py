"""Tables of any size, filled by the database itself: what a plan or a lock has to cope with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

Db = psycopg.Connection[Any]

LIVE = 2_000  # the first instances are running, whatever history follows
WORKER = "99999999-9999-4999-8999-999999999999"

HOT = ("instances", "instance_attributes", "steps", "step_receipts", "outbox_receipts", "work", "signals", "inbox",
       "event_keys", "key_events", "key_waits", "timers", "dead_letters", "effects", "events", "workers")  # fmt: skip

# The nth id: a moment first, a bucket last, as the product makes them.
_ID = (
    "(lpad(to_hex(1700000000000 + {n}), 12, '0') || '7abc8' || substr(md5({n}::text), 1, 13)"
    " || lpad(to_hex(mod({n}, 256)), 2, '0'))::uuid"
)
_NUMBERED = (
    f"(select n, {_ID.format(n='n')} as id, mod(n, 256) as bucket, %(now)s::timestamptz as moment"
    " from generate_series(%(first)s::bigint, %(last)s) n) i"
)
_VISITS = f"{_NUMBERED}, lateral (select h, {_ID.format(n='(2 * i.n + h)')} as step from generate_series(0, 1) h) v"

HISTORY = {
    "instances": f"""
        insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state,
            data, input, idempotency_key, business_key, created_by, attributes, created_at, updated_at, completed_at,
            last_error, error_code, error_step)
        select id, bucket, case when mod(n, 1000) = 7 then 'small' else 'huge' end, id,
            case when mod(n, 100) = 7 then 'rare' else 'order' end, 1,
            case when n <= {LIVE} then 'running' when mod(n, 500) = 3 then 'failed' else 'completed' end,
            3, '{{}}', '{{}}', '{{}}', case when mod(n, 2) = 0 then 'key-' || n end,
            case when mod(n, 10) = 0 then 'customer-' || n / 100 end,
            case when mod(n, 20) = 4 then 'person-' || mod(n, 5) end,
            case when mod(n, 50) = 1 then jsonb_build_object('kind', 'common', 'n', n) end,
            to_timestamp((1700000000000 + n - mod(n, 10)) / 1000.0), moment,
            case when n > {LIVE} then moment end,
            case when mod(n, 500) = 3 then jsonb_build_object('code', 'DECLINED') end,
            case when mod(n, 500) = 3 then 'DECLINED' end, case when mod(n, 500) = 3 then 'charge' end
        from {_NUMBERED}""",
    "steps": f"""
        insert into holdfast.steps (instance_id, bucket, created_at, id, org_id, node, behaviour, path, hop, kind, run,
            entity_version, receipt_key, opened_version, opened_ordinal, cause, status, input, calls, fence)
        select i.id, bucket, moment, step, 'huge', 'reserve', 'work', '0', h, 'forward', 0, 0, '\\x00', 1, h, 'started',
            'running', '{{}}', 0, 1
        from {_VISITS}""",
    "step_receipts": f"""
        insert into holdfast.step_receipts (instance_id, token, kind, run, bucket, org_id, key, step_id, created_at)
        select i.id, '0@' || h, 'forward', 0, bucket, 'huge', '\\x00', step, moment from {_VISITS}""",
    "events": f"""
        insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type)
        select i.id, bucket, moment, 1, h, 'huge', 'opened' from {_VISITS}""",
}

QUEUES = {
    "work": f"""
        insert into holdfast.work (instance_id, path, bucket, org_id, step_id, step_created_at, queue, target, fence,
            ripe_at, worker, deadline_at)
        select id, '0', bucket, 'huge', {_ID.format(n="(2 * n + 1)")}, moment, 'main', 'main', 1,
            moment + n * interval '1 millisecond', case when mod(n, 4) = 1 then '{WORKER}'::uuid end,
            case when mod(n, 8) = 1 then clock_timestamp() + interval '1 day' end
        from {_NUMBERED}""",
    "signals": f"""
        insert into holdfast.signals (instance_id, id, bucket, org_id, kind, ripe_at)
        select id, id, bucket, 'huge', 'event', moment + n * interval '1 millisecond' from {_NUMBERED}""",
    "timers": f"""
        insert into holdfast.timers (instance_id, id, bucket, org_id, purpose, wait, due_at, created_at)
        select id, id, bucket, 'huge', 'timer', '0@1:timer', clock_timestamp() + (n - 100) * interval '1 second', moment
        from {_NUMBERED}""",
    "inbox": f"""
        insert into holdfast.inbox (instance_id, id, bucket, org_id, event, created_at, expires_at)
        select id, id, bucket, 'huge', 'paid', moment, 'infinity' from {_NUMBERED}""",
    "outbox_receipts": f"""
        insert into holdfast.outbox_receipts (instance_id, source, key, bucket, org_id, created_at)
        select id, 'signal', 'key', bucket, 'huge', moment from {_NUMBERED}""",
    "key_waits": f"""
        insert into holdfast.key_waits (org_id, event, key, instance_id, token, bucket, instance_bucket, step_id,
            created_at)
        select 'huge', 'delivered', 'shipment-' || n, id, '0@1', bucket, bucket, id, moment from {_NUMBERED}""",
    "key_events": f"""
        insert into holdfast.key_events (org_id, event, key, id, bucket, created_at, expires_at)
        select 'huge', 'delivered', 'shipment-' || n, id, bucket, moment, 'infinity' from {_NUMBERED}""",
}


def one(db: Db, query: str, *values: Any) -> Any:
    row = db.execute(query, values).fetchone()
    assert row is not None
    return row[0]


def moment(db: Db) -> Any:
    """When all the filled history happened: in a month that has its partition."""
    return one(db, "select date_trunc('month', clock_timestamp()) + interval '1 day'")


def fill(db: Db, tables: dict[str, str], last: int, first: int = 1) -> None:
    """Rows `first` to `last` of each table, all belonging to the instances of these numbers."""
    values = {"first": first, "last": last, "now": moment(db)}
    for statement in tables.values():
        db.execute(statement, values)


def ids(db: Db, numbers: Sequence[int]) -> list[Any]:
    """The ids of the instances with these numbers; step h of instance n has the id of number 2n + h."""
    found = db.execute(f"select {_ID.format(n='n')} from unnest(%s::bigint[]) n", [list(numbers)])
    return [row[0] for row in found]


def define(db: Db) -> None:
    """The flows of the filled instances, as the lists look for them, and a worker whose lease is good."""
    db.execute(
        "insert into holdfast.workers (id, host, pid, version, queues, started_at, lease_until)"
        " values (%s, 'here', 1, '1', '{main}', clock_timestamp(), clock_timestamp() + interval '1 day')",
        [WORKER],
    )
    for org, name in (("huge", "order"), ("huge", "rare"), ("small", "order"), ("small", "rare")):
        db.execute(
            "insert into holdfast.definitions (id, org_id, kind, name, version, created_at)"
            " values (gen_random_uuid(), %s, 'saga', %s, 1, clock_timestamp())",
            [org, name],
        )


def stop_autovacuum(db: Db) -> None:
    """Statistics are the test's to make."""
    tables = "select relname from pg_class where relnamespace = 'holdfast'::regnamespace and relkind = 'r'"
    for (table,) in db.execute(tables).fetchall():
        db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")


def analyse_one_page(db: Db) -> None:
    """Statistics of tables that were used a little and are empty again: the state that fooled planners most."""
    fill(db, HISTORY | QUEUES, 1)
    with db.transaction():
        db.execute("set local holdfast.maintenance = 'on'")
        for table in HOT:
            db.execute(f"delete from holdfast.{table}")
    db.execute("vacuum (analyze, truncate false)")


def pretend(db: Db, times: int) -> None:
    """Let the planner believe that the tables of history are larger than they are."""
    db.execute(
        "update pg_class set reltuples = reltuples * %s where relnamespace = 'holdfast'::regnamespace and reltuples > 0"
        " and relname ~ '^(instances|steps_|step_receipts|events_)'",
        [times],
    )
