"""What the database refuses even to its owner: rewritten history, changed identity, backward statuses, bad shapes."""

from __future__ import annotations

import datetime
import re
import uuid
from typing import Any

import psycopg
import pytest
import schema_rows as rows
from psycopg import sql
from psycopg.types.json import Jsonb
from schema_rows import NOW, insert, update

from holdfast.core.model.status import (
    INSTANCE_TRANSITIONS,
    STEP_SHORTCUTS,
    STEP_TRANSITIONS,
    TERMINAL,
    InstanceStatus,
    StepStatus,
)

pytest_plugins = ("schema_db",)

Db = psycopg.Connection[Any]

REFUSED = "HF002"
LATER = NOW + datetime.timedelta(seconds=5)
END = {"completed_at": LATER}


def refused(db: Db, code: str, table: str, row: rows.Row, **changes: Any) -> str:
    """The change fails with this SQLSTATE and nothing else is lost; answers the message."""
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        update(db, table, row, **changes)
    assert caught.value.sqlstate == code
    return caught.value.diag.message_primary or ""


def refused_insert(db: Db, code: str, table: str, row: rows.Row) -> None:
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        insert(db, table, row)
    assert caught.value.sqlstate == code


CHECK, UNIQUE = "23514", "23505"


# Instances


def moves_of(db: Db, function: str) -> set[tuple[str, str]]:
    found = db.execute("select prosrc from pg_proc where proname = %s", (function,)).fetchone()
    return set(re.findall(r"[' ](\w+)>(\w+)(?= )", found[0] if found else ""))


def test_the_triggers_hold_the_tables_of_the_core(db: Db) -> None:
    instance_moves = {(before, after) for before, legal in INSTANCE_TRANSITIONS.items() for after in legal}
    step_moves = {
        (before, after)
        for table in (STEP_TRANSITIONS, STEP_SHORTCUTS)
        for before, legal in table.items()
        for after in legal
    }
    assert moves_of(db, "check_instance_move") == instance_moves
    assert moves_of(db, "check_step_move") == step_moves


@pytest.mark.parametrize("before", InstanceStatus)
def test_instance_status_moves_only_along_the_table(db: Db, before: InstanceStatus) -> None:
    end = END if before in TERMINAL else {}
    row = insert(db, "instances", rows.instance(status=before, **end))
    for after in InstanceStatus:
        change = {"status": after, "version": 2} | (end if before in TERMINAL else END if after in TERMINAL else {})
        if before in TERMINAL and after not in TERMINAL:
            change["completed_at"] = None
        if after is before or after in INSTANCE_TRANSITIONS[before]:
            with db.transaction(force_rollback=True):
                assert update(db, "instances", row, **change) == 1
        else:
            refused(db, REFUSED, "instances", row, **change)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("org_id", "other"),
        ("flow", "other"),
        ("input", Jsonb({"amount": 6})),
        ("idempotency_key", "other"),
        ("business_key", "other"),
        ("created_at", LATER),
        ("created_by", "other"),
        ("definition_id", uuid.uuid4()),
        ("flow_version", 2),
    ],
)
def test_what_an_instance_was_started_with_never_changes(db: Db, column: str, value: Any) -> None:
    row = insert(db, "instances", rows.instance())
    message = refused(db, REFUSED, "instances", row, version=2, **{column: value})
    assert str(row["id"]) in message


def test_naming_a_column_without_changing_it_is_legal(db: Db) -> None:
    row = insert(db, "instances", rows.instance())
    assert update(db, "instances", row, version=2, input=row["input"], flow=row["flow"]) == 1


def test_a_migration_may_pin_another_version(db: Db) -> None:
    row = insert(db, "instances", rows.instance())
    db.execute("set local holdfast.migrating = 'on'")
    assert update(db, "instances", row, version=2, flow_version=2, definition_id=uuid.uuid4()) == 1


def test_parent_and_entity_never_change(db: Db) -> None:
    row = insert(db, "instances", rows.instance())
    refused(db, REFUSED, "instances", row, version=2, parent_id=uuid.uuid4(), parent_token="0@1")
    refused(db, REFUSED, "instances", row, version=2, entity_type="invoice", entity_id="17")


