"""A flow printed back: as the code that writes it again, as a Mermaid flowchart, as a picture of text.

Each takes what `build()` answered, what `load_steps` read, a graph, a published flow as `engine.flow` answers it, or
the source that is stored with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from holdfast.compiler.compiled import Compiled
from holdfast.compiler.graph import Graph
from holdfast.compiler.lowering import lower
from holdfast.compiler.mermaid import to_mermaid
from holdfast.compiler.picture import draw, read_definition
from holdfast.compiler.steps import is_steps
from holdfast.definitions import printing


class Sourced(Protocol):
    """Whatever keeps the source it was written as."""

    @property
    def source(self) -> Any: ...


Printable = Sourced | Graph | Mapping[str, Any]


def code_of(flow: Printable) -> str:
    """The builder code that would write a flow again, or the YAML a workflow was written in; a graph has neither."""
    known = _known(flow)
    if isinstance(known, Graph):
        known = {"kind": known.kind}
    return known["yaml"] if is_steps(known) else printing.code_of(known)


def mermaid_of(flow: Printable) -> str:
    """A Mermaid flowchart; of a published flow the graph that runs."""
    compiled = getattr(flow, "graph", None)
    if isinstance(compiled, Compiled):
        return to_mermaid(graph_of(compiled))
    read = read_definition(_known(flow))
    return to_mermaid(read if isinstance(read, Graph) else lower(read))


def picture_of(flow: Printable, marks: Mapping[str, str] | None = None, *, ascii: bool = False) -> str:
    """A tree with a line per step; `marks` says what stands beside which, `ascii` is for plain terminals."""
    return draw(_known(flow), marks, ascii=ascii)


def graph_of(compiled: Compiled) -> Graph:
    """The graph that was compiled, its nodes in the order they come."""
    order = dict.fromkeys([*compiled.topological_order, *compiled.nodes])
    return Graph(
        name=compiled.name,
        version=compiled.version,
        kind=compiled.kind,
        entry=compiled.entry,
        nodes=tuple(compiled.nodes[id] for id in order),
        edges=tuple(compiled.edges.values()),
        policy=compiled.policy,
        variables=compiled.variables,
    )


def _known(flow: Printable) -> Graph | Mapping[str, Any]:
    if isinstance(flow, Graph):
        return flow
    return cast(Mapping[str, Any], flow if isinstance(flow, Mapping) else flow.source)
