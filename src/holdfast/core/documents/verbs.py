"""A person's verb on a document: the edge it takes, or the region it interrupts."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.documents.entity import follow
from holdfast.core.documents.interrupts import interrupt
from holdfast.core.documents.regions import Stay, rests_at_verb, stays
from holdfast.core.documents.stance import verbs_offered
from holdfast.core.kernel.builder import Turn, without_own
from holdfast.core.kernel.routing import Records, choose_only
from holdfast.core.model.control_rows import EntityFollowed
from holdfast.core.model.signals import EventArrived, VerbCalled
from holdfast.core.people.permissions import refuse_way
from holdfast.core.signals.events import refuse_standstill, take_event
from holdfast.errors import Conflict, Refused


def verb_called(turn: Turn, signal: VerbCalled) -> None:
    refuse_standstill(turn)
    found = [stay for stay in stays(turn.program, turn.tokens) if signal.verb in stay.area.verbs]
    if not found:
        raise _not_offered(turn, signal.verb)
    follow(turn, EntityFollowed(version=signal.version, action=signal.verb))
    turn.note("verb_called", detail={"verb": signal.verb, "comment": signal.comment})
    resting = [stay for stay in found if rests_at_verb(stay, signal.verb)]
    if len(resting) == 1:
        take_event(turn, resting[0].path, EventArrived(signal.id, signal.verb, signal.raw, comment=signal.comment))
    else:
        _interrupt(turn, found, signal)


def _interrupt(turn: Turn, found: Sequence[Stay], signal: VerbCalled) -> None:
    target = _target_of(found, signal.verb)
    payload = None if signal.raw is None else without_own(turn.program.own, signal.raw)
    raw = turn.context if payload is None else payload
    records: Records = []
    for stay in {stay.area.id: stay for stay in found}.values():
        way, evaluated, guarded = choose_only(turn, stay.place, stay.area.verbs[signal.verb], raw)
        if way is None:
            refuse_way(stay.place, signal.verb, guarded)
        records += evaluated or ()
    if payload is not None:
        turn.take_signed(payload)
    interrupt(turn, found, target, raw, verb=signal.verb, merged=payload is not None, records=records or None)


def _target_of(found: Sequence[Stay], verb: str) -> str:
    targets = sorted({stay.area.verbs[verb].target for stay in found})
    if len(targets) > 1:
        raise Conflict(
            f"{verb!r} leads to {' and to '.join(map(repr, targets))}, because tokens are in several regions.",
            code="VERB_AMBIGUOUS",
            hint="Call it when the branches have met, or another verb.",
        )
    return targets[0]


def _not_offered(turn: Turn, verb: str) -> Refused:
    offered = verbs_offered(turn.program, turn.tokens)
    return Refused(
        f"The verb {verb!r} is not offered now.",
        code="VERB_NOT_OFFERED",
        hint=f"Offered: {', '.join(offered)}." if offered else "Nothing is offered; look where the instance is.",
        offered=list(offered),
    )
