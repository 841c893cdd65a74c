"""A person's decision on a task: the edge it takes, and the cases in which it is refused."""

from __future__ import annotations

from typing import Final

from holdfast.core.kernel.builder import NOTHING_CHOSEN, NULL, Move, Turn
from holdfast.core.kernel.failure import end_instance
from holdfast.core.kernel.routing import choose, closing
from holdfast.core.kernel.scopes import cancel_children
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Decided
from holdfast.core.model.state import Token, value_of
from holdfast.core.model.status import InstanceStatus
from holdfast.core.people.ownership import check_decider
from holdfast.core.people.permissions import check_actor, refuse_way, signed
from holdfast.core.people.tasks import answer_status, is_confirmation, is_rejection
from holdfast.core.signals.events import refuse_standstill
from holdfast.errors import Conflict, Refused

REJECTED: Final = "REJECTED"  # why an instance ended whose graph does not say where a rejection leads
_NO_DECISIONS: Final = frozenset({"error", "timeout"})


def decided(turn: Turn, signal: Decided) -> None:
    refuse_standstill(turn)
    path, token = _asked(turn, signal.task)
    place = turn.program.places[token.node]
    check_decider(turn.facts.task, turn.actor, signal.roles)
    on = edge_for(place, signal.decision)
    value, payload = value_of(token) or NULL, signed(turn, place, signal.decision, signal.raw)
    seen = (payload or NULL) if turn.program.merges else value
    way, records, guarded = choose(turn, place, on, seen) if on is not None else (None, None, False)
    if way is None and on is not None:
        refuse_way(place, signal.decision, guarded)
    check_actor(turn, place)
    turn.chain = 0
    if payload is not None:
        turn.take_signed(payload)
    del turn.tokens[path]
    turn.note(
        "decision_made",
        place.id,
        token_id(path, token.hop),
        {"task": signal.task.hex(), "decision": signal.decision, "comment": signal.comment},
    )
    turn.close(
        token,
        answer_status(signal.decision),
        signal.decision,
        chosen=way.chosen if way is not None else NOTHING_CHOSEN,
        output=payload,
        closing=closing(records, decision=signal.decision, comment=signal.comment),
    )
    turn.end_waits(path, token)
    cancel_children(turn, token, signal.decision)
    if way is None:
        end_instance(turn, InstanceStatus.ABORTED, REJECTED)
        return
    raw = value if payload is None else payload
    turn.moves.append(Move(path, token.hop + 1, way.target, raw, 0, place.id, "decision", fence=token.fence))


def _asked(turn: Turn, task: bytes) -> tuple[str, Token]:
    for path, token in turn.tokens.items():
        if any(wait.kind == "task" and wait.ref == task for wait in token.waits):
            return path, token
    raise Conflict(
        "The task is over: it was decided, it ran out of time, or its step was left behind.",
        code="TASK_OVER",
        hint="Read the task to see how it ended.",
    )


def edge_for(place: Place, decision: str) -> str | None:
    """The event whose edge a decision takes. A rejection without an edge of its own ends the instance (None): it never
    takes the edge of a success."""
    if decision in place.ways and decision not in _NO_DECISIONS:
        return decision
    if is_rejection(decision):
        return None
    if not is_confirmation(decision) or "completed" not in place.ways:
        offered = sorted(place.ways.keys() - _NO_DECISIONS)
        if offered in ([], ["completed"]):
            offered += ["confirmed", "rejected"]
        raise Refused(
            f"{decision!r} is not among the decisions on {place.id!r}.",
            code="DECISION_NOT_OFFERED",
            hint=f"Decide one of: {', '.join(offered)}.",
        )
    return "completed"
