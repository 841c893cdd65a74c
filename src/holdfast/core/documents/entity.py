"""A change of the document: follow it, ask its approvers again, or amend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.core.documents.interrupts import interrupt
from holdfast.core.documents.regions import Stay, stays
from holdfast.core.kernel.builder import NULL, Move, Turn
from holdfast.core.kernel.scopes import cancel_token
from holdfast.core.model.control_rows import EntityFollowed
from holdfast.core.model.signals import EntityChanged
from holdfast.core.model.state import value_of
from holdfast.core.model.status import Phase
from holdfast.errors import Conflict
from holdfast.graph.windows import EDITABLE

ASKED_AGAIN: Final = "asked_again"  # why an approval ends, and the cause of the one in its place


def entity_changed(turn: Turn, signal: EntityChanged) -> None:
    """Follow a change of the document.

    A change counts only for visits that began before it: of two changes, the later one may be known first. A change
    by the instance's own call never amends the document.
    """
    is_own = signal.origin == turn.instance.id
    is_going = turn.stopping is None and turn.rollback is None
    before = [stay for stay in stays(turn.program, turn.tokens) if stay.token.entity_version < signal.version]
    concerned = before if signal.material and is_going else []
    drifted = [] if is_own else [stay for stay in concerned if _drifts(stay)]
    asked = [] if drifted else [stay for stay in concerned if _is_open_question(stay)]
    origin = None if signal.origin is None else signal.origin.hex()
    row = EntityFollowed(
        version=signal.version,
        action=signal.action,
        material=signal.material,
        origin=origin,
        asked=tuple(stay.path for stay in asked),
    )
    follow(turn, row)
    if drifted:
        interrupt(turn, drifted, _amendment(drifted), turn.context)
    for stay in reversed(asked):  # the walk takes the last one first
        _ask_again(turn, stay)


def follow(turn: Turn, row: EntityFollowed) -> None:
    """Raise the version of the document that the instance knows; the rows of this decision carry it."""
    if row.version > turn.instance.entity_version:
        turn.instance = msgspec.structs.replace(turn.instance, entity_version=row.version)
    turn.control(row)
    told = {"version": row.version, "action": row.action, "material": row.material}
    turn.note("entity_changed", detail=told if row.origin is None else {**told, "origin": row.origin})


def _drifts(stay: Stay) -> bool:
    """Check if a material edit by others breaks the work at the node."""
    return stay.area.stable or stay.window != EDITABLE


def _is_open_question(stay: Stay) -> bool:
    return stay.place.traits.asks_person and stay.token.phase is Phase.RESTING


def _ask_again(turn: Turn, stay: Stay) -> None:
    token = stay.token
    cancel_token(turn, stay.path, ASKED_AGAIN)
    turn.moves.append(
        Move(
            path=stay.path,
            hop=token.hop,
            node=token.node,
            raw=value_of(token) or NULL,
            last=token.last,
            cause=ASKED_AGAIN,
            run=token.run + 1,
            fence=token.fence,
        )
    )


def _amendment(drifted: Sequence[Stay]) -> str:
    targets = {stay.area.amendment for stay in drifted}
    target = next(iter(targets))
    if target is None or len(targets) > 1:
        names = ", ".join(sorted({stay.area.id for stay in drifted}))
        raise Conflict(
            f"The document was changed while {names} relied on it, and nothing says how it is amended.",
            code="WORKFLOW_VERSION_DRIFT",
            hint="Take the change back, or withdraw the document by one of its verbs and submit it again.",
        )
    return target
