"""Published flows: publish, list, look at."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from fastapi.responses import PlainTextResponse

from holdfast.doors.printed import mermaid_of
from holdfast.doors.registry import media_types
from holdfast.doors.source import JSON
from holdfast.doors.steps.door import YAML
from holdfast.errors import NotFound
from holdfast.graph.compiled import graph_of
from holdfast.graph.model import dump_graph
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import CHANGES, api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, shown_of
from holdfast.server.models.base import Flag, Listed, Version
from holdfast.server.models.definitions import DefinitionDocument, DefinitionGraph, DefinitionVersion, Publication
from holdfast.server.publications import publish_all, read_definitions
from holdfast.store.reads.flows import SYSTEM, FlowDocument, FlowVersion, VersionPlace, place_of_version

router = api_router("definitions")

FlowName = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^\x00/]+$", examples=["orders.approval"])]
FlowNumber = Annotated[Version, Path(description="The version.")]
_GRAPH: Final[dict[str, Any]] = {
    "name": "parcel",
    "entry": "pack",
    "nodes": [{"id": "pack", "kind": "task", "handler": "pack"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "packed", "source": "pack", "target": "end"}],
}
_STEPS: Final = """\
workflows:
  - id: leave
    name: Leave request
    steps:
      - {id: ask, type: approval, assignee: {role: manager}}
      - {id: granted, type: terminal}
      - {id: refused, type: terminal}
    transitions:
      - {from: ask, to: granted, event: approved}
      - {from: ask, to: refused, event: rejected}
"""
_BODY: Final[dict[str, Any]] = {
    "x-reads": [*media_types()],
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "description": "A graph, as `holdfast docs graph` describes it, or `blueprint` and `policy` of a "
                    "machine, as `holdfast docs machines` describes them.",
                },
                "example": _GRAPH,
            },
            **{
                media: {"schema": {"type": "string", "description": "A file of steps."}, "example": _STEPS}
                for media in YAML
            },
        },
    },
}


@router.post(
    "",
    operation_id="publish_definitions",
    responses=CHANGES,
    openapi_extra=_BODY,
    dependencies=[needs(Scope.PUBLISH)],
)
async def publish_definitions(
    request: Request,
    engine: TenantEngine,
    identity: CurrentIdentity,
    dry_run: Annotated[Flag, Query(description="Only check; nothing is published.")] = False,
    file: Annotated[
        str, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$", description="What to call it in diagnostics.")
    ] = "body",
) -> Publication:
    """Publish the workflows of a YAML file, or a graph or a machine as JSON: all, or none with every problem listed.

    A published version never changes. Publishing the same content again changes nothing; other content under the
    same version is refused.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # In a thread: a large document takes seconds to read, and other requests should not wait for it.
    definitions, warnings = await asyncio.to_thread(read_definitions, await request.body(), media, file)
    published = await publish_all(engine, definitions, by=identity.subject, dry_run=dry_run)
    return Publication(dry_run=dry_run, published=published, warnings=warnings)


@router.get("", operation_id="list_definitions", dependencies=[needs(Scope.READ)])
async def list_definitions(
    engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[DefinitionVersion]:
    """The newest version of every flow that can be started here, by name."""
    listing = Listing(engine.org, "definitions")
    found = await engine.page_flows(after=listing.position(cursor), limit=limit + 1)
    page, last = shown_of(found, limit)
    return Listed(items=[_version(flow) for flow in page], next=listing.cursor(last and last.name))


@router.get("/{name}", operation_id="get_newest_definition", dependencies=[needs(Scope.READ)])
async def get_newest_definition(name: FlowName, engine: TenantEngine) -> DefinitionDocument:
    """The version a start would take, with what it was published from."""
    return _document(await engine.flow(name))


@router.get("/{name}/versions", operation_id="list_definition_versions", dependencies=[needs(Scope.READ)])
async def list_definition_versions(
    name: FlowName, engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[DefinitionVersion]:
    """All versions of a flow, newest first; the tenant's own before those that are shared."""
    listing = Listing(engine.org, "versions", name=name)
    found = await engine.page_versions(name, after=listing.place(cursor, VersionPlace), limit=limit + 1)
    if not found:
        raise NotFound(
            f"There is no flow {name!r}.", code="FLOW_UNKNOWN", hint="Publish it first, and check the organisation."
        )
    page, last = shown_of(found, limit)
    return Listed(
        items=[_version(flow) for flow in page],
        next=listing.cursor_behind(last and place_of_version(last)),
    )


@router.get("/{name}/versions/{version}", operation_id="get_definition", dependencies=[needs(Scope.READ)])
async def get_definition(name: FlowName, version: FlowNumber, engine: TenantEngine) -> DefinitionDocument:
    """One version, with what it was published from."""
    return _document(await engine.flow(name, version))


@router.get("/{name}/versions/{version}/graph", operation_id="get_definition_graph", dependencies=[needs(Scope.READ)])
async def get_definition_graph(name: FlowName, version: FlowNumber, engine: TenantEngine) -> DefinitionGraph:
    """The graph that runs."""
    flow = await engine.flow(name, version)
    return DefinitionGraph(name=flow.name, version=flow.version, hash=flow.hash, graph=dump_graph(graph_of(flow.graph)))


@router.get(
    "/{name}/versions/{version}/mermaid",
    operation_id="get_definition_mermaid",
    response_class=PlainTextResponse,
    dependencies=[needs(Scope.READ)],
)
async def get_definition_mermaid(name: FlowName, version: FlowNumber, engine: TenantEngine) -> str:
    """A drawing of the graph, as Mermaid text."""
    return mermaid_of(await engine.flow(name, version))


def _version(flow: FlowVersion) -> DefinitionVersion:
    return DefinitionVersion(**_facts(flow))


def _document(flow: FlowDocument) -> DefinitionDocument:
    return DefinitionDocument(**_facts(flow), source=flow.source)


def _facts(flow: FlowVersion) -> dict[str, Any]:
    names = ("org", "name", "version", "kind", "status", "hash", "compiler_version", "created_by", "published_at")
    return {**{name: getattr(flow, name) for name in names}, "shared": flow.org == SYSTEM}
