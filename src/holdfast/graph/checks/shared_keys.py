"""Check for context keys that several branches of a split write: of those, the branch that closes last wins.

Each split is looked at from the inside out, and one that lies in a branch of another counts there as a single step with
all the keys written in it. So no node is visited for every split around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.graph.checks.fields import output_keys
from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.scopes import Scopes, leaving
from holdfast.graph.topology import Topology, walk

Writers = defaultdict[str, set[str]]  # key → nodes


def shared_keys(topology: Topology, scopes: Scopes) -> Iterator[Diagnostic]:
    following = _following(topology, scopes)
    splits = [node for node in scopes.inside if topology.is_split(node)]
    written: dict[str, Writers] = {}
    depths = scopes.depths()
    for split in sorted(splits, key=lambda split: depths[split], reverse=True):
        branches = [
            _keys(branch.target, split, topology, scopes, following, written) for branch in topology.branches(split)
        ]
        written[split] = all_keys = _merged(branches)
        for key, nodes in all_keys.items():
            if sum(key in keys for keys in branches) > 1:
                message = f"Several branches write the context key {key!r}: {', '.join(sorted(nodes))}."
                yield problem("SHARED_KEY_WRITTEN", message, f"nodes.{split}")


def _following(topology: Topology, scopes: Scopes) -> defaultdict[str, list[str]]:
    """The nodes that come after each one in its own scope; after a split, those that its branches lead out to."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for edge in topology.edges.values():
        if edge.source not in scopes.inside:
            continue
        around, scope = edge.source, leaving(topology, scopes, edge.source)
        while scope is not None and scope != scopes.inside[edge.target]:
            around, scope = scope, scopes.inside[scope]
        following[around].append(edge.target)
    return following


def _keys(
    start: str,
    split: str,
    topology: Topology,
    scopes: Scopes,
    following: defaultdict[str, list[str]],
    written: dict[str, Writers],
) -> Writers:
    """The keys written in one branch, each with the nodes that write it."""

    def after(node: str) -> list[str]:
        return [target for target in following[node] if scopes.inside[target] == split]

    found: Writers = defaultdict(set)
    for node in walk([start], after) if scopes.inside[start] == split else ():
        for key in output_keys(topology.nodes[node]) or ():
            found[key].add(node)
        for key, nodes in written[node].items() if node in written else ():
            found[key] |= nodes
    return found


def _merged(branches: list[Writers]) -> Writers:
    found: Writers = defaultdict(set)
    for keys in branches:
        for key, nodes in keys.items():
            found[key] |= nodes
    return found
