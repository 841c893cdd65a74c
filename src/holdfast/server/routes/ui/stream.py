"""A workflow as it changes, for front ends that stay and watch."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.runtime.people.descriptor import Descriptor
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.rights import descriptor_for
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import ALWAYS
from holdfast.server.http.gate import GatedRoute
from holdfast.server.http.problems import documented
from holdfast.server.http.replies import encoded
from holdfast.server.http.sse import EventStream, watching
from holdfast.server.routes.ui.workflows import InstanceId
from holdfast.server.settings import ServerSettings
from holdfast.server.workflows import OVER, instance_of

router = APIRouter(prefix="/ui/workflows", tags=["workflows"], route_class=GatedRoute)

_LAST_EVENT_ID: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The id of the last event that came.",
}


@router.get(
    "/{instance_id}/events/stream",
    operation_id="stream_workflow",
    summary="A workflow as it changes, as server-sent events",
    status_code=200,
    response_class=EventStream,
    responses={
        200: {
            "description": "An event `workflow` for every change, its id the version, its data the instance",
            "content": {"text/event-stream": {"schema": {"type": "object", "required": ["event", "data"]}}},
        },
        204: {"description": "It is over, and the caller knows its last version"},
        **documented(*ALWAYS),
    },
    dependencies=[needs(Scope.READ)],
    openapi_extra={"parameters": [_LAST_EVENT_ID]},
)
async def stream(request: Request, instance_id: InstanceId, identity: CurrentIdentity, sight: CurrentSight) -> Response:
    first = await descriptor_for(sight, instance_id)
    known = request.headers.get("last-event-id", "")
    if first.status in OVER and known == str(first.version):
        return Response(status_code=204)
    return EventStream(request, identity, _changes(request, sight, first, known))


async def _changes(request: Request, sight: Sight, found: Descriptor, known: str) -> AsyncGenerator[dict[str, Any]]:
    settings: ServerSettings = request.app.state.settings
    instance_id = UUID(found.id)
    with watching(sight.engine, instance_id, settings.stream_life) as watch:
        while True:
            has_changed = str(found.version) != known
            if has_changed:
                known = str(found.version)
                yield {"event": "workflow", "id": known, "data": encoded(instance_of(found)).decode()}
            if found.status in OVER or not await watch.rest(has_changed=has_changed):
                return
            with suppress(NotFound):  # a caller that may not see it any more gets no more events
                found = await descriptor_for(sight, instance_id)
                continue
            return
