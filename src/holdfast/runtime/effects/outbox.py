"""The outbox as the engine's facade speaks of it: look, replay, deliver beside the handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.errors import NotFound
from holdfast.runtime.edge import check_text, take_id
from holdfast.runtime.effects.kinds import Kinds
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.effects.worker import EffectsWorker
from holdfast.store import effects
from holdfast.store.effects import Effect
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.runtime.worker import Worker


async def list_effects(session: Session, org: str, instance: str | UUID) -> list[Effect]:
    return await effects.list_effects(session, org, take_id(instance))


async def replay_effect(session: Session, org: str, id: str | UUID, by: str | None, reason: str | None) -> Effect:
    check_text(by, "actor")
    check_text(reason, "reason")
    wanted = take_id(id)
    found = await effects.replay_effects(session, org, [wanted], by, reason)
    if not found:
        raise NotFound(
            f"There is no dead effect {id}.",
            code="EFFECT_NOT_DEAD",
            hint="Only an effect that was given up on can be replayed; check the id and the organisation.",
        )
    [(_, instance)] = found
    listed = await effects.list_effects(session, org, instance)
    return next(effect for effect in listed if effect.id == str(UUID(bytes=wanted)))


def attach(worker: Worker, dsn: str, kinds: Kinds, options: EffectOptions, announce: Callable[[], None]) -> None:
    """Let this worker deliver effects, unless it was told not to; a receipt is announced like any signal."""
    if worker.options.effects:
        worker.effects = EffectsWorker(dsn, kinds.open(options), options, worker.lease, announce)
