"""The audit trail of an instance as it grows, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Header, Request

from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import api_router
from holdfast.server.http.sse import EventStream, event_id, follow, last_place
from holdfast.server.models.instances import EventView
from holdfast.server.settings import ServerSettings
from holdfast.store.reads.instances import Instance
from holdfast.store.reads.steps import Place

router = api_router("instances")

_EVENT: Final = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["id", "event", "data"],
}
_SENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events as they are committed; the stream ends with the instance.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}


@router.get(
    "/{instance_id}/stream",
    operation_id="stream_events",
    status_code=200,
    response_class=EventStream,
    responses=_SENT,
    dependencies=[needs(Scope.READ)],
)
async def stream_events(
    instance_id: UUID,
    request: Request,
    sight: CurrentSight,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="The id of the last event seen: the stream goes on behind it.")
    ] = None,
) -> EventStream:
    """Each event of the audit trail, named by its type, from the beginning or from behind Last-Event-ID."""
    found = await sight.instance(instance_id)
    settings: ServerSettings = request.app.state.settings
    told = _told(sight, found, last_place(request), settings.stream_life)
    return EventStream(request, sight.identity, told)


async def _told(sight: Sight, found: Instance, after: Place | None, life: float) -> AsyncGenerator[dict[str, Any]]:
    tells = await sight.steps_of(found)
    async for event in follow(sight.engine, UUID(found.id), after, life):
        if not tells(event.node):
            continue
        view = EventView.of(sight.told(event, "detail"))
        yield {"id": event_id(event), "event": event.type, "data": view.model_dump_json()}
