"""The outbox as the engine's facade speaks of it: look, replay, deliver beside the handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.effects.kinds import Kinds
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.effects.worker import EffectsWorker
from holdfast.runtime.validation import Id, check_text, take_id
from holdfast.store import effects
from holdfast.store.effects import Effect, EffectPlace, WantedEffects
from holdfast.store.pg.session import Session
from holdfast.store.reads.steps import check_page

if TYPE_CHECKING:
    from holdfast.runtime.telemetry.incidents import Incidents
    from holdfast.runtime.worker.worker import Worker


class EffectPage(msgspec.Struct, frozen=True):
    """Some effects and where the next page begins; None when this is the last one."""

    items: list[Effect]
    next: str | None


async def effects_of(
    session: Session, org: str, instance: Id, after: EffectPlace | None, limit: int | None
) -> list[Effect]:
    if limit is not None:
        check_page(limit, "effects")
    return await effects.list_effects_of_instance(session, org, take_id(instance), after or effects.FIRST, limit)


async def list_effects(
    session: Session, org: str, status: str | None, wanted: WantedEffects, after: Id | None, limit: int
) -> EffectPage:
    if status is not None and status not in effects.STATUSES:
        raise Refused(
            f"There is no status {status!r} of an effect.",
            code="STATUS_UNKNOWN",
            hint=f"One of {', '.join(effects.STATUSES)}.",
        )
    check_text(wanted.kind, "kind of effects")
    check_text(wanted.flow, "name of the flow")
    if status is not None:
        wanted = msgspec.structs.replace(wanted, statuses=(status,))
    start = None if after is None else take_id(after)
    found, end = await effects.list_effects(session, org, wanted, start, check_page(limit, "effects"))
    return EffectPage(found, None if end is None else str(UUID(bytes=end)))


async def get_effect(session: Session, org: str, id: Id) -> Effect:
    found = await effects.read_effect(session, org, take_id(id))
    if found is None:
        raise unknown_effect(id)
    return found


def unknown_effect(id: Id) -> NotFound:
    return NotFound(f"There is no effect {id}.", code="EFFECT_UNKNOWN", hint="Check the id and the organisation.")


async def replay_effect(session: Session, org: str, id: Id, by: str | None, reason: str | None) -> Effect:
    check_text(by, "actor")
    check_text(reason, "reason")
    if not await effects.replay_effects(session, org, [take_id(id)], by, reason):
        found = await get_effect(session, org, id)  # one that is not there is told so
        raise Conflict(
            f"The effect {id} is {found.status}, not dead.",
            code="EFFECT_NOT_DEAD",
            hint="Only an effect that was given up on can be replayed.",
            status=found.status,
        )
    return await get_effect(session, org, id)


def attach(
    worker: Worker,
    dsn: str,
    kinds: Kinds,
    options: EffectOptions,
    announce: Callable[[], None],
    incidents: Incidents,
) -> None:
    """Let this worker deliver effects, unless its options forbid it; a receipt is announced like any signal."""
    if worker.options.effects:
        worker.effects = EffectsWorker(dsn, kinds.open(options), options, worker.lease, announce, incidents)
