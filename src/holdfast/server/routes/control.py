"""Control of an instance: stop it, hold it, or set it in motion again.

Each route asks for a state: with an Idempotency-Key, a repeat that finds the instance in that state answers with it,
instead of complaining that there is nothing left to do. A resume may lead anywhere, so there the key is the id of
its signal.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final
from uuid import UUID

from fastapi import Request, Response

from holdfast.errors import Conflict
from holdfast.runtime.ops.dead_letters import LetterFilter
from holdfast.server.access.rights import check_may_cancel
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import CHANGES, IF_MATCH, VERSIONED, api_router, if_version_matches
from holdfast.server.http.etags import expected_version
from holdfast.server.http.idempotency import IdempotencyKey, signal_id
from holdfast.server.models.dead_letters import Resolution
from holdfast.server.models.instances import InstanceView, RequeueLetters, Rerun, Why
from holdfast.server.routes.instances import ETAG, shown
from holdfast.store.reads.instances import Instance

router = api_router("instances")

_NO_REASON: Final = Why()
_ALREADY: Final = frozenset({"INSTANCE_OVER", "INSTANCE_STOPPING", "INSTANCE_ROLLING_BACK", "INSTANCE_SUSPENDED"})


@router.post(
    "/{instance_id}/cancel",
    operation_id="cancel_instance",
    response_model=InstanceView,
    responses={200: ETAG, **VERSIONED},
    dependencies=[needs(Scope.ACT), IF_MATCH],
)
async def cancel_instance(
    instance_id: UUID,
    request: Request,
    response: Response,
    sight: CurrentSight,
    key: IdempotencyKey,
    wish: Why | None = None,
) -> InstanceView:
    """Cancel an instance: steps at rest end now, running ones finish, a saga undoes its steps.

    Allowed: the starter, holders of the flow's start capabilities, operators.
    """
    await check_may_cancel(sight, instance_id)
    by, why = sight.identity.subject, (wish or _NO_REASON).reason
    expected = await _expected(sight, instance_id, request)
    with if_version_matches(expected):
        doing = sight.engine.cancel(instance_id, by=by, reason=why, if_version=expected)
        return shown(sight, await _reached(sight, instance_id, doing, key, "cancelled", "rolling_back"), response)


@router.post(
    "/{instance_id}/abort",
    operation_id="abort_instance",
    response_model=InstanceView,
    responses={200: ETAG, **VERSIONED},
    dependencies=[needs(Scope.OPERATE), IF_MATCH],
)
async def abort_instance(
    instance_id: UUID,
    request: Request,
    response: Response,
    sight: CurrentSight,
    key: IdempotencyKey,
    wish: Why | None = None,
) -> InstanceView:
    """End an instance at once; late results are refused and nothing is taken back."""
    by, why = sight.identity.subject, (wish or _NO_REASON).reason
    expected = await _expected(sight, instance_id, request)
    with if_version_matches(expected):
        doing = sight.engine.abort(instance_id, by=by, reason=why, if_version=expected)
        return shown(sight, await _reached(sight, instance_id, doing, key, "aborted"), response)


@router.post(
    "/{instance_id}/pause",
    operation_id="pause_instance",
    response_model=InstanceView,
    responses={200: ETAG, **VERSIONED},
    dependencies=[needs(Scope.OPERATE), IF_MATCH],
)
async def pause_instance(
    instance_id: UUID,
    request: Request,
    response: Response,
    sight: CurrentSight,
    key: IdempotencyKey,
    wish: Why | None = None,
) -> InstanceView:
    """Suspend an instance: running steps finish and are recorded, nothing new begins until it is resumed."""
    by, why = sight.identity.subject, (wish or _NO_REASON).reason
    expected = await _expected(sight, instance_id, request)
    with if_version_matches(expected):
        doing = sight.engine.suspend(instance_id, by=by, reason=why, if_version=expected)
        return shown(sight, await _reached(sight, instance_id, doing, key, "suspended"), response)


@router.post(
    "/{instance_id}/resume",
    operation_id="resume_instance",
    response_model=InstanceView,
    responses={200: ETAG, **VERSIONED},
    dependencies=[needs(Scope.OPERATE), IF_MATCH],
)
async def resume_instance(
    instance_id: UUID,
    request: Request,
    response: Response,
    sight: CurrentSight,
    key: IdempotencyKey,
    wish: Why | None = None,
) -> InstanceView:
    """Resume an instance that was paused, or that an error or the chain limit suspended."""
    expected = await _expected(sight, instance_id, request)
    with if_version_matches(expected):
        resumed = await sight.engine.resume(
            instance_id,
            by=sight.identity.subject,
            reason=(wish or _NO_REASON).reason,
            if_version=expected,
            id=signal_id(sight.identity, instance_id, key, "resume"),
        )
        return shown(sight, resumed, response)


@router.post(
    "/{instance_id}/rerun",
    operation_id="rerun_instance",
    response_model=InstanceView,
    responses={200: ETAG, **VERSIONED},
    dependencies=[needs(Scope.OPERATE), IF_MATCH],
)
async def rerun_instance(
    instance_id: UUID, wish: Rerun, request: Request, response: Response, sight: CurrentSight, key: IdempotencyKey
) -> InstanceView:
    """Run an instance again from a step it has been at. One that is over stays so: the answer is a new instance, and
    the same one for the same Idempotency-Key."""
    expected = await _expected(sight, instance_id, request)
    with if_version_matches(expected):
        running = await sight.engine.rerun(
            instance_id,
            from_step=wish.from_step,
            input=wish.input,
            token=wish.token,
            by=sight.identity.subject,
            reason=wish.reason,
            if_version=expected,
            key=key,
        )
    return shown(sight, running, response)


@router.post(
    "/{instance_id}/requeue",
    operation_id="requeue_instance",
    responses=CHANGES,
    dependencies=[needs(Scope.OPERATE)],
)
async def requeue_instance(instance_id: UUID, sight: CurrentSight, wish: RequeueLetters | None = None) -> Resolution:
    """Put back what all open dead letters of an instance are about, steps in one commit; repeated, it finds none."""
    await sight.instance(instance_id)
    asked = wish or RequeueLetters()
    done = await sight.engine.replay_dead_letters(
        filter=LetterFilter(instance_id),
        inputs=asked.inputs,
        by=sight.identity.subject,
        reason=asked.reason,
        dry_run=asked.dry_run,
    )
    return Resolution.told(done)


async def _reached(
    sight: Sight, id: UUID, doing: Coroutine[Any, Any, Instance], key: str | None, *wished: str
) -> Instance:
    try:
        return await doing
    except Conflict as refusal:
        if key is None or refusal.code not in _ALREADY:
            raise
        found = await sight.instance(id)
        if found.status not in wished:
            raise
        return found


async def _expected(sight: Sight, id: UUID, request: Request) -> int | None:
    """The version that If-Match asks for, once it is known that the caller may see the instance at all."""
    return expected_version(request, (await sight.instance(id)).version)
