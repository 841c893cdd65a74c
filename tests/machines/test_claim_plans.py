"""What claims touch does not grow with what is open and not due, whatever the statistics say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

sys.path.append(str(Path(__file__).parent.parent / "store"))

from store_plans import Db, accesses, buffers, measure, node_types, pin

from holdfast.testing import copied_database

FEW, MANY = 1_000, {"short": 60_000, "long": 1_000_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
DUE = 100
CONSUMER = "01000000-0000-7000-8000-000000000007"
DOWN = "01000000-0000-7000-8000-000000000107"  # nobody takes what it is owed, and all of that is due
NOBODY = "00000000-0000-0000-0000-000000000000"

_CONSUMER = """
    with c as (
        insert into holdfast.consumers (id, bucket, org_id, environment, name, way, takes_transitions, takes_hooks,
            critical, ttl, max_attempts, in_flight, since, registered_at, updated_at)
        values (%(id)s, 7, 'acme', 'prod', %(name)s, 'pull', true, true, true, 30, 10, 100, clock_timestamp(),
            clock_timestamp(), clock_timestamp())
    )
    insert into holdfast.consumer_beats (consumer_id, bucket, org_id, beat_at)
    values (%(id)s, 7, 'acme', clock_timestamp())
"""
_INSTANCES = """
    create temporary table made as
    select n, (lpad(to_hex(1700000000000 + n), 12, '0') || '7abc8' || substr(md5(n::text), 1, 15))::uuid as id,
        date_trunc('month', clock_timestamp()) + n * interval '1 microsecond' as moment
    from generate_series(1, %(last)s) n
"""
_ACKS = """
    insert into holdfast.acks (instance_id, bucket, created_at, id, org_id, environment, definition, external_ref, kind,
        state, event, step_id, seq, ordinal, needs_ack, body)
    select id, get_byte(uuid_send(id), 15), moment, id, 'acme', 'prod', 'vendor', n::text, 'transition', 'Open', 'go',
        id, 1, 0, true, '{}'
    from made
"""
_BACKLOG = """
    insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal,
        most, next_due)
    select id, get_byte(uuid_send(id), 15), moment, id, %(down)s, 'acme', 1, 0, 10, moment
    from made where mod(n, 16) = 0
"""
_DELIVERIES = """
    insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal,
        most, next_due)
    select id, get_byte(uuid_send(id), 15), moment, id, %(id)s, 'acme', 1, 0, 10,
        case when n <= %(due)s then moment when mod(n, 2) = 0 then clock_timestamp() + interval '1 day' end
    from made
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
    tables = "select relname from pg_class where relkind = 'r' and relname ~ '^(acks_|ack_consumers_|consumer)'"
    for (table,) in db.execute(tables).fetchall():
        db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")
    if state == "analysed when empty":
        db.execute("vacuum analyze")
    values = {"id": CONSUMER, "down": DOWN, "last": last, "due": DUE}
    for id, name in ((CONSUMER, "billing"), (DOWN, "archive")):
        db.execute(_CONSUMER, {"id": id, "name": name})
    for statement in (_INSTANCES, _ACKS, _DELIVERIES, _BACKLOG):
        db.execute(statement, values)
    if state == "analysed":
        db.execute("analyze")


