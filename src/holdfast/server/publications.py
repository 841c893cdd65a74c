"""Bodies to publish: read whole, checked whole, and only then stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.doors.registry import receive
from holdfast.doors.source import Source
from holdfast.errors import DefinitionError, NotFound
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Graph
from holdfast.runtime.engine import Engine
from holdfast.runtime.publishing import version_taken
from holdfast.server.models.definitions import Finding, PublishedView


def read_definitions(body: bytes, media: str, file: str) -> tuple[Sequence[Source], list[Finding]]:
    """The definitions of a body, and what deserves a look; everything that is wrong is raised at once."""
    received = receive(body, media, file)
    return received.sources, [Finding.of(found) for found in received.findings]


async def publish_all(engine: Engine, definitions: Sequence[Source], *, by: str, dry_run: bool) -> list[PublishedView]:
    """All of them, or none."""
    if dry_run:
        return [await _plan(engine, definition) for definition in definitions]
    return [PublishedView.of(published) for published in await engine.publish_many(definitions, by=by)]


async def _plan(engine: Engine, definition: Source) -> PublishedView:
    graph = definition.lower()
    compiled = await asyncio.to_thread(compile_graph, graph)
    known = await _known(engine, graph)
    if known is not None and known != compiled.hash:
        raise version_taken(graph.name, graph.version)
    return PublishedView(name=graph.name, version=graph.version, hash=compiled.hash, new=known is None)


async def _known(engine: Engine, graph: Graph) -> str | None:
    """The hash under which the tenant itself has published this version."""
    try:
        found = await engine.flow(graph.name, graph.version)
    except (NotFound, DefinitionError):
        return None
    return found.hash if found.org == engine.org else None
