"""The lifecycle of a machine, as JSON or as a page, and the activities in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Query, Request
from starlette.responses import Response

from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight
from holdfast.server.http.contract import CHANGES, IF_NONE_MATCH, api_router
from holdfast.server.http.etags import etag, is_known
from holdfast.server.http.gate import check_accept
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, shown_of
from holdfast.server.http.replies import encoded
from holdfast.server.models.base import Listed
from holdfast.server.models.reports import ActivityView, LifecycleView, WriteActivity
from holdfast.store.activities import Activity
from holdfast.store.reads.lifecycle import Lifecycle, LifecycleEntry
from holdfast.views.lifecycle_page import lifecycle_page
from holdfast.views.page import POLICY

router = api_router("instances")

MOST_ENTRIES: Final = 10_000
USUAL_ENTRIES: Final = 1_000
_JSON: Final = "application/json"
_HTML: Final = "text/html"
_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "headers": {"ETag": {"description": "The version of the document.", "schema": {"type": "string"}}},
        "content": {_HTML: {"schema": {"type": "string"}}},
    },
    304: {"description": "The caller has this document already."},
}


@router.get(
    "/{instance_id}/lifecycle",
    operation_id="get_lifecycle",
    response_model=LifecycleView,
    responses=_ANSWER,
    dependencies=[needs(Scope.READ), IF_NONE_MATCH],
    openapi_extra={"x-produces": [_HTML]},
)
async def get_lifecycle(
    instance_id: UUID,
    request: Request,
    sight: CurrentSight,
    last: Annotated[
        int, Query(ge=1, le=MOST_ENTRIES, description="At most this many entries, the latest.")
    ] = USUAL_ENTRIES,
) -> Any:
    """The states a machine has been in, each with its event, its actor and its activities; or a page of HTML."""
    tells = await sight.steps_of(await sight.instance(instance_id))
    document = _seen(await sight.engine.lifecycle(instance_id, last=last), tells)
    media = check_accept(request.headers, _JSON, _HTML)
    body = encoded(document) if media == _JSON else lifecycle_page(document).encode()
    headers = {"ETag": etag(len(document.entries), body), "Vary": "Accept"}
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if media == _HTML:
        headers |= {"Content-Security-Policy": f"{POLICY}; sandbox", "X-Content-Type-Options": "nosniff"}
    return Response(body, media_type=media, headers=headers)


@router.get("/{instance_id}/activities", operation_id="list_activities", dependencies=[needs(Scope.READ)])
async def list_activities(
    instance_id: UUID, sight: CurrentSight, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[ActivityView]:
    """Work of applications in an instance, as they report it, oldest first; a page may be short."""
    tells = await sight.steps_of(await sight.instance(instance_id))
    listing = Listing(sight.engine.org, "activities", instance=instance_id)
    found = await sight.engine.activities(instance_id, after=listing.place(cursor, UUID), limit=limit + 1)
    shown, last = shown_of(found, limit)
    return Listed(
        items=[ActivityView.of(each) for each in _seen_of(shown, tells)],
        next=listing.cursor_behind(last and last.id),
    )


@router.post(
    "/{instance_id}/activities",
    operation_id="write_activity",
    responses=CHANGES,
    dependencies=[needs(Scope.ACT)],
)
async def write_activity(instance_id: UUID, wish: WriteActivity, sight: CurrentSight) -> ActivityView:
    """Write the status of some work, over the one before of the same entry, name and caller. It decides nothing."""
    tells = await sight.steps_of(await sight.instance(instance_id))
    written = await sight.engine.activity(
        instance_id, wish.name, status=wish.status, by=sight.identity.subject, entry=wish.entry, data=wish.data
    )
    return ActivityView.of(written if _seen_of([written], tells) else msgspec.structs.replace(written, state=None))


@router.post(
    "/{instance_id}/activities/{activity_id}/freeze",
    operation_id="freeze_activity",
    responses=CHANGES,
    dependencies=[needs(Scope.OPERATE)],
)
async def freeze_activity(instance_id: UUID, activity_id: UUID, sight: CurrentSight) -> ActivityView:
    """Refuse changes of an activity until it is unfrozen; sent again, it changes nothing."""
    return ActivityView.of(await sight.engine.freeze_activity(instance_id, activity_id, by=sight.identity.subject))


@router.post(
    "/{instance_id}/activities/{activity_id}/unfreeze",
    operation_id="unfreeze_activity",
    responses=CHANGES,
    dependencies=[needs(Scope.OPERATE)],
)
async def unfreeze_activity(instance_id: UUID, activity_id: UUID, sight: CurrentSight) -> ActivityView:
    """Let an activity be changed again; sent again, it changes nothing."""
    return ActivityView.of(await sight.engine.unfreeze_activity(instance_id, activity_id, by=sight.identity.subject))


def _seen(document: Lifecycle, tells: Callable[[str | None], bool]) -> Lifecycle:
    """Leave out the states that the caller may not see, with the events and payloads that left them."""
    about = document.instance
    latest = document.entries[-1] if document.entries else None
    if not tells(about.current_state):
        about = msgspec.structs.replace(about, current_state=None)
    if latest is not None and not _tells_all(latest, tells):
        about = msgspec.structs.replace(about, last_event=None)
    return msgspec.structs.replace(
        document,
        instance=about,
        entries=[_seen_entry(entry, tells) for entry in document.entries if tells(entry.to_state)],
        other_activities=_seen_of(document.other_activities, tells),
    )


def _seen_entry(entry: LifecycleEntry, tells: Callable[[str | None], bool]) -> LifecycleEntry:
    if _tells_all(entry, tells):
        return entry
    return msgspec.structs.replace(entry, from_state=None, event=None, event_code=None, actor=None, payload=None)


def _tells_all(entry: LifecycleEntry, tells: Callable[[str | None], bool]) -> bool:
    return tells(entry.to_state) and (entry.from_state is None or tells(entry.from_state))


def _seen_of(found: Iterable[Activity], tells: Callable[[str | None], bool]) -> list[Activity]:
    return [each for each in found if each.state is None or tells(each.state)]
