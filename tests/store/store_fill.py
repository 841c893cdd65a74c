"""Tables of any size, filled by the database itself: what a plan or a lock has to cope with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

Db = psycopg.Connection[Any]

HOT = ("instances", "steps", "step_receipts", "outbox_receipts", "work", "signals", "inbox", "event_keys", "key_events",
       "key_waits", "timers", "dead_letters", "effects", "events", "workers")  # fmt: skip

# The nth id: a moment first, a bucket last, as the product makes them.
_ID = (
    "(lpad(to_hex(1700000000000 + {n}), 12, '0') || '7abc8' || substr(md5({n}::text), 1, 13)"
    " || lpad(to_hex(mod({n}, 256)), 2, '0'))::uuid"
)

_INSTANCES = f"""
insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data, input,
    idempotency_key, business_key, created_at, updated_at, completed_at)
select {_ID.format(n="n")}, mod(n, 256), case when mod(n, 1000) = 7 then 'small' else 'huge' end,
    '00000000-0000-0000-0000-000000000001', case when mod(n, 100) = 7 then 'rare' else 'order' end, 1,
    case when mod(n, 500) = 3 then 'failed' when mod(n, 100) = 1 then 'running' else 'completed' end, 3, '{{}}', '{{}}', '{{}}',
    case when mod(n, 2) = 0 then 'key-' || n end, case when mod(n, 10) = 0 then 'customer-' || n / 100 end, clock_timestamp(),
    clock_timestamp(), case when mod(n, 500) <> 3 and mod(n, 100) = 1 then null else clock_timestamp() end
from generate_series(%(first)s::bigint, %(last)s) n
"""

_STEPS = f"""
insert into holdfast.steps (instance_id, bucket, created_at, id, org_id, node, behaviour, path, hop, kind, run,
    entity_version, receipt_key, opened_version, opened_ordinal, cause, status, input, calls, fence)
select {_ID.format(n="n")}, mod(n, 256), %(now)s, {_ID.format(n="(n * 2 + h)")}, 'huge', 'reserve', 'work', '0', h, 'forward', 0,
    0, '\\x00', 1, h, 'started', 'running', '{{}}', 0, 1
from generate_series(%(first)s::bigint, %(last)s) n, generate_series(0, 1) h
"""

_RECEIPTS = f"""
insert into holdfast.step_receipts (instance_id, token, kind, run, bucket, org_id, key, step_id, created_at)
select {_ID.format(n="n")}, '0@' || h, 'forward', 0, mod(n, 256), 'huge', '\\x00', {_ID.format(n="(n * 2 + h)")}, %(now)s
from generate_series(%(first)s::bigint, %(last)s) n, generate_series(0, 1) h
"""

_EVENTS = f"""
insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type)
select {_ID.format(n="n")}, mod(n, 256), %(now)s, 1, h, 'huge', 'opened'
from generate_series(%(first)s::bigint, %(last)s) n, generate_series(0, 1) h
"""

_WORK = f"""
insert into holdfast.work (instance_id, path, bucket, org_id, step_id, step_created_at, queue, target, fence, ripe_at, worker,
    deadline_at)
select {_ID.format(n="n")}, '0', mod(n, 256), 'huge', {_ID.format(n="(n * 2 + 1)")}, %(now)s, 'main', 'main', 1,
    %(now)s + n * interval '1 millisecond', case when mod(n, 4) = 1 then %(worker)s::uuid end,
    case when mod(n, 8) = 1 then %(now)s + interval '1 day' end
from generate_series(%(first)s::bigint, %(last)s) n
"""

_SIGNALS = f"""
insert into holdfast.signals (instance_id, id, bucket, org_id, kind, ripe_at)
select {_ID.format(n="n")}, {_ID.format(n="n")}, mod(n, 256), 'huge', 'event', %(now)s + n * interval '1 millisecond'
from generate_series(%(first)s::bigint, %(last)s) n
"""

_TIMERS = f"""
insert into holdfast.timers (instance_id, id, bucket, org_id, purpose, wait, due_at, created_at)
select {_ID.format(n="n")}, {_ID.format(n="n")}, mod(n, 256), 'huge', 'timer', '0@1:timer',
    %(now)s + (n - 100) * interval '1 second', %(now)s