@pytest.mark.parametrize("version", [5, 4])
def test_the_version_rises(db: Db, version: int) -> None:
    row = insert(db, "instances", rows.instance(version=5))
    refused(db, REFUSED, "instances", row, version=version)
    refused(db, REFUSED, "instances", row, data=Jsonb({"changed": True}))


def test_the_date_of_the_last_change_never_goes_back(db: Db) -> None:
    row = insert(db, "instances", rows.instance(version=5))
    refused(db, REFUSED, "instances", row, version=6, updated_at=row["updated_at"] - datetime.timedelta(microseconds=1))
    assert update(db, "instances", row, version=6, updated_at=row["updated_at"]) == 1


@pytest.mark.parametrize("asker", ["owner", "holdfast_worker"])
def test_the_code_of_an_error_is_that_of_the_error(db: Db, asker: str) -> None:
    error = Jsonb({"code": "x" * 300, "message": "no"})
    row = insert(db, "instances", rows.instance())
    if asker != "owner":
        db.execute(f"set local role {asker}")
    refused(db, REFUSED, "instances", row, version=2, error_code="OTHER")
    refused(db, REFUSED, "instances", row, version=2, last_error=error)
    refused(db, REFUSED, "instances", row, version=2, last_error=error, error_code="x" * 199)
    assert update(db, "instances", row, version=2, last_error=error, error_code="x" * 200) == 1
    refused(db, REFUSED, "instances", row, version=3, error_code=None)
    refused_insert(db, CHECK, "instances", rows.instance(last_error=error))
    refused_insert(db, CHECK, "instances", rows.instance(error_code="OTHER"))
    insert(db, "instances", rows.instance(last_error=error, error_code="x" * 200))


def test_the_end_is_final(db: Db) -> None:
    row = insert(db, "instances", rows.instance(status="failed", **END))
    refused(db, REFUSED, "instances", row, version=2, completed_at=NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "unheard_of"},
        {"status": "completed"},
        {"status": "running", "completed_at": NOW},
        {"bucket": 8},
        {"org_id": ""},
        {"org_id": "x" * 201},
        {"flow": ""},
        {"idempotency_key": ""},
        {"idempotency_key": "ü" * 251},
        {"business_key": ""},
        {"entity_type": "invoice"},
        {"parent_id": uuid.uuid4()},
    ],
)
def test_instances_that_cannot_be(db: Db, changes: rows.Row) -> None:
    refused_insert(db, CHECK, "instances", rows.instance() | changes)


def test_one_instance_per_idempotency_key_and_flow(db: Db) -> None:
    longest = "k" * 500
    insert(db, "instances", rows.instance(idempotency_key=longest))
    refused_insert(db, UNIQUE, "instances", rows.instance(idempotency_key=longest))
    insert(db, "instances", rows.instance(idempotency_key=longest, flow="other"))
    insert(db, "instances", rows.instance(idempotency_key=longest, org_id="other"))


def test_one_active_instance_per_entity(db: Db) -> None:
    entity = {"entity_type": "invoice", "entity_id": "17"}
    first = insert(db, "instances", rows.instance(**entity))
    refused_insert(db, UNIQUE, "instances", rows.instance(**entity))
    update(db, "instances", first, version=2, status="cancelled", **END)
    insert(db, "instances", rows.instance(**entity))


# Steps


@pytest.mark.parametrize("before", StepStatus)
def test_step_status_moves_only_along_the_lattice(db: Db, before: StepStatus) -> None:
    row = insert(db, "steps", rows.step(status=before))
    for after in StepStatus:
        if after is before or after in STEP_TRANSITIONS[before] | STEP_SHORTCUTS.get(before, frozenset()):
            with db.transaction(force_rollback=True):
                assert update(db, "steps", row, status=after) == 1
        else:
            assert f"from {before} to {after}" in refused(db, REFUSED, "steps", row, status=after)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("instance_id", uuid.uuid4()),
        ("bucket", 8),
        ("created_at", NOW + datetime.timedelta(microseconds=1)),
        ("created_at", NOW + datetime.timedelta(days=40)),
        ("id", uuid.uuid4()),
        ("org_id", "other"),
        ("node", "other"),
        ("behaviour", "rest"),
        ("path", "1"),
        ("hop", 2),
        ("kind", "compensate"),
        ("run", 2),
        ("entity_version", 1),
        ("receipt_key", b"other"),
        ("opened_version", 2),
        ("opened_ordinal", 1),
        ("opened_by", "other"),
        ("cause", "other"),
        ("input", None),
        ("detail", Jsonb({})),
    ],
)
def test_what_a_step_was_opened_with_never_changes(db: Db, column: str, value: Any) -> None:
    row = insert(db, "steps", rows.step())
    refused(db, REFUSED, "steps", row, **{column: value})


