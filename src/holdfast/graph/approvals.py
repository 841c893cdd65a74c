"""Count approvals: the fewest that any way through a slot can bring.

A way is what tokens may do, not only a path of edges. Behind a split whose join waits for all, every branch without a
condition brings its own approvals; behind one that waits for any, only the first to arrive is sure. An edge that leaves
the split escapes: it cancels the other branches, and only its own path counts.

So the edges into a join that waits for all are replaced by one from its split, as heavy as its branches together. On
a shortest path over the rest is the answer. Slots have no cycles, so one pass in topological order finds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from holdfast.graph.envelope import GATE_CALL, IN, NEVER, OUT, port_id
from holdfast.graph.model import Edge
from holdfast.graph.order import topological_order
from holdfast.graph.scopes import Scopes
from holdfast.graph.topology import Topology

APPROVED: Final = "approved"


class Fewest(msgspec.Struct, frozen=True):
    """The fewest approvals on a way, and the nodes of such a way."""

    count: int
    way: tuple[str, ...]


class Lack(msgspec.Struct, frozen=True):
    """A gate that demands more approvals than a way to it brings."""

    gate: str
    demanded: int
    found: int
    slot: str | None  # None: the way leads through no slot
    way: tuple[str, ...]


class _Bundle(msgspec.Struct, frozen=True):
    """The replacement for the edges into a join that waits for all."""

    target: str
    weight: int


def fewest_approvals(topology: Topology, scopes: Scopes, start: str, end: str, inside: Iterable[str]) -> Fewest | None:
    """Find the way from `start` to `end` with the fewest approvals, through the nodes inside. None: there is no way."""
    return _Search(topology, scopes, {start, end, *inside}).fewest(start, end)


def find_lacks(topology: Topology, scopes: Scopes) -> Iterator[Lack]:
    """Find the gates of an effective graph that a token can reach with fewer approvals than they demand."""
    steps: defaultdict[str, list[str]] = defaultdict(list)
    for id, node in topology.nodes.items():
        if node.slot is not None:
            steps[node.slot].append(id)
    for id, node in topology.nodes.items():
        wanted = node.config.get("approvals") if node.handler == GATE_CALL else 0
        demanded = wanted if isinstance(wanted, int) else 0
        for edge in topology.incoming[id] if demanded else ():
            lack = _lack(topology, scopes, edge, demanded, steps)
            if lack is not None:
                yield lack


def _lack(topology: Topology, scopes: Scopes, edge: Edge, demanded: int, steps: dict[str, list[str]]) -> Lack | None:
    if edge.on == NEVER:
        return None
    source = topology.nodes[edge.source]
    slot = source.slot
    if slot is None or source.id != port_id(slot, OUT):
        return Lack(edge.target, demanded, 0, None, (edge.source, edge.target))
    found = fewest_approvals(topology, scopes, port_id(slot, IN), source.id, steps[slot])
    if found is None or found.count >= demanded:
        return None
    return Lack(edge.target, demanded, found.count, slot, found.way)


class _Search:
    def __init__(self, topology: Topology, scopes: Scopes, members: set[str]) -> None:
        self.topology = topology
        self.joins = {
            split: join
            for join, split in scopes.closes.items()
            if split is not None and join in members and topology.nodes[join].mode != "any"
        }
        self.joined = frozenset(self.joins.values())
        self.bundles: dict[str, _Bundle] = {}  # by split
        backwards = topological_order(
            members, sorted(members), lambda node: [target for target in topology.targets(node) if target in members]
        )[::-1]
        self.backwards = backwards
        self._bundle(self._insides(scopes))

    def _insides(self, scopes: Scopes) -> dict[str, list[str]]:
        """List the nodes inside of each split, those of splits within it included, from the last to the first."""
        found: dict[str, list[str]] = {split: [] for split in self.joins}
        for node in self.backwards:
            for split in scopes.enclosing(scopes.inside.get(node)):
                if split in found:
                    found[split].append(node)
        return found

    def _bundle(self, insides: dict[str, list[str]]) -> None:
        """Weigh every split, the innermost first: a split comes after all that surround it."""
        for split in self.backwards:
            if split not in self.joins:
                continue
            join = self.joins[split]
            ahead = self._ahead(join, insides[split])
            # Branches that tokens take whatever holds; where there is none, the check of default edges complains.
            weights = [ahead.get(edge.target) for edge in self.topology.branches(split) if edge.when is None]
            if None not in weights:
                self.bundles[split] = _Bundle(join, sum(found[0] for found in weights if found is not None))

    def fewest(self, start: str, end: str) -> Fewest | None:
        ahead = self._ahead(end, self.backwards)
        if start not in ahead:
            return None
        way = [start]
        while way[-1] != end:
            way.append(ahead[way[-1]][1])
        return Fewest(ahead[start][0], tuple(way))

    def _ahead(self, end: str, nodes: Iterable[str]) -> dict[str, tuple[int, str]]:
        """Find the fewest approvals between each node and the end, and the next node on that way."""
        found: dict[str, tuple[int, str]] = {end: (0, end)}
        for node in nodes:
            if node == end:
                continue
            for target, weight in self._steps(node, end):
                if target in found and (node not in found or weight + found[target][0] < found[node][0]):
                    found[node] = (weight + found[target][0], target)
        return found

    def _steps(self, node: str, end: str) -> list[tuple[str, int]]:
        signs = self.topology.traits(node).signs
        steps = [
            (edge.target, int(signs and edge.on == APPROVED))
            for edge in self.topology.outgoing[node]
            if edge.on != NEVER and (edge.target not in self.joined or edge.target == end)
        ]
        bundle = self.bundles.get(node)
        return steps if bundle is None else [*steps, (bundle.target, bundle.weight)]
