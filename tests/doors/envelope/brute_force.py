"""The fewest approvals on a way through a slot, found by trying every choice there is."""

from __future__ import annotations

from itertools import product

from holdfast.graph.compiled import Compiled, graph_of
from holdfast.graph.envelope import NEVER
from holdfast.graph.kinds import Behaviour
from holdfast.graph.scopes import find_scopes
from holdfast.graph.topology import read_topology

Outcomes = frozenset[tuple[str, int]]  # the node where a token leaves its scope, and the approvals until then


def fewest_by_trying(compiled: Compiled, slot: str) -> int | None:
    """None: no token gets from `in` to `out`."""
    counts = [count for end, count in _Trial(compiled, slot).run() if end == f"sys:slot:{slot}:out"]
    return min(counts, default=None)


class _Trial:
    def __init__(self, compiled: Compiled, slot: str) -> None:
        self.topology = read_topology(graph_of(compiled))
        self.inside = find_scopes(self.topology).inside
        self.joins = {split: join for split, join in compiled.splits.items() if join is not None}
        self.modes = {join: need.mode for join, need in compiled.joins.items()}
        self.start = f"sys:slot:{slot}:in"
        self.ends = {f"sys:slot:{slot}:out", f"sys:slot:{slot}:rejected"}
        self.known: dict[str, Outcomes] = {}

    def run(self) -> Outcomes:
        return self.outcomes(self.start)

    def outcomes(self, node: str) -> Outcomes:
        """All that may become of a token that has arrived at a node, until it leaves the node's scope."""
        if node in self.ends:
            return frozenset({(node, 0)})
        if node not in self.known:
            steps = self.scope(node) if self.topology.is_split(node) else self.steps(node)
            found: set[tuple[str, int]] = set()
            for target, count in steps:
                if self.inside[target] == self.inside[node] and not self.closes(target, self.inside[node]):
                    found |= {(end, count + more) for end, more in self.outcomes(target)}
                else:
                    found.add((target, count))
            self.known[node] = frozenset(found)
        return self.known[node]

    def closes(self, node: str, split: str | None) -> bool:
        return split is not None and self.joins.get(split) == node

    def steps(self, node: str) -> list[tuple[str, int]]:
        is_approval = self.topology.nodes[node].kind == "approval"
        return [
            (edge.target, int(is_approval and edge.on == "approved"))
            for edge in self.topology.outgoing[node]
            if edge.on != NEVER
        ]

    def scope(self, split: str) -> list[tuple[str, int]]:
        """All that may become of a split: each set of branches that may be taken, each outcome of each of them."""
        join = self.joins.get(split)
        branches = self.topology.branches(split)
        sure = [self.branch(split, edge.target) for edge in branches if edge.when is None]
        perhaps = [self.branch(split, edge.target) for edge in branches if edge.when is not None]
        found: set[tuple[str, int]] = set()
        for chosen in product([False, True], repeat=len(perhaps)):
            taken = [*sure, *(branch for branch, is_taken in zip(perhaps, chosen, strict=True) if is_taken)]
            found |= {outcome for branch in taken for outcome in branch if outcome[0] != join}
            arrivals = [[count for end, count in branch if end == join] for branch in taken]
            if join is None:
                continue
            if self.modes[join] == "any":
                found |= {(join, count) for counts in arrivals for count in counts}
            else:
                found |= {(join, sum(counts)) for counts in product(*arrivals)} if taken else set()
        return sorted(found)

    def branch(self, split: str, target: str) -> Outcomes:
        if self.inside[target] != split:
            return frozenset({(target, 0)})
        assert self.topology.behaviour(target) is not Behaviour.END
        return self.outcomes(target)
