"""Scopes: the split that a node's tokens come from, and the join that brings them together again.

A split opens a scope for the nodes that follow it; a join belongs to the scope around the one it closes. A node that is
reached from several scopes belongs to the innermost scope around all of them, so an edge that leads there from further
inside is an escape. A terminal belongs to no scope, because reaching it ends every scope.

Scopes form a tree: a node only knows its innermost split, and that split, being a node itself, knows the next. No node
has a copy of the splits around it, so a split that moves outwards takes all nodes inside it along. Each pass can only
move a node outwards, hence the passes end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.graph.kinds import Behaviour
from holdfast.graph.order import depth_first
from holdfast.graph.topology import Topology


class Scopes(msgspec.Struct, frozen=True):
    """`inside` holds the innermost split of each reachable node; `closes` the split a join's tokens come from."""

    inside: dict[str, str | None]
    closes: dict[str, str | None]

    def enclosing(self, split: str | None) -> Iterator[str]:
        """The split itself and those around it, from the inside out."""
        while split is not None:
            yield split
            split = self.inside[split]

    def depth(self, node: str) -> int:
        return sum(1 for _ in self.enclosing(self.inside[node]))

    def depths(self) -> dict[str, int]:
        """Count the splits around every reachable node, each split once."""
        known: dict[str | None, int] = {None: -1}
        for node in self.inside:
            path = [node]
            while path[-1] not in known and self.inside[path[-1]] not in known:
                outer = self.inside[path[-1]]
                assert outer is not None, "None is known"
                path.append(outer)
            for each in reversed(path):
                known[each] = known[self.inside[each]] + 1
        return {node: known[node] for node in self.inside}

    def common(self, left: str | None, right: str | None) -> str | None:
        if left == right:
            return left
        around = set(self.enclosing(left))
        return next((split for split in self.enclosing(right) if split in around), None)


def leaving(topology: Topology, scopes: Scopes, node: str) -> str | None:
    """The innermost split of a token that leaves this node."""
    return node if topology.is_split(node) else scopes.inside[node]


def arrivals(topology: Topology, scopes: Scopes, node: str) -> list[str | None]:
    """The innermost split of the tokens that may arrive at a node, one per incoming edge whose source is placed."""
    placed: list[str | None] = [None] if node in topology.roots else []
    known = (edge.source for edge in topology.incoming[node] if edge.source in scopes.inside)
    return placed + [leaving(topology, scopes, source) for source in known]


def find_scopes(topology: Topology) -> Scopes:
    scopes = Scopes({}, {})
    order, _ = depth_first(topology.roots, topology.targets)
    settled = False
    while not settled:
        settled = True
        for node in order:
            inside = _scope_of(topology, scopes, node)
            if scopes.inside.get(node, ...) != inside:
                scopes.inside[node] = inside
                settled = False
    return scopes


def _scope_of(topology: Topology, scopes: Scopes, node: str) -> str | None:
    first, *others = arrivals(topology, scopes, node)
    shared = first
    for other in others:
        shared = scopes.common(shared, other)
    traits = topology.traits(node)
    if traits.behaviour is Behaviour.JOIN:
        scopes.closes[node] = shared
        return None if shared is None else scopes.inside[shared]
    return None if traits.ends_instance else shared