def test_a_step_is_closed_and_fenced_freely(db: Db) -> None:
    row = insert(db, "steps", rows.step())
    change = {"calls": 1, "fence": 9, "output": Jsonb({}), "closed_at": LATER, "closed_version": 2, "closed_ordinal": 0}
    assert update(db, "steps", row, status="completed", closing=Jsonb({}), chosen_edge_ids=Jsonb(["e1"]), **change) == 1


CLOSED = {
    "status": "completed",
    "outcome": "completed",
    "chosen_edge_ids": Jsonb(["e1"]),
    "output": Jsonb({"paid": True}),
    "closing": Jsonb({}),
    "closed_version": 2,
    "closed_ordinal": 0,
    "closed_by": "ann",
    "closed_at": LATER,
}


@pytest.mark.parametrize("asker", ["owner", "holdfast_worker"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("outcome", "failed"),
        ("chosen_edge_ids", Jsonb(["e2"])),
        ("output", Jsonb({"paid": False})),
        ("output", None),
        ("error", Jsonb({"code": "MADE_UP"})),
        ("closing", Jsonb({"context": {}})),
        ("closed_version", 3),
        ("closed_ordinal", 1),
        ("closed_by", "ben"),
        ("closed_at", NOW),
        ("closed_at", None),
    ],
)
def test_how_a_step_was_closed_never_changes(db: Db, asker: str, column: str, value: Any) -> None:
    """Whatever the transaction has set: no setting opens a closed step again."""
    row = insert(db, "steps", rows.step())
    if asker != "owner":
        db.execute(f"set local role {asker}")
    db.execute("set local holdfast.maintenance = 'on'")
    db.execute("set local holdfast.migrating = 'on'")
    assert update(db, "steps", row, **CLOSED) == 1
    assert "A closed step keeps" in refused(db, REFUSED, "steps", row, **{column: value})


def test_a_closed_step_cannot_be_rewritten_through_its_month(db: Db) -> None:
    row = insert(db, "steps", rows.step(**CLOSED))
    month = f"steps_{NOW:%Y%m}"
    db.execute("set local role holdfast_worker")
    refused(db, REFUSED, month, row, output=Jsonb({"paid": False}))
    refused(db, REFUSED, month, row, closed_at=None, status="running")


NEXT_MONTH = NOW + datetime.timedelta(days=40)


@pytest.mark.parametrize(
    ("table", "row", "change"),
    [
        ("steps", rows.step(**CLOSED), "output = '{}'"),
        ("effects", rows.effect(status="completed", completed_at=NOW), "payload = '{}', evidence = '{}'"),
        ("events", rows.event(), "type = 'other'"),
    ],
    ids=["steps", "effects", "events"],
)
@pytest.mark.parametrize("asker", ["owner", "holdfast_worker"])
@pytest.mark.parametrize("upkeep", ["on", ""])
def test_no_row_is_rewritten_on_its_way_to_another_month(
    db: Db, upkeep: str, asker: str, table: str, row: rows.Row, change: str
) -> None:
    """To PostgreSQL such an update is a deletion and an insertion: whoever may update needs no right to delete, and the
    guards of deletion step aside for upkeep, which anybody may say it is."""
    insert(db, table, row)
    if asker != "owner":
        db.execute(f"set local role {asker}")
    db.execute(f"set local holdfast.maintenance = '{upkeep}'")
    db.execute("set local holdfast.migrating = 'on'")
    moved = f"update holdfast.{table} set created_at = %s, {change} where instance_id = %s"
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(sql.SQL(moved), (NEXT_MONTH, row["instance_id"]))  # pyright: ignore[reportArgumentType]
    may_update = asker == "owner" or table == "effects"
    assert caught.value.sqlstate == (REFUSED if may_update else "42501")


