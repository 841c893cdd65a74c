"""A flow printed back: as the code that writes it again, as a Mermaid flowchart, as a picture of text.

Each takes a definition of any door, a published flow as `engine.flow` returns it, or its stored source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.doors.registry import open_source, source_of
from holdfast.doors.source import Source
from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled, graph_of
from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.graph.drawing.text_tree import ASCII, UNICODE, render
from holdfast.graph.model import Graph


class Sourced(Protocol):
    """A value that keeps the source it was written as: a built flow, a workflow, a published flow."""

    @property
    def source(self) -> Any: ...


Printable = Source | Sourced | Graph | Mapping[str, Any]


def code_of(flow: Printable) -> str:
    """The builder code that would write a flow again, or the YAML a workflow was written in; a graph has neither."""
    code = _known(flow).code()
    if code is None:
        raise DefinitionError(
            "The source cannot be read as a flow: it is a graph that was not written with Flow.",
            code="SOURCE_UNREADABLE",
            hint="Only what the builder wrote can be read back; print other definitions as a graph.",
        )
    return code


def mermaid_of(flow: Printable) -> str:
    """A Mermaid flowchart; of a published flow the graph that runs."""
    compiled = getattr(flow, "graph", None)
    return to_mermaid(graph_of(compiled) if isinstance(compiled, Compiled) else _known(flow).lower())


def picture_of(flow: Printable, marks: Mapping[str, str] | None = None, *, ascii: bool = False) -> str:
    """Draw a tree with a line per step. `marks` maps steps to the text beside them, `ascii` is for plain terminals."""
    known = _known(flow)
    title = f"{known.name} version {known.version}"
    return render(title, known.outline(), marks or {}, ASCII if ascii else UNICODE)


def _known(flow: Printable) -> Source:
    if isinstance(flow, Mapping):
        return open_source(flow)
    kept = getattr(flow, "source", None)
    return source_of(flow) if kept is None else open_source(kept)
