"""Decision tables: decisions, coverage against trying every document, round trips, and every finding with its place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace
from random_tables import documents, random_table

from holdfast import DecisionTable
from holdfast.doors.envelope import TableDefinition, load_contracts, table_schema
from holdfast.doors.envelope.decision_tables.builder import table_code, table_yaml
from holdfast.doors.envelope.decision_tables.building import pin_table, read_pinned, table_data, table_hash
from holdfast.doors.envelope.decision_tables.coverage import MOST_GAPS, cover
from holdfast.doors.envelope.decision_tables.deciding import decide_table, holds
from holdfast.doors.envelope.decision_tables.model import Column, Condition, Row
from holdfast.doors.envelope.decision_tables.problems import TABLE_REMEDIES
from holdfast.doors.envelope.reading.load import require_table
from holdfast.errors import DefinitionError
from holdfast.graph.expressions import compile_expression

SEEDS = {"short": 300, "long": 5_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "table.schema.json"


def limits() -> DecisionTable:
    return (
        DecisionTable("limits")
        .column("total", "money", least=0)
        .column("urgent", "boolean")
        .row({"who": "clerk"}, {"total": {"below": 50_000}, "urgent": False})
        .row({"who": "boss"}, {"total": {"below": 50_000}, "urgent": True})
        .row({"who": "boss"}, {"total": {"at_least": 50_000, "at_most": 1_000_000}})
    )


LIMITS = limits().row({"who": "board"}, {"total": {"above": 1_000_000}}).build()


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "urgent", "who"),
    [(0, False, "clerk"), (49_999, True, "boss"), (50_000, False, "boss"), (1_000_001, True, "board")],
)
def test_the_first_row_that_holds_decides(total: int, urgent: bool, who: str) -> None:
    assert decide_table(LIMITS, {"total": total, "urgent": urgent, "note": "any"}).outcome == {"who": who}


@pytest.mark.parametrize(
    "values", [{}, {"total": None}, {"total": "9"}, {"total": True}, {"total": 9.5}, {"urgent": 1}]
)
def test_no_row_decides_on_what_is_missing_or_of_another_type(values: dict[str, Any]) -> None:
    assert decide_table(LIMITS, values).outcome is None


def test_all_rows_that_hold_add_their_outcomes() -> None:
    table = (
        DecisionTable("signatures", hit="all")
        .column("total", "money", least=0)
        .column("country", "string")
        .row({"who": "boss"}, {"total": {"at_least": 100}})
        .row({"who": "tax"}, {"country": ["ch", "no"]})
        .build()
    )
    assert decide_table(table, {"total": 100, "country": "ch"}).outcome == {"who": ["boss", "tax"]}
    assert decide_table(table, {"total": 99, "country": "no"}) == decide_table(table, {"total": 0, "country": "ch"})
    assert decide_table(table, {"total": 1, "country": "de"}).outcome == {"who": []}


# --- coverage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", range(6))
def test_coverage_is_what_trying_every_document_finds(share: int) -> None:
    kinds = set[str]()
    for seed in range(share, SEEDS, 6):
        table = random_table(Random(seed))
        found = cover(table)
        tried = [(document, _held(table, document)) for document in documents(table)]
        gaps = [compile_expression(gap, {"entity": "any"}) for gap in found.gaps if gap != "any document"]
        for document, rows in tried:
            is_told = "any document" in found.gaps or any(gap.evaluate({"entity": document}) is True for gap in gaps)
            assert not (is_told and rows), (seed, document, found.gaps)
            assert is_told or rows or len(found.gaps) == MOST_GAPS, (seed, document, found.gaps)
        if table.hit == "first":
            first = {rows[0] for _, rows in tried if rows}
            ever = {row for _, rows in tried for row in rows}
            assert set(found.unreached) == ever - first, seed
            assert set(found.empty) == set(range(len(table.rows))) - ever, seed
            both = {(row, other) for _, rows in tried for row in rows for other in rows if other < row}
            differing = {row for row, other in both if table.rows[row].when and _differ(table, row, other)}
            assert {overlap.row for overlap in found.overlaps} == differing, seed
        kinds |= {name for name in ("gaps", "unreached", "empty", "overlaps") if getattr(found, name)}
    assert kinds == {"gaps", "unreached", "empty", "overlaps"}, "each was tried"


def _held(table: TableDefinition, document: dict[str, Any]) -> list[int]:
    rows = enumerate(table.rows)
    return [index for index, row in rows if all(holds(test, document[field]) for field, test in row.when.items())]


def _differ(table: TableDefinition, row: int, other: int) -> bool:
    return table.rows[row].then != table.rows[other].then


def test_an_intricate_table_ends_in_time() -> None:
    """Every row has conditions on other columns: each set of rows that may be left is another one."""
    columns = tuple(Column(field=f"f{number}", type="number") for number in range(20))
    random = Random(5)
    rows = tuple(
        Row(
            when={column.field: Condition(at_least=(low := random.random()), below=low + 0.5) for column in columns},
            then={"n": number},
        )
        for number in range(200)
    )
    began = process_time()
    assert not cover(TableDefinition(name="x", columns=columns, rows=rows)).is_complete
    assert process_time() - began < 20


# --- findings ---------------------------------------------------------------------------------------------------------


def found(table: DecisionTable) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as error:
        table.build()
    assert all(each.hint and each.message for each in error.value.diagnostics)
    return [(each.code, each.place) for each in error.value.diagnostics]


ONE = DecisionTable("t").column("n", "number", least=0, most=9).column("m", "money").column("s", "string", values="ab")
FINDINGS: dict[str, tuple[DecisionTable, str, str]] = {
    "gap": (limits(), "TABLE_GAP", "rows"),
    "twice": (ONE.column("n", "number").row({"a": 1}), "TABLE_DUPLICATE", "columns.3.field"),
    "turned": (ONE.column("x", "number", least=2, most=1).row({"a": 1}), "TABLE_BOUNDS_WRONG", "columns.3.least"),
    "listed": (ONE.column("x", "number", values=["a"]).row({"a": 1}), "TABLE_BOUNDS_WRONG", "columns.3.values"),
    "bound": (ONE.column("x", "string", least=1).row({"a": 1}), "TABLE_BOUNDS_WRONG", "columns.3.least"),
    "unknown": (ONE.row({"a": 1}, {"x": 1}), "TABLE_COLUMN_UNKNOWN", "rows.0.when.x"),
    "type": (ONE.row({"a": 1}, {"n": "1"}), "TABLE_CONDITION_WRONG", "rows.0.when.n"),
    "truth": (ONE.row({"a": 1}, {"n": True}), "TABLE_CONDITION_WRONG", "rows.0.when.n"),
    "fraction": (ONE.row({"a": 1}, {"m": {"below": 1.5}}), "TABLE_CONDITION_WRONG", "rows.0.when.m.below"),
    "text": (ONE.row({"a": 1}, {"s": "c"}), "TABLE_CONDITION_WRONG", "rows.0.when.s"),
    "texts": (ONE.row({"a": 1}, {"s": {"below": 5}}), "TABLE_CONDITION_WRONG", "rows.0.when.s"),
    "none": (ONE.row({"a": 1}, {"n": {}}), "TABLE_CONDITION_WRONG", "rows.0.when.n"),
    "two": (ONE.row({"a": 1}, {"n": {"below": 1, "at_most": 2}}), "TABLE_CONDITION_WRONG", "rows.0.when.n"),
    "names": (ONE.row({"a": 1}, {"n": 1}).row({"b": 1}), "TABLE_OUTCOME_MISSING", "rows.0.then"),
    "nothing": (ONE.row({}), "TABLE_OUTCOME_MISSING", "rows.0.then"),
    "unreached": (ONE.row({"a": 1}).row({"a": 2}, {"n": 1}), "TABLE_ROW_UNREACHED", "rows.1"),
    "empty": (ONE.row({"a": 1}, {"n": 12}).row({"a": 2}), "TABLE_ROW_EMPTY", "rows.0"),
    "key": (ONE.row({"a": 1}, {"n": {"over": 1}}), "TABLE_KEY_UNKNOWN", "rows.0.when.n.over"),
    "rows": (ONE, "TABLE_VALUE_INVALID", "rows"),
    "outcome": (ONE.row({"n": [{"m": 1e22}]}), "TABLE_VALUE_INVALID", "rows.0.then.n"),
    "whole outcome": (ONE.row({"n": -(2**53)}), "TABLE_VALUE_INVALID", "rows.0.then.n"),
    "missing": (ONE.longer(_columns=({"field": "n"},)).row({"a": 1}), "TABLE_KEY_MISSING", "columns.0"),
    "kind": (ONE.row([]), "TABLE_TYPE_WRONG", "rows.0.then"),  # type: ignore[arg-type]
    "option": (ONE.row({"a": 1}, wen={}), "TABLE_OPTION_UNKNOWN", "rows.wen"),  # type: ignore[call-arg]
}  # fmt: skip


@pytest.mark.parametrize("name", FINDINGS)
def test_what_is_wrong_is_found_with_its_place(name: str) -> None:
    table, code, place = FINDINGS[name]
    assert (code, place) in found(table)


def test_everything_is_found_at_once() -> None:
    table = ONE.row({"a": 1}, {"x": 1, "n": "one"}).row({"b": 1}, {"m": {}})
    assert len(found(table)) == 5


def test_rows_that_overlap_are_a_warning_with_line_and_column() -> None:
    text = (
        table_yaml(LIMITS)
        .replace("below: 50000}, urgent: true", "at_most: 50000}, urgent: true")
        .replace("who: boss}}\n      - {when: {total: {at_least", "who: deputy}}\n      - {when: {total: {at_least")
    )
    file = load_contracts(text)
    assert [(each.code, each.severity, each.line) for each in file.problems] == [("TABLE_OVERLAP", "warning", 10)]
    assert "entity.total == 50000 && entity.urgent == true" in file.problems[0].message
    assert file.is_sound
    assert len(file.tables) == 1


def test_a_table_that_is_there_twice_is_refused() -> None:
    data = table_data(LIMITS)
    assert [each.code for each in load_contracts(json.dumps({"tables": [data, data]})).problems] == ["TABLE_DUPLICATE"]


# --- written and read -------------------------------------------------------------------------------------------------


def test_tables_come_back_as_they_were() -> None:
    for seed in range(SEEDS):
        table = random_table(Random(seed), certain=True)
        data = table_data(table)
        assert read_pinned(json.loads(json.dumps(pin_table(table).table))) == table
        if cover(table).unreached or cover(table).empty:
            with pytest.raises(DefinitionError, match=r"row|Rows"):
                require_table(data)
            continue
        again = require_table(data)
        assert again == table
        assert load_contracts(table_yaml(table)).require_sound().tables == (table,)
        made: dict[str, Any] = {}
        exec(table_code(table), made)
        assert made["table"] == table
        assert table_hash(again) == table_hash(table)


def test_the_hash_is_of_what_decides() -> None:
    first, *others = LIMITS.rows
    told = replace(LIMITS, version=7, about="Ours.", rows=(replace(first, about="They."), *others))
    assert table_hash(told) == table_hash(LIMITS)
    assert table_hash(replace(LIMITS, hit="all")) != table_hash(LIMITS)
    assert table_hash(replace(LIMITS, rows=tuple(reversed(LIMITS.rows)))) != table_hash(LIMITS)


def test_the_published_schema_is_current() -> None:
    """`holdfast schema table > docs/schemas/table.schema.json` makes it so."""
    schema = table_schema()
    assert json.loads(PUBLISHED.read_text()) == schema
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.validator_for(schema)
    for seed in range(50):
        validator.validate({"tables": [table_data(random_table(Random(seed)))]})
    data = table_data(LIMITS)
    changes: list[dict[str, Any]] = [
        {"hit": "last"},
        {"columns": []},
        {"rows": [{"when": {}}]},
        {"name": "a b"},
        {"extra": 1},
    ]
    for change in changes:
        assert not validator.is_valid({"tables": [{**data, **change}]})


def test_every_code_has_a_test_and_is_on_the_page() -> None:
    page = PUBLISHED.parents[1].joinpath("rules.md").read_text()
    own = {code for code in TABLE_REMEDIES if code.startswith("TABLE_")}
    assert [code for code in own if f"`{code}`" not in page] == []
    tested = {code for _, code, _ in FINDINGS.values()} | {"TABLE_OVERLAP", "TABLE_TOO_INTRICATE"}
    assert own - tested == set()
