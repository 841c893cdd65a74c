"""Machines: import them, look at them, try them, send their instances events.

A machine is named by environment and definition, an instance of it by its external reference.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, cast

import msgspec
from fastapi import Path, Query, Request
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from holdfast.doors.source import JSON
from holdfast.errors import DefinitionError, NotFound, Refused
from holdfast.payloads.encoding import decode
from holdfast.runtime.engine import Engine
from holdfast.runtime.machines.machine import Machine
from holdfast.runtime.machines.triggers import flow_of
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.access.visibility import CurrentSight
from holdfast.server.http.contract import CHANGES, IF_NONE_MATCH, api_router
from holdfast.server.http.etags import etag, is_known
from holdfast.server.http.idempotency import KeyHeader
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, shown_of
from holdfast.server.http.replies import encoded, reply
from holdfast.server.models.base import Flag, Key, Listed, Version
from holdfast.server.models.consumers import EnvironmentName
from holdfast.server.models.definitions import Finding, PublishedView
from holdfast.server.models.machines import (
    Backfill,
    MachineDocument,
    MachineEventView,
    MachineImport,
    MachineInstanceView,
    MachineStateView,
    MachineVersion,
    MachineVersionNumber,
    SendTrigger,
    Simulate,
    SimulationView,
    TriggerView,
)
from holdfast.server.simulations import simulate
from holdfast.store.reads.flows import FlowVersion

router = api_router("machines")

NEWEST_VERSIONS: Final = 50
_BODY: Final[dict[str, Any]] = {
    "x-reads": [JSON],
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "description": "`blueprint` and perhaps `policy`, as `holdfast docs machines` describes them; or "
                    "`policy` alone, for the newest blueprint.",
                },
                "example": {
                    "blueprint": {
                        "name": "order",
                        "environment": "prod",
                        "version": 1,
                        "states": [{"name": "New", "is_initial": True}, {"name": "Paid", "is_final": True}],
                        "events": [{"code": 1, "name": "Pay"}],
                        "transitions": [{"from": "New", "event": "Pay", "to": "Paid"}],
                    }
                },
            }
        },
    },
}
_ETAG: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": {"ETag": {"description": "The version of the answer.", "schema": {"type": "string"}}}},
    304: {"description": "The caller has this answer already."},
}
Environment = Annotated[EnvironmentName, Path(description="The environment, such as prod.", examples=["prod"])]
Definition = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00/]+$", description="The machine.", examples=["vendor"])
]
WantedVersion = Annotated[Version | None, Query(description="One of its versions; else the newest.")]
ExternalRef = Annotated[Key, Query(description="The business object.")]


# --- machines ------------------------------------------------------------------------------------------------------


@router.post(
    "",
    operation_id="import_machine",
    responses=CHANGES,
    openapi_extra=_BODY,
    dependencies=[needs(Scope.PUBLISH)],
)
async def import_machine(
    request: Request,
    engine: TenantEngine,
    identity: CurrentIdentity,
    dry_run: Annotated[Flag, Query(description="Only check; nothing is published.")] = False,
    environment: Annotated[
        EnvironmentName | None, Query(description="Of a policy alone: the environment of its machine.")
    ] = None,
    file: Annotated[
        str, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$", description="What to call it in diagnostics.")
    ] = "body",
) -> MachineImport:
    """Publish a machine, or the newest blueprint with another policy; every problem of both is listed.

    The same content as the newest version changes nothing. Instances keep the version they began with.
    """
    machine = await _read_machine(engine, await request.body(), environment, file)
    published = await engine.import_machine(machine, by=identity.subject, dry_run=dry_run)
    warnings = [Finding.of(found) for found in machine.warnings]
    return MachineImport(dry_run=dry_run, published=PublishedView.of(published), warnings=warnings)


async def _read_machine(engine: Engine, body: bytes, environment: str | None, file: str) -> Machine:
    content = decode(body, "The body")
    documents = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if "policy" in documents and "blueprint" not in documents:
        policy: Any = documents["policy"]
        if len(documents) > 1 or not isinstance(policy, dict):
            raise DefinitionError(
                'A policy alone is imported as {"policy": {…}}.',
                code="MACHINE_TYPE_WRONG",
                hint="`environment` belongs into the query.",
            )
        return await engine.load_machine(cast("dict[str, Any]", policy), environment=environment)
    # In a thread: a large document takes seconds to read, and other requests should not wait for it.
    return await asyncio.to_thread(Machine.parse, body, files=(file, file))


@router.get("", operation_id="list_machines", dependencies=[needs(Scope.READ)])
async def list_machines(
    engine: TenantEngine,
    environment: Annotated[EnvironmentName | None, Query(description="Only of this environment.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[MachineVersion]:
    """The newest version of every machine, by name."""
    listing = Listing(engine.org, "machines", environment=environment)
    found = await engine.page_machines(environment, after=listing.position(cursor), limit=limit + 1)
    page, last = shown_of(found, limit)
    return Listed(items=[_version(flow) for flow in page], next=listing.cursor(last and last.name))


def _version(flow: FlowVersion) -> MachineVersion:
    environment, _, definition = flow.name.partition(".")
    return MachineVersion(environment=environment, definition=definition, **msgspec.structs.asdict(flow))


@router.get("/{environment}/{name}", operation_id="get_machine", dependencies=[needs(Scope.READ)])
async def get_machine(
    environment: Environment, name: Definition, engine: TenantEngine, version: WantedVersion = None
) -> MachineDocument:
    """One version of a machine, by default the newest: states, events, and the documents it was imported from."""
    told = await engine.describe_machine(environment, name, version)
    versions = await engine.page_versions(flow_of(environment, name), limit=NEWEST_VERSIONS)
    return MachineDocument.model_validate(
        {
            **msgspec.structs.asdict(told),
            "states": [MachineStateView.of(state) for state in told.states],
            "events": [MachineEventView.of(event) for event in told.events],
            "versions": [MachineVersionNumber.of(one) for one in versions],
        }
    )


@router.get(
    "/{environment}/{name}/chart",
    operation_id="get_machine_chart",
    response_class=PlainTextResponse,
    dependencies=[needs(Scope.READ)],
)
async def get_machine_chart(
    environment: Environment, name: Definition, engine: TenantEngine, version: WantedVersion = None
) -> str:
    """A drawing of one version, as a Mermaid state diagram."""
    return (await engine.machine_of(environment, name, version)).chart()


@router.post(
    "/{environment}/{name}/simulate",
    operation_id="simulate_machine",
    response_model=SimulationView,
    dependencies=[needs(Scope.READ)],
)
async def simulate_machine(environment: Environment, name: Definition, wish: Simulate, engine: TenantEngine) -> Any:
    """Send events to an instance that exists only in this answer. Nothing is stored, and no fact is sent."""
    machine = await engine.machine_of(environment, name, wish.version)
    return reply(await asyncio.to_thread(simulate, machine, wish))


# --- their instances -----------------------------------------------------------------------------------------------


@router.post(
    "/{environment}/{name}/triggers",
    operation_id="trigger_machine",
    responses=CHANGES,
    dependencies=[needs(Scope.ACT)],
)
async def trigger_machine(
    environment: Environment, name: Definition, wish: SendTrigger, sight: CurrentSight, key: KeyHeader = None
) -> TriggerView:
    """Send an event to the instance of a reference, which is made if it is not there yet.

    An event that does not apply is an answer with its reason. The same request id gets the same answer.
    """
    if None not in (key, wish.request_id) and key != wish.request_id:
        raise Refused("Idempotency-Key and `request_id` differ.", code="REQUEST_ID_AMBIGUOUS", hint="Send one of them.")
    version = await sight.machine_instance(environment, name, wish.external_ref)
    told = await sight.engine.trigger(
        environment,
        name,
        wish.external_ref,
        wish.event,
        wish.payload,
        request_id=wish.request_id or key,
        by=sight.identity.subject,
        capabilities=await sight.acting(flow_of(environment, name), version),
        expected=wish.expected,
        version=wish.version,
        ack_required=wish.ack_required,
        occurred_at=wish.occurred_at,
    )
    return TriggerView.of(await sight.answer(flow_of(environment, name), told))


@router.get(
    "/{environment}/{name}/triggers/{request_id:path}",
    operation_id="get_trigger_answer",
    dependencies=[needs(Scope.READ)],
)
async def get_trigger_answer(
    environment: Environment,
    name: Definition,
    request_id: Annotated[str, Path(min_length=1, max_length=400, pattern=r"^[^\x00]+$", examples=["r-1"])],
    external_ref: ExternalRef,
    sight: CurrentSight,
) -> TriggerView:
    """The answer a trigger got under its request id."""
    told = await sight.engine.trigger_answer(environment, name, external_ref, request_id)
    if told is None or not await sight.may_see(await sight.engine.get(told.instance)):
        raise NotFound(
            "No trigger of this reference has an answer under this request id.",
            code="TRIGGER_UNKNOWN",
            hint="One in a transaction of its own has none before that has committed.",
        )
    return TriggerView.of(await sight.answer(flow_of(environment, name), told))


@router.get(
    "/{environment}/{name}/instance",
    operation_id="get_machine_instance",
    response_model=MachineInstanceView,
    responses=_ETAG,
    dependencies=[needs(Scope.READ), IF_NONE_MATCH],
)
async def get_machine_instance(
    environment: Environment, name: Definition, external_ref: ExternalRef, request: Request, sight: CurrentSight
) -> Any:
    """The instance of a reference: its state, its last event, its open gates."""
    found = await sight.seen_machine(await sight.engine.machine(environment, name, external_ref))
    body = encoded(found)
    headers = {"ETag": etag(found.lifecycle, body)}
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


@router.post(
    "/{environment}/{name}/backfill",
    operation_id="backfill_machine",
    responses=CHANGES,
    dependencies=[needs(Scope.OPERATE)],
)
async def backfill_machine(
    environment: Environment, name: Definition, wish: Backfill, engine: TenantEngine, identity: CurrentIdentity
) -> TriggerView:
    """Give an object that is new to its machine the past it has, all of it or nothing, without facts.

    The same past again changes nothing; another one is a conflict.
    """
    told = await engine.backfill(
        environment,
        name,
        wish.external_ref,
        [event.model_dump(exclude_none=True) for event in wish.events],
        by=identity.subject,
        version=wish.version,
    )
    return TriggerView.of(told)
