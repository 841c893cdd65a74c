"""Coverage of a table: values that no row decides, rows that are never reached, rows that contradict each other.

Each row is a box over the axes of the columns. The search goes column by column; values for which the same rows are
left need to be looked at once only, and neighbouring ones become one range in the finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import msgspec

from holdfast.doors.envelope.decision_tables.axes import Piece, cut, holds_for, shown
from holdfast.doors.envelope.decision_tables.model import TableDefinition

MOST_GAPS: Final = 20
MOST_LOOKS: Final = 1_000_000  # at pieces of columns

Gap = tuple[str, ...]  # a condition per column that matters


class Overlap(msgspec.Struct, frozen=True):
    """Two rows that hold for the same values and say different things."""

    row: int  # from 0; the later one
    other: int
    where: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    gaps: tuple[str, ...] = ()
    unreached: tuple[int, ...] = ()  # rows, from 0, for whose values an earlier row decides always
    empty: tuple[int, ...] = ()  # rows that hold for no value at all
    overlaps: tuple[Overlap, ...] = ()
    is_complete: bool = True  # False: the table is too intricate, and there may be more


class TooIntricate(Exception):
    pass


def cover(table: TableDefinition) -> Coverage:
    axes = _Axes(table)
    empty = tuple(index for index in range(len(table.rows)) if not all(axes.boxes[index]))
    overlaps = tuple(_overlaps(table, axes)) if table.hit == "first" else ()
    search = _Search(axes)
    try:
        gaps, reached = search.look(0, (1 << len(table.rows)) - 1)
    except TooIntricate:
        return Coverage(empty=empty, overlaps=overlaps, is_complete=False)
    lost = (index for index in range(len(table.rows)) if not reached >> index & 1 and index not in empty)
    return Coverage(
        gaps=tuple(" && ".join(gap) if gap else "any document" for gap in gaps),
        unreached=tuple(lost) if table.hit == "first" else (),
        empty=empty,
        overlaps=overlaps,
    )


class _Axes:
    """The pieces of each column, and the box of each row: a bit per piece for which its condition holds."""

    def __init__(self, table: TableDefinition) -> None:
        self.columns = table.columns
        self.pieces: list[list[Piece]] = []
        self.rows: list[list[int]] = []  # per column and piece: a bit per row that holds
        for column in table.columns:
            tests = [row.when.get(column.field) for row in table.rows]
            pieces = cut(column, [test for test in tests if test is not None])
            self.pieces.append(pieces)
            held = [sum(1 << index for index, test in enumerate(tests) if holds_for(test, piece)) for piece in pieces]
            self.rows.append(held)
        self.boxes = [
            [sum(1 << at for at, held in enumerate(rows) if held >> index & 1) for rows in self.rows]
            for index in range(len(table.rows))
        ]


class _Search:
    def __init__(self, axes: _Axes) -> None:
        self.axes = axes
        self.looks = 0
        self.known: dict[tuple[int, int], tuple[tuple[Gap, ...], int]] = {}

    def look(self, column: int, left: int) -> tuple[tuple[Gap, ...], int]:
        """Find the gaps from this column on, and the rows that come first somewhere, of those that are left."""
        if not left:
            return ((),), 0
        if column == len(self.axes.columns):
            return (), left & -left
        if (column, left) in self.known:
            return self.known[column, left]
        self.looks += len(self.axes.pieces[column])
        if self.looks > MOST_LOOKS:
            raise TooIntricate
        gaps: list[Gap] = []
        reached = 0
        pieces = zip(self.axes.pieces[column], self.axes.rows[column], strict=True)
        for remaining, alike in groupby(pieces, key=lambda each: each[1] & left):
            further, first = self.look(column + 1, remaining)
            reached |= first
            if further and len(gaps) < MOST_GAPS:
                group = [piece for piece, _ in alike]
                is_all = len(group) == len(self.axes.pieces[column])
                here = () if is_all else (shown(self.axes.columns[column], group),)
                gaps += [(*here, *gap) for gap in further]
        self.known[column, left] = (tuple(gaps[:MOST_GAPS]), reached)
        return self.known[column, left]


def _overlaps(table: TableDefinition, axes: _Axes) -> Iterator[Overlap]:
    """Compare each row with those before it. One without conditions is for all that is left, and contradicts none."""
    for index, row in enumerate(table.rows):
        if not row.when:
            continue
        for other in range(index):
            common = [one & two for one, two in zip(axes.boxes[index], axes.boxes[other], strict=True)]
            if all(common) and table.rows[other].then != row.then:
                yield Overlap(index, other, _where(axes, common))
                break


def _where(axes: _Axes, common: list[int]) -> str:
    parts: list[str] = []
    for column, pieces, bits in zip(axes.columns, axes.pieces, common, strict=True):
        if bits == (1 << len(pieces)) - 1:
            continue
        first = (bits & -bits).bit_length() - 1
        last = first
        while last + 1 < len(pieces) and bits >> (last + 1) & 1:
            last += 1
        parts.append(shown(column, pieces[first : last + 1]))
    return " && ".join(parts) or "any document"