@pytest.mark.parametrize("table", ["steps", "effects", "events"])
@pytest.mark.parametrize(
    ("before", "during", "after"), [("", "on", ""), ("", "on", "on"), ("on", "", "on"), ("on", "", "")]
)
def test_no_statement_opens_a_way_to_another_month_for_itself(
    db: Db, before: str, during: str, after: str, table: str
) -> None:
    """Upkeep that begins or ends within the statement, between two of its updates, and an identity that changes too."""
    row = insert(db, table, {"steps": rows.step, "effects": rows.effect, "events": rows.event}[table]())
    mark = {"steps": "calls = calls + 1", "effects": "attempts = attempts + 1", "events": "detail = '{}'"}[table]
    db.execute(f"set local holdfast.maintenance = '{before}'")
    moved = f"""
        with first as (update holdfast.{table} set {mark} where instance_id = %(nobody)s returning 1),
            second as (update holdfast.{table} set created_at = %(at)s, instance_id = %(nobody)s
                where instance_id = %(id)s and set_config('holdfast.maintenance', '{during}', true) is not null
                returning set_config('holdfast.maintenance', '{after}', true)),
            third as (update holdfast.{table} set {mark} where instance_id = %(nobody)s returning 1)
        select count(*) from second
    """
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(
            sql.SQL(moved),  # pyright: ignore[reportArgumentType]
            {"at": NEXT_MONTH, "id": row["instance_id"], "nobody": uuid.UUID(int=0)},
        )
    assert caught.value.sqlstate == REFUSED


def test_no_trigger_has_rows_locked_before_their_update(db: Db) -> None:
    """While a table has a trigger before updates of rows, PostgreSQL locks each row first, and logs that."""
    before = db.execute(
        "select c.relname from pg_trigger t join pg_class c on c.oid = t.tgrelid"
        " where t.tgtype & 1 = 1 and t.tgtype & 2 = 2 and t.tgtype & 16 = 16"
        " and c.relnamespace = 'holdfast'::regnamespace and t.tgparentid = 0"
    ).fetchall()
    assert {name for (name,) in before} == {"events"}  # which nothing updates


@pytest.mark.parametrize("after", ["compensation", "rolled_back"])
def test_a_closed_step_is_still_taken_back(db: Db, after: str) -> None:
    row = insert(db, "steps", rows.step(**CLOSED, calls=2))
    db.execute("set local role holdfast_worker")
    assert update(db, "steps", row, status=after) == 1
    assert update(db, "steps", row, calls=1) == 1


# Tables are emptied by retention only


def test_no_table_is_truncated(db: Db) -> None:
    """Every table and every month, one at a time and all at once, by the owner and with every setting there is."""
    tables = [
        name
        for (name,) in db.execute(
            "select relname from pg_class where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p')"
        )
    ]
    assert {"instances", "steps", f"steps_{NOW:%Y%m}", "events_default", "tasks", "api_keys", "upkeep"} <= set(tables)
    for setting in ("maintenance", "migrating"):
        db.execute(f"set local holdfast.{setting} = 'on'")
    for truncated in [*([table] for table in tables), tables]:
        with pytest.raises(psycopg.Error) as caught, db.transaction():
            db.execute(f"truncate {', '.join(f'holdfast.{table}' for table in truncated)} cascade")
        assert caught.value.sqlstate == REFUSED, truncated


def test_a_month_that_is_made_later_is_not_truncated(db: Db) -> None:
    made = [name for (name,) in db.execute("select holdfast.ensure_partitions(5)")]
    assert made
    for month in made:
        with pytest.raises(psycopg.Error) as caught, db.transaction():
            db.execute(f"truncate holdfast.{month}")
        assert caught.value.sqlstate == REFUSED


def test_steps_of_unknown_kind_or_status_cannot_be(db: Db) -> None:
    refused_insert(db, CHECK, "steps", rows.step(kind="sideways"))
    refused_insert(db, CHECK, "steps", rows.step(status="unheard_of"))


