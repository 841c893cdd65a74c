"""Notices, staleness and the lifecycle read no more beside many rows than beside few, whatever the statistics say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

sys.path.append(str(Path(__file__).parent.parent / "store"))

from store_plans import Db, accesses, be_tenant, buffers, measure, node_types, pin

from holdfast.testing import copied_database

FEW, MANY = 2_000, 40_000
DUE = 100
ONE = "01000000-0000-7000-8000-000000000007"

_INSTANCES = """
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data,
        input, business_key, created_at, updated_at)
    select ('01000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, mod(n, 256), 'acme',
        '99999999-9999-4999-8999-999999999999', 'vendor', 1, 'running', 1,
        jsonb_build_object('tokens', jsonb_build_object('0', jsonb_build_object('node', 'draft', 'hop', 0, 'phase',
        'resting',
            'step', encode(uuid_send(('01000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid), 'base64')))),
        '{}', '{}', 'V-' || n, now(), now()
    from generate_series(1, %(last)s) n
"""
_CHECKS = """
    insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)
    select i.id, i.bucket, i.org_id, 60, now() + case when row_number() over (order by i.id) <= %(due)s
        then interval '-1 hour' else interval '1 year' end
    from holdfast.instances i
"""
_DEFINITION = """
    insert into holdfast.definitions (id, org_id, kind, name, version, status, nodes, edges, compiled, hash,
    compiler_version,
        created_at, published_at)
    values ('99999999-9999-4999-8999-999999999999', 'acme', 'machine', 'vendor', 1, 'published', '[]', '[]',
        '{"config": {"environment": "prod", "definition": "vendor", "codes": {"edit": 7}}, "nodes": {"draft": {}}}',
        'x', '1',
        now(), now())
"""
_CONSUMERS = """
    insert into holdfast.consumers (id, bucket, since, registered_at, updated_at, org_id, environment, name, way,
        takes_transitions, takes_hooks, critical, ttl, max_attempts, in_flight)
    select gen_random_uuid(), 0, now(), now(), now(), case when n <= 3 then 'acme' else 'other' end, 'prod', 'c' || n,
    'pull',
        true, false, true, 30, 5, 10
    from generate_series(1, 500) n
"""
_ACKS = """
    insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal,
    most,
        closed_at, status)
    select i.id, i.bucket, now(), gen_random_uuid(), gen_random_uuid(), 'acme', 1, 0, 5,
        case when n < 3 then now() end, case when n < 3 then 'processed' else 'pending' end
    from holdfast.instances i cross join generate_series(1, 3) n
    where n < 3 or mod(i.bucket, 2) = 0
"""
_NOTICES = """
    insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id)
    select holdfast.new_id(), 0, date_trunc('month', now()) + n * interval '1 second',
        case when mod(n, 100) = 0 then 'small' else 'acme' end, case when mod(n,
        50) = 0 then 'RARE' else 'ACK_RETRY' end,
        'warn', 'x', case when mod(n, 10) = 0 then %(one)s::uuid end
    from generate_series(1, %(last)s) n
"""
_STEPS = """
    insert into holdfast.steps (instance_id, bucket, run, hop, created_at, id, entity_version, opened_version,
    opened_ordinal,
        org_id, node, behaviour, path, kind, receipt_key, cause, status, outcome)
    select i.id, i.bucket, 0, n, date_trunc('month', now()) + n * interval '1 second', gen_random_uuid(), 0, n, 1,
    'acme',
        'draft', 'rest', '0', 'forward', sha256(n::text::bytea), 'event', 'completed', 'edit'
    from holdfast.instances i cross join generate_series(1, %(each)s) n
    where i.bucket < 20 and i.id < '01000000-0000-7000-8000-000000000100'
"""
_ACTIVITIES = """
    insert into holdfast.activities (instance_id, bucket, id, org_id, step_id, step_created_at, state, name, actor,
    status,
        created_at, updated_at)
    select s.instance_id, s.bucket, gen_random_uuid(), s.org_id, s.id, s.created_at, 'draft', 'Check', 'r', 'Done',
    now(), now()
    from holdfast.steps s where mod(s.hop, 2) = 0
"""


@pytest.fixture(scope="module", params=["never analysed", "analysed when empty", "analysed"])
def grown(request: pytest.FixtureRequest, holdfast_server: str) -> Iterator[tuple[Db, Db]]:
    with (
        copied_database(holdfast_server) as small,
        copied_database(holdfast_server) as large,
        psycopg.connect(small.dsn, autocommit=True, prepare_threshold=None) as few,
        psycopg.connect(large.dsn, autocommit=True, prepare_threshold=None) as many,
    ):
        for db, last in ((few, FEW), (many, MANY)):
            _fill(db, last, request.param)
        yield few, many


def _fill(db: Db, last: int, state: str) -> None:
    for (table,) in db.execute(
        "select relname from pg_class where relkind = 'r' and relnamespace = 'holdfast'::regnamespace"
    ).fetchall():
        db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")
    if state == "analysed when empty":
        db.execute("vacuum analyze")
    given = {"last": last, "due": DUE, "one": ONE, "each": 20}
    for filling in (_INSTANCES, _CHECKS, _DEFINITION, _CONSUMERS, _ACKS, _NOTICES, _STEPS, _ACTIVITIES):
        db.execute(filling, given if "%(" in filling else None)
    if state == "analysed":
        db.execute("analyze")


def _run(db: Db, name: str, values: list[Any], org: str | None) -> dict[str, Any]:
    with db.transaction(force_rollback=True):
        if org is None:
            pin(db)
        else:
            be_tenant(db, org)
        plan = measure(db, name, values)
    db.execute("deallocate all")
    return plan


LISTS: dict[str, tuple[str, str, list[Any]]] = {
    "newest": ("list_notices", "acme", ["acme", None, None, None, None, None, 50]),
    "of a rare code": ("list_notices", "acme", ["acme", None, None, "RARE", None, None, 500]),
    "of a small organisation": ("list_notices", "small", ["small", None, None, None, None, None, 20]),
    "of an instance": ("list_notices_of_instance", "acme", ["acme", None, None, None, None, None, 50, ONE]),
    "forward": ("follow_notices", "acme", ["acme", "00000000-0000-0000-0000-000000000000", 50]),
}  # fmt: skip


@pytest.mark.parametrize("what", LISTS)
def test_a_page_of_notices_costs_the_same_whatever_there_is(grown: tuple[Db, Db], what: str) -> None:
    name, org, values = LISTS[what]
    few, many = (_run(db, name, values, org) for db in grown)
    for plan in (few, many):
        assert not node_types(plan) & {"Seq Scan", "Bitmap Heap Scan"}
        assert {access.table.partition("_")[0] for access in accesses(plan)} == {"notices"}
        assert all(("instance_id" in (a.index or "")) == (what == "of an instance") for a in accesses(plan))
    # Ids of one millisecond are in no order, so each row may lie on a page of its own.
    looked = next(value for value in reversed(values) if isinstance(value, int))
    assert buffers(many) <= buffers(few) + looked + 40, (buffers(few), buffers(many))


def test_a_look_costs_what_is_due_whatever_rests(grown: tuple[Db, Db]) -> None:
    few, many = (_run(db, "check_stale", [200], None) for db in grown)
    for plan in (few, many):
        types = node_types(plan)
        assert not types & {"Hash Join", "Merge Join", "Bitmap Heap Scan", "Seq Scan"}, types
        assert {(a.table.partition("_20")[0].removesuffix("_default"), a.index) for a in accesses(plan)} >= {
            ("stale_checks", "stale_checks_due"),
            ("stale_checks", "stale_checks_pkey"),
            ("instances", "instances_pkey"),
        }
    # One more level of a B-tree for each instance in each table, and for each month of acknowledgements.
    assert buffers(many) <= buffers(few) + 8 * DUE, (buffers(few), buffers(many))


def test_a_look_without_anything_due_reads_next_to_nothing(grown: tuple[Db, Db]) -> None:
    for db in grown:
        db.execute("update holdfast.stale_checks set due_at = now() + interval '1 year' where due_at < now()")
        try:
            assert buffers(_run(db, "check_stale", [200], None)) <= 30 + DUE  # dead rows of this very update
        finally:
            db.execute(
                "update holdfast.stale_checks set due_at = now() - interval '1 hour' where instance_id <="
                " ('01000000-0000-7000-8000-' || lpad(to_hex(%s::int), 12, '0'))::uuid",
                [DUE],
            )


@pytest.mark.parametrize(
    ("name", "values", "org"),
    [
        ("read_lifecycle", [ONE, 7, "acme", 1_000, 8_000_000], "acme"),
        ("list_activities", [ONE, 7, "acme", None, None, 100], "acme"),
        ("read_present_entry", [ONE, 7, "acme"], None),
        ("read_entry", [ONE, 7, "acme", 3], None),
        ("change_activity", [ONE, ONE, 7, "acme", "Done", None, None], None),
    ],
)
def test_the_reports_of_one_instance_cost_the_same_beside_many(
    grown: tuple[Db, Db], name: str, values: list[Any], org: str | None
) -> None:
    few, many = (_run(db, name, values, org) for db in grown)
    for plan in (few, many):
        assert not node_types(plan) & {"Hash Join", "Merge Join", "Bitmap Heap Scan", "Seq Scan"}, node_types(plan)
    assert buffers(many) <= buffers(few) + 80, (buffers(few), buffers(many))
