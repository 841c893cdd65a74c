"""Effects of all instances: pending, dead and delivered."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query

from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import CHANGES, api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, cut
from holdfast.server.models.base import Listed, Name
from holdfast.server.models.effects import EffectStatus, EffectView
from holdfast.server.models.instances import Why
from holdfast.store.effects import Effect

router = api_router("effects")


@router.get("", operation_id="list_effects", dependencies=[needs(Scope.READ)])
async def list_effects(
    sight: CurrentSight,
    status: Annotated[
        EffectStatus | None, Query(description="Only in this status; without it, whatever was not delivered.")
    ] = None,
    kind: Annotated[Name | None, Query(description="Only of this kind: webhook, email …")] = None,
    flow: Annotated[Name | None, Query(description="Only of instances of this flow.")] = None,
    after: Annotated[UUID | None, Query(description="Instead of a cursor: the last effect of the page before.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[EffectView]:
    """Effects, newest first. Those of instances the caller may not see are left out, so a page may be short."""
    listing = Listing(sight.engine.org, "effects", status=status, kind=kind, flow=flow)
    page = await sight.engine.list_effects(
        status=status, kind=kind, flow=flow, after=listing.start(cursor, after), limit=limit
    )
    items, next = cut(page.items, page.next, lambda effect: effect.id)
    seen = await sight.effects(items)
    return Listed(items=[_view(sight, effect) for effect in seen], next=listing.cursor(next))


@router.get("/{effect_id}", operation_id="get_effect", dependencies=[needs(Scope.READ)])
async def get_effect(effect_id: UUID, sight: CurrentSight) -> EffectView:
    """One effect, with the evidence of its last attempt."""
    return _view(sight, await sight.effect(effect_id))


@router.post(
    "/{effect_id}/replay", operation_id="replay_effect", responses=CHANGES, dependencies=[needs(Scope.OPERATE)]
)
async def replay_effect(effect_id: UUID, sight: CurrentSight, wish: Why | None = None) -> EffectView:
    """Let a dead effect be delivered again, under the same key and with as many attempts as it had at first."""
    replayed = await sight.engine.replay_effect(
        effect_id, by=sight.identity.subject, reason=None if wish is None else wish.reason
    )
    return EffectView.of(replayed)


def _view(sight: Sight, effect: Effect) -> EffectView:
    return EffectView.of(sight.told(effect, "error"))
