"""Rules of a decision table: columns and conditions that fit each other, one set of outcomes, and its coverage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from holdfast.doors.envelope.decision_tables.coverage import cover
from holdfast.doors.envelope.decision_tables.model import Column, Condition, Row, TableDefinition
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import Mark, Path, nearest_mark

_NUMBERS: Final = ("number", "money")
_EXACT: Final = 2**53 - 1
_LOWER: Final = ("at_least", "above")
_UPPER: Final = ("at_most", "below")


def check_table(table: TableDefinition, marks: Mapping[Path, Mark], findings: Findings) -> None:
    """Report every rule that the table breaks. What it covers is looked at if all of it can be read."""
    rules = _TableRules(table, dict(marks), findings)
    before = findings.errors
    rules.columns()
    for index, row in enumerate(table.rows):
        rules.row(index, row)
    if findings.errors == before:
        rules.coverage()


class _TableRules:
    def __init__(self, table: TableDefinition, marks: dict[Path, Mark], findings: Findings) -> None:
        self.table = table
        self.marks = marks
        self.findings = findings
        self.known = {column.field: column for column in table.columns}
        self.outcomes = dict.fromkeys(name for row in table.rows for name in row.then)

    def add(self, code: str, message: str, *path: str | int, is_error: bool = True, hint: str = "") -> None:
        mark = nearest_mark(self.marks, path)
        self.findings.add(code, message, mark, hint=hint, severity="error" if is_error else "warning")

    def columns(self) -> None:
        seen: set[str] = set()
        for index, column in enumerate(self.table.columns):
            if column.field in seen:
                message = f"There is a column {column.field!r} before this one."
                self.add("TABLE_DUPLICATE", message, "columns", index, "field")
            seen.add(column.field)
            self.bounds(index, column)

    def bounds(self, index: int, column: Column) -> None:
        is_number = column.type in _NUMBERS
        for key in ("least", "most") if not is_number else ():
            if getattr(column, key) is not None:
                self.add("TABLE_BOUNDS_WRONG", f"A {column.type} has no {key}.", "columns", index, key)
        if column.values is not None and column.type != "string":
            message = f"Only texts are listed; {column.field!r} is a {column.type}."
            self.add("TABLE_BOUNDS_WRONG", message, "columns", index, "values")
        if column.least is not None and column.most is not None and column.least > column.most:
            message = f"{column.least} is more than {column.most}."
            self.add("TABLE_BOUNDS_WRONG", message, "columns", index, "least")
        for key in ("least", "most"):
            self.fraction(column, getattr(column, key), "columns", index, key)

    def row(self, index: int, row: Row) -> None:
        for field, condition in row.when.items():
            column = self.known.get(field)
            if column is None:
                hint = self.findings.nearest(field, self.known)
                self.add(
                    "TABLE_COLUMN_UNKNOWN", f"There is no column {field!r}.", "rows", index, "when", field, hint=hint
                )
            else:
                self.condition(column, condition, "rows", index, "when", field)
        for name in self.outcomes:
            if name not in row.then:
                message = f"The row says nothing about {name!r}, and other rows do."
                self.add("TABLE_OUTCOME_MISSING", message, "rows", index, "then")
        for name, value in row.then.items():
            if not _is_exact(value):
                message = f"{name!r} holds a number that is not exact everywhere; write it as a text."
                self.add("TABLE_VALUE_INVALID", message, "rows", index, "then", name)
        if not row.then:
            self.add("TABLE_OUTCOME_MISSING", "The row has no outcome.", "rows", index, "then")

    def condition(self, column: Column, condition: Condition, *path: str | int) -> None:
        if condition.one_of is not None:
            for value in condition.one_of:
                self.value(column, value, *path)
            return
        given = {key: found for key in (*_LOWER, *_UPPER) if (found := getattr(condition, key)) is not None}
        if column.type not in _NUMBERS:
            message = f"{column.field!r} is a {column.type}; bounds are for numbers."
            self.add("TABLE_CONDITION_WRONG", message, *path)
        elif not given:
            self.add("TABLE_CONDITION_WRONG", "The condition has no bound.", *path)
        elif any(all(key in given for key in pair) for pair in (_LOWER, _UPPER)):
            message = "The condition has two bounds of one side."
            self.add("TABLE_CONDITION_WRONG", message, *path)
        for key, value in given.items():
            self.fraction(column, value, *path, key)

    def value(self, column: Column, value: Any, *path: str | int) -> None:
        if not _is_of(value, column.type):
            message = f"{column.field!r} is a {column.type}; {value!r} is none."
            self.add("TABLE_CONDITION_WRONG", message, *path)
        elif column.values is not None and value not in column.values:
            hint = self.findings.nearest(value, column.values)
            message = f"{value!r} is not among the values of {column.field!r}."
            self.add("TABLE_CONDITION_WRONG", message, *path, hint=hint)
        else:
            self.fraction(column, value, *path)

    def fraction(self, column: Column, value: Any, *path: str | int) -> None:
        if column.type == "money" and isinstance(value, float) and not value.is_integer():
            message = f"{column.field!r} is money, and no amount has a fraction of the minor unit."
            self.add("TABLE_CONDITION_WRONG", message, *path)

    def coverage(self) -> None:
        found = cover(self.table)
        is_first = self.table.hit == "first"
        for index in found.empty:
            self.add("TABLE_ROW_EMPTY", "The row holds for no value that its columns can have.", "rows", index)
        for index in found.unreached:
            self.add("TABLE_ROW_UNREACHED", "Rows before this one decide whatever it would.", "rows", index)
        for overlap in found.overlaps:
            if overlap.row not in found.unreached:
                message = f"Row {overlap.other + 1} holds here as well, and says something else: {overlap.where}."
                self.add("TABLE_OVERLAP", message, "rows", overlap.row, is_error=False)
        for gap in found.gaps:
            self.add("TABLE_GAP", f"No row holds: {gap}.", "rows", is_error=is_first)
        if not found.is_complete:
            message = "The conditions are too intricate to find every gap."
            self.add("TABLE_TOO_INTRICATE", message, "rows")


def _is_exact(value: Any) -> bool:
    """Check that all numbers of an outcome come back from JSON and the database as they were written."""
    if isinstance(value, dict | list):
        inner = cast(dict[str, Any] | list[Any], value)
        return all(map(_is_exact, inner.values() if isinstance(inner, dict) else inner))
    return not isinstance(value, int | float) or -_EXACT <= value <= _EXACT


def _is_of(value: Any, type: str) -> bool:
    if type == "boolean":
        return isinstance(value, bool)
    if type == "string":
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)
