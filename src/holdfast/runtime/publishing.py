"""Publishing: compile, check, freeze. A published version never changes, so publishing it again must say the same."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.compiler.compile import compile_graph
from holdfast.compiler.compiled import dump_compiled
from holdfast.compiler.graph import Graph, dump_graph, load_graph
from holdfast.compiler.lowering import lower
from holdfast.compiler.steps_graph import to_graph
from holdfast.definitions.model import Definition as FlowDefinition
from holdfast.definitions.steps.model import Workflow
from holdfast.errors import Conflict
from holdfast.payloads import canonical
from holdfast.runtime.starter import new_id
from holdfast.store.definitions import find_definition, insert_definition
from holdfast.store.session import Session

Publishable = FlowDefinition | Workflow | Graph | dict[str, Any]


class Published(msgspec.Struct, frozen=True):
    """A definition as it was published."""

    name: str
    version: int
    hash: str
    new: bool  # False: the very same definition was there already


async def publish(session: Session, org: str, definition: Publishable, by: str | None) -> Published:
    source, graph = _as_graph(definition)
    compiled = compile_graph(graph)
    dumped = dump_graph(graph)
    values = (
        new_id(org, None, None), org, graph.kind, graph.name, graph.version, canonical(source),
        canonical(dumped["nodes"]), canonical(dumped.get("edges", [])), canonical(dump_compiled(compiled)),
        compiled.hash, compiled.compiler_version, by,
    )  # fmt: skip
    new = await insert_definition(session, values)
    if not new:
        known = await find_definition(session, org, graph.name, graph.version)
        if known is None or known.hash != compiled.hash:
            raise Conflict(
                f"{graph.name!r} version {graph.version} is already published with other content.",
                code="VERSION_TAKEN",
                hint="Published versions never change: publish it as a new version.",
            )
    return Published(graph.name, graph.version, compiled.hash, new)


def _as_graph(definition: Publishable) -> tuple[dict[str, Any], Graph]:
    if isinstance(definition, FlowDefinition):
        return definition.source, lower(definition)
    if isinstance(definition, Workflow):
        return definition.source, to_graph(definition)
    graph = definition if isinstance(definition, Graph) else load_graph(definition)
    return dump_graph(graph), graph