from generate_series(%(first)s::bigint, %(last)s) n
"""

_INBOX = f"""
insert into holdfast.inbox (instance_id, id, bucket, org_id, event, created_at, expires_at)
select {_ID.format(n="n")}, {_ID.format(n="n")}, mod(n, 256), 'huge', 'paid', %(now)s, %(now)s + interval '7 days'
from generate_series(%(first)s::bigint, %(last)s) n
"""

_OUTBOX_RECEIPTS = f"""
insert into holdfast.outbox_receipts (instance_id, source, key, bucket, org_id, created_at)
select {_ID.format(n="n")}, 'signal', 'key', mod(n, 256), 'huge', %(now)s
from generate_series(%(first)s::bigint, %(last)s) n
"""

_KEY_WAITS = f"""
insert into holdfast.key_waits (org_id, event, key, instance_id, token, bucket, instance_bucket, step_id, created_at)
select 'huge', 'delivered', 'shipment-' || n, {_ID.format(n="n")}, '0@1', mod(n, 256), mod(n, 256), {_ID.format(n="n")}, %(now)s
from generate_series(%(first)s::bigint, %(last)s) n
"""

_KEY_EVENTS = f"""
insert into holdfast.key_events (org_id, event, key, id, bucket, created_at, expires_at)
select 'huge', 'delivered', 'shipment-' || n, {_ID.format(n="n")}, mod(n, 256), %(now)s, %(now)s + interval '7 days'
from generate_series(%(first)s::bigint, %(last)s) n
"""

HISTORY = (_INSTANCES, _STEPS, _RECEIPTS, _EVENTS)
QUEUES = (_WORK, _SIGNALS, _TIMERS, _INBOX, _OUTBOX_RECEIPTS, _KEY_WAITS, _KEY_EVENTS)
WORKER = "99999999-9999-4999-8999-999999999999"


def fill(db: Db, tables: Sequence[str], last: int, first: int = 1) -> None:
    """Rows `first` to `last` of each table, all belonging to the instances of these numbers."""
    row = db.execute("select date_trunc('month', clock_timestamp()) + interval '1 day'").fetchone()
    assert row is not None
    for statement in tables:
        db.execute(statement, {"first": first, "last": last, "now": row[0], "worker": WORKER})


def ids(db: Db, first: int, last: int) -> list[Any]:
    """The ids of the instances with these numbers."""
    return [row[0] for row in db.execute(f"select {_ID.format(n='n')} from generate_series(%s::bigint, %s) n", [first, last])]


def define(db: Db) -> None:
    """The flows of the filled instances, as the lists look for them."""
    for org, name in (("huge", "order"), ("huge", "rare"), ("small", "order"), ("small", "rare")):
        db.execute(
            "insert into holdfast.definitions (id, org_id, kind, name, version, created_at)"
            " values (gen_random_uuid(), %s, 'saga', %s, 1, clock_timestamp())",
            [org, name],
        )


def stop_autovacuum(db: Db) -> None:
    """Statistics are the test's to make."""
    for (table,) in db.execute(
        "select relname from pg_class where relnamespace = 'holdfast'::regnamespace and relkind = 'r'"
    ).fetchall():
        db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")


def analyse_one_page(db: Db) -> None:
    """Statistics of tables that were used a little and are empty again: the state that fooled planners most."""
    fill(db, (*HISTORY, *QUEUES), 1)
    with db.transaction():
        db.execute("set local holdfast.maintenance = 'on'")
        for table in HOT:
            db.execute(f"delete from holdfast.{table}")
    db.execute("vacuum (analyze, truncate false)")


def pretend(db: Db, times: int) -> None:
    """Let the planner believe that the tables of history are larger than they are, at the same density of values."""
    db.execute(
        "update pg_class set reltuples = reltuples * %s where relnamespace = 'holdfast'::regnamespace and reltuples > 0"
        " and relname ~ '^(instances|steps_|step_receipts|events_)'",
        [times],
    )