@pytest.mark.parametrize(
    ("table", "row"),
    [("steps", rows.step()), ("events", rows.event()), ("effects", rows.effect())],
    ids=lambda value: value if isinstance(value, str) else "row",
)
def test_history_is_not_deleted_by_hand(db: Db, table: str, row: rows.Row) -> None:
    insert(db, table, row)
    statement = sql.SQL("delete from holdfast.{} where instance_id = %s").format(sql.Identifier(table))
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(statement, (row["instance_id"],))
    assert caught.value.sqlstate == REFUSED
    db.execute("set local holdfast.maintenance = 'on'")
    assert db.execute(statement, (row["instance_id"],)).rowcount == 1


# Receipts and events


def test_one_receipt_per_visit_and_run(db: Db) -> None:
    first = insert(db, "step_receipts", rows.receipt())
    refused_insert(db, UNIQUE, "step_receipts", first | {"key": b"other", "step_id": uuid.uuid4()})
    insert(db, "step_receipts", first | {"run": 2})
    insert(db, "step_receipts", first | {"kind": "compensate"})


@pytest.mark.parametrize(
    ("table", "row", "change"),
    [
        ("step_receipts", rows.receipt(), "key = 'other'"),
        ("events", rows.event(), "type = 'other'"),
        ("events", rows.event(), "created_at = created_at + interval '40 days'"),
        (
            "outbox_receipts",
            {
                "instance_id": uuid.uuid4(),
                "source": "signal",
                "key": "k",
                "bucket": 1,
                "org_id": "a",
                "created_at": NOW,
            },
            "hash = 'other'",
        ),
    ],
    ids=["step_receipts", "events", "events that would move", "outbox_receipts"],
)
def test_receipts_and_events_are_append_only(db: Db, table: str, row: rows.Row, change: str) -> None:
    insert(db, table, row)
    if "created_at" not in change:  # upkeep may move a line to its month, it never writes one anew
        db.execute("set local holdfast.maintenance = 'on'")
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(f"update holdfast.{table} set {change} where instance_id = %s", (row["instance_id"],))
    assert caught.value.sqlstate == REFUSED


# Effects

EFFECT_MOVES = {
    "pending": {"processing"},
    "processing": {"pending", "completed", "failed", "dead_letter"},
    "failed": {"pending", "processing", "dead_letter"},
    "completed": set[str](),
    "dead_letter": {"pending"},
}


@pytest.mark.parametrize("before", EFFECT_MOVES)
def test_effect_status_moves_only_along_the_lattice(db: Db, before: str) -> None:
    row = insert(db, "effects", rows.effect(status=before))
    for after in EFFECT_MOVES.keys() - {before}:
        if after in EFFECT_MOVES[before]:
            with db.transaction(force_rollback=True):
                assert update(db, "effects", row, status=after) == 1
        else:
            refused(db, REFUSED, "effects", row, status=after)


def test_what_an_effect_was_asked_to_do_never_changes(db: Db) -> None:
    row = insert(db, "effects", rows.effect())
    refused(db, REFUSED, "effects", row, payload=Jsonb({"to": "elsewhere"}))
    refused(db, REFUSED, "effects", row, created_at=NOW + datetime.timedelta(days=40))
    refused(db, CHECK, "effects", row, completed_at=NOW)


def test_a_delivered_effect_keeps_its_evidence(db: Db) -> None:
    row = insert(db, "effects", rows.effect(status="completed", completed_at=NOW, evidence=Jsonb({"status": 200})))
    db.execute("set local role holdfast_worker")
    refused(db, REFUSED, "effects", row, evidence=Jsonb({"status": 500}))
    refused(db, REFUSED, "effects", row, attempts=9)


# Dead letters


def test_a_dead_letter_keeps_its_content_and_its_answer(db: Db) -> None:
    row = insert(db, "dead_letters", rows.dead_letter())
    for column, value in [
        ("envelope", Jsonb({"made": "up"})),
        ("source", "effect"),
        ("flow", "other"),
        ("step", "other"),
        ("instance_id", uuid.uuid4()),
        ("org_id", "other"),
    ]:
        refused(db, REFUSED, "dead_letters", row, **{column: value})
    answer = {"resolved_at": LATER, "resolution": "discarded", "resolved_by": "ann"}
    db.execute("set local role holdfast_worker")
    refused(db, "42501", "dead_letters", row, envelope=Jsonb({"made": "up"}))
    assert update(db, "dead_letters", row, **answer) == 1
    refused(db, REFUSED, "dead_letters", row, resolved_by="ben")
    refused(db, REFUSED, "dead_letters", row, resolution="replayed")
    opened_again = {"resolved_at": None, "resolution": None, "resolved_by": None, "reason": "EFFECT_FAILED"}
    assert update(db, "dead_letters", row, **opened_again) == 1


