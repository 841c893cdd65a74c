"""Notices of the engine to operators: a list, and a stream of them as they are committed.

A notice about an instance is for those who may see the instance; any other is for operators.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Header, Query, Request

from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, cut
from holdfast.server.http.sse import EventStream
from holdfast.server.models.base import Listed, Moment
from holdfast.server.models.reports import NoticeKind, NoticeView, ShortName
from holdfast.server.settings import ServerSettings

router = api_router("notices")

_EVENT: Final = {
    "type": "object",
    "description": "One notice of the stream, named by its code.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["id", "event", "data"],
}
_SENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Notices as they are committed, until the time of the stream is over.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}
Code = Annotated[ShortName | None, Query(description="Only with this code: ACK_RETRY, DEFAULT_STATE_STALE …")]
Kind = Annotated[NoticeKind | None, Query(description="Only of this kind.")]
InstanceId = Annotated[UUID | None, Query(description="Only about this instance.")]
Consumer = Annotated[ShortName | None, Query(description="Only about this consumer.")]


@router.get("", operation_id="list_notices", dependencies=[needs(Scope.READ)])
async def list_notices(
    sight: CurrentSight,
    code: Code = None,
    kind: Kind = None,
    instance: InstanceId = None,
    consumer: Consumer = None,
    since: Annotated[Moment | None, Query(description="Only what was written then or later.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[NoticeView]:
    """Notices, newest first. Those about instances the caller may not see are left out, so a page may be short."""
    listing = Listing(
        sight.engine.org, "notices", code=code, kind=kind, instance=instance, consumer=consumer, since=since
    )
    page = await sight.engine.notices(
        code=code,
        kind=kind,
        instance=instance,
        consumer=consumer,
        since=since,
        after=listing.position(cursor),
        limit=limit,
    )
    items, next = cut(page.items, page.next, lambda notice: notice.id)
    return Listed(items=[NoticeView.of(each) for each in await sight.notices(items)], next=listing.cursor(next))


@router.get(
    "/stream",
    operation_id="stream_notices",
    status_code=200,
    response_class=EventStream,
    responses=_SENT,
    dependencies=[needs(Scope.READ)],
)
async def stream_notices(
    request: Request,
    sight: CurrentSight,
    code: Code = None,
    kind: Kind = None,
    instance: InstanceId = None,
    consumer: Consumer = None,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="The id of the last notice seen: the stream goes on behind it.")
    ] = None,
) -> EventStream:
    """Each notice as it is committed, from now on or from behind Last-Event-ID.

    After a return, notices of the last seconds may come again under the same id.
    """
    settings: ServerSettings = request.app.state.settings
    told = _told(sight, _last_id(last_event_id), settings.stream_life, code, kind, instance, consumer)
    return EventStream(request, sight.identity, told)


async def _told(
    sight: Sight,
    after: UUID | None,
    life: float,
    code: str | None,
    kind: str | None,
    instance: UUID | None,
    consumer: str | None,
) -> AsyncGenerator[dict[str, Any]]:
    following = sight.engine.follow_notices(
        after=after, code=code, kind=kind, instance=instance, consumer=consumer, life=life
    )
    async for notice in following:
        if await sight.notices([notice]):
            yield {"id": notice.id, "event": notice.code, "data": NoticeView.of(notice).model_dump_json()}


def _last_id(given: str | None) -> UUID | None:
    """The place where the caller's last stream ended; an id that is none of ours means now."""
    try:
        return None if given is None else UUID(given)
    except ValueError:
        return None
