"""Draw a machine as a Mermaid state diagram: an arrow per transition, with the event's name and code."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from holdfast.graph.model import Edge, Graph

# Letters, digits and a few harmless signs stay readable; the colon separates a label from its arrow.
UNSAFE: Final = re.compile(r"[^\w .()\-]|[.\-](?=\s)")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def to_chart(graph: Graph) -> str:
    """Draw the graph of a machine."""
    names = {node.id: f"s{number}" for number, node in enumerate(graph.nodes, 1)}
    lines = ["stateDiagram-v2", *(f"    {line}" for line in _lines(graph, names))]
    return "\n".join(lines) + "\n"


def _lines(graph: Graph, names: dict[str, str]) -> Iterator[str]:
    for node in graph.nodes:
        yield f'state "{_escaped(node.id)}" as {names[node.id]}'
    yield f"[*] --> {names[graph.entry]}"
    codes: dict[str, Any] = graph.config.get("codes", {})
    for edge in graph.edges:
        yield f"{names[edge.source]} --> {names[edge.target]}: {_escaped(_label(edge, codes))}"
    for node in graph.nodes:
        if node.traits.ends_instance:
            yield f"{names[node.id]} --> [*]"


def _label(edge: Edge, codes: dict[str, Any]) -> str:
    code = f" ({codes[edge.on]})" if edge.on in codes else ""
    condition = f" [{edge.when}]" if edge.when is not None else ""
    guard = f" {{{edge.guard}}}" if edge.guard is not None else ""
    return f"{edge.on}{code}{condition}{guard}"


def _escaped(text: str) -> str:
    return UNSAFE.sub(lambda match: _entity(match.group()), text)


def _entity(character: str) -> str:
    shown = REPLACEMENT if unicodedata.category(character).startswith("C") else character
    return f"#{ord(shown)};"
