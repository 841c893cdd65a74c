"""Build decision tables from trees, and write them back as the data that a file holds."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from holdfast.doors.envelope.decision_tables.format import TABLE
from holdfast.doors.envelope.decision_tables.model import Column, Condition, Row, TableDefinition
from holdfast.doors.envelope.decision_tables.rules import check_table
from holdfast.doors.envelope.tables import PinnedTable
from holdfast.doors.yaml.decode import MISFIT, Taker
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import Tree
from holdfast.graph.model import dump_struct
from holdfast.payloads import hash_json


def build_table(tree: Tree, findings: Findings) -> TableDefinition | None:
    """Build and check a table; None if anything is wrong with it."""
    before = findings.errors
    taker = Taker(findings, "TABLE")
    taken = taker.take(TABLE, tree, ())
    if findings.errors != before or taken is MISFIT:
        return None
    table = TableDefinition(
        **{key: value for key, value in taken.items() if key not in ("columns", "rows")},
        columns=tuple(_column(column) for column in taken["columns"]),
        rows=tuple(_row(row) for row in taken["rows"]),
    )
    check_table(table, taker.marks, findings)
    return table if findings.errors == before else None


def table_data(table: TableDefinition) -> dict[str, Any]:
    """Take a table apart; keys that hold their default are left out."""
    data = dump_struct(table, "decision table")
    rows = [
        ({"when": _conditions(row["when"])} if "when" in row else {}) | _without_when(row) for row in data.pop("rows")
    ]
    columns = data.pop("columns")
    return {"name": table.name, "version": table.version, **data, "columns": columns, "rows": rows}


def table_hash(table: TableDefinition) -> str:
    """The SHA-256 of everything that changes a decision; neither the version nor a text about anything does."""
    data = dump_struct(table, "decision table")
    rows = [{key: value for key, value in row.items() if key != "about"} for row in data["rows"]]
    return hash_json({**{key: value for key, value in data.items() if key not in ("about", "version")}, "rows": rows})


def pin_table(table: TableDefinition) -> PinnedTable:
    """Make of a table what the compiler pins."""
    data = dump_struct(table, "decision table")
    return PinnedTable(name=table.name, version=table.version, hash=table_hash(table), table=data)


def read_pinned(table: dict[str, Any]) -> TableDefinition:
    """Read the table of a `PinnedTable`, as the artefact of an effective graph has it."""
    return msgspec.convert(table, TableDefinition)


def _without_when(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "when"}


def _column(taken: dict[str, Any]) -> Column:
    return msgspec.convert(taken, Column)


def _row(taken: dict[str, Any]) -> Row:
    conditions: dict[str, Any] = taken.get("when", {})
    when = {field: _condition(given) for field, given in conditions.items()}
    return Row(then=taken["then"], when=when, about=taken.get("about"))


def _condition(given: Any) -> Condition:
    if isinstance(given, dict):
        return msgspec.convert(given, Condition)
    return Condition(one_of=tuple(cast(list[Any], given)) if isinstance(given, list) else (given,))


def _conditions(when: dict[str, Any]) -> dict[str, Any]:
    """Write one value plainly, several as a list, bounds as they are."""
    written: dict[str, Any] = {}
    for field, condition in when.items():
        values = condition.get("one_of")
        written[field] = condition if values is None else values[0] if len(values) == 1 else values
    return written
