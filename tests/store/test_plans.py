"""The form of a statement leaves one plan: the same on empty tables, on full ones, and when the statistics are wrong.

`HOLDFAST_PROFILE=long pytest tests/store/test_plans.py` compares ten thousand instances with a million instead of a
hundred thousand.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from store_fill import (
    HISTORY,
    LIVE,
    QUEUES,
    WORKER,
    analyse_one_page,
    define,
    fill,
    ids,
    moment,
    pretend,
    stop_autovacuum,
)
from store_plans import (
    Db,
    Plan,
    accesses,
    be_tenant,
    buffers,
    explain,
    measure,
    node_types,
    pin,
    sorts_before_locking,
    text_of,
)

from holdfast.store.pg.partitions import MONTHLY
from holdfast.store.pg.statements import LONELY, SQL, base_name
from holdfast.testing import copied_database

SMALL = 10_000
LARGE = {"short": 100_000, "long": 1_000_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
ROWS = 200

TENANTS = {
    "read_compensation": {"steps_pkey"},
    "list_api_keys": {"api_keys_by_org"},
    "list_dead_letters": {"dead_letters_open", "dead_letters_pkey"},
    "list_dead_letters_by_error": {"dead_letters_by_error", "dead_letters_pkey"},
    "list_dead_letters_by_flow": {"dead_letters_by_flow", "dead_letters_pkey"},
    "list_dead_letters_of_instance": {"dead_letters_by_instance", "dead_letters_pkey"},
    "list_events": {"events_pkey"},
    "list_late_events": {"events_pkey"},
    "page_contract_events": {"contract_events_by_type"},
    "list_instances": {"instances_by_flow", "instances_pkey", "definitions_org_id_kind_name_version_key"},
    "list_whereabouts": {"instances_by_flow", "instances_pkey", "definitions_org_id_kind_name_version_key"},
    "list_window_by_attribute": {"instance_attributes_pkey", "instances_pkey"},
    "list_window_by_business_key": {"instances_by_business_key", "instances_pkey"},
    "list_window_by_end": {"instances_by_end", "instances_pkey"},
    "list_window_by_error": {"instances_by_error", "instances_pkey"},
    "list_window_by_flow": {"instances_by_flow", "instances_pkey"},
    "list_window_by_starter": {"instances_by_starter", "instances_pkey"},
    "list_window_by_status": {"instances_by_status", "instances_pkey"},
    "list_last_steps": {"steps_pkey"},
    "list_results": {"steps_pkey"},
    "list_tasks_by_id": {"tasks_pkey"},
    "list_tasks_about": {"tasks_by_instance"},
    "list_instances_by_id": {"instances_pkey"},
    "read_whereabouts": {"instances_pkey"},
    "list_instances_by_business_key": {"instances_by_business_key"},
    "list_instances_by_parent": {"instances_by_parent"},
    "list_instances_by_key": {"instances_idempotency"},
    "list_instances_by_status": {"instances_by_status"},
    "list_steps": {"steps_pkey"},
    "page_events": {"events_pkey"},
    "page_steps": {"steps_pkey"},
    "read_dead_letter": {"dead_letters_pkey"},
    "read_instance": {"instances_pkey"},
    "read_start": {"instances_pkey"},
    "read_runtime": {"instances_pkey", "events_pkey", "tasks_by_instance"},
    "list_finished_tasks": {"tasks_over"},
    "list_free_tasks": {"tasks_free", "instances_pkey"},
    "list_open_tasks": {"tasks_open"},
    "list_task_events": {"task_events_pkey"},
    "list_tasks_of_assignee": {"tasks_assigned"},
    "list_tasks_of_instance": {"tasks_by_instance"},
    "list_tasks_of_role": {"task_roles_inbox", "tasks_pkey"},
    "read_statistics": {"statistics_pkey"},
    "read_statistics_between": {"statistics_pkey"},
    "read_task": {"tasks_pkey"},
}
WORKERS = {
    "count_ancestors": {"instances_pkey"},
    "lock_letters": {"dead_letters_pkey"},
    "resolve_letters": {"dead_letters_by_instance"},
    "insert_letters": set[str](),
    "read_past": {"steps_pkey"},
    "read_undos": {"steps_pkey"},
    "move_steps": {"steps_pkey"},
    "begin_rollbacks": {"instances_pkey", "work_pkey", "steps_pkey"},
    "undo_steps": {"instances_pkey", "work_pkey", "steps_pkey"},
    "end_rollbacks": {"instances_pkey", "work_pkey", "steps_pkey"},
    "advance_steps": {"instances_pkey", "work_pkey", "steps_pkey"},
    "begin_attempts": {"signals_pkey"},
    "begin_instances": set[str](),
    "bury_signals": {"signals_pkey", "instances_pkey"},
    "bury_work": {"work_pkey", "steps_pkey", "instances_pkey"},
    "change_task": {"tasks_pkey"},
    "claim_instances": {"signals_ready", "signals_pkey", "instances_pkey"},
    "claim_work": {"work_ready", "work_pkey", "steps_pkey", "instances_pkey"},
    "close_steps": {"steps_pkey"},
    "close_tasks": {"tasks_pkey", "task_roles_pkey"},
    "count_attempts": {"signals_pkey", "instances_pkey"},
    "count_open_work": {"signals_ready", "work_ready", "work_owner", "timers_due", "work_parked", "stale_checks_due"},
    "delete_key_waits": {"key_waits_by_instance"},
    "delete_signals": {"signals_pkey"},
    "delete_timers": {"timers_pkey"},
    "delete_work": {"work_pkey"},
    "discard_letters": {"dead_letters_pkey", "work_pkey", "instances_pkey"},
    "drop_work": {"work_pkey"},
    "find_lost_work": {"work_pkey"},
    "find_outbox_receipts": {"outbox_receipts_pkey"},
    "find_started": {"instances_idempotency"},
    "find_stopped_work": {"work_pkey"},
    "finish_instances": {"instances_pkey", "work_pkey", "steps_pkey"},
    "fire_timers": {"timers_due", "timers_pkey"},
    "hand_off_work": {"work_pkey"},
    "insert_api_key": set[str](),
    "insert_contract_event": set[str](),
    "insert_effects": set[str](),
    "insert_events": set[str](),
    "insert_instances": set[str](),
    "insert_key_waits": set[str](),
    "insert_outbox_receipts": set[str](),
    "insert_receipts": set[str](),
    "insert_signals": set[str](),
    "insert_statistics": set[str](),
    "insert_tasks": set[str](),
    "insert_timers": set[str](),
    "insert_work": set[str](),
    "keep_events": set[str](),
    "list_leased_work": {"work_owner"},
    "list_unfinished": {"instances_by_status"},
    "list_unserved_queues": {"work_ready"},
    "bury_deliveries": set[str](),
    "ensure_instances": set[str](),
    "find_ensured": {"instances_idempotency"},
    "find_machine_instance": {"instances_by_business_key", "outbox_receipts_pkey"},
    "find_takers": set[str](),
    "insert_acks": {"instances_pkey"},
    "insert_notices": set[str](),
    "read_answer": {"outbox_receipts_pkey"},
    "tell_notices": set[str](),
    "upsert_activity": set[str](),
    "lock_event_keys": set[str](),
    "lock_instances": {"instances_pkey"},
    "lock_tasks": {"tasks_pkey"},
    "mark_events": set[str](),
    "migrate_instances": {"instances_pkey"},
    "note_api_key_use": {"api_keys_pkey"},
    "note_events": {"instances_pkey"},
    "note_missing_handlers": {"work_ready", "work_pkey", "steps_pkey", "instances_pkey"},
    "open_steps": set[str](),
    "park_work": {"work_pkey", "steps_pkey"},
    "read_api_key": {"api_keys_pkey"},
    "read_key_events": {"key_events_pkey", "outbox_receipts_pkey"},
    "read_last_call": {"steps_pkey"},
    "read_visited": {"steps_pkey"},
    "was_taken_back": {"events_pkey"},
    "read_migrations": {"steps_pkey"},
    "read_next_due": {"timers_due", "work_parked", "stale_checks_due"},
    "read_signals": {"signals_pkey"},
    "read_snapshots": {"instances_pkey"},
    "reclaim_work": {"work_owner", "work_deadline", "work_parked", "work_pkey", "steps_pkey", "instances_pkey"},
    "rename_tasks": {"tasks_pkey"},
    "replay_signals": {"dead_letters_pkey", "instances_pkey"},
    "replay_work": {"dead_letters_pkey", "work_pkey", "steps_pkey", "instances_pkey"},
    "retry_steps": {"steps_pkey"},
    "return_claims": {"work_pkey", "steps_pkey"},
    "revoke_api_key": {"api_keys_pkey"},
    "rotate_api_key": {"api_keys_pkey"},
    "return_work": {"work_pkey"},
    "start_fresh_instances": set[str](),
    "start_instances": set[str](),
    "stop_work": {"work_pkey"},
    "supersede_steps": {"steps_pkey"},
    "take_idle_work": {"work_pkey", "steps_pkey"},
    "take_kept_events": {"inbox_pkey"},
    "take_turns": set[str](),
    "uncount_calls": {"steps_pkey"},
    "update_instances": {"instances_pkey"},
    "watch_instances": {"stale_checks_pkey"},
}
# What is written within one month is written by the name of its partitions.
WORKERS |= {f"{name}@{datetime.now(UTC):%Y%m}": WORKERS[name] for name in (*MONTHLY, "begin_rollbacks")}
WORKERS |= {f"{name}!": WORKERS[name] for name in list(WORKERS) if base_name(name) in LONELY}  # for one row
EXPECTED = TENANTS | WORKERS

# Indexes that a statement may walk in order from one end, because it stops after what it was asked for.
WALKED = {
    ("claim_instances", "signals_ready"), ("count_open_work", "signals_ready"), ("read_next_due", "timers_due"),
    ("read_next_due", "work_parked"), ("read_next_due", "stale_checks_due"),
}  # fmt: skip
# Tables with a row per process, consumer or published flow, or with what upkeep has not folded yet: they stay short.
SHORT_TABLES = {"workers", "consumers", "definitions", "statistics_deltas"}
# Statements about few rows in seldom visited tables; everything else that reads a table is listed above.
SELDOM = {
    "check_definition", "find_definition", "has_lost_workers", "insert_definition", "insert_worker", "list_flows",
    "list_machine_names", "list_rival_handlers", "list_workers", "load_definition", "page_flows", "page_machines",
    "page_versions",
    "prune_workers", "read_flow", "renew_lease", "stop_worker",
    "beat_consumers", "begin_probe", "find_consumers", "list_filling", "list_push_consumers",
    "note_reach",
    "register_consumer", "remove_consumer", "save_filling", "find_blueprint",
    "archive_patch", "delete_draft", "insert_effective", "insert_envelope", "insert_patch", "list_patched_orgs",
    "page_contract_versions", "page_contracts", "page_patches", "read_contract", "read_draft", "read_effective",
    "read_numbers", "read_patch", "save_draft",
    "insert_decision_table", "page_decision_tables", "read_decision_table",
}  # fmt: skip

# The outbox has partial indexes on partitions, whose names differ: tests/effects/test_effect_plans.py looks at it.
OUTBOX = {
    "claim_effects", "count_backlog", "finish_effects", "list_claimed_effects", "list_effect_targets", "list_effects",
    "leave_effects", "list_effects_of_instance", "read_effect", "reclaim_effects", "replay_effects", "return_effects",
}  # fmt: skip
# Deliveries have partial indexes on partitions, too: tests/machines/test_claim_plans.py looks at what is hot of these.
DELIVERIES = {
    "abandon_deliveries", "arm_deliveries", "claim_deliveries", "close_deliveries", "disarm_deliveries",
    "fill_deliveries", "find_delivery", "find_taker", "insert_deliveries", "list_behind", "list_in_hand",
    "list_consumers", "list_deliveries_of_instance", "list_open_deliveries", "mark_deliveries", "move_deliveries",
    "postpone_deliveries", "promote_deliveries", "read_deliveries", "read_halting", "read_next_delivery",
    "rearm_deliveries", "requeue_deliveries", "resolve_ack_letters", "pass_gates", "release_deliveries",
}  # fmt: skip

# Notices and the lifecycle lie in partitions, too: tests/machines/test_plans_of_reports.py looks at them.
REPORTS = {
    "change_activity", "check_stale", "follow_notices", "list_activities", "list_notices", "list_notices_of_instance",
    "read_entry", "read_lifecycle", "read_machine_instance", "read_present_entry",
}  # fmt: skip

STATES: dict[str, Callable[[Db], object]] = {
    "never analysed": lambda _: None,
    "vacuumed when empty": lambda db: db.execute("vacuum analyze"),
    "vacuumed with one page": analyse_one_page,
    "grown without analyse": lambda db: fill(db, HISTORY | QUEUES, 20_000),
    "twenty thousand": lambda db: db.execute("analyze"),
    "believed a million": lambda db: pretend(db, 50),
}

Explained = dict[tuple[str, str], Plan]


@pytest.fixture(scope="module")
def plans(holdfast_server: str) -> Iterator[Explained]:
    """The plan of every statement in every state; the states follow one another in one database."""
    found: Explained = {}
    with copied_database(holdfast_server) as database, _connected(database.dsn) as db:
        stop_autovacuum(db)
        define(db)
        for state, enter in STATES.items():
            enter(db)
            for name in EXPECTED:
                found[state, name] = _in_role(db, name, lambda db, name=name: explain(db, name))
        yield found


@pytest.fixture(scope="module")
def leading(holdfast_server: str) -> Iterator[dict[str, str]]:
    """The first column of every index."""
    with copied_database(holdfast_server) as database, _connected(database.dsn) as db:
        yield dict(
            db.execute(
                "select c.relname, a.attname from pg_index x join pg_class c on c.oid = x.indexrelid"
                " join pg_attribute a on a.attrelid = c.oid and a.attnum = 1"
                " where c.relnamespace = 'holdfast'::regnamespace"
            ).fetchall()
        )


def _connected(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=None)


def _in_role(db: Db, name: str, act: Callable[[Db], Plan]) -> Plan:
    """In a transaction that leaves nothing behind."""
    with db.transaction(force_rollback=True):
        if name in TENANTS:
            be_tenant(db, "small")
        else:
            pin(db)
        plan = act(db)
    db.execute("deallocate all")
    return plan


def test_every_statement_that_reads_a_table_has_an_expected_plan() -> None:
    table = re.compile(rb"\b(from|join|using|into|update|delete from) holdfast\.")
    reading = {name for name, statement in SQL.all.items() if table.search(statement.sql)}
    assert reading - SELDOM - OUTBOX - REPORTS - DELIVERIES == {n for n in EXPECTED if n == base_name(n)}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_plan_is_the_intended_one(plans: Explained, leading: dict[str, str], name: str, state: str) -> None:
    plan = plans[state, name]
    used = {a for a in accesses(plan) if a.table not in SHORT_TABLES}
    assert {a.index for a in used} == EXPECTED[name] - {"definitions_org_id_kind_name_version_key"}
    for access in used:
        assert access.index is not None
        if (name, access.index) not in WALKED:
            # A condition on later columns alone would mean reading the whole index.
            assert f"({leading[access.index]} " in access.condition, str(access)
    assert not node_types(plan) & {"Hash Join", "Merge Join", "Bitmap Heap Scan", "Materialize", "Memoize"}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", sorted(n for n in WORKERS if b" unnest(" in text_of(n)))
def test_a_batch_probes_once_per_row(plans: Explained, name: str, state: str) -> None:
    outside = [str(a) for a in accesses(plans[state, name]) if not a.inside and a.table not in SHORT_TABLES]
    if name == "count_open_work":
        outside = [a for a in outside if "work_ready" in a]
    assert outside == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["claim_instances", "claim_work", "fire_timers", "reclaim_work"])
def test_a_claim_takes_rows_in_the_order_of_its_index(plans: Explained, name: str, state: str) -> None:
    assert not sorts_before_locking(plans[state, name])


# What the plans cost


@pytest.fixture(scope="module")
def grown(holdfast_server: str) -> Iterator[tuple[Db, Db]]:
    """The same live instances and queues, before little and before much history, analysed when they were empty."""
    with (
        copied_database(holdfast_server) as small,
        copied_database(holdfast_server) as large,
        _connected(small.dsn) as few,
        _connected(large.dsn) as many,
    ):
        for db, size in ((few, SMALL), (many, LARGE)):
            stop_autovacuum(db)
            define(db)
            analyse_one_page(db)
            fill(db, HISTORY, size)
            fill(db, QUEUES, LIVE)
        yield few, many


@pytest.fixture(scope="module", params=["analysed when empty", "analysed"])
def sized(request: pytest.FixtureRequest, grown: tuple[Db, Db]) -> tuple[Db, Db]:
    if request.param == "analysed":
        for db in grown:
            db.execute("analyze")
    return grown


def _commit(db: Db) -> dict[str, list[Any]]:
    """The statements of a claim and of an advance over live instances, with their parameters."""
    numbers = range(5, 5 + 9 * ROWS, 9)
    live, steps, now = ids(db, numbers), ids(db, [2 * n + 1 for n in numbers]), moment(db)
    buckets, none = [id.bytes[15] for id in live], [None] * ROWS

    def same(value: Any) -> list[Any]:
        return [value] * ROWS

    return {
        "claim_work": [["main"], ROWS, WORKER],
        "claim_instances": [ROWS],
        "lock_instances": [live, buckets, same(3)],
        "read_signals": [live, buckets, 32],
        "update_instances": [live, buckets, same(3), same(4), same("running"), none, same("{}"), none, none, none, none,
                             none, none, none, now, WORKER, ROWS],
        "delete_signals": [live, buckets, live, ROWS],
        "insert_receipts": [live, buckets, same("0@9"), same("forward"), same(0), same("huge"), same(b"0"), steps, now],
        "close_steps": [live, buckets, same(now), steps, same("completed"), same("done"), none, none, none, none,
                        same(4), same(0), none, now, ROWS],
        "insert_events": [live, buckets, same("huge"), same(4), same(0), same("closed"), none, none, none, none, now],
    }  # fmt: skip


def test_claim_and_advance_touch_the_same_pages_whatever_the_history(sized: tuple[Db, Db]) -> None:
    few, many = (_pages(db) for db in sized)
    assert sum(many.values()) <= 1.2 * sum(few.values()), (few, many)
    probes = {"claim_work": 2}  # of steps and instances; all others visit one table of history per row
    for name in few:
        # One more level of a B-tree is the only thing a hundred times more history may cost.
        assert many[name] <= few[name] + ROWS * probes.get(name, 1) + 50, (name, few, many)


def _pages(db: Db) -> dict[str, int]:
    """How many pages each statement touches."""
    return {
        name: buffers(_in_role(db, name, lambda db, name=name, values=values: measure(db, name, values)))
        for name, values in _commit(db).items()
    }


def _page(org: str, flow: str | None, after: Any, wanted: str | None) -> list[Any]:
    return [org, flow, after, 50, wanted]


def _all_times(values: list[Any]) -> list[Any]:
    return [*values, "-infinity", "infinity"]


LISTS: dict[str, tuple[str, str, Callable[[Db], list[Any]]]] = {
    "a small organisation beside a huge one": (
        "list_instances", "small", lambda _: _all_times(_page("small", None, None, None))),
    "the huge organisation": ("list_instances", "huge", lambda _: _all_times(_page("huge", None, None, None))),
    "a rare flow": ("list_instances", "huge", lambda _: _all_times(_page("huge", "rare", None, None))),
    "what is completed": ("list_instances", "huge", lambda _: _all_times(_page("huge", None, None, "completed"))),
    "deep in the pages": (
        "list_instances", "huge", lambda db: _all_times(_page("huge", "order", ids(db, [SMALL // 2])[0], None))),
    "what failed": ("list_instances_by_status", "huge", lambda _: _page("huge", None, None, "failed")),
    "what failed in a small organisation": (
        "list_instances_by_status", "small", lambda _: _page("small", None, None, "failed")),
    "what failed, deep in the pages": (
        "list_instances_by_status", "huge", lambda db: _page("huge", None, ids(db, [SMALL // 2])[0], "failed")),
    "a business key": (
        "list_instances_by_business_key", "huge", lambda _: [*_page("huge", None, None, "customer-31"), None]),
    "one instance": ("read_instance", "huge", lambda db: [ids(db, [5001])[0], ids(db, [5001])[0].bytes[15], "huge"]),
}  # fmt: skip


@pytest.mark.parametrize("what", LISTS)
def test_a_list_reads_little_more_than_its_page(sized: tuple[Db, Db], what: str) -> None:
    name, org, values = LISTS[what]
    few, many = (_read(db, name, org, values(db)) for db in sized)
    for plan in (few, many):
        assert buffers(plan) <= 250, (buffers(few), buffers(many))
    assert buffers(many) <= buffers(few) + 110, (buffers(few), buffers(many))


def _window(wishes: dict[str, Any], *keys: Any, looks: int = 500) -> list[Any]:
    """The parameters of a look for ten that fit."""
    return ["huge", None, json.dumps(wishes), looks, 10, *keys]


YEAR = ["2023-01-01", "2024-01-01"]
WINDOWS: dict[str, tuple[str, list[Any]]] = {
    "a person's": ("list_window_by_starter", _window({"starter": "person-4"}, "person-4", looks=11)),
    "a person's that failed": ("list_window_by_starter", _window({"statuses": ["failed"]}, "person-4")),
    "an attribute": ("list_window_by_attribute", _window({}, "kind", '"common"', looks=11)),
    "a rare one among the common": (
        "list_window_by_attribute", _window({"attributes": {"n": 1}}, "kind", '"common"')),
    "what is active": (
        "list_window_by_status", [["running", "pending", "rolling_back"], *_window({}, looks=11)]),
    "what failed, of nobody": ("list_window_by_status", [["failed", "aborted"], *_window({"starter": "nobody"})]),
    "what stands at a step nobody stands at": ("list_window_by_status", [["running"], *_window({"step": "nowhere"})]),
    "a business key in a rare flow": ("list_window_by_business_key", _window({"flow": "rare"}, "customer-31")),
    "an error": ("list_window_by_error", _window({}, "DECLINED", "-infinity", "infinity", looks=11)),
    "an error at a step nobody failed at": ("list_window_by_error", _window({"step": "nowhere"}, "DECLINED", *YEAR)),
    "what failed in a period": ("list_window_by_end", _window({"statuses": ["cancelled"]}, "-infinity", "infinity")),
    "what failed before there was anything": ("list_window_by_end", _window({}, "-infinity", "2000-01-01")),
    "what completed in a period": ("list_window_by_flow", _window({"ended_until": "2000-01-01"}, "order", *YEAR)),
}  # fmt: skip


@pytest.mark.parametrize("what", WINDOWS)
def test_a_search_looks_at_its_window_and_no_further(sized: tuple[Db, Db], what: str) -> None:
    name, values = WINDOWS[what]
    few, many = (buffers(_measured(db, name, "huge", values)) for db in sized)
    looks = next(value for value in values if isinstance(value, int))
    assert max(few, many) <= 60 + 5 * looks, (few, many)


def _read(db: Db, name: str, org: str, values: list[Any]) -> Plan:
    plan = _measured(db, name, org, values)
    assert plan["Actual Rows"] <= 50
    return plan


def _measured(db: Db, name: str, org: str, values: list[Any]) -> Plan:
    with db.transaction(force_rollback=True):
        be_tenant(db, org)
        plan = measure(db, name, values)
    db.execute("deallocate all")
    return plan
