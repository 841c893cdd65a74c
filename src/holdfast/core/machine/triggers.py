"""Triggers: an event for a machine. One that cannot be applied is answered with the reason, and changes nothing."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from holdfast.core.kernel.builder import NULL, Move, Turn, encode, without_own
from holdfast.core.kernel.routing import Records, choose, closing
from holdfast.core.kernel.walk import walk
from holdfast.core.machine.gates import is_blocked
from holdfast.core.model.arrival import Arrival
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place, Program, Way
from holdfast.core.model.signals import Triggered
from holdfast.core.model.state import ROOT, Instance, Token
from holdfast.core.model.status import RUNNING, STEP_COMPLETED, TERMINAL, Phase
from holdfast.core.model.timestamps import to_iso
from holdfast.core.people.permissions import check_actor, refuse_way
from holdfast.errors import Refused

NOT_APPLICABLE: Final = "not_applicable"  # the state does not take the event
CONDITION: Final = "condition"  # it takes it, but no condition on the way holds
TERMINAL_REASON: Final = "terminal"
NOT_ACTIVE: Final = "not_active"  # suspended, or being cancelled
BLOCKED: Final = "blocked"  # a gate is open
OVERTAKEN: Final = "overtaken"  # the instance is at another entry than the sender expected
REASONS: Final = (NOT_APPLICABLE, CONDITION, TERMINAL_REASON, NOT_ACTIVE, BLOCKED, OVERTAKEN)


class Answer(msgspec.Struct, frozen=True):
    """The answer to a trigger, as it is stored with its receipt."""

    applied: bool
    reason: str | None
    from_state: str | None
    to_state: str | None
    event: str
    lifecycle: int  # the number of the entry the instance is at now
    instance: str


class NotApplied(Exception):
    """Answer: the trigger changes nothing, for the reason given."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer.decode())
        self.answer = answer


def event_of(program: Program, wanted: str | int) -> str:
    """Find an event by its name or code; a code may come as text. One that no transition takes is known, too."""
    machine = program.machine
    codes = {} if machine is None else machine.codes
    events = program.events | codes.keys()
    if wanted in events:
        return str(wanted)
    text = str(wanted)
    found = next((name for name, code in codes.items() if str(code) == text), None)
    if found is not None:
        return found
    known = ", ".join(f"{name} ({codes[name]})" if name in codes else name for name in sorted(events))
    raise Refused(
        f"The machine {program.name!r} has no event {wanted!r}.",
        code="EVENT_UNKNOWN",
        hint=f"Its events: {known}.",
    )


def triggered(turn: Turn, signal: Triggered) -> None:
    event = event_of(turn.program, signal.event)
    is_new = not turn.instance.version
    reason, way, records = _judge(turn, signal, event)
    if way is None:
        answer = _answer(turn, event, reason, _standing(turn))
        if not is_new:
            raise NotApplied(answer)
        turn.answer = answer
        return
    came_from = turn.tokens[ROOT].node
    occurred_at = turn.now if signal.occurred_at is None else signal.occurred_at
    arrival = Arrival(event, came_from, occurred_at, signal.needs_ack)
    shift(turn, ROOT, arrival, signal.raw, way, records)
    turn.answer = _answer(turn, event, None, came_from, way.target)


def _judge(turn: Turn, signal: Triggered, event: str) -> tuple[str | None, Way | None, Records | None]:
    """The way the event takes, or the reason why it takes none."""
    token = turn.tokens.get(ROOT)
    if turn.status in TERMINAL:
        return TERMINAL_REASON, None, None
    if turn.status is not RUNNING or turn.stopping is not None or token is None or token.phase is not Phase.RESTING:
        return NOT_ACTIVE, None, None
    if signal.expected is not None and signal.expected != token.hop:
        return OVERTAKEN, None, None
    place = turn.program.places[token.node]
    if event not in place.ways:
        return NOT_APPLICABLE, None, None
    if is_blocked(token):
        return BLOCKED, None, None
    way, records, guarded = choose(turn, place, event, _sent(turn, signal.raw))
    if way is None and guarded:
        refuse_way(place, event, guarded)
    check_actor(turn, place)
    return (CONDITION if way is None else None), way, records


def _sent(turn: Turn, raw: bytes | None) -> bytes:
    return NULL if raw is None else without_own(turn.program.own, raw)


def shift(turn: Turn, path: str, arrival: Arrival, raw: bytes | None, way: Way, records: Records | None) -> None:
    """Close the present stay and enter the next state, with all that its entry brings."""
    token = turn.tokens.pop(path)
    place = turn.program.places[token.node]
    turn.chain = 0
    sent = _sent(turn, raw)
    turn.take_signed(sent)
    _record(turn, path, token, place, arrival, sent, way, records)
    turn.end_waits(path, token)
    turn.arrival = None if arrival.is_past else arrival
    turn.moves.append(Move(path, token.hop + 1, way.target, sent, 0, place.id, "event", fence=token.fence))
    walk(turn)
    turn.arrival = None


def _record(
    turn: Turn, path: str, token: Token, place: Place, arrival: Arrival, sent: bytes, way: Way,
    records: Records | None,
) -> None:  # fmt: skip
    told = {"event": arrival.event} | ({"timeout": True} if arrival.by_timeout else {})
    turn.note("event_received", place.id, token_id(path, token.hop), told)
    facts = {} if arrival.occurred_at == turn.now else {"occurred_at": to_iso(arrival.occurred_at)}
    if arrival.by is not None:
        facts["by"] = arrival.by
    turn.close(token, STEP_COMPLETED, arrival.event, chosen=way.chosen, output=sent, closing=closing(records, **facts))


def tell_answer(turn: Turn, event: str, came_from: str) -> bytes:
    """Answer events that have led the token to its present state."""
    target = _standing(turn) or max(turn.opened, key=lambda step: step.hop).node
    return _answer(turn, event, None, came_from, target)


def _standing(turn: Turn) -> str | None:
    token = turn.tokens.get(ROOT)
    return None if token is None else token.node


def _answer(turn: Turn, event: str, reason: str | None, came_from: str | None, target: str | None = None) -> bytes:
    return encode(Answer(reason is None, reason, came_from, target, event, entry_number(turn), _id(turn.instance)))


def entry_number(turn: Turn) -> int:
    """The number of the entry the token rests in; at an end, that of the end."""
    token = turn.tokens.get(ROOT)
    if token is not None:
        return token.hop
    return max((step.hop for step in turn.opened if step.path == ROOT), default=-1)


def _id(instance: Instance) -> str:
    return str(UUID(bytes=instance.id))
