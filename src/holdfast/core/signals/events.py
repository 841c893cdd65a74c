"""Signals from outside the graph: events for a wait, the end of a sub-flow, the receipt of an effect."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from holdfast.core.documents.gates import is_owned
from holdfast.core.kernel.builder import NULL, Move, Turn
from holdfast.core.kernel.failure import fail_visit
from holdfast.core.kernel.leave import leave, leave_with_output, shrug_off
from holdfast.core.kernel.routing import choose, closing
from holdfast.core.kernel.scopes import WORKFLOW_STOPPED, cancel_children
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place, Program
from holdfast.core.model.signals import ChildFinished, EventArrived, Failure, ReceiptArrived
from holdfast.core.model.state import Token, value_of
from holdfast.core.model.status import InstanceStatus, Phase, StepStatus
from holdfast.core.people.permissions import check_actor, refuse_way, signed
from holdfast.core.people.tasks import answer_status
from holdfast.core.rollback.rollback import AFTER_STOP
from holdfast.core.signals import timeout_dlq
from holdfast.core.signals.early import ENGINE_EVENTS, find_takers, is_for_now, is_known, keep, not_expected
from holdfast.errors import Conflict, Refused

COMPLETED: Final = "completed"


def event_arrived(turn: Turn, signal: EventArrived) -> None:
    if turn.status is InstanceStatus.SUSPENDED:
        _keep_suspended(turn, signal)
        return
    refuse_standstill(turn)
    _refuse_machine(turn)
    matches = [path for path, token in turn.tokens.items() if _expects(turn, path, token, signal)]
    if turn.program.rules.keeps_gates:
        matches = _leave_owned(turn, matches, signal)
    if signal.event in ENGINE_EVENTS and not matches:
        raise Refused(
            f"{signal.event!r} is the engine's own event.", code="EVENT_RESERVED", hint="Use a name of yours."
        )
    if not matches:
        keep(turn, signal)
        return
    if len(matches) > 1:
        names = ", ".join(sorted(f"{turn.tokens[p].node} ({token_id(p, turn.tokens[p].hop)})" for p in matches))
        raise Conflict(
            f"Several steps wait for {signal.event!r}: {names}.",
            code="EVENT_AMBIGUOUS",
            hint="Name the step or the token it is meant for.",
        )
    take_event(turn, matches[0], signal)


def _leave_owned(turn: Turn, matches: list[str], signal: EventArrived) -> list[str]:
    """Leave out the steps of a document that events may not end; refuse an event that means no other."""
    places = {path: turn.program.places[turn.tokens[path].node] for path in matches}
    free = [path for path in matches if not is_owned(turn.program, places[path])]
    if free or not matches:
        return free
    place, token = places[matches[0]], turn.tokens[matches[0]]
    if place.traits.asks_person:
        raise decision_needed(place.id, signal.event, next((w.ref for w in token.waits if w.kind == "task"), None))
    raise Conflict(
        f"{signal.event!r} is a verb of the document, not an event.",
        code="VERB_NEEDED",
        hint="Call the verb on the document: it checks who may, and changes the document and its instance at once.",
    )


def _refuse_machine(turn: Turn) -> None:
    if turn.program.machine is not None:
        raise Refused(
            f"{turn.program.name!r} is a machine: its consumers must be told of every event.",
            code="TRIGGER_NEEDED",
            hint="Use engine.trigger, `holdfast trigger`, or holdfast.trigger in SQL.",
        )


def refuse_standstill(turn: Turn) -> None:
    if turn.status is InstanceStatus.SUSPENDED:
        raise Conflict("The instance is suspended.", code="INSTANCE_SUSPENDED", hint="Resume it first.")
    if turn.stopping is not None:
        raise Conflict("The instance is being cancelled.", code="INSTANCE_STOPPING", hint="Start a new one if need be.")
    if turn.rollback is not None:
        raise Conflict(
            "The instance is taking back what it did.",
            code="INSTANCE_ROLLING_BACK",
            hint="Nothing goes forward in it any more; start a new one if need be.",
        )


def _expects(turn: Turn, path: str, token: Token, signal: EventArrived) -> bool:
    if token.phase is not Phase.RESTING:
        return False
    if signal.node is not None and signal.node != token.node:
        return False
    if signal.token is not None and signal.token not in (token_id(path, token.hop), *(w.id for w in token.waits)):
        return False
    place = turn.program.places[token.node]
    if signal.event in ENGINE_EVENTS:  # a person may send one of them: `completed`
        return signal.event == COMPLETED and COMPLETED in place.ways and place.traits.asks_person
    if signal.event in place.ways:
        return True
    return any(w.event == signal.event for w in token.waits)


def _keep_suspended(turn: Turn, signal: EventArrived) -> None:
    """Keep the event until the resume asks for it. An event that cannot be kept is refused and must be sent again."""
    if not is_known(turn.program, signal.event):
        raise not_expected(signal.event)
    goes_back = turn.rollback is not None or turn.stopping is not None
    if goes_back or is_for_now(signal) or not find_takers(turn, signal):
        refuse_standstill(turn)
    keep(turn, signal)


def take_event(turn: Turn, path: str, signal: EventArrived) -> None:
    token = turn.tokens[path]
    place = turn.program.places[token.node]
    if signal.only_waits:
        _refuse_task(token, place, signal.event)
    value, payload = value_of(token) or NULL, signed(turn, place, signal.event, signal.raw)
    seen = (payload or NULL) if turn.program.merges else value
    on = signal.event if signal.event in place.ways else "completed"
    way, records, guarded = choose(turn, place, on, seen)
    if way is None:
        refuse_way(place, signal.event, guarded)
        return
    check_actor(turn, place)
    turn.chain = 0
    if payload is not None:
        turn.take_signed(payload)
    del turn.tokens[path]
    turn.note("event_received", place.id, token_id(path, token.hop), _told(signal))
    facts = _facts(signal)
    if signal.kept and turn.early:
        turn.early -= 1
        facts["kept"] = signal.id.hex()
    record = closing(records, **facts)
    turn.close(
        token, _answer_status(place, signal.event), signal.event, chosen=way.chosen, output=payload, closing=record
    )
    turn.end_waits(path, token)
    cancel_children(turn, token, signal.event)
    raw = value if payload is None else payload
    turn.moves.append(Move(path, token.hop + 1, way.target, raw, 0, place.id, "event", fence=token.fence))


def _refuse_task(token: Token, place: Place, event: str) -> None:
    """Refuse an event for a task: holder, roles and form are checked only where the task is decided."""
    task = next((wait.ref for wait in token.waits if wait.kind == "task"), None)
    if task is not None:
        raise decision_needed(place.id, event, task)


def deciding_node(program: Program, event: str, node: str | None) -> str | None:
    """The first step, or the named one, at which a person decides and that has an edge for the event."""
    for id, place in sorted(program.places.items()):
        if node in (None, id) and place.traits.asks_person and event in place.ways:
            return id
    return None


def decision_needed(node: str, event: str, task: bytes | None = None) -> Conflict:
    named = {} if task is None else {"task": str(UUID(bytes=task))}
    return Conflict(
        f"{event!r} is for a person to decide on {node!r}.",
        code="DECISION_NEEDED",
        hint="Decide the task, or advance the workflow.",
        **named,
    )


def _told(signal: EventArrived) -> dict[str, Any]:
    detail = {"event": signal.event, "id": signal.id.hex()}
    return detail if signal.comment is None else {**detail, "comment": signal.comment}


def _facts(signal: EventArrived) -> dict[str, Any]:
    """The facts that the event's name alone does not tell: a person's `completed`, and their comment."""
    facts: dict[str, Any] = {"decision": signal.event} if signal.event == COMPLETED else {}
    return facts if signal.comment is None else {**facts, "comment": signal.comment}


def _answer_status(place: Place, event: str) -> StepStatus:
    if not place.traits.asks_person:
        return StepStatus.COMPLETED
    return answer_status(event)


def _waiting_for(turn: Turn, name: str, kind: str, ref: bytes | None) -> tuple[str, Token, Place]:
    path = name.rpartition("@")[0]
    token = turn.tokens.get(path)
    if (
        token is None
        or token_id(path, token.hop) != name
        or all(w.kind != kind or (ref is not None and w.ref != ref) for w in token.waits)
    ):
        raise Refused("The answer belongs to a wait that is already over.", code="STALE_ANSWER")
    return path, token, turn.program.places[token.node]


def child_finished(turn: Turn, signal: ChildFinished) -> None:
    path, token, place = _waiting_for(turn, signal.token, "child", signal.child)
    if token.phase is Phase.CANCELLING:
        _close_stopped(turn, path, token, signal)
        return
    if token.phase is Phase.EXPIRING and signal.status == InstanceStatus.CANCELLED:
        timeout_dlq.give_up(turn, path, token, place)
        return
    if token.phase is Phase.EXPIRING:
        timeout_dlq.come_back(turn, token)
    if signal.status == InstanceStatus.COMPLETED:
        leave_with_output(turn, path, token, place, signal.raw or NULL, 0)
        return
    ending = Failure(f"CHILD_{signal.status.upper()}", f"The sub-flow of {place.id!r} ended {signal.status}.")
    fail_visit(turn, path, token, place, signal.failure or ending, 0)


def _close_stopped(turn: Turn, path: str, token: Token, signal: ChildFinished) -> None:
    """Record the end of a sub-flow that was running when the instance stopped; the token moves no further."""
    del turn.tokens[path]
    is_done = signal.status == InstanceStatus.COMPLETED
    status = StepStatus.COMPLETED if is_done else StepStatus.SKIPPED
    turn.close(token, status, AFTER_STOP, output=signal.raw if is_done else None)
    turn.note(f"step_{status}", token.node, token_id(path, token.hop), {"reason": WORKFLOW_STOPPED})


def receipt_arrived(turn: Turn, signal: ReceiptArrived) -> None:
    path, token, place = _waiting_for(turn, signal.token, "receipt", signal.effect)
    if signal.failure is not None:
        if place.node.best_effort or place.traits.best_effort:
            shrug_off(turn, path, token, place, signal.failure, 0)
        else:
            fail_visit(turn, path, token, place, signal.failure, 0)
    elif place.output is None and (signal.raw is None or signal.raw == NULL):
        leave(turn, path, token, place, value_of(token) or NULL, 0)
    else:
        leave_with_output(turn, path, token, place, signal.raw or NULL, 0)
