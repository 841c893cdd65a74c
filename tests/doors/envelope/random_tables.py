"""Random decision tables over a small world, so small that every document in it can be tried."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

from msgspec import convert

from holdfast.doors.envelope.decision_tables.model import Column, Condition, Row, TableDefinition

AMOUNTS = range(6)
COUNTRIES = ("at", "ch", "de")
COLUMNS = (
    Column(field="total", type="money", least=0, most=5),
    Column(field="score", type="number", least=0, most=5),
    Column(field="country", type="string", values=COUNTRIES),
    Column(field="urgent", type="boolean"),
)


def random_table(random: Random, *, rows: int = 6, certain: bool = False) -> TableDefinition:
    """Make a table, perhaps with gaps; a `certain` one ends with a row that always holds."""
    columns = tuple(random.sample(COLUMNS, random.randint(1, 4)))
    made = [_row(random, columns) for _ in range(random.randint(1, rows))]
    if certain or random.random() < 0.3:
        made.append(Row(then={"who": "rest"}))
    hit: Any = random.choice(["first", "first", "all"])
    return TableDefinition(name="limits", version=random.randint(1, 9), hit=hit, columns=columns, rows=tuple(made))


def _row(random: Random, columns: tuple[Column, ...]) -> Row:
    chosen = [column for column in columns if random.random() < 0.6]
    when = {column.field: _condition(random, column) for column in chosen}
    return Row(when=when, then={"who": random.choice("abc")})


def _condition(random: Random, column: Column) -> Condition:
    if column.type == "boolean":
        return Condition(one_of=(random.random() < 0.5,))
    if column.type == "string":
        return Condition(one_of=tuple(random.sample(COUNTRIES, random.randint(1, 2))))
    if random.random() < 0.3:
        return Condition(one_of=tuple(random.sample(AMOUNTS, random.randint(1, 2))))
    low, high = sorted(random.choices(AMOUNTS, k=2))
    lower: dict[str, int] = random.choice([{}, {"at_least": low}, {"above": low}])
    upper: dict[str, int] = random.choice([{}, {"at_most": high}, {"below": high}])
    return convert(lower | upper or {"at_least": low}, Condition)


def documents(table: TableDefinition) -> Iterator[dict[str, Any]]:
    """Every document of the small world; numbers come in halves as well."""
    halves = [each / 2 for each in range(11)]
    known: dict[str, Any] = {"total": AMOUNTS, "score": halves, "country": COUNTRIES, "urgent": (False, True)}
    fields = [column.field for column in table.columns]
    for values in product(*(known[field] for field in fields)):
        yield dict(zip(fields, values, strict=True))
