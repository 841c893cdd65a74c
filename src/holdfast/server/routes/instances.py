"""Instances: find, start, look at, signal."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Query, Request, Response

from holdfast.errors import Refused
from holdfast.runtime.people.start_rules import Caller
from holdfast.runtime.reads.search import InstanceFilter
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import (
    CHANGES,
    IF_MATCH,
    IF_NONE_MATCH,
    PREFIX,
    VERSIONED,
    api_router,
    if_version_matches,
)
from holdfast.server.http.etags import etag, expected_version, is_known
from holdfast.server.http.idempotency import IdempotencyKey, signal_id
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, cut
from holdfast.server.middleware.request_context import correlation_id
from holdfast.server.models.base import Key, Listed, Moment, Name
from holdfast.server.models.instances import InstanceView, SendSignal, Start, Status
from holdfast.store.reads.instances import Instance

router = api_router("instances")

Attribute = Annotated[
    str, Query(min_length=3, max_length=400, pattern=r"^[^=\x00]+=[^\x00]*$", examples=["customer=c-17"])
]
ETAG = {"headers": {"ETag": {"description": "The version of the instance.", "schema": {"type": "string"}}}}


@router.get("", operation_id="list_instances", dependencies=[needs(Scope.READ)])
async def list_instances(
    sight: CurrentSight,
    flow: Annotated[Name | None, Query(description="Only of this flow.")] = None,
    status: Annotated[Status | None, Query(description="Only in this status.")] = None,
    key: Annotated[Key | None, Query(description="Only what was started with this Idempotency-Key.")] = None,
    business_key: Annotated[Key | None, Query(description="Only with this business key.")] = None,
    subject: Annotated[Name | None, Query(description="Only what this person started.")] = None,
    parent: Annotated[UUID | None, Query(description="Only the sub-flows of this instance.")] = None,
    error: Annotated[Name | None, Query(description="Only those whose last error has this code.")] = None,
    with_reason: Annotated[Name | None, Query(description="Only those whose status has this reason.")] = None,
    step: Annotated[
        Name | None, Query(description="Only those that stand at this step, or whose last error came from it.")
    ] = None,
    since: Annotated[Moment | None, Query(description="Only what was started then or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only what was started before.")] = None,
    ended_since: Annotated[Moment | None, Query(description="Only what ended then or later.")] = None,
    ended_until: Annotated[Moment | None, Query(description="Only what ended before.")] = None,
    attribute: Annotated[
        list[Attribute] | None,
        Query(max_length=10, description="Only with this attribute, as name=value; all of several must fit."),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[InstanceView]:
    """Instances, newest first; those that failed, were cancelled or aborted in a period by their end, latest first.

    Those the caller may not see are left out, and a search looks at a bounded number: a page may be short although
    there are more. Only `next` tells.
    """
    filter = InstanceFilter(
        flow=flow, status=status, key=key, business_key=business_key, subject_id=subject,
        attributes=_attributes(attribute), parent=parent, error=error, with_reason=with_reason, step=step, since=since,
        until=until, ended_since=ended_since, ended_until=ended_until,
    )  # fmt: skip
    asked = {**msgspec.structs.asdict(filter), "attributes": attribute and sorted(attribute)}
    listing = Listing(sight.engine.org, "instances", **asked)
    page = await sight.engine.find(filter, after=listing.position(cursor), limit=limit)
    items, next = cut(page.items, page.next, lambda one: one.id)
    seen = await sight.instances(items)
    return Listed(items=[view(sight, one) for one in seen], next=listing.cursor(next))


@router.post(
    "",
    operation_id="start_instance",
    status_code=201,
    response_model=InstanceView,
    responses={
        201: {
            **ETAG,
            "headers": {**ETAG["headers"], "Location": {"schema": {"type": "string", "format": "uri-reference"}}},
        },
        **CHANGES,
    },
    dependencies=[needs(Scope.START)],
)
async def start_instance(
    wish: Start, request: Request, response: Response, sight: CurrentSight, key: IdempotencyKey
) -> InstanceView:
    """Start an instance of a published flow. The same Idempotency-Key with the same input is the same instance."""
    started = await sight.engine.start(
        wish.flow,
        wish.input,
        key=key,
        version=wish.version,
        business_key=wish.business_key,
        attributes=wish.attributes,
        caller=Caller(
            sight.identity.subject,
            capabilities=await sight.acting(wish.flow, wish.version),
            partition=sight.identity.partition or None,
            correlation=correlation_id(request),
        ),
    )
    if key is not None:
        sight.check_started(started)
    response.headers["Location"] = f"{request.scope.get('root_path', '')}{PREFIX}/instances/{started.id}"
    return shown(sight, started, response)


@router.get(
    "/{instance_id}",
    operation_id="get_instance",
    response_model=InstanceView,
    responses={200: ETAG, 304: {"description": "The caller has this version already."}},
    dependencies=[needs(Scope.READ), IF_NONE_MATCH],
)
async def get_instance(instance_id: UUID, request: Request, response: Response, sight: CurrentSight) -> Any:
    """One instance as it is now."""
    found = await sight.instance(instance_id)
    if is_known(request, etag(found.version)):
        return Response(status_code=304, headers={"ETag": etag(found.version)})
    return shown(sight, found, response)


@router.post(
    "/{instance_id}/signals",
    operation_id="signal_instance",
    response_model=InstanceView,
    responses={200: ETAG, **VERSIONED},
    dependencies=[needs(Scope.ACT), IF_MATCH],
)
async def signal_instance(
    instance_id: UUID,
    wish: SendSignal,
    request: Request,
    response: Response,
    sight: CurrentSight,
    key: IdempotencyKey,
) -> InstanceView:
    """Send an event; answered when it is committed, or when it is kept for later. Tasks of people do not take it."""
    found = await sight.instance(instance_id)
    expected = expected_version(request, found.version)
    with if_version_matches(expected):
        changed = await sight.engine.signal(
            instance_id,
            wish.event,
            wish.payload,
            node=wish.node,
            token=wish.token,
            at=wish.at,
            id=signal_id(sight.identity, instance_id, key, "signal"),
            by=sight.identity.subject,
            capabilities=await sight.acting_on(found),
            if_version=expected,
            only_waits=True,
            early=wish.early,
        )
    return shown(sight, changed, response)


def shown(sight: Sight, instance: Instance, response: Response) -> InstanceView:
    """The answer about one instance, with its version as entity tag."""
    response.headers["ETag"] = etag(instance.version)
    return view(sight, instance)


def view(sight: Sight, instance: Instance) -> InstanceView:
    return InstanceView.of(sight.told(instance, "error"))


def _attributes(wanted: list[str] | None) -> dict[str, Any] | None:
    """`name=value`; a value that is JSON of a number, a word or a quoted text means that, anything else is text."""
    found: dict[str, Any] = {}
    for name, _, value in (text.partition("=") for text in wanted or ()):
        if name in found:
            raise Refused(f"The attribute {name!r} is asked for twice.", code="FILTER_INVALID", hint="Keep one.")
        found[name] = _value(value)
    return found or None


def _value(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text
    return text if isinstance(value, (list, dict)) else value
