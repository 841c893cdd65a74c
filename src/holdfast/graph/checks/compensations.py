"""Checks of what undoes what: every compensation belongs to one step, and no path leads to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.model import Node
from holdfast.graph.scopes import Scopes
from holdfast.graph.topology import Topology

Found = Iterator[Diagnostic]


def check_compensations(topology: Topology, scopes: Scopes) -> Found:
    users: defaultdict[str, list[str]] = defaultdict(list)
    for node in topology.nodes.values():
        if node.undo is not None:
            users[node.undo].append(node.id)
            yield from _undo(node, node.undo, topology)
    for node in topology.nodes.values():
        traits = topology.traits(node.id)
        if traits.undoes:
            yield from _compensation(node, users[node.id], topology)
        if traits.stops_rollback and (split := scopes.inside.get(node.id)) is not None:
            message = f"The save point stands in a branch of {split!r}, and a rollback stops for all branches or none."
            yield problem("SAVE_POINT_IN_SCOPE", message, f"nodes.{node.id}")


def _undo(node: Node, undo: str, topology: Topology) -> Found:
    place = f"nodes.{node.id}.undo"
    if undo not in topology.nodes:
        yield problem("UNKNOWN_UNDO", f"The compensation {undo!r} is not a node.", place)
    elif not topology.traits(undo).undoes:
        message = f"{undo!r} is a node of kind {topology.nodes[undo].kind}, not a compensation."
        yield problem("UNDO_MISMATCH", message, place)
    if not topology.traits(node.id).undoable:
        yield problem("UNDO_MISPLACED", f"A node of kind {node.kind} does nothing that could be undone.", place)


def _compensation(node: Node, users: list[str], topology: Topology) -> Found:
    place = f"nodes.{node.id}"
    if not users:
        yield problem("COMPENSATION_UNUSED", f"No node has {node.id!r} as its undo.", place)
    if len(users) > 1:
        message = f"The compensation undoes several nodes: {' and '.join(sorted(users))}."
        yield problem("COMPENSATION_SHARED", message, place)
    if node.id in topology.roots:
        yield problem("COMPENSATION_ON_PATH", "Instances would begin at a compensation.", place)
    for edge in (*topology.incoming[node.id], *topology.outgoing[node.id]):
        yield problem("COMPENSATION_ON_PATH", f"The edge touches the compensation {node.id!r}.", f"edges.{edge.id}")
