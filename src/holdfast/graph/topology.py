"""The topology of a graph: edges out of and into each node as lookups, built from the sound nodes and edges.

Checks report all problems at once, so a dangling edge or a second node of the same id must not stop the analysis:
dangling edges are left out and the first of two equal ids counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from holdfast.graph.kinds import KINDS, UNKNOWN, Behaviour, Kind
from holdfast.graph.model import Edge, Graph, Node

ItemT = TypeVar("ItemT", Node, Edge)


class Topology(msgspec.Struct, frozen=True):
    nodes: dict[str, Node]  # in id order
    edges: dict[str, Edge]  # in id order; both ends exist
    outgoing: dict[str, tuple[Edge, ...]]  # by (priority, id)
    incoming: dict[str, tuple[Edge, ...]]  # by (priority, id)
    roots: tuple[str, ...]  # nodes where a root token may be put: by a start, an expiry or an interrupt
    reachable: frozenset[str]

    def behaviour(self, node: str) -> Behaviour | None:
        found = KINDS.get(self.nodes[node].kind)
        return None if found is None else found.behaviour

    def traits(self, node: str) -> Kind:
        return KINDS.get(self.nodes[node].kind, UNKNOWN)

    def is_split(self, node: str) -> bool:
        return self.traits(node).splits

    def branches(self, split: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.outgoing[split] if edge.on == "completed")

    def targets(self, node: str) -> tuple[str, ...]:
        return tuple(edge.target for edge in self.outgoing[node])

    def sources(self, node: str) -> tuple[str, ...]:
        return tuple(edge.source for edge in self.incoming[node])


def read_topology(graph: Graph) -> Topology:
    nodes = _first_by_id(graph.nodes)
    sound = [edge for edge in graph.edges if edge.source in nodes and edge.target in nodes]
    edges = _first_by_id(sound)
    by_rank = sorted(edges.values(), key=lambda edge: (edge.priority, edge.id))
    outgoing = {id: tuple(found) for id, found in _grouped(nodes, by_rank, lambda edge: edge.source).items()}
    incoming = {id: tuple(found) for id, found in _grouped(nodes, by_rank, lambda edge: edge.target).items()}
    starts = dict.fromkeys((graph.entry, graph.policy.on_timeout, *_interrupted(graph)))
    roots = tuple(root for root in starts if root in nodes)
    reachable = walk(roots, lambda node: [edge.target for edge in outgoing[node]])
    return Topology(nodes, edges, outgoing, incoming, roots, reachable)


def _interrupted(graph: Graph) -> Iterator[str | None]:
    """Yield the nodes where the root token continues after a verb or an amendment has interrupted a region."""
    for region in graph.regions:
        yield from region.verbs.values()
        yield region.amendment


def walk(starts: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """Find every node reached from the starts, the starts included."""
    seen = set(starts)
    open_nodes = list(seen)
    while open_nodes:
        for neighbour in neighbours(open_nodes.pop()):
            if neighbour not in seen:
                seen.add(neighbour)
                open_nodes.append(neighbour)
    return frozenset(seen)


def _first_by_id(items: Iterable[ItemT]) -> dict[str, ItemT]:
    found: dict[str, ItemT] = {}
    for item in items:
        found.setdefault(item.id, item)
    return dict(sorted(found.items()))


def _grouped(nodes: Iterable[str], edges: Iterable[Edge], end: Callable[[Edge], str]) -> dict[str, list[Edge]]:
    groups: dict[str, list[Edge]] = {node: [] for node in nodes}
    for edge in edges:
        groups[end(edge)].append(edge)
    return groups