# Definitions


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("nodes", Jsonb([{"id": "a"}])),
        ("compiled", Jsonb({"changed": True})),
        ("hash", "1" * 64),
        ("source", Jsonb({})),
        ("version", 2),
        ("created_by", "other"),
    ],
)
@pytest.mark.parametrize("status", ["published", "archived"])
def test_published_content_never_changes(db: Db, status: str, column: str, value: Any) -> None:
    row = insert(db, "definitions", rows.definition(status=status))
    refused(db, REFUSED, "definitions", row, **{column: value})


def test_a_published_definition_can_only_be_archived(db: Db) -> None:
    row = insert(db, "definitions", rows.definition())
    refused(db, REFUSED, "definitions", row, status="draft", published_at=None)
    assert update(db, "definitions", row, status="archived") == 1
    refused(db, REFUSED, "definitions", row, status="published")
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute("delete from holdfast.definitions where id = %s", (row["id"],))
    assert caught.value.sqlstate == REFUSED


def test_a_draft_is_edited_published_or_thrown_away(db: Db) -> None:
    row = insert(db, "definitions", rows.definition(status="draft", published_at=None, compiled=None, hash=None))
    assert update(db, "definitions", row, nodes=Jsonb([{"id": "a"}])) == 1
    refused(db, CHECK, "definitions", row, status="published", published_at=NOW)
    assert update(db, "definitions", row, status="published", published_at=NOW, compiled=Jsonb({}), hash="0" * 64) == 1
    other = insert(db, "definitions", rows.definition(status="draft", published_at=None, version=2))
    assert db.execute("delete from holdfast.definitions where id = %s", (other["id"],)).rowcount == 1


ENVELOPE = {"kind": "envelope", "is_default": True, "slots": Jsonb([]), "entity_type": "invoice"}
PATCH = {
    "kind": "org_patch",
    "nodes": None,
    "edges": None,
    "patches": Jsonb({}),
    "base_ref": Jsonb({}),
    "entity_type": "invoice",
}


def test_a_generated_envelope_never_changes(db: Db) -> None:
    row = insert(db, "definitions", rows.definition(**ENVELOPE))
    refused(db, REFUSED, "definitions", row, status="archived")
    refused(db, REFUSED, "definitions", row, is_default=False, kind="saga")


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "unheard_of"},
        {"status": "unheard_of"},
        {"version": 0},
        {"name": ""},
        {"compiled": None},
        {"hash": None},
        {"hash": ""},
        {"compiler_version": None},
        {"nodes": None},
        {"edges": None},
        {"published_at": None},
        {"kind": "effective"},
        ENVELOPE | {"is_default": False},
        ENVELOPE | {"slots": None},
        ENVELOPE | {"patches": Jsonb({})},
        ENVELOPE | {"entity_type": None},
        PATCH | {"patches": None},
        PATCH | {"base_ref": None},
        PATCH | {"nodes": Jsonb([])},
        PATCH | {"is_default": True},
    ],
    ids=str,
)
def test_definitions_that_cannot_be(db: Db, changes: rows.Row) -> None:
    refused_insert(db, CHECK, "definitions", rows.definition() | changes)


def test_definitions_of_every_kind(db: Db) -> None:
    for kind in ("saga", "steps", "machine", "effective"):
        insert(db, "definitions", rows.definition(kind=kind, entity_type="invoice"))
    insert(db, "definitions", rows.definition(**ENVELOPE))
    insert(db, "definitions", rows.definition(**PATCH))
    refused_insert(db, UNIQUE, "definitions", rows.definition())


# The count check of every batch


def test_expect_compares_counts(db: Db) -> None:
    db.execute("select holdfast.expect('steps', 3, 3)")
    for got in (2, None):
        with pytest.raises(psycopg.Error, match="steps") as caught, db.transaction():
            db.execute("select holdfast.expect('steps', %s, 3)", (got,))
        assert caught.value.sqlstate == "HF001"
