"""Draw a graph as a Mermaid flowchart, for documentation and the console, even if it does not compile.

A document's graph has its slots as groups, the nodes of its envelope marked as locked, and a dotted line for each verb
that interrupts a region.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from holdfast.graph.drawing.regions import drawn_edges, groups_of, interrupts_of, is_locked, windows_of
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
LOCKED: Final = "stroke-width:3px"
EXCEPTIONAL: Final = frozenset({"error", "timeout", NEVER})

# Letters, digits and a few harmless signs stay readable; a dot or dash before a space would start a Markdown list.
UNSAFE: Final = re.compile(r"[^\w .:\-]|[.\-](?=\s)")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def to_mermaid(graph: Graph) -> str:
    names = _names(graph)
    lines = ["flowchart TD"]
    lines.extend(f"    {line}" for line in _grouped(graph, names))
    if graph.entry in names:
        lines.append(f"    entry(( )) --> {names[graph.entry]}")
    lines.extend(f"    {_edge_line(edge, names)}" for edge in drawn_edges(graph))
    lines.extend(f"    {names[node.id]} {UNDO} {names[node.undo]}" for node in graph.nodes if node.undo is not None)
    lines.extend(f"    {line}" for line in _region_lines(graph, names))
    return "\n".join(lines) + "\n"


def _names(graph: Graph) -> dict[str, str]:
    """Give nodes short names in the drawing: a user's ids may be words or signs that mean something to Mermaid."""
    ends = (end for edge in graph.edges for end in (edge.source, edge.target))
    undone_by = (node.undo for node in graph.nodes if node.undo is not None)
    ids = dict.fromkeys([*(node.id for node in graph.nodes), *ends, *undone_by])
    return {id: f"n{number}" for number, id in enumerate(ids, 1)}


def _grouped(graph: Graph, names: dict[str, str]) -> Iterator[str]:
    """Write the nodes; those of a document's slots in a group each."""
    lines = dict(_node_lines(graph, names))
    groups = groups_of(graph) if graph.regions else ()
    inside = {id for group in groups for id in group.nodes}
    yield from (line for id, line in lines.items() if id not in inside)
    for number, group in enumerate(groups, 1):
        yield f'subgraph g{number}["{_escaped(group.title)}"]'
        yield from (f"    {lines[id]}" for id in group.nodes)
        yield "end"


def _node_lines(graph: Graph, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    nodes = {node.id: node for node in reversed(graph.nodes)}
    windows = windows_of(graph)
    for id, name in names.items():
        opening, closing = _brackets(nodes.get(id))
        kind = nodes[id].kind if id in nodes else "unknown node"
        about = f"{kind}, {windows[id]}" if id in windows else kind
        yield id, f'{name}{opening}"{_escaped(id)}<br/>{_escaped(about)}"{closing}'


def _region_lines(graph: Graph, names: dict[str, str]) -> Iterator[str]:
    groups = {group.name: f"g{number}" for number, group in enumerate(groups_of(graph), 1)}
    for found in interrupts_of(graph):
        source = groups[found.group] if found.source is None and found.group is not None else names[found.source or ""]
        yield f'{source} -.->|"{_escaped(found.verb)}"| {names[found.target]}'
    locked = [names[node.id] for node in graph.nodes if is_locked(graph, node.id)]
    if locked:
        yield f"classDef locked {LOCKED}"
        yield f"class {','.join(locked)} locked"


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
