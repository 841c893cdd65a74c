"""Who may act on a step, and what their name is put to: the rules every event and every decision passes."""

from __future__ import annotations

from typing import Any, Final, cast

from holdfast.core.failure import LAST_ERROR
from holdfast.core.program import Place
from holdfast.core.signals import SYSTEM
from holdfast.core.tasks import is_approval, is_rejection
from holdfast.core.turn import NULL, Turn, decode, encode
from holdfast.errors import Forbidden, Refused

APPROVED_BY: Final = "approved_by"
REJECTED_BY: Final = "rejected_by"
_ENGINES_OWN: Final = frozenset({APPROVED_BY, REJECTED_BY, LAST_ERROR})


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
    """The step's own guard, then all of its capabilities, then whether it is one's own request."""
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
    """What somebody sent, as it counts in a workflow: under the names of a signature only the engine writes."""
    if not turn.program.is_steps:
        return payload
    signature = _signature(turn, place, event)
    sent = decode(payload or NULL)
    if not isinstance(sent, dict):
        return encode(signature) if signature else payload
    given = cast(dict[str, Any], sent)
    if not signature and not given.keys() & _ENGINES_OWN:
        return payload
    return encode({**_without_own(given), **signature})


def unsigned(turn: Turn, input: bytes) -> bytes:
    """What a workflow is started with: nobody has approved anything of it yet, and nothing has failed."""
    given = decode(input) if turn.program.is_steps else None
    if not isinstance(given, dict) or not cast(dict[str, Any], given).keys() & _ENGINES_OWN:
        return input
    return encode(_without_own(cast(dict[str, Any], given)))


def _without_own(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in _ENGINES_OWN}


def _signature(turn: Turn, place: Place, event: str) -> dict[str, str]:
    if place.node.kind != "approval":
        return {}
    if is_rejection(event):
        return {REJECTED_BY: turn.actor}
    return {APPROVED_BY: turn.actor} if is_approval(event) else {}
