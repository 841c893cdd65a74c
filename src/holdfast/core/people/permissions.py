"""Permission to act on a step, and the actor's signature: the rules that every event and every decision passes."""

from __future__ import annotations

from typing import Any, cast

from holdfast.core.kernel.builder import NULL, Turn, decode, encode_data, without_own
from holdfast.core.model.program import APPROVED_BY, REJECTED_BY, Place
from holdfast.core.model.signals import SYSTEM
from holdfast.core.people.tasks import is_approval, is_rejection
from holdfast.errors import Forbidden, Refused


def refuse_way(place: Place, event: str, guarded: bool) -> None:
    if guarded:
        raise Forbidden(
            f"{event!r} on {place.id!r} needs a capability the actor lacks.",
            code="GUARD_REFUSED",
            hint="Act as somebody who has it, or grant it.",
        )
    raise Refused(
        f"No edge of {place.id!r} takes {event!r} with this data.",
        code="NO_EDGE_MATCHED",
        hint="Look at the conditions on its edges.",
    )


def check_actor(turn: Turn, place: Place) -> None:
    """Check the step's guard, then all of its capabilities, then that the actor does not approve their own request."""
    _require(turn, place, () if place.node.guard is None else (place.node.guard,))
    _require(turn, place, place.node.capabilities)
    _refuse_starter(turn, place)


def _require(turn: Turn, place: Place, needed: tuple[str, ...]) -> None:
    missing = [capability for capability in needed if capability not in turn.facts.actor.capabilities]
    if not missing:
        return
    noun = "capability" if len(missing) == 1 else "capabilities"
    raise Forbidden(
        f"Acting on {place.id!r} needs the {noun} {', '.join(map(repr, missing))}.",
        code="CAPABILITY_MISSING",
        hint="Act as somebody who has it, or grant it.",
        missing=missing,
    )


def _refuse_starter(turn: Turn, place: Place) -> None:
    starter = turn.instance.starter
    if place.node.self_approval or starter is None or starter == SYSTEM.id or turn.actor != starter:
        return
    raise Forbidden(
        f"{starter!r} started the instance and may not decide on {place.id!r}.",
        code="SELF_APPROVAL",
        hint="Have somebody else decide, or allow it with `self_approval`.",
    )


def signed(turn: Turn, place: Place, event: str, payload: bytes | None) -> bytes | None:
    """The payload as it counts: without the engine's own names; in a workflow, with the engine's signature."""
    if payload is not None:
        payload = without_own(turn.program.own, payload)
    signature = _signature(turn, place, event)
    if not signature:
        return payload
    sent = decode(payload or NULL)
    return encode_data({**cast(dict[str, Any], sent), **signature} if isinstance(sent, dict) else signature)


def _signature(turn: Turn, place: Place, event: str) -> dict[str, str]:
    if not place.traits.signs or not turn.program.rules.signs_approvals:
        return {}
    if is_rejection(event):
        return {REJECTED_BY: turn.actor}
    return {APPROVED_BY: turn.actor} if is_approval(event) else {}
