"""What is sent to be published: read whole, checked whole, and only then stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from holdfast.compiler.checks import check
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.graph import Graph, load_graph
from holdfast.compiler.steps import load_steps, to_graph
from holdfast.definitions.steps.model import Workflow
from holdfast.errors import DefinitionError, NotFound
from holdfast.payloads.encoding import decode
from holdfast.runtime.engine import Engine
from holdfast.runtime.publishing import version_taken
from holdfast.server.models.definitions import Finding, PublishedView

JSON: Final = "application/json"
YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")

Definitions = Sequence[Workflow | Graph]


def read_definitions(body: bytes, media: str, file: str) -> tuple[Definitions, list[Finding]]:
    """The definitions of a body, and what deserves a look; everything that is wrong is raised at once."""
    if media == JSON:
        graph = load_graph(_document(body))
        compile_graph(graph)
        return [graph], [Finding.of(found) for found in check(graph)]
    document = load_steps(_text(body), name=file)
    return document.require_sound(), [Finding.of(problem) for problem in document.problems]


async def publish_all(engine: Engine, definitions: Definitions, *, by: str, dry_run: bool) -> list[PublishedView]:
    """All of them, or none."""
    if dry_run:
        return [await _plan(engine, definition) for definition in definitions]
    return [PublishedView.of(published) for published in await engine.publish_many(definitions, by=by)]


async def _plan(engine: Engine, definition: Workflow | Graph) -> PublishedView:
    graph = to_graph(definition) if isinstance(definition, Workflow) else definition
    compiled = compile_graph(graph)
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


def _document(body: bytes) -> dict[str, Any]:
    document = decode(body, "The body")
    if not isinstance(document, dict):
        raise DefinitionError(
            "The body is not a graph.", code="GRAPH_INVALID", hint="docs/graph.md lists every field with its type."
        )
    return cast(dict[str, Any], document)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise DefinitionError(
            f"The file is not UTF-8: byte {error.start} cannot be read.",
            code="YAML_CHARACTER",
            hint="Save it as UTF-8.",
        ) from None
