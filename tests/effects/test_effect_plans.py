"""What the statements of the outbox touch does not grow with what was delivered, whatever the statistics say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

sys.path.append(str(Path(__file__).parent.parent / "store"))

from store_plans import Db, accesses, be_tenant, buffers, measure, node_types, pin

from holdfast.store.effects import UNDELIVERED, WINDOW
from holdfast.testing import copied_database

FEW, MANY = 2_000, 60_000
DUE, CLAIMED = 300, 40
WORKER = "99999999-9999-4999-8999-999999999999"

_FILL = """
    insert into holdfast.effects (instance_id, bucket, created_at, id, org_id, step_id, step_created_at, token,
        effect_type, payload, key, awaited, status, attempts, max_attempts, next_attempt_at, worker, fence, target,
        completed_at, deadline_at)
    select i.id, get_byte(uuid_send(i.id), 15), moment,
        (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || '7abc8' || substr(i.id::text, 21))::uuid,
        'acme', i.id, moment, '0@1', case n when %(claimed)s + 1 then 'rare' else 'webhook' end, '{}', n::text, false,
        case when n <= %(due)s then 'pending' when n <= %(claimed)s then 'processing' else 'completed' end,
        0, 5, case when mod(n, 3) = 0 then moment + interval '1 year' else moment end,
        case when n between %(due)s + 1 and %(claimed)s then %(worker)s::uuid end, 0, 'host-' || mod(n, 10),
        case when n > %(claimed)s then moment end,
        case when n between %(due)s + 1 and %(claimed)s then 'infinity'::timestamptz end
    from (
        select n, (lpad(to_hex(1700000000000 + n), 12, '0') || '7abc8' || substr(md5(n::text), 1, 15))::uuid as id,
            date_trunc('month', clock_timestamp()) + n * interval '1 millisecond' as moment
        from generate_series(1, %(last)s) n
    ) i
"""
_INSTANCES = """
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data,
        input, created_at, updated_at)
    select instance_id, bucket, 'acme', instance_id, 'told', 1, 'running', 1, '{}', '{}', '{}', created_at, created_at
    from holdfast.effects
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
        "select relname from pg_class where relkind = 'r' and relname ~ '^(effects_|instances$)'"
    ).fetchall():
        db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")
    if state == "analysed when empty":
        db.execute("vacuum analyze")
    db.execute(_FILL, {"due": DUE, "claimed": DUE + CLAIMED, "last": last, "worker": WORKER})
    db.execute(_INSTANCES)
    if state == "analysed":
        db.execute("analyze")


def _rows(db: Db, status: str, limit: int) -> list[tuple[Any, ...]]:
    return db.execute(
        "select instance_id, bucket, created_at, id, fence, worker from holdfast.effects where status = %s limit %s",
        [status, limit],
    ).fetchall()


def _lists(db: Db) -> dict[str, tuple[str, list[Any]]]:
    [(deep,)] = db.execute("select id from holdfast.effects where key = '1500'").fetchall()
    return {
        "undelivered": ("list_effects", [list(UNDELIVERED), "acme", None, None, None, 51, 51]),
        "delivered": ("list_effects", [["completed"], "acme", None, None, None, 51, 51]),
        "deep in the pages": ("list_effects", [["completed"], "acme", deep, None, None, 51, 51]),
        "of a rare kind": ("list_effects", [["completed"], "acme", None, "rare", None, WINDOW, 51]),
        "of a rare flow": ("list_effects", [["completed"], "acme", None, None, "rare", WINDOW, 51]),
        "one": ("read_effect", [deep, "acme"]),
    }


def test_a_page_costs_the_same_whatever_was_delivered(grown: tuple[Db, Db]) -> None:
    cost = [{what: _look(db, *asked) for what, asked in _lists(db).items()} for db in grown]
    for what, few in cost[0].items():
        # One more level of a B-tree for each row that is looked up, and for each month, is all that history may cost.
        looked_up = WINDOW if what == "of a rare flow" else 51
        assert cost[1][what] <= few + looked_up + 20, (what, cost)


def _look(db: Db, name: str, values: list[Any]) -> int:
    with db.transaction(force_rollback=True):
        be_tenant(db, "acme")
        plan = measure(db, name, values)
    db.execute("deallocate all")
    used = {access.index for access in accesses(plan)}
    by_key = {"effects_pkey", "instances_pkey"} if name == "list_effects" else set[str]()
    assert used == {"effects_org_id_status_id_idx", *by_key}, (name, used)
    assert plan["Actual Rows"] == (1 if name == "read_effect" else values[5])
    return buffers(plan)


def test_the_effects_of_one_instance_are_found_by_its_key(grown: tuple[Db, Db]) -> None:
    for db in grown:
        [(instance, bucket, moment, *_)] = _rows(db, "completed", 1)
        page = [moment, "00000000-0000-0000-0000-000000000000", 51]
        with db.transaction(force_rollback=True):
            be_tenant(db, "acme")
            plan = measure(db, "list_effects_of_instance", [instance, bucket, "acme", *page])
        db.execute("deallocate all")
        assert plan["Actual Rows"] == 1
        assert {access.index for access in accesses(plan)} == {"effects_pkey"}
        assert not node_types(plan) & {"Sort", "Incremental Sort"}
        assert buffers(plan) < 60


# After the reads: what it rolls back leaves dead rows, which a page may or may not come across.
def _statements(db: Db) -> dict[str, list[Any]]:
    hosts = [f"host-{n}" for n in range(10)]
    taken = [list(column) for column in zip(*_rows(db, "processing", 20), strict=True)]
    count = len(taken[0])
    return {
        "list_effect_targets": ["webhook", "", 200],
        "claim_effects": [["webhook"] * 10, hosts, [50] * 10, ["other"] * 10, 100, WORKER, 30, 10],
        "reclaim_effects": [100],
        "list_claimed_effects": [WORKER],
        "count_backlog": [100],
        "return_effects": [*taken[:5], WORKER],
        "leave_effects": [*taken[:5], ["{}"] * count, WORKER],
        "finish_effects": [*taken, ["completed"] * count, [0] * count, ["{}"] * count, [None] * count, [None] * count],
    }


def test_what_is_touched_does_not_grow_with_what_was_delivered(grown: tuple[Db, Db]) -> None:
    touched = [_touched(db) for db in grown]
    for name, few in touched[0].items():
        many = touched[1][name]
        # Thirty times more history may cost one more level of a B-tree per row that is changed.
        assert many <= few * 1.3 + 150, (name, few, many)


def _touched(db: Db) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, values in _statements(db).items():
        with db.transaction(force_rollback=True):
            pin(db)
            plan = measure(db, name, values)
        db.execute("deallocate all")
        used = {access for access in accesses(plan) if access.table in ("effects", "instances", "steps")}
        assert all(access.index is not None for access in used), (name, [str(a) for a in used])
        assert not node_types(plan) & {"Hash Join", "Merge Join", "Seq Scan on effects"}, name
        found[name] = buffers(plan)
    return found
