"""Axes: the values of a column, cut into pieces within which no row of the table tells two values apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.doors.envelope.decision_tables.deciding import holds
from holdfast.doors.envelope.decision_tables.model import Amount, Column, Condition

OTHER: Final = "\0other"  # any text that no row names


class Piece(msgspec.Struct, frozen=True):
    """Some values of a column: one value, or the numbers between two; `sample` is one of them."""

    sample: Any
    low: Amount | None = None  # None: without a bound
    high: Amount | None = None
    takes_low: bool = True
    takes_high: bool = True


def cut(column: Column, tests: list[Condition]) -> list[Piece]:
    """Cut the values of a column at every value that a condition names; numbers in ascending order."""
    if column.type == "boolean":
        return [Piece(False), Piece(True)]
    if column.type == "string":
        named = sorted({str(value) for test in tests for value in test.one_of or ()})
        values = list(column.values) if column.values is not None else [*named, OTHER]
        return [Piece(value) for value in values]
    return list(_cut_numbers(column, tests))


def holds_for(test: Condition | None, piece: Piece) -> bool:
    return test is None or holds(test, piece.sample)


def shown(column: Column, pieces: list[Piece]) -> str:
    """Describe neighbouring pieces of one column in words."""
    name = f"entity.{column.field}"
    if column.type == "boolean":
        return f"{name} == {'true' if pieces[0].sample else 'false'}"
    if column.type == "string":
        texts = [piece.sample for piece in pieces if piece.sample != OTHER]
        if len(texts) < len(pieces):
            return f"{name} is none of the texts that the rows name"
        return f"{name} == {texts[0]!r}" if len(texts) == 1 else f"{name} in {texts!r}"
    first, last = pieces[0], pieces[-1]
    if first.low is not None and first.low == last.high:
        return f"{name} == {first.low}"
    low = [] if first.low is None else [f"{name} {'>=' if first.takes_low else '>'} {first.low}"]
    high = [] if last.high is None else [f"{name} {'<=' if last.takes_high else '<'} {last.high}"]
    return " && ".join([*low, *high]) or f"any {name}"


def _cut_numbers(column: Column, tests: list[Condition]) -> Iterator[Piece]:
    named = {bound for test in tests for bound in _bounds(test)}
    named |= {bound for bound in (column.least, column.most) if bound is not None}
    points = sorted(point for point in named if _within(column, point))
    if not points:
        yield Piece(0)  # no row tells any two of them apart
        return
    if column.least is None:
        yield Piece(points[0] - 1, None, points[0], takes_high=False)
    for index, point in enumerate(points):
        if column.type != "money" or point == int(point):
            yield Piece(point, point, point)
        if index + 1 < len(points):
            between = _between(point, points[index + 1], is_whole=column.type == "money")
            if between is not None:
                yield Piece(between, point, points[index + 1], takes_low=False, takes_high=False)
    if column.most is None:
        yield Piece(points[-1] + 1, points[-1], None, takes_low=False)


def _between(low: Amount, high: Amount, *, is_whole: bool) -> Amount | None:
    """Find a value between two others; whole numbers may have none."""
    if not is_whole:
        middle = low + (high - low) / 2
        return middle if low < middle < high else None
    following = int(low // 1) + 1
    return following if following < high else None


def _bounds(test: Condition) -> Iterator[Amount]:
    for value in (*(test.one_of or ()), test.at_least, test.above, test.at_most, test.below):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


def _within(column: Column, point: Amount) -> bool:
    return (column.least is None or point >= column.least) and (column.most is None or point <= column.most)
