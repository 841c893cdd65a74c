"""Workflows for front ends: start, advance, read, cancel, list.

Start and advance answer when the chain of automatic steps has come to rest, which they would do without the request as
well. A caller that does not wait, or waited in vain, gets 202 and the place to look at.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Path, Query, Request
from starlette.responses import Response

from holdfast.core.model.signals import SYSTEM
from holdfast.errors import Conflict
from holdfast.runtime.engine import Engine
from holdfast.runtime.people.standing import Standing
from holdfast.runtime.people.start_rules import Caller
from holdfast.server.access.identity import Identity
from holdfast.server.access.rights import acting_words, check_may_cancel, descriptor_for, starting_words
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, sight_of
from holdfast.server.http.contract import ALWAYS
from holdfast.server.http.etags import as_precondition, etag, expected_version, is_known
from holdfast.server.http.gate import GatedRoute
from holdfast.server.http.idempotency import KeyHeader, signal_id
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing
from holdfast.server.http.preferences import Patience, Prefer, Wait, patience_of
from holdfast.server.http.problems import documented
from holdfast.server.http.replies import encoded, reply
from holdfast.server.middleware.request_context import correlation_id
from holdfast.server.models.base import Listed, Name
from holdfast.server.models.workflows import (
    Advance,
    Cancellation,
    Status,
    WorkflowDescriptor,
    WorkflowInstance,
    WorkflowSummary,
)
from holdfast.server.workflows import changed

router = APIRouter(prefix="/ui/workflows", tags=["workflows"], route_class=GatedRoute)

WorkflowId = Annotated[Name, Path(description="The id of a published workflow.", examples=["orders.approval"])]
InstanceId = Annotated[UUID, Path(description="The id that start answered.")]
_INPUT: dict[str, Any] = {"order_id": "ord-123", "customer_email": "bob@example.com"}
_VERSIONED = {
    "ETag": {"description": "The version.", "schema": {"type": "string"}},
    "Location": {"description": "Where to look at it.", "schema": {"type": "string"}},
    "X-Request-Id": {"schema": {"type": "string"}},
}
_WAITING: dict[int | str, dict[str, Any]] = {
    202: {"model": WorkflowInstance, "description": "Accepted; automatic steps still run", "headers": _VERSIONED}
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Change only this version: the ETag of an earlier answer.",
}
_IF_NONE_MATCH = {**_IF_MATCH, "name": "If-None-Match", "description": "Answer only if it is not this any more."}


@router.post(
    "/{workflow_id}/start",
    operation_id="start_workflow",
    summary="Start a workflow",
    status_code=201,
    response_model=WorkflowInstance,
    responses={
        201: {"description": "Started, and at rest", "headers": _VERSIONED},
        **_WAITING,
        **documented(*ALWAYS, 409),
    },
    dependencies=[needs(Scope.START)],
)
async def start(
    request: Request,
    workflow_id: WorkflowId,
    input: Annotated[dict[str, Any] | None, Body(examples=[_INPUT])] = None,
    wait: Wait = None,
    prefer: Prefer = None,
    key: KeyHeader = None,
) -> Response:
    sight, patience = await sight_of(request), patience_of(request, wait, prefer)
    engine, identity = sight.engine, sight.identity
    caller = Caller(
        identity.subject,
        capabilities=await starting_words(engine, identity, workflow_id),
        partition=identity.partition or None,
        correlation=correlation_id(request),
    )
    if key is None:
        found = await engine.start_and_settle(workflow_id, input or {}, timeout=patience.seconds, caller=caller)
        return _answer(request, found, patience, 201)
    started = await engine.start(workflow_id, input or {}, key=key, caller=caller)
    sight.check_started(started)
    return _answer(request, await engine.standing(started.id, patience.seconds), patience, 201)


@router.post(
    "/{instance_id}/advance",
    operation_id="advance_workflow",
    summary="Say what happened at the current step",
    response_model=WorkflowInstance,
    responses={
        200: {"description": "Advanced, and at rest again", "headers": _VERSIONED},
        **_WAITING,
        **documented(*ALWAYS, 409, 412, 428),
    },
    dependencies=[needs(Scope.ACT)],
    openapi_extra={"parameters": [_IF_MATCH]},
)
async def advance(
    request: Request,
    instance_id: InstanceId,
    wish: Advance,
    wait: Wait = None,
    prefer: Prefer = None,
    key: KeyHeader = None,
) -> Response:
    sight, patience = await sight_of(request), patience_of(request, wait, prefer)
    identity, expected = sight.identity, expected_version(request)
    try:
        found = await sight.engine.advance_and_settle(
            instance_id,
            wish.event,
            wish.input,
            timeout=patience.seconds,
            by=identity.subject,
            capabilities=await acting_words(sight, instance_id),
            roles=identity.roles,
            id=signal_id(identity, instance_id, key, "advance"),
            if_version=expected,
            comment=wish.comment,
            partition=sight.partition,
            sees_all=sight.operates,
        )
    except Conflict as refusal:
        raise as_precondition(refusal, expected) from None
    return _answer(request, found, patience, 200)


@router.get(
    "/{instance_id}",
    operation_id="get_workflow",
    summary="What a front end shows of a workflow",
    response_model=WorkflowDescriptor,
    responses={
        200: {"description": "As this person may see it", "headers": {"ETag": _VERSIONED["ETag"]}},
        304: {"description": "It is as If-None-Match says"},
        **documented(*ALWAYS),
    },
    dependencies=[needs(Scope.READ)],
    openapi_extra={"parameters": [_IF_NONE_MATCH]},
)
async def get(request: Request, instance_id: InstanceId, sight: CurrentSight) -> Response:
    found = await descriptor_for(sight, instance_id)
    body = encoded(found)
    headers = {
        "ETag": etag(found.version, body),
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, Accept",
    }
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@router.post(
    "/{instance_id}/cancel",
    operation_id="cancel_workflow",
    summary="Cancel a workflow; what was done stays done",
    response_model=WorkflowInstance,
    responses={
        200: {"description": "Cancelled", "headers": _VERSIONED},
        202: {"model": WorkflowInstance, "description": "Cancelled once a running step is back", "headers": _VERSIONED},
        **documented(*ALWAYS, 409, 412, 428),
    },
    dependencies=[needs(Scope.ACT)],
    openapi_extra={"parameters": [_IF_MATCH]},
)
async def cancel(
    request: Request,
    instance_id: InstanceId,
    wish: Cancellation | None = None,
    wait: Wait = None,
    prefer: Prefer = None,
    key: KeyHeader = None,
) -> Response:
    sight, patience = await sight_of(request), patience_of(request, wait, prefer)
    engine, identity = sight.engine, sight.identity
    reason = None if wish is None else wish.reason
    expected = expected_version(request)
    await check_may_cancel(sight, instance_id)
    try:
        await engine.cancel(instance_id, by=identity.subject, reason=reason, if_version=expected)
    except Conflict as refusal:
        if key is None or not await _was_cancelled_by(engine, instance_id, identity, reason):
            raise as_precondition(_not_active(refusal), expected) from None
    return _answer(request, await engine.standing(instance_id, patience.seconds), patience, 200)


@router.get(
    "",
    operation_id="list_workflows",
    summary="Workflows this person may see, newest first",
    response_model=Listed[WorkflowSummary],
    responses={200: {"description": "One page; it may hold less than `limit`"}, **documented(*ALWAYS)},
    dependencies=[needs(Scope.READ)],
)
async def list_(
    sight: CurrentSight,
    workflow_id: Annotated[Name | None, Query(description="Of this workflow only.")] = None,
    status: Annotated[Status | None, Query(description="With this status only.")] = None,
    subject_id: Annotated[Name | None, Query(description="Started by this person only.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Response:
    identity = sight.identity
    listing = Listing(identity.tenant, "workflows", workflow_id=workflow_id, status=status, subject_id=subject_id)
    page = await sight.engine.describe_list(
        workflow_id=workflow_id,
        status=status,
        subject_id=subject_id,
        after=listing.position(cursor),
        limit=limit,
    )
    items = await sight.summaries(page.items)
    return reply({"items": items, "next": listing.cursor(page.next)}, headers={"Cache-Control": "private, no-store"})


def _answer(request: Request, found: Standing, patience: Patience, status: int) -> Response:
    """Answer a change that the caller may see: `status` once the automatic steps are done, else 202."""
    headers = {
        "ETag": etag(found.instance.version),
        "Location": _location(request, found.instance.id),
        "Cache-Control": "no-store",
    }
    if patience.applied is not None:
        headers["Preference-Applied"] = patience.applied
    if not patience.seconds or not found.is_settled:
        status = 202
    return reply(changed(found), status, headers)


def _not_active(refusal: Conflict) -> Conflict:
    if refusal.code != "INSTANCE_OVER":
        return refusal
    return Conflict(refusal.message, code="WORKFLOW_NOT_ACTIVE", hint="There is nothing left to cancel.")


def _location(request: Request, instance_id: str) -> str:
    return f"{request.scope.get('root_path', '')}{router.prefix}/{instance_id}"


async def _was_cancelled_by(engine: Engine, instance_id: UUID, identity: Identity, reason: str | None) -> bool:
    """Check whether a repeated request finds its own work: cancelled by this person, for this reason."""
    found = await engine.descriptor(instance_id, by=SYSTEM.id)
    last = found.history[-1] if found.history else None
    return last is not None and (last.event, last.actor, last.comment) == ("cancelled", identity.subject, reason)
