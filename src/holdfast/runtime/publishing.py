"""Publishing: compile, check, freeze. A published version never changes, so publishing it again must say the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.compiler.compile import compile_graph
from holdfast.compiler.compiled import dump_compiled
from holdfast.compiler.graph import Graph, dump_graph, load_graph
from holdfast.compiler.lowering import lower
from holdfast.compiler.steps_graph import to_graph
from holdfast.definitions.flow import Flow
from holdfast.definitions.model import Definition as FlowDefinition
from holdfast.definitions.shape import certain_sub_flows
from holdfast.definitions.sources import is_written, read_source
from holdfast.definitions.steps.model import Workflow
from holdfast.errors import Conflict, DefinitionError
from holdfast.payloads import canonical
from holdfast.runtime.starter import new_id
from holdfast.store.definitions import NewDefinition, find_definition, insert_definitions
from holdfast.store.flows import FlowDocument, read_flow
from holdfast.store.session import Session

log = logging.getLogger("holdfast.publish")

OF_ENTITIES: Final = frozenset({"envelope", "org_patch", "effective"})  # made from the contract of one

Publishable = FlowDefinition | Workflow | Graph | dict[str, Any]


class Published(msgspec.Struct, frozen=True):
    """A definition as it was published."""

    name: str
    version: int
    hash: str
    new: bool  # False: the very same definition was there already
    unknown_flows: list[str] = []  # sub-flows it starts that are not published, at least not yet


async def publish(session: Session, org: str, definitions: Sequence[Publishable], by: str | None) -> list[Published]:
    """All of them in one transaction, or none."""
    graphs = [_as_graph(definition) for definition in definitions]
    new = [_compiled(org, source, graph, by) for source, graph in graphs]
    for definition in definitions:
        if isinstance(definition, FlowDefinition):
            await _refuse_cycle(session, org, definition)
    was_new = await insert_definitions(session, new)
    if was_new is None:
        raise await _taken(session, org, new)
    return [
        Published(one.name, one.version, one.hash, is_new, await _unknown_flows(session, org, graph))
        for one, is_new, (_, graph) in zip(new, was_new, graphs, strict=True)
    ]


def _compiled(org: str, source: dict[str, Any], graph: Graph, by: str | None) -> NewDefinition:
    compiled, dumped = compile_graph(graph), dump_graph(graph)
    return NewDefinition(
        new_id(org, None, None), org, graph.kind, graph.name, graph.version, canonical(source),
        canonical(dumped["nodes"]), canonical(dumped.get("edges", [])), canonical(dump_compiled(compiled)),
        compiled.hash, compiled.compiler_version, by,
    )  # fmt: skip


async def _taken(session: Session, org: str, new: Sequence[NewDefinition]) -> Conflict:
    """Which of them is there with other content: in the database, or among these very ones."""
    hashes: dict[tuple[str, int], str] = {}
    for one in new:
        known = await find_definition(session, org, one.name, one.version)
        before = hashes.setdefault((one.name, one.version), one.hash)
        if one.hash != before or (known is not None and known.org == org and known.hash != one.hash):
            return version_taken(one.name, one.version)
    return version_taken(new[-1].name, new[-1].version)


def version_taken(name: str, version: int) -> Conflict:
    return Conflict(
        f"{name!r} version {version} is already published with other content.",
        code="VERSION_TAKEN",
        hint="Published versions never change: publish it as a new version.",
    )


async def _unknown_flows(session: Session, org: str, graph: Graph) -> list[str]:
    """A sub-flow may well be published after the flow that starts it; but it may also be misspelt."""
    children = dict.fromkeys((node.child.flow, node.child.version) for node in graph.nodes if node.child is not None)
    unknown = [flow for flow, version in children if await find_definition(session, org, flow, version) is None]
    for flow in dict.fromkeys(unknown):
        log.warning("%r version %d starts the flow %r, which is not published", graph.name, graph.version, flow)
    return list(dict.fromkeys(unknown))


async def _refuse_cycle(session: Session, org: str, definition: FlowDefinition) -> None:
    """A flow that comes back to itself through others, and nothing on the way decides, would never end."""
    ways = [(item, (definition.name, item.flow)) for item in certain_sub_flows(definition.items)]
    if not ways or await find_definition(session, org, definition.name, definition.version) is not None:
        return
    seen: set[tuple[str, int]] = set()
    while ways:
        item, way = ways.pop()
        found = await read_flow(session, org, item.flow, item.version)
        if item.flow == definition.name and _is_meant(definition, item.version, found):
            raise DefinitionError(
                f"The flow starts itself, and no condition comes before: {' → '.join(map(repr, way))}.",
                code="FLOW_CYCLE",
                hint="Put a condition before one of these sub-flows, or start another flow.",
            )
        if found is None or (found.name, found.version) in seen or not is_written(found.source):
            continue
        seen.add((found.name, found.version))
        ways += [(each, (*way, each.flow)) for each in certain_sub_flows(read_source(found.source).items)]


def _is_meant(definition: FlowDefinition, version: int | None, newest: FlowDocument | None) -> bool:
    """Without a version a sub-flow is the newest when it starts, and that may be the one that is being published."""
    if version is not None:
        return version == definition.version
    return newest is None or newest.version <= definition.version


def _as_graph(definition: Publishable) -> tuple[dict[str, Any], Graph]:
    if isinstance(definition, FlowDefinition):
        return definition.source, lower(definition)
    if isinstance(definition, Workflow):
        return definition.source, to_graph(definition)
    _refuse_unbuilt(definition)
    graph = definition if isinstance(definition, Graph) else load_graph(definition)
    if graph.kind in OF_ENTITIES:
        raise DefinitionError(
            f"{graph.name!r} is a graph of the kind {graph.kind!r}, which belongs to an entity.",
            code="KIND_NOT_PUBLISHABLE",
            hint="Publish it as a saga, as steps or as a machine.",
        )
    return dump_graph(graph), graph


def _refuse_unbuilt(definition: Any) -> None:
    if isinstance(definition, Flow):
        raise DefinitionError(
            "The flow was written and not built.",
            code="FLOW_NOT_BUILT",
            hint="Write `.build()` behind its last step.",
        )
