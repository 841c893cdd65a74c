"""The shape of a graph for a person: one main path, with branches and side ways nested at the node they leave.

A split is followed by its join; of every other node the first ordinary edge continues the path and the other edges
become side ways. A way ends where it meets a node that is drawn elsewhere, so every node is drawn once, also in a graph
with loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.graph.compiled import Compiled
from holdfast.graph.model import Edge, Node

EXCEPTIONAL: Final = frozenset({"error", "timeout", "rejected"})


class Way(msgspec.Struct):
    """The path behind an edge. `to` is the node, drawn elsewhere, at which it stops; None: it ends."""

    label: str
    edge: str
    items: list[Item] = []
    to: str | None = None
    meets: bool = False  # `to` is the join of the fork it lies in


class Item(msgspec.Struct):
    node: Node
    branches: list[Way] = []  # of a split, in the order they were declared
    others: list[Way] = []  # of any other node: the alternatives to the main path


def main_path(graph: Compiled) -> Way:
    """Lay out the whole graph as the way from its entry."""
    return _Walk(graph).way(Edge(id="", source="", target=graph.entry), "", None)


def names_on(way: Way) -> Iterator[str]:
    """Yield every node of a way, of its branches and of its side ways."""
    for item in way.items:
        yield item.node.id
        for inner in (*item.branches, *item.others):
            yield from names_on(inner)


class _Walk:
    def __init__(self, graph: Compiled) -> None:
        self._graph = graph
        self._drawn: set[str] = set()

    def way(self, edge: Edge, label: str, join: str | None) -> Way:
        """Lay out the path from an edge to its end, to `join`, or to a node drawn already; then its side ways."""
        way = Way(label, edge.id)
        open_ends: list[tuple[Item, list[Edge], str | None]] = []
        at: str | None = edge.target
        while at is not None:
            at = self._step(way, at, join, open_ends)
        for item, edges, meeting in open_ends:
            is_split = item.node.traits.splits
            ways = [self.way(e, label_of(e), meeting if is_split else join) for e in edges]
            if is_split:
                item.branches = ways
            else:
                item.others = ways
        return way

    def _step(
        self, way: Way, at: str, join: str | None, open_ends: list[tuple[Item, list[Edge], str | None]]
    ) -> str | None:
        """Add one node to the way, and return the next one on its path, if any."""
        if at == join or at in self._drawn:
            way.to, way.meets = at, at == join
            return None
        graph = self._graph
        node = graph.nodes[at]
        if node.traits.ends_token:
            return None  # many ways may lead to an end, and drawing it adds nothing
        self._drawn.add(at)
        item = Item(node)
        way.items.append(item)
        edges = [graph.edges[id] for id in graph.adjacency[at]]
        if node.traits.splits:
            open_ends.append((item, edges, graph.splits[at]))
            return graph.splits[at]
        if not edges:
            return None
        main = next((e for e in edges if e.on not in EXCEPTIONAL), edges[0])
        if others := [e for e in edges if e is not main]:
            open_ends.append((item, others, None))
        return main.target


def label_of(edge: Edge) -> str:
    """Describe the event and condition of an edge in a few words."""
    if edge.label:
        return edge.label
    event = "" if edge.on == "completed" else f"on {edge.on}"
    condition = f"if {edge.when}" if edge.when is not None else ""
    return " ".join(part for part in (event, condition) if part) or "otherwise"
