"""Dead letters: look at them, put them back, let them go. They hold whatever was sent, so they are for operators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import HTTPException, Query

from holdfast.errors import Conflict
from holdfast.server.contract import CHANGES, api_router
from holdfast.server.identity import CurrentIdentity
from holdfast.server.models.base import Listed, Name
from holdfast.server.models.dead_letters import DeadLetterView, Requeue, RequeueMany, Resolution
from holdfast.server.models.instances import Why
from holdfast.server.pages import USUAL_ITEMS, Cursor, Limit, Listing
from holdfast.server.scopes import Scope, needs
from holdfast.server.tenants import TenantEngine
from holdfast.store.dead_letters import DeadLetter

router = api_router("dead-letters")


@router.get("", operation_id="list_dead_letters", dependencies=[needs(Scope.OPERATE)])
async def list_dead_letters(
    engine: TenantEngine,
    instance: Annotated[UUID | None, Query(description="Only of this instance.")] = None,
    reason: Annotated[Name | None, Query(description="Only with this reason.")] = None,
    source: Annotated[Name | None, Query(description="Only of this source: signal, work, effect …")] = None,
    after: Annotated[UUID | None, Query(description="Instead of a cursor: the last letter of the page before.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[DeadLetterView]:
    """Open dead letters, newest first."""
    listing = Listing(engine.org, "dead letters", instance=instance, reason=reason, source=source)
    found = await engine.dead_letters(
        instance, reason=reason, source=source, after=listing.start(cursor, after), limit=limit + 1
    )
    shown = found[:limit]
    return Listed(
        items=[DeadLetterView.of(letter) for letter in shown],
        next=listing.cursor(shown[-1].id if len(found) > limit else None),
    )


@router.get("/requeue", include_in_schema=False, dependencies=[needs(Scope.OPERATE)])
async def read_no_requeue() -> None:
    """Else it would be taken for the letter of that name."""
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
