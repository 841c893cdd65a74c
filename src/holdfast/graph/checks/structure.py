"""Checks of the shape: where edges lead, which nodes are reached, how branches meet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.envelope import NEVER
from holdfast.graph.model import Behaviour, Edge, Graph, Node
from holdfast.graph.order import find_cycles
from holdfast.graph.rules import rules_of
from holdfast.graph.topology import Topology, walk

ENGINE_ONLY: Final = frozenset({"error", "timeout"})  # what happens to a node; neither leads a normal path on
AUTOMATIC: Final = frozenset({Behaviour.PASS, Behaviour.CALL, Behaviour.EMIT, Behaviour.JOIN})

Found = Iterator[Diagnostic]


def check_structure(graph: Graph, topology: Topology) -> Found:
    yield from _duplicates(graph)
    yield from _references(graph, topology)
    for node in topology.nodes.values():
        yield from _ways_on(node, topology)
        if not rules_of(graph.kind).deadline_expires_instance:
            yield from _timeout_edge(node, topology)
    yield from _automatic_cycles(graph, topology)
    if graph.entry in topology.nodes:
        yield from _unreachable(topology)
        if rules_of(graph.kind).needs_end:
            yield from _without_end(graph, topology)


def _duplicates(graph: Graph) -> Found:
    for id, count in Counter(node.id for node in graph.nodes).items():
        if count > 1:
            yield problem("DUPLICATE_NODE", f"{count} nodes are called {id!r}.", f"nodes.{id}")
    for id, count in Counter(edge.id for edge in graph.edges).items():
        if count > 1:
            yield problem("DUPLICATE_EDGE", f"{count} edges are called {id!r}.", f"edges.{id}")


def _references(graph: Graph, topology: Topology) -> Found:
    if graph.entry not in topology.nodes:
        yield problem("UNKNOWN_ENTRY", f"The entry {graph.entry!r} is not a node.", "entry")
    on_timeout = graph.policy.on_timeout
    if on_timeout is not None and on_timeout not in topology.nodes:
        yield problem("UNKNOWN_ON_TIMEOUT", f"{on_timeout!r} is not a node.", "policy.on_timeout")
    for edge in graph.edges:
        if edge.source not in topology.nodes:
            yield problem("UNKNOWN_SOURCE", f"The source {edge.source!r} is not a node.", f"edges.{edge.id}.source")
        if edge.target not in topology.nodes:
            yield problem("UNKNOWN_TARGET", f"The target {edge.target!r} is not a node.", f"edges.{edge.id}.target")


def _ways_on(node: Node, topology: Topology) -> Found:
    behaviour = topology.behaviour(node.id)
    edges = topology.outgoing[node.id]
    if behaviour is Behaviour.END:
        for edge in edges:
            yield problem("END_WITH_EDGES", f"Nothing leaves {node.id!r}: it is an end.", f"edges.{edge.id}")
        return
    if topology.is_split(node.id) and len(topology.branches(node.id)) < 2:
        count = len(topology.branches(node.id))
        yield problem("SPLIT_TOO_NARROW", f"The split has {count} branches.", f"nodes.{node.id}")
    if behaviour is Behaviour.REST:
        yield from _rest_ways_on(node, edges)
    else:
        yield from _automatic_ways_on(node, edges)


def _timeout_edge(node: Node, topology: Topology) -> Found:
    has_edge = any(edge.on == "timeout" for edge in topology.outgoing[node.id])
    if node.deadline is not None and not has_edge and topology.behaviour(node.id) is not Behaviour.END:
        yield problem("TIMEOUT_EDGE_MISSING", "The node has a deadline but no edge on timeout.", f"nodes.{node.id}")


def _rest_ways_on(node: Node, edges: tuple[Edge, ...]) -> Found:
    waits = node.wait is not None or node.child is not None
    if not waits and all(edge.on in ENGINE_ONLY for edge in edges):
        yield problem("REST_WITHOUT_EVENT", "The node rests, but no event leads on.", f"nodes.{node.id}")
    for event in sorted({edge.on for edge in edges}):
        if all(edge.when is not None for edge in edges if edge.on == event):
            message = f"Every edge on {event!r} has a condition; the event is refused when none holds."
            yield problem("NO_DEFAULT_EDGE", message, f"nodes.{node.id}", "warning")


def _automatic_ways_on(node: Node, edges: tuple[Edge, ...]) -> Found:
    if edges and all(edge.on in ENGINE_ONLY for edge in edges):
        yield problem("NO_WAY_ON", "No edge is taken when the node completes.", f"nodes.{node.id}")
    completed = [edge for edge in edges if edge.on == "completed"]
    if completed and all(edge.when is not None for edge in completed):
        message = "Every edge on 'completed' has a condition; a token is stuck when none holds."
        yield problem("NO_DEFAULT_EDGE", message, f"nodes.{node.id}")


def _automatic_cycles(graph: Graph, topology: Topology) -> Found:
    automatic = [node.id for node in topology.nodes.values() if _moves_on_by_itself(node, topology)]
    for cycle in find_cycles(automatic, lambda node: [edge.target for edge in _taken(graph, topology.outgoing[node])]):
        way = " → ".join([*cycle, cycle[0]])
        yield problem("AUTOMATIC_CYCLE", f"Nothing in this cycle waits: {way}.", f"nodes.{cycle[0]}")


def _taken(graph: Graph, edges: tuple[Edge, ...]) -> list[Edge]:
    """Leave out the edges that no token takes, in graphs that have such edges."""
    return [edge for edge in edges if edge.on != NEVER or not rules_of(graph.kind).has_never_edges]


def _comes_from(graph: Graph, topology: Topology) -> Callable[[str], list[str]]:
    """List the nodes before a node: the sources of its edges, and the regions that an interrupt leaves for it."""
    interrupted: defaultdict[str, list[str]] = defaultdict(list)
    for region in graph.regions:
        for target in (*region.verbs.values(), region.amendment):
            if target is not None:
                interrupted[target].extend(node for node in region.nodes if node in topology.nodes)
    return lambda node: [*(edge.source for edge in _taken(graph, topology.incoming[node])), *interrupted[node]]


def _moves_on_by_itself(node: Node, topology: Topology) -> bool:
    behaviour = topology.behaviour(node.id)
    if behaviour is Behaviour.TIMER:
        return node.delay == 0
    return behaviour in AUTOMATIC


def _unreachable(topology: Topology) -> Found:
    for node in topology.nodes:
        if node not in topology.reachable and not topology.traits(node).undoes:
            yield problem("UNREACHABLE_NODE", f"No path leads to {node!r}.", f"nodes.{node}")


def _without_end(graph: Graph, topology: Topology) -> Found:
    ends = [node for node in topology.nodes if topology.behaviour(node) is Behaviour.END]
    if not topology.reachable.intersection(ends):
        yield problem("NO_END", "No end can be reached from the entry.", "nodes")
        return
    finishing = walk(ends, _comes_from(graph, topology))
    for node in sorted(topology.reachable - finishing):
        yield problem("NO_END", f"No end can be reached from {node!r}.", f"nodes.{node}")
