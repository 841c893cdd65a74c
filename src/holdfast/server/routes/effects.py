"""Effects that were given up on."""

from __future__ import annotations

from uuid import UUID

from holdfast.server.contract import CHANGES, api_router
from holdfast.server.models.effects import EffectView
from holdfast.server.models.instances import Why
from holdfast.server.scopes import Scope, needs
from holdfast.server.sight import CurrentSight

router = api_router("effects")


@router.post(
    "/{effect_id}/replay", operation_id="replay_effect", responses=CHANGES, dependencies=[needs(Scope.OPERATE)]
)
async def replay_effect(effect_id: UUID, sight: CurrentSight, wish: Why | None = None) -> EffectView:
    """Let a dead effect be delivered again, under the same key and with as many attempts as it had at first."""
    replayed = await sight.engine.replay_effect(
        effect_id, by=sight.identity.subject, reason=None if wish is None else wish.reason
    )
    return EffectView.of(replayed)
