"""The tasks of people: inboxes, hands, decisions."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query, Request, Response

from holdfast.errors import Refused
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.auth.capabilities import covers
from holdfast.server.http.contract import CHANGES, IF_MATCH, VERSIONED, api_router, if_version_matches
from holdfast.server.http.etags import etag, expected_version
from holdfast.server.http.idempotency import IdempotencyKey, signal_id
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, cut, shown_of
from holdfast.server.models.base import Flag, Listed, Name
from holdfast.server.models.tasks import Decide, Handing, TaskEventView, TaskStatus, TaskView

router = api_router("tasks")


@router.get("", operation_id="list_tasks", dependencies=[needs(Scope.READ)])
async def list_tasks(
    sight: CurrentSight,
    mine: Annotated[
        Flag,
        Query(
            description="What is in the caller's hands, what is open for one of their roles, and what is open for"
            " everybody and the caller may act on."
        ),
    ] = False,
    instance: Annotated[UUID | None, Query(description="Of this instance, also what is over.")] = None,
    role: Annotated[Name | None, Query(description="What is open for this role.")] = None,
    assignee: Annotated[Name | None, Query(description="What this person has in hand.")] = None,
    status: Annotated[TaskStatus | None, Query(description="Only in this status.")] = None,
    after: Annotated[UUID | None, Query(description="Instead of a cursor: the last task of the page before.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[TaskView]:
    """Open tasks, most urgent first. Those the caller may not see are left out, so a page may be short."""
    if mine and (instance or role or assignee):
        raise Refused(
            "`mine` says already whose tasks are meant.",
            code="FILTER_INVALID",
            hint="Leave out `mine`, or instance, role and assignee.",
        )
    listing = Listing(
        sight.engine.org, "tasks", mine=mine and (sight.identity.subject, sorted(sight.identity.roles)),
        instance=instance, role=role, assignee=assignee, status=status,
    )  # fmt: skip
    if instance is not None:
        await sight.instance(instance)
    last = listing.start(cursor, after)
    if after is not None:
        await sight.task(after)
    if mine:
        return await _inbox(sight, listing, status, last, limit)
    found = await sight.engine.tasks(instance, role=role, assignee=assignee, status=status, after=last, limit=limit + 1)
    page, final = shown_of(found, limit)
    return Listed(
        items=[TaskView.of(task) for task in await sight.tasks(page)],
        next=listing.cursor(final and final.id),
    )


async def _inbox(sight: Sight, listing: Listing, status: str | None, last: str | None, limit: int) -> Listed[TaskView]:
    """The caller's inbox: their tasks, those of their roles, those they may act on; within their partition."""
    caller = sight.identity
    found = await sight.engine.inbox(
        caller.subject,
        roles=caller.roles,
        capabilities=lambda word: covers(caller.capabilities, word),
        status=status,
        after=last,
        limit=limit,
    )
    items, next = cut(found.items, found.next, lambda task: task.id)
    return Listed(items=[TaskView.of(task) for task in await sight.tasks(items)], next=listing.cursor(next))


@router.get("/{task_id}", operation_id="get_task", dependencies=[needs(Scope.READ)])
async def get_task(task_id: UUID, sight: CurrentSight) -> TaskView:
    """One task, with its form and the data to decide about."""
    return TaskView.of(await sight.task(task_id))


@router.get("/{task_id}/events", operation_id="list_task_events", dependencies=[needs(Scope.READ)])
async def list_task_events(
    task_id: UUID, sight: CurrentSight, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[TaskEventView]:
    """The history of a task: each change with its actor, oldest first."""
    await sight.task(task_id)
    listing = Listing(sight.engine.org, "task events", task=task_id)
    found = await sight.engine.task_events(task_id, after=listing.place(cursor, int), limit=limit + 1)
    shown, final = shown_of(found, limit)
    return Listed(
        items=[TaskEventView.of(event) for event in shown],
        next=listing.cursor_behind(final and final.ordinal),
    )


@router.post("/{task_id}/claim", operation_id="claim_task", responses=CHANGES, dependencies=[needs(Scope.ACT)])
async def claim_task(task_id: UUID, sight: CurrentSight) -> TaskView:
    """Take a task: of any number of people exactly one gets it, who must be one who may decide it."""
    task, caller = await sight.task(task_id), sight.identity
    words = await sight.acting_on(await sight.engine.get(task.instance_id))
    return TaskView.of(await sight.engine.claim(task_id, by=caller.subject, roles=caller.roles, capabilities=words))


@router.post("/{task_id}/release", operation_id="release_task", responses=CHANGES, dependencies=[needs(Scope.ACT)])
async def release_task(task_id: UUID, sight: CurrentSight) -> TaskView:
    """Give a task back, for others to claim."""
    await sight.task(task_id)
    return TaskView.of(await sight.engine.release(task_id, by=sight.identity.subject))


@router.post("/{task_id}/assign", operation_id="assign_task", responses=CHANGES, dependencies=[needs(Scope.OPERATE)])
async def assign_task(task_id: UUID, wish: Handing, sight: CurrentSight) -> TaskView:
    """Assign a task to a person, even if another one has it."""
    await sight.task(task_id)
    return TaskView.of(await sight.engine.assign(task_id, to=wish.to, by=sight.identity.subject, reason=wish.reason))


@router.post("/{task_id}/delegate", operation_id="delegate_task", responses=CHANGES, dependencies=[needs(Scope.ACT)])
async def delegate_task(task_id: UUID, wish: Handing, sight: CurrentSight) -> TaskView:
    """Pass on a task that is in one's own hands."""
    await sight.task(task_id)
    return TaskView.of(await sight.engine.delegate(task_id, to=wish.to, by=sight.identity.subject, reason=wish.reason))


@router.post(
    "/{task_id}/decide",
    operation_id="decide_task",
    response_model=TaskView,
    responses=VERSIONED,
    dependencies=[needs(Scope.ACT), IF_MATCH],
)
async def decide_task(
    task_id: UUID, wish: Decide, request: Request, response: Response, sight: CurrentSight, key: IdempotencyKey
) -> TaskView:
    """Decide a task; answered when the decision is committed. If-Match names the version of its instance."""
    task = await sight.task(task_id)
    instance = await sight.engine.get(task.instance_id)
    expected = expected_version(request, instance.version)
    with if_version_matches(expected):
        decided = await sight.engine.decide(
            task_id,
            by=sight.identity.subject,
            decision=wish.decision,
            comment=wish.comment,
            data=wish.data,
            roles=sight.identity.roles,
            capabilities=await sight.acting_on(instance),
            id=signal_id(sight.identity, task_id, key, "decide"),
            if_version=expected,
        )
    response.headers["ETag"] = etag((await sight.engine.get(task.instance_id)).version)
    return TaskView.of(decided)
