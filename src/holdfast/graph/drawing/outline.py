"""The tree of a graph that was written by hand: a row of nodes along single plain edges, a twig per edge elsewhere.

Every node is drawn once; an edge to a node that is drawn already, or is about to be, only names it.
"""

from __future__ import annotations

from typing import Final

from holdfast.graph.drawing.text_tree import Twig, undo_twig
from holdfast.graph.kinds import KINDS
from holdfast.graph.model import Edge, Graph, Node
from holdfast.graph.topology import Topology, read_topology

DEEPEST: Final = 40  # further in, a drawing helps nobody


def outline(graph: Graph) -> tuple[Twig, ...]:
    topology = read_topology(graph)
    drawn: set[str] = set()
    return tuple(twig for root in topology.roots if root not in drawn for twig in _row(root, topology, drawn, 0))


def _row(node: str, topology: Topology, drawn: set[str], depth: int) -> list[Twig]:
    twigs: list[Twig] = []
    following: str | None = node
    while following is not None:
        if following in drawn or depth > DEEPEST:
            return [*twigs, Twig(following, sign="to")]
        drawn.add(following)
        edges = topology.outgoing[following]
        is_row = len(edges) == 1 and edges[0].on == "completed" and edges[0].when is None
        ways = () if is_row else tuple(_way(edge, topology, drawn, depth + 1) for edge in edges)
        twigs.append(_twig(topology.nodes[following], ways))
        following = edges[0].target if is_row else None
    return twigs


def _twig(node: Node, ways: tuple[Twig, ...]) -> Twig:
    undo = () if node.undo is None else (undo_twig(node.undo),)
    label = KINDS[node.kind].label if node.kind in KINDS else node.kind.replace("_", " ")
    detail = label + (f" of {node.mode}" if node.mode else "")
    return Twig(node.id, detail, node=node.id, inner=(*undo, *ways))


def _way(edge: Edge, topology: Topology, drawn: set[str], depth: int) -> Twig:
    event = "" if edge.on == "completed" else edge.on
    condition = f"if {edge.when}" if edge.when is not None else ""
    label = edge.label or " ".join(part for part in (event, condition) if part) or "then"
    return Twig(label, inner=tuple(_row(edge.target, topology, drawn, depth)))