# As partitions name them: "ack_consumers_due", "ack_consumers_lag", "ack_consumers_open".
DUE_INDEX = "ack_consumers_consumer_id_next_due_idx"
LAG_INDEX = "ack_consumers_consumer_id_created_at_idx"
OPEN_INDEX = "ack_consumers_instance_id_consumer_id_seq_ordinal_idx"
FACTS_INDEXES = {  # of months and of the default partition, whose names are longer
    "acks_org_id_environment_created_at_instance_id_seq_o_idx",
    "acks_org_id_environment_created_at_instance_id_seq__idx",
}
CONSUMER_INDEXES = {"consumers_pkey", "consumers_name"}  # of a short table: either will do
BEGINNING = "-infinity"
FILLING = '{"phase": "fill"}'
# statement → parameters, the indexes it may use, and how much one more level of each may cost
COSTS: dict[str, tuple[list[Any], set[str], int]] = {
    "claim_deliveries": (
        [[CONSUMER], [50], [40_000_000], [1], 200, 240_000_000, 8_000_000],
        {DUE_INDEX, "ack_consumers_pkey", "acks_pkey", "consumers_pkey", "consumer_beats_pkey"},
        400,
    ),
    "read_next_delivery": ([[CONSUMER]], {DUE_INDEX}, 5),
    "list_open_deliveries": (
        ["acme", "prod", "billing", BEGINNING, NOBODY, 50],
        {LAG_INDEX, "acks_pkey", "consumers_name"},
        100,
    ),
    "list_consumers": (
        ["acme", "prod", "", 51, 50, None, None], {"consumers_name", "consumer_beats_pkey", LAG_INDEX}, 60,
    ),
    "arm_deliveries": ([CONSUMER, BEGINNING, 50], {LAG_INDEX, OPEN_INDEX, "ack_consumers_pkey"}, 400),
    "abandon_deliveries": ([CONSUMER, BEGINNING, 50], {LAG_INDEX, "acks_pkey", "ack_consumers_pkey"}, 200),
    "fill_deliveries": (
        [CONSUMER, 7, FILLING, BEGINNING, NOBODY, -1, -1, 50, False],
        {*FACTS_INDEXES}, 300,
    ),
    "list_behind": ([51, 50], {LAG_INDEX, "consumers_name"}, 10),
    "disarm_deliveries": ([CONSUMER, 50], {DUE_INDEX, "ack_consumers_pkey"}, 300),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_a_claim_costs_the_same_whatever_is_open(grown: tuple[Db, Db], name: str) -> None:
    values, indexes, most = COSTS[name]
    few, many = (_look(db, name, values, indexes) for db in grown)
    assert many <= few + most, (few, many)


def _look(db: Db, name: str, values: list[Any], indexes: set[str]) -> int:
    with db.transaction(force_rollback=True):
        if name == "fill_deliveries":
            db.execute("update holdfast.consumers set filled_to = %s", [FILLING])
        pin(db)
        plan = measure(db, name, values)
    db.execute("deallocate all")
    used = {access.index for access in accesses(plan)}
    assert used - CONSUMER_INDEXES == indexes - CONSUMER_INDEXES, (name, used)
    assert not node_types(plan) & {"Hash Join", "Merge Join", "Seq Scan", "Bitmap Heap Scan"}
    return buffers(plan)


def test_a_fact_is_found_by_its_address(grown: tuple[Db, Db]) -> None:
    for db in grown:
        [(instance, bucket, at, fact)] = db.execute(
            "select instance_id, bucket, created_at, ack_id from holdfast.ack_consumers limit 1"
        ).fetchall()
        key = [[instance], [bucket], [at], [fact], [CONSUMER]]
        for name, further in (
            ("mark_deliveries", [1]),
            ("postpone_deliveries", [[at], [None]]),
            ("move_deliveries", [[0], [0], [1]]),
        ):
            values = [*key, *further]
            assert _look(db, name, values, {"ack_consumers_pkey"}) <= 200


@pytest.mark.parametrize(
    "name",
    [
        "close_deliveries",
        "insert_deliveries",
        "pass_gates",
        "promote_deliveries",
        "read_deliveries",
        "rearm_deliveries",
        "release_deliveries",
    ],
)
def test_a_commit_touches_deliveries_of_its_instances_only(grown: tuple[Db, Db], name: str) -> None:
    open_of_one, whole_key = {OPEN_INDEX, "consumers_pkey"}, {"ack_consumers_pkey"}
    for db in grown:
        [(instance, bucket, at, fact)] = db.execute(
            "select instance_id, bucket, created_at, ack_id from holdfast.ack_consumers limit 1"
        ).fetchall()
        place: list[Any] = [[instance], [bucket]]
        facts: list[Any] = [
            ["acme"],
            ["prod"],
            ["vendor"],
            ["transition"],
            ["Open"],
            ["go"],
            [None],
            [2],
            [0],
            [None],
            [None],
            ["7"],
        ]
        values, indexes = {
            "close_deliveries": (
                [*place, [at], [fact], [CONSUMER], ["processed"], [True], [None], [None], at, 1], whole_key,
            ),
            "insert_deliveries": ([*place, [CONSUMER], *facts, at], {OPEN_INDEX, "consumers_name"}),
            "promote_deliveries": ([*place, [CONSUMER], at], open_of_one | whole_key),
            "read_deliveries": ([*place, [at], [fact]], {*whole_key, "acks_pkey", "consumers_pkey"}),
            "rearm_deliveries": ([*place, at], {*open_of_one, *whole_key}),
            "release_deliveries": ([*place, at], {*open_of_one, *whole_key}),
            "pass_gates": ([*place, [fact], ["acme"], at], whole_key),
        }[name]  # fmt: skip
        assert _look(db, name, values, indexes) <= 250


def test_receiving_in_sql_costs_the_same_whatever_is_open(grown: tuple[Db, Db]) -> None:
    few, many = (_cost_of_receiving(db) for db in grown)
    assert many <= few + 400, (few, many)


def _cost_of_receiving(db: Db) -> int:
    asked = "explain (analyze, buffers, format json) select from holdfast.receive('billing', 50, 'prod', 'acme')"
    for _ in range(2):  # the first call reads the catalogue, too
        with db.transaction(force_rollback=True):
            [(found,)] = db.execute(asked).fetchall()
    return buffers(found[0]["Plan"])


def test_a_requeue_costs_what_is_open_of_its_instance(grown: tuple[Db, Db]) -> None:
    for db in grown:
        [(instance, bucket, at, fact)] = db.execute(
            "select instance_id, bucket, created_at, ack_id from holdfast.ack_consumers limit 1"
        ).fetchall()
        with db.transaction(force_rollback=True):
            db.execute("update holdfast.ack_consumers set status = 'failed' where ack_id = %s", [fact])
            pin(db)
            place = [[instance], [bucket]]
            for name, values, indexes in (
                ("requeue_deliveries", [*place, [at], [fact], [CONSUMER], 1],
                 {OPEN_INDEX, "ack_consumers_pkey", "consumers_pkey"}),
                ("read_halting", place, {OPEN_INDEX}),
                ("list_deliveries_of_instance",
                 [instance, bucket, "acme", True, at, NOBODY, 50, NOBODY],
                 {OPEN_INDEX, "ack_consumers_pkey", "acks_pkey", "consumers_pkey"}),
                ("resolve_ack_letters", [*place, [fact], [CONSUMER], ["replayed"], ["ann"], [None], at],
                 {"dead_letters_by_instance", "dead_letters_pkey", "ack_consumers_pkey", "instances_pkey"}),
            ):  # fmt: skip
                plan = measure(db, name, values)
                assert {access.index for access in accesses(plan)} <= indexes, (name, accesses(plan))
                assert not node_types(plan) & {"Hash Join", "Merge Join", "Seq Scan", "Bitmap Heap Scan"}, name
                assert buffers(plan) <= 250, name
        db.execute("deallocate all")


@pytest.mark.parametrize("name", ["claim_deliveries", "read_next_delivery"])
def test_a_claim_costs_the_same_whatever_is_due(grown: tuple[Db, Db], name: str) -> None:
    values, indexes, most = COSTS[name]
    few, many = (_look(db, name, [[DOWN], *values[1:]], indexes) for db in grown)
    assert many <= few + most, (few, many)
