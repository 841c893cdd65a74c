"""Draw a graph as a Mermaid flowchart, for documentation and the console, even if it does not compile."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from holdfast.graph.envelope import NEVER
from holdfast.graph.kinds import KINDS, UNKNOWN, Shape
from holdfast.graph.model import Edge, Graph, Node

BRACKETS: Final[dict[Shape, tuple[str, str]]] = {
    Shape.ROUNDED: ("(", ")"),
    Shape.RECTANGLE: ("[", "]"),
    Shape.SUBROUTINE: ("[[", "]]"),
    Shape.STADIUM: ("([", "])"),
    Shape.CIRCLE: ("((", "))"),
    Shape.PARALLELOGRAM: ("[/", "/]"),
    Shape.TRAPEZOID: ("[/", "\\]"),
    Shape.FUNNEL: ("[\\", "/]"),
    Shape.DOUBLE_CIRCLE: ("(((", ")))"),
    Shape.RHOMBUS: ("{", "}"),
    Shape.FLAG: (">", "]"),
}
UNDO: Final = '-.-|"undone by"|'
EXCEPTIONAL: Final = frozenset({"error", "timeout", NEVER})

# Letters, digits and a few harmless signs stay readable; a dot or dash before a space would start a Markdown list.
UNSAFE: Final = re.compile(r"[^\w .:\-]|[.\-](?=\s)")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def to_mermaid(graph: Graph) -> str:
    names = _names(graph)
    lines = ["flowchart TD"]
    lines.extend(f"    {line}" for line in _node_lines(graph, names))
    if graph.entry in names:
        lines.append(f"    entry(( )) --> {names[graph.entry]}")
    lines.extend(f"    {_edge_line(edge, names)}" for edge in graph.edges)
    lines.extend(f"    {names[node.id]} {UNDO} {names[node.undo]}" for node in graph.nodes if node.undo is not None)
    return "\n".join(lines) + "\n"


def _names(graph: Graph) -> dict[str, str]:
    """Give nodes short names in the drawing: a user's ids may be words or signs that mean something to Mermaid."""
    ends = (end for edge in graph.edges for end in (edge.source, edge.target))
    undone_by = (node.undo for node in graph.nodes if node.undo is not None)
    ids = dict.fromkeys([*(node.id for node in graph.nodes), *ends, *undone_by])
    return {id: f"n{number}" for number, id in enumerate(ids, 1)}


def _node_lines(graph: Graph, names: dict[str, str]) -> Iterator[str]:
    nodes = {node.id: node for node in reversed(graph.nodes)}
    for id, name in names.items():
        opening, closing = _brackets(nodes.get(id))
        kind = nodes[id].kind if id in nodes else "unknown node"
        yield f'{name}{opening}"{_escaped(id)}<br/>{_escaped(kind)}"{closing}'


def _brackets(node: Node | None) -> tuple[str, str]:
    return BRACKETS[(UNKNOWN if node is None else KINDS.get(node.kind, UNKNOWN)).shape]


def _edge_line(edge: Edge, names: dict[str, str]) -> str:
    arrow = "-.->" if edge.on in EXCEPTIONAL else "-->"
    label = _edge_label(edge)
    shown = f'|"{_escaped(label)}"|' if label else ""
    return f"{names[edge.source]} {arrow}{shown} {names[edge.target]}"


def _edge_label(edge: Edge) -> str:
    event = "" if edge.on == "completed" else edge.on
    condition = f"[{edge.when}]" if edge.when is not None else ""
    return edge.label or " ".join(part for part in (event, condition) if part)


def _escaped(text: str) -> str:
    return UNSAFE.sub(lambda match: _entity(match.group()), text)


def _entity(character: str) -> str:
    shown = REPLACEMENT if unicodedata.category(character).startswith("C") else character
    return f"#{ord(shown)};"
