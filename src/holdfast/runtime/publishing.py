"""Publishing: compile, check, freeze. A published version never changes, so publishing it again must say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.doors.registry import Written, open_source
from holdfast.doors.source import Source
from holdfast.errors import Conflict, DefinitionError
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import dump_compiled
from holdfast.graph.envelope import DOCUMENTS
from holdfast.graph.model import Behaviour, Graph, dump_graph
from holdfast.graph.rules import rules_of
from holdfast.logs import logger
from holdfast.payloads import canonical
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.worker.apps import SEPARATOR, owners
from holdfast.store.definitions import NewDefinition, find_definition, insert_definitions
from holdfast.store.pg.session import Session
from holdfast.store.reads.flows import FlowDocument, read_flow

log = logger("holdfast.publish")

_ROUTED: Final = (Behaviour.WORK, Behaviour.CALL)  # the handler of an effect is its kind, which every worker has

COUNTED_TRIES: Final = 20  # of those who publish versions of one machine at once

Publishable = Written


class Published(msgspec.Struct, frozen=True):
    """A definition as it was published."""

    name: str
    version: int
    hash: str
    new: bool  # False: the very same definition was there already
    unknown_flows: list[str] = []  # sub-flows it starts that are not published, at least not yet


async def publish(
    session: Session,
    org: str,
    sources: Sequence[Source],
    by: str | None,
    app: str | None = None,
    *,
    dry_run: bool = False,
) -> list[Published]:
    """All of them in one transaction, or none. `app`: whose their short names of handlers are.

    A dry run checks all of it and stores nothing. A version that the engine counts may be taken by another publisher at
    the same time: it is counted again.
    """
    is_counted = any(source.content_hash is not None for source in sources)
    for _ in range(COUNTED_TRIES if is_counted else 0):
        with suppress(_Raced):
            return await _publish(session, org, sources, by, app, dry_run=dry_run, may_race=True)
    return await _publish(session, org, sources, by, app, dry_run=dry_run)


class _Raced(Exception):
    """Conflict: a version was taken between its count and its insertion."""


async def _publish(
    session: Session,
    org: str,
    sources: Sequence[Source],
    by: str | None,
    app: str | None,
    *,
    dry_run: bool,
    may_race: bool = False,
) -> list[Published]:
    sources = [await _numbered(session, org, source) for source in sources]
    graphs = [_lowered(source) for source in sources]
    # In threads: to check a large definition takes seconds, and nobody else waits for it.
    new = [
        await asyncio.to_thread(_compiled, org, stored, graph, by, app, {**source.functions, **source.calls})
        for source, (stored, graph) in zip(sources, graphs, strict=True)
    ]
    for source in sources:
        await _refuse_cycle(session, org, source)
    was_new = await (_would_insert(session, org, new) if dry_run else insert_definitions(session, new))
    if was_new is None:
        if may_race:
            raise _Raced
        raise await _taken(session, org, new)
    return [
        Published(one.name, one.version, one.hash, is_new, await _unknown_flows(session, org, graph))
        for one, is_new, (_, graph) in zip(new, was_new, graphs, strict=True)
    ]


async def _would_insert(session: Session, org: str, new: Sequence[NewDefinition]) -> list[bool] | None:
    """Tell of each definition whether it would be new. None where one exists with other content."""
    hashes: dict[tuple[str, int], str] = {}
    is_new: list[bool] = []
    for one in new:
        known = await find_definition(session, org, one.name, one.version)
        is_own = known is not None and known.org == org
        before = known.hash if known is not None and is_own else one.hash
        if hashes.setdefault((one.name, one.version), one.hash) != one.hash or before != one.hash:
            return None
        if known is not None and is_own and _other_app(known.apps, one.apps) is not None:
            return None
        is_new.append(not is_own)
    return is_new


async def _numbered(session: Session, org: str, source: Source) -> Source:
    """Number a definition whose versions the engine counts; the newest one stands for any that says the same."""
    if source.content_hash is None:
        return source
    found = await read_flow(session, org, source.name, None)
    if found is None or found.org != org:
        return source.numbered(1)
    newest = open_source(found.source)
    source.check_follows(newest)
    return newest if newest.content_hash == source.content_hash else source.numbered(found.version + 1)


def _compiled(
    org: str,
    source: dict[str, Any],
    graph: Graph,
    by: str | None,
    app: str | None,
    functions: Mapping[str, Callable[..., Any]],
) -> NewDefinition:
    compiled, dumped = compile_graph(graph), dump_graph(graph)
    names = {node.handler for node in graph.nodes if node.handler and node.behaviour in _ROUTED}
    apps = owners(app, sorted(names), functions)
    shared = sorted(name for name in names - apps.keys() if SEPARATOR not in name and ":" not in name)
    return NewDefinition(
        id=new_id(org, None, None),
        org=org,
        kind=graph.kind,
        name=graph.name,
        version=graph.version,
        source=canonical(source),
        nodes=canonical(dumped["nodes"]),
        edges=canonical(dumped.get("edges", [])),
        compiled=canonical(dump_compiled(compiled)),
        hash=compiled.hash,
        compiler_version=compiled.compiler_version,
        created_by=by,
        apps=canonical(apps),
        shared=canonical(shared),
    )


async def _taken(session: Session, org: str, new: Sequence[NewDefinition]) -> Conflict:
    """Find the definition whose version exists with other content: in the database, or among the new ones."""
    hashes: dict[tuple[str, int], str] = {}
    for one in new:
        known = await find_definition(session, org, one.name, one.version)
        before = hashes.setdefault((one.name, one.version), one.hash)
        if one.hash != before or (known is not None and known.org == org and known.hash != one.hash):
            return version_taken(one.name, one.version)
        if known is not None and known.org == org and (app := _other_app(known.apps, one.apps)) is not None:
            return Conflict(
                f"{one.name!r} version {one.version} belongs to the application {app!r}.",
                code="FLOW_OF_ANOTHER_APP",
                hint=f"Publish it under another name, or as that application: Engine(app={app!r}).",
            )
    return version_taken(new[-1].name, new[-1].version)


def _other_app(known: Mapping[str, str], wanted: bytes) -> str | None:
    mine = msgspec.json.decode(wanted, type=dict[str, str])
    return next((app for name, app in known.items() if mine.get(name, app) != app), None)


def version_taken(name: str, version: int) -> Conflict:
    return Conflict(
        f"{name!r} version {version} is already published with other content.",
        code="VERSION_TAKEN",
        hint="Published versions never change: publish it as a new version.",
    )


async def _unknown_flows(session: Session, org: str, graph: Graph) -> list[str]:
    """Find sub-flows that are not published. They may come later, but the name may also be misspelt."""
    children = dict.fromkeys((node.child.flow, node.child.version) for node in graph.nodes if node.child is not None)
    unknown = [flow for flow, version in children if await find_definition(session, org, flow, version) is None]
    for flow in dict.fromkeys(unknown):
        log.warning("%r version %d starts the flow %r, which is not published", graph.name, graph.version, flow)
    return list(dict.fromkeys(unknown))


async def _refuse_cycle(session: Session, org: str, source: Source) -> None:
    """A flow that comes back to itself through others, and nothing on the way decides, would never end."""
    ways = [(child, (source.name, child.flow)) for child in source.children()]
    if not ways or await find_definition(session, org, source.name, source.version) is not None:
        return
    seen: set[tuple[str, int]] = set()
    while ways:
        child, way = ways.pop()
        found = await read_flow(session, org, child.flow, child.version)
        if child.flow == source.name and _is_meant(source, child.version, found):
            raise DefinitionError(
                f"The flow starts itself, and no condition comes before: {' → '.join(map(repr, way))}.",
                code="FLOW_CYCLE",
                hint="Put a condition before one of these sub-flows, or start another flow.",
            )
        if found is None or (found.name, found.version) in seen:
            continue
        seen.add((found.name, found.version))
        ways += [(each, (*way, each.flow)) for each in open_source(found.source).children()]


def _is_meant(source: Source, version: int | None, newest: FlowDocument | None) -> bool:
    """Check whether a sub-flow means this definition. With no version it is the newest at its start, perhaps this
    one.
    """
    if version is not None:
        return version == source.version
    return newest is None or newest.version <= source.version


def _lowered(source: Source) -> tuple[dict[str, Any], Graph]:
    stored, graph = source.stored, source.lower()
    if not rules_of(graph.kind).is_published:
        raise DefinitionError(
            f"{graph.name!r} is a graph of the kind {graph.kind!r}, which belongs to an entity.",
            code="KIND_NOT_PUBLISHABLE",
            hint="Publish it as a saga, as steps or as a machine.",
        )
    if graph.name.startswith(DOCUMENTS):
        raise DefinitionError(
            f"{graph.name!r} is the name of a graph of documents.",
            code="NAME_RESERVED",
            hint=f"Begin the name with something else than {DOCUMENTS!r}.",
        )
    return stored, graph
