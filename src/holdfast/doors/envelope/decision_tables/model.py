"""A decision table as data, however it was written."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ColumnType = Literal["number", "money", "string", "boolean"]
HitPolicy = Literal["first", "all"]
Amount = int | float


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A field of the document that the rows read, with the values that it may have."""

    field: str
    type: ColumnType
    least: Amount | None = None  # number, money; None: without a bound
    most: Amount | None = None
    values: tuple[str, ...] | None = None  # string; None: any text


class Condition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A condition on one field: one of some values, or a range of numbers."""

    one_of: tuple[Amount | str | bool, ...] | None = None
    at_least: Amount | None = None
    above: Amount | None = None
    at_most: Amount | None = None
    below: Amount | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A row: its outcome counts if all of its conditions hold. One without conditions always does."""

    then: dict[str, Any]
    when: dict[str, Condition] = {}
    about: str | None = None


class TableDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finished decision table."""

    name: str
    version: int = 1
    hit: HitPolicy = "first"  # first: the first row that holds decides; all: every row that holds adds its outcome
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    about: str | None = None
