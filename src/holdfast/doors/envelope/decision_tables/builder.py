"""The builder of decision tables, and tables printed back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from holdfast.doors.envelope.builder.fluent import Fluent, checked, entry, name_list
from holdfast.doors.envelope.decision_tables.building import table_data
from holdfast.doors.envelope.decision_tables.model import Amount, ColumnType, HitPolicy, TableDefinition
from holdfast.doors.envelope.reading.load import require_table
from holdfast.doors.layout import INDENT, Chain, Group, shown, value_layout
from holdfast.doors.yaml.writing import write_yaml


class DecisionTable(Fluent):
    """`DecisionTable("limits").column("total", "money", least=0).row({"who": "boss"}).build()`.

    Mistakes are gathered and raised together by `build`."""

    prefix: ClassVar[str] = "TABLE"
    lists: ClassVar[dict[str, str]] = {"column": "columns", "row": "rows"}

    @checked
    def __init__(self, name: str, version: int = 1, *, hit: HitPolicy = "first", about: str | None = None) -> None:
        """With `hit="first"` the first row that holds decides, with `"all"` every one adds its outcome."""
        super().__init__()
        self._head = entry(name=name, version=version, hit=hit, about=about)
        self._columns: tuple[dict[str, Any], ...] = ()
        self._rows: tuple[dict[str, Any], ...] = ()

    @checked
    def column(
        self,
        field: str,
        type: ColumnType,
        *,
        least: Amount | None = None,
        most: Amount | None = None,
        values: Iterable[str] | None = None,
    ) -> Self:
        """Add a field of the document that rows read, with the values it can have: numbers within bounds, or texts."""
        listed = None if values is None else name_list(values)
        column = entry(field=field, type=type, least=least, most=most, values=listed)
        return self.longer(_columns=(*self._columns, column))

    @checked
    def row(self, then: Mapping[str, Any], when: Mapping[str, Any] | None = None, *, about: str | None = None) -> Self:
        """Add a row: its outcome, and the conditions per field, each a value, a list of values, or bounds such as
        `{"at_least": 0, "below": 100}`. Without conditions it always holds."""
        return self.longer(_rows=(*self._rows, entry(when=when, then=then, about=about)))

    def build(self) -> TableDefinition:
        """The finished table; a DefinitionError lists everything that is wrong in its `diagnostics`."""
        return require_table({**self._head, "columns": list(self._columns), "rows": list(self._rows)}, self.problems)


def table_yaml(table: TableDefinition) -> str:
    """Write a file with this table."""
    return write_yaml({"tables": [table_data(table)]})


def table_code(table: TableDefinition) -> str:
    """Write Python that assigns the built table to `table`."""
    data = table_data(table)
    calls = [_call("DecisionTable", data, ("name",), ("version", "hit", "about"))]
    calls += [_call(".column", column, ("field", "type"), ("least", "most", "values")) for column in data["columns"]]
    calls += [_call(".row", row, ("then", "when") if "when" in row else ("then",), ("about",)) for row in data["rows"]]
    chain = Chain((*calls, Group(".build(", ())))
    lines = (" " * INDENT + shown(call, INDENT) for call in chain.calls)
    return "from holdfast import DecisionTable\n\ntable = (\n" + "\n".join(lines) + "\n)\n"


def _call(verb: str, data: dict[str, Any], first: tuple[str, ...], rest: tuple[str, ...]) -> Group:
    positional = (("", value_layout(data[key])) for key in first)
    named = ((f"{key}=", value_layout(data[key])) for key in rest if key in data)
    return Group(f"{verb}(", (*positional, *named))
