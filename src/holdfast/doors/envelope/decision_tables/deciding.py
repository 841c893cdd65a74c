"""The decision of a table on one document: pure, and the same wherever it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.doors.envelope.decision_tables.model import Condition, Row, TableDefinition


class Verdict(msgspec.Struct, frozen=True):
    """The rows that hold, and what comes of them; None: no row decides."""

    rows: tuple[int, ...]  # counted from 1
    outcome: dict[str, Any] | None


def decide_table(table: TableDefinition, values: Mapping[str, Any]) -> Verdict:
    """Decide on the values of a document's fields.

    With `first` the outcome is that of the first row that holds. With `all` it has a list per name, of the rows that
    hold in their order. A condition on a value that is missing, or of another type, does not hold.
    """
    types = {column.field: column.type for column in table.columns}
    known = {field: value for field, value in values.items() if field in types and _fits(value, types[field])}
    found = [number for number, row in enumerate(table.rows, 1) if _row_holds(row, known)]
    if table.hit == "first":
        rows = tuple(found[:1])
        return Verdict(rows, dict(table.rows[rows[0] - 1].then) if rows else None)
    names = dict.fromkeys(name for row in table.rows for name in row.then)
    return Verdict(tuple(found), {name: [table.rows[number - 1].then[name] for number in found] for name in names})


def holds(test: Condition, value: Any) -> bool:
    """Check a condition on a value of the column's type."""
    if test.one_of is not None:
        return value in test.one_of
    return not (
        (test.at_least is not None and value < test.at_least)
        or (test.above is not None and value <= test.above)
        or (test.at_most is not None and value > test.at_most)
        or (test.below is not None and value >= test.below)
    )


def _row_holds(row: Row, known: dict[str, Any]) -> bool:
    return all(field in known and holds(test, known[field]) for field, test in row.when.items())


def _fits(value: Any, type: str) -> bool:
    if type == "boolean":
        return isinstance(value, bool)
    if type == "string":
        return isinstance(value, str)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (type == "number" or float(value).is_integer())
