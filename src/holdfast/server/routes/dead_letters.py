"""Dead letters: list, requeue, discard. They hold payloads of all kinds, so they are for operators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import HTTPException, Query

from holdfast.errors import Conflict
from holdfast.runtime.ops.dead_letters import LetterFilter
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import CHANGES, api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, cut
from holdfast.server.models.base import Listed, Moment, Name
from holdfast.server.models.consumers import EnvironmentName
from holdfast.server.models.dead_letters import DeadLetterView, Requeue, RequeueMany, Resolution
from holdfast.server.models.instances import Why
from holdfast.store.dead_letters import DeadLetter

router = api_router("dead-letters")


@router.get("", operation_id="list_dead_letters", dependencies=[needs(Scope.OPERATE)])
async def list_dead_letters(
    engine: TenantEngine,
    instance: Annotated[UUID | None, Query(description="Only of this instance.")] = None,
    with_reason: Annotated[Name | None, Query(description="Only with this reason.")] = None,
    source: Annotated[Name | None, Query(description="Only of this source: signal, work, effect, ack …")] = None,
    flow: Annotated[Name | None, Query(description="Only of instances of this flow.")] = None,
    step: Annotated[Name | None, Query(description="Only about this step.")] = None,
    error: Annotated[Name | None, Query(description="Only with this code of an error.")] = None,
    since: Annotated[Moment | None, Query(description="Only what was given up on then or later.")] = None,
    consumer: Annotated[Name | None, Query(description="Only failed deliveries to this consumer.")] = None,
    environment: Annotated[
        EnvironmentName | None, Query(description="Only failed deliveries to consumers of this environment.")
    ] = None,
    after: Annotated[UUID | None, Query(description="Instead of a cursor: the last letter of the page before.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[DeadLetterView]:
    """Open dead letters, newest first. A filtered page may be short although there are more: only `next` tells."""
    asked: dict[str, Any] = {
        "with_reason": with_reason, "source": source, "flow": flow, "step": step, "error": error, "since": since,
        "consumer": consumer, "environment": environment,
    }  # fmt: skip
    listing = Listing(engine.org, "dead letters", instance=instance, **asked)
    filter = LetterFilter(instance_id=instance, **asked)
    page = await engine.find_dead_letters(filter, after=listing.start(cursor, after), limit=limit)
    items, next = cut(page.items, page.next, lambda letter: letter.id)
    return Listed(items=[DeadLetterView.of(letter) for letter in items], next=listing.cursor(next))


@router.get("/requeue", include_in_schema=False, dependencies=[needs(Scope.OPERATE)])
async def read_no_requeue() -> None:
    """Answer 405: otherwise `requeue` would be taken for the id of a letter."""
    raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)


@router.get("/{letter_id}", operation_id="get_dead_letter", dependencies=[needs(Scope.OPERATE)])
async def get_dead_letter(letter_id: UUID, engine: TenantEngine) -> DeadLetterView:
    """One dead letter, open or resolved."""
    return DeadLetterView.of(await engine.dead_letter(letter_id))


@router.post("/requeue", operation_id="requeue_dead_letters", responses=CHANGES, dependencies=[needs(Scope.OPERATE)])
async def requeue_dead_letters(wish: RequeueMany, engine: TenantEngine, identity: CurrentIdentity) -> Resolution:
    """Put back what several dead letters are about, steps also with other inputs. All steps of one instance run again
    in one commit, except those that nothing can be done about; the answer says why."""
    done = await engine.replay_dead_letters(
        wish.ids, inputs=wish.inputs, by=identity.subject, reason=wish.reason, dry_run=wish.dry_run
    )
    return Resolution.told(done)


@router.post(
    "/{letter_id}/requeue", operation_id="requeue_dead_letter", responses=CHANGES, dependencies=[needs(Scope.OPERATE)]
)
async def requeue_dead_letter(
    letter_id: UUID, engine: TenantEngine, identity: CurrentIdentity, wish: Requeue | None = None
) -> DeadLetterView:
    """Put back what a dead letter is about, a step also with another input; answers the letter as it is then."""
    asked = wish or Requeue()
    return DeadLetterView.of(await engine.requeue(letter_id, asked.input, by=identity.subject, reason=asked.reason))


@router.post(
    "/{letter_id}/discard", operation_id="discard_dead_letter", responses=CHANGES, dependencies=[needs(Scope.OPERATE)]
)
async def discard_dead_letter(
    letter_id: UUID, engine: TenantEngine, identity: CurrentIdentity, wish: Why | None = None
) -> DeadLetterView:
    """Let go of a dead letter for good; repeated, it stays let go."""
    reason = None if wish is None else wish.reason
    done = await engine.discard_dead_letters([letter_id], by=identity.subject, reason=reason)
    letter = await engine.dead_letter(letter_id)
    if not done.ids and letter.resolution != "discarded":
        raise _not_discarded(letter)
    return DeadLetterView.of(letter)


def _not_discarded(letter: DeadLetter) -> Conflict:
    if letter.resolved_at is None:
        return Conflict(
            "The step this dead letter is about still waits in an instance that is not over.",
            code="DEAD_LETTER_NEEDED",
            hint="Requeue it, or cancel or abort the instance first.",
        )
    return Conflict(
        f"The dead letter was {letter.resolution} by {letter.resolved_by}.",
        code="DEAD_LETTER_RESOLVED",
        hint="What failed again has a new dead letter.",
    )
