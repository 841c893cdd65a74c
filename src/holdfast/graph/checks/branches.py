"""Checks of splits and joins: every join closes one split, branches are entered only through it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.graph.checks.shared_keys import shared_keys
from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.model import Edge, Graph
from holdfast.graph.rules import rules_of
from holdfast.graph.scopes import Scopes, arrivals, leaving
from holdfast.graph.topology import Topology, walk

Found = Iterator[Diagnostic]


def check_branches(graph: Graph, topology: Topology, scopes: Scopes) -> Found:
    for join in scopes.closes:
        yield from _closed_split(join, topology, scopes)
    yield from _rival_joins(scopes)
    if rules_of(graph.kind).has_one_end:
        yield from _ends_in_scopes(topology, scopes)
    if graph.policy.data == "context":
        yield from shared_keys(topology, scopes)


def _closed_split(join: str, topology: Topology, scopes: Scopes) -> Found:
    ways = set(arrivals(topology, scopes, join))
    if ways == {None}:
        yield problem("JOIN_WITHOUT_SPLIT", "No split comes before the join.", f"nodes.{join}")
    elif None in ways:
        yield from _jumps_to(join, topology, scopes)
    elif scopes.closes[join] not in ways:
        splits = " and ".join(sorted(split for split in ways if split is not None))
        yield problem("JOIN_MISMATCH", f"The join is reached from several splits: {splits}.", f"nodes.{join}")


def _jumps_to(join: str, topology: Topology, scopes: Scopes) -> Found:
    edges = _mixing_edges(join, topology, scopes)
    for edge in edges:
        message = f"The edge enters a branch from outside, and the branch leads to the join {join!r}."
        yield problem("JUMP_INTO_SCOPE", message, f"edges.{edge.id}")
    if not edges:
        message = "Instances can begin inside a branch that leads to this join."
        yield problem("JUMP_INTO_SCOPE", message, f"nodes.{join}")


def _mixing_edges(join: str, topology: Topology, scopes: Scopes) -> list[Edge]:
    """The edges that first mix outside and inside on the way to the join; the last resort is the join's own."""
    splits = {split for way in arrivals(topology, scopes, join) for split in scopes.enclosing(way)}
    inside = walk([join], lambda node: [source for source in topology.sources(node) if source not in splits])
    mixed = [node for node in sorted(inside & topology.reachable - {join}) if _is_mixed(node, splits, topology, scopes)]
    return [
        edge
        for node in mixed or [join]
        for edge in topology.incoming[node]
        if edge.source in topology.reachable and leaving(topology, scopes, edge.source) not in splits
    ]


def _is_mixed(node: str, splits: set[str], topology: Topology, scopes: Scopes) -> bool:
    from_inside = {way in splits for way in arrivals(topology, scopes, node)}
    return len(from_inside) == 2


def _rival_joins(scopes: Scopes) -> Found:
    closing: defaultdict[str, list[str]] = defaultdict(list)
    for join, split in sorted(scopes.closes.items()):
        if split is not None:
            closing[split].append(join)
    for split, joins in closing.items():
        if len(joins) > 1:
            message = f"The split is closed by several joins: {' and '.join(joins)}."
            yield problem("JOIN_MISMATCH", message, f"nodes.{split}")


def _ends_in_scopes(topology: Topology, scopes: Scopes) -> Found:
    for node, split in scopes.inside.items():
        if topology.traits(node).ends_token and split is not None:
            message = f"Several tokens may reach this end: it stands in a branch of {split!r}."
            yield problem("END_IN_SCOPE", message, f"nodes.{node}")
