"""Place boxes in layers, from the top to the bottom, for drawings of graphs.

The layer of a box is one below the lowest box that leads to it. Edges that lead back, by a given order, have no say in
it. Within a layer each box is drawn towards its neighbours. Every coordinate is a whole number and depends on the input
alone, so equal graphs have equal drawings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

GAP: Final = 36  # between boxes of a layer
DROP: Final = 54  # between layers
SWEEPS: Final = 4
BENT: Final = 400  # edges; above that they are not led around boxes

Size = tuple[int, int]
Point = tuple[int, int]
Ends = tuple[str, str]


class Layout(msgspec.Struct, frozen=True):
    """The top left corners of boxes, and the points where edges over several layers pass the layers between."""

    places: dict[str, Point]
    bends: dict[Ends, tuple[Point, ...]]
    size: Size


def lay_out(order: Sequence[str], sizes: Mapping[str, Size], edges: Iterable[Ends]) -> Layout:
    """Place boxes. An edge from a later box of `order` to an earlier one leads back."""
    rank = {box: number for number, box in enumerate(order)}
    known = dict.fromkeys(ends for ends in edges if ends[0] in rank and ends[1] in rank)
    forward = [(source, target) for source, target in known if rank[source] < rank[target]]
    layer = _layers(order, forward)
    chains = _chains(forward, layer) if len(forward) <= BENT else {}
    links = [link for ends in forward for link in _links(ends, chains.get(ends, ()))]
    for (source, _), bends in chains.items():
        layer |= {bend: layer[source] + number for number, bend in enumerate(bends, 1)}
    rows = _sorted(_rows([*order, *(bend for bends in chains.values() for bend in bends)], layer), links)
    places, size = _places(rows, sizes)
    bends = {ends: tuple(places[bend] for bend in found) for ends, found in chains.items() if found}
    return Layout({box: places[box] for box in order}, bends, size)


def _layers(order: Sequence[str], forward: Iterable[Ends]) -> dict[str, int]:
    incoming: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in forward:
        incoming[target].append(source)
    layer: dict[str, int] = {}
    for box in order:
        layer[box] = max((layer[source] + 1 for source in incoming[box]), default=0)
    return layer


def _chains(forward: Iterable[Ends], layer: Mapping[str, int]) -> dict[Ends, tuple[str, ...]]:
    """Name a bend for each layer that an edge passes. No box has such a name: ids have no blank in front."""
    return {
        (source, target): tuple(f" {source} {target} {number}" for number in range(layer[source] + 1, layer[target]))
        for source, target in forward
    }


def _links(ends: Ends, bends: Sequence[str]) -> Iterable[Ends]:
    stops = [ends[0], *bends, ends[1]]
    return pairwise(stops)


def _rows(boxes: Iterable[str], layer: Mapping[str, int]) -> list[list[str]]:
    rows: defaultdict[int, list[str]] = defaultdict(list)
    for box in boxes:
        rows[layer[box]].append(box)
    return [rows[number] for number in sorted(rows)]


def _sorted(rows: list[list[str]], links: Iterable[Ends]) -> list[list[str]]:
    """Sort each layer by the middle of its neighbours, downwards and upwards in turn."""
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in links:
        below[source].append(target)
        above[target].append(source)
    for sweep in range(SWEEPS):
        neighbours = below if sweep % 2 else above
        for number in range(len(rows))[:: -1 if sweep % 2 else 1]:
            column = _columns(rows, number)
            rows[number] = sorted(rows[number], key=lambda box: _middle(neighbours[box], column, column[box]))
    return rows


def _columns(rows: list[list[str]], number: int) -> dict[str, int]:
    near = rows[max(number - 1, 0) : number + 2]
    return {box: at for row in near for at, box in enumerate(row)}


def _middle(neighbours: Sequence[str], column: Mapping[str, int], own: int) -> float:
    found = [column[box] for box in neighbours if box in column]
    return sum(found) / len(found) if found else float(own)


def _places(rows: list[list[str]], sizes: Mapping[str, Size]) -> tuple[dict[str, Point], Size]:
    widths = [sum(_size(box, sizes)[0] + GAP for box in row) - GAP for row in rows]
    widest = max(widths, default=0)
    places: dict[str, Point] = {}
    y = 0
    for row, width in zip(rows, widths, strict=True):
        x, height = (widest - width) // 2, max(_size(box, sizes)[1] for box in row)
        for box in row:
            own = _size(box, sizes)
            places[box] = (x, y + (height - own[1]) // 2)
            x += own[0] + GAP
        y += height + DROP
    return places, (widest, max(y - DROP, 0))


def _size(box: str, sizes: Mapping[str, Size]) -> Size:
    return sizes.get(box, (0, 0))
