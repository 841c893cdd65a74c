"""Entering a node: one function per behaviour, found through a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.core.kernel.builder import CONTEXT_TOO_LARGE, NOTHING_CHOSEN, Move, Overflow, Turn, encode
from holdfast.core.kernel.failure import fail_entry, keep_error, no_edge
from holdfast.core.kernel.leave import hold, leave_with_output
from holdfast.core.kernel.routing import choose, choose_all, closing
from holdfast.core.kernel.schedule import due_of
from holdfast.core.kernel.scopes import JOIN_FAILED, JOIN_TOO_LARGE, arrive, branch_over, open_scope
from holdfast.core.machine.stays import announce, stay_waits
from holdfast.core.model.decision import Call, Child, Dispatch, EarlyEvents, Effect, KeyWait
from holdfast.core.model.ids import derived_id, effect_id, effect_key, token_id, wait_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import Token, Wait
from holdfast.core.model.status import STEP_RUNNING, WORKING, InstanceStatus, Phase, StepStatus
from holdfast.core.model.timestamps import seconds, to_iso
from holdfast.core.people.tasks import assignee_of, open_task, task_waits
from holdfast.core.signals.early import ask
from holdfast.core.signals.timeout_dlq import begin_not
from holdfast.graph.model import Behaviour

_CALL: Final = Behaviour.CALL
AUTOMATIC: Final = frozenset({Behaviour.PASS, Behaviour.WORK, Behaviour.CALL, Behaviour.EMIT})
_BEGINS: Final = frozenset({Behaviour.WORK, Behaviour.CALL, Behaviour.REST, Behaviour.TIMER, Behaviour.EMIT})
MOST_KEY_BYTES: Final = 500  # the limit of an event's key too
ENTRY_LIMIT: Final = 1_000  # entries beyond one per node: an edge back to a node that fails on entry must not spin


def enter(turn: Turn, place: Place, move: Move) -> None:
    turn.entered += 1
    if turn.entered > ENTRY_LIMIT and turn.entered > ENTRY_LIMIT + len(turn.program.places):
        _stop_chain(turn, ENTRY_LIMIT, place, move)
        return
    limit = turn.program.policy.chain_limit
    if limit is not None and place.behaviour in AUTOMATIC:
        if turn.chain >= limit:
            _stop_chain(turn, limit, place, move)
            return
        turn.chain += 1
    if turn.overtime is not None and place.behaviour in _BEGINS:
        begin_not(turn, place, move, turn.overtime)
        return
    try:
        _ENTER[place.behaviour](turn, place, move)
    except Overflow as overflow:  # too large; no row of the node was opened yet
        fail_entry(turn, place, move, overflow.failure)


def _stop_chain(turn: Turn, limit: int, place: Place, move: Move) -> None:
    message = f"More than {limit} automatic steps in a row, stopped before {place.id!r}."
    failure = Failure("WORKFLOW_CHAIN_LIMIT", message)
    turn.error = encode(failure)
    keep_error(turn, place.id, failure)
    turn.suspend(InstanceStatus.SUSPENDED, failure.code, place.id, token_id(move.path, move.hop), message=message)
    hold(turn, move)


# --- pass ---------------------------------------------------------------------------------------------------------


def _enter_pass(turn: Turn, place: Place, move: Move) -> None:
    if place.is_split:
        _enter_split(turn, place, move)
        return
    output = move.raw
    if place.mapping is not None:
        output = turn.take_output(turn.evaluate_all(place, place.mapping, move.raw))
    way, records, _ = choose(turn, place, "completed", output)
    if way is None:
        fail_entry(turn, place, move, no_edge(place, "completed"), records=records, output=output)
        return
    turn.open(
        place, move, StepStatus.COMPLETED, input=move.raw, closed=True, chosen=way.chosen, output=output,
        closing=closing(records),
    )  # fmt: skip
    turn.note("step_passed", place.id, token_id(move.path, move.hop))
    last = (move.last or place.id) if place.mapping is None else place.id
    turn.moves.append(Move(move.path, move.hop + 1, way.target, output, move.held, last, fence=move.fence))


def _enter_split(turn: Turn, place: Place, move: Move) -> None:
    ways, records = choose_all(turn, place, move.raw)
    if not ways:
        fail_entry(turn, place, move, no_edge(place, "completed"), records=records)
        return
    open_scope(turn, place, move, ways, closing(records))


# --- work and calls -----------------------------------------------------------------------------------------------


def _enter_work(turn: Turn, place: Place, move: Move) -> None:
    raw = turn.input_for(place, move.raw)
    path, node = move.path, place.node
    if node.delay:
        _delay_work(turn, place, move, raw)
        return
    fence = (move.held or move.fence) + 1
    waits = _deadline(turn, place, move) if node.deadline is not None else ()
    step = turn.open(place, move, STEP_RUNNING, input=raw, fence=fence, calls=1, detail=_detail(waits))
    value = msgspec.Raw(move.raw) if place.keeps_value else msgspec.UNSET
    turn.tokens[path] = Token(
        hop=move.hop,
        node=place.id,
        step=step.id,
        at=turn.now,
        fence=fence,
        phase=WORKING,
        calls=1,
        run=move.run,
        last=move.last,
        waits=waits,
        value=value,
        entity_version=turn.version_seen(place),
    )
    is_call = place.behaviour is _CALL
    turn.note("step_started", place.id, step.token)
    if is_call and turn.facts.inline_calls:
        _call_here(turn, place, move, step.id, raw)
        return
    turn.dispatches.append(
        Dispatch(
            path=path,
            step=step.id,
            at=turn.now,
            queue=place.queue,
            node=place.id,
            fence=fence,
            held=move.held,
            calls=1,
            input=raw,
            priority=node.priority,
            timeout=node.timeout,
            call=is_call,
        )
    )


def _delay_work(turn: Turn, place: Place, move: Move, raw: bytes) -> None:
    """Open a step whose first call comes later, as a retry after zero calls."""
    turn.release(move)
    name = token_id(move.path, move.hop)
    due = turn.now + seconds(place.node.delay or 0)
    waits = (turn.timer(move.path, wait_id(name, move.run, "retry:0"), "retry", due),)
    if place.node.deadline is not None:
        waits = (*waits, *_deadline(turn, place, move))
    fence = move.held or move.fence
    step = turn.open(place, move, StepStatus.PENDING, input=raw, fence=fence, detail=_detail(waits))
    value = msgspec.Raw(move.raw) if place.keeps_value else msgspec.UNSET
    turn.tokens[move.path] = Token(
        hop=move.hop,
        node=place.id,
        step=step.id,
        at=turn.now,
        fence=fence,
        phase=Phase.RETRYING,
        calls=0,
        run=move.run,
        last=move.last,
        waits=waits,
        value=value,
        entity_version=turn.version_seen(place),
    )
    turn.note("step_delayed", place.id, name, {"due": to_iso(due)})


def _call_here(turn: Turn, place: Place, move: Move, step: bytes, raw: bytes) -> None:
    """Run a call in the present transaction: ask for its answer, or leave with the answer that the facts have."""
    turn.release(move)
    answer = turn.facts.answers.get(step)
    if answer is None:
        name = token_id(move.path, move.hop)
        turn.needs = [*turn.needs, Call(step, move.path, place.id, place.handler, name, raw, 1)]
        return
    leave_with_output(turn, move.path, turn.tokens[move.path], place, answer, 0)


# --- rest, timer, emit --------------------------------------------------------------------------------------------


def _enter_rest(turn: Turn, place: Place, move: Move) -> None:
    node, token = place.node, token_id(move.path, move.hop)
    waits: list[Wait] = []
    if node.wait is not None:
        key = None if place.key is None else _wait_key(turn, place, move.raw)
        if isinstance(key, Failure):
            fail_entry(turn, place, move, key)
            return
        waits.append(Wait(wait_id(token, move.run, "event"), "event", node.wait.event, key))
    if node.child is not None:
        child = derived_id(turn.instance.id[15], turn.instance.id, token.encode(), b"%d" % move.run)
        waits.append(Wait(wait_id(token, move.run, "child"), "child", ref=child))
    assignee = assignee_of(turn, place, move.raw)
    if isinstance(assignee, Failure):
        fail_entry(turn, place, move, assignee)
        return
    raw = turn.input_for(place, move.raw)
    if place.traits.asks_person:
        waits[:0] = asked = task_waits(turn, place, move)
        step = _rest(turn, place, move, tuple(waits), raw, StepStatus.WAITING_DECISION)
        open_task(turn, place, token, step, asked, raw, assignee)
    else:
        if place.state is not None:
            waits.extend(stay_waits(turn, place, move))
        step = _rest(turn, place, move, tuple(waits), raw, StepStatus.WAITING)
        if place.state is not None:
            announce(turn, place, move, step)
    for wait in waits:
        if wait.ref is not None and node.child is not None:
            turn.children = [*turn.children, Child(wait.ref, node.child.flow, node.child.version, raw, token)]
        if wait.kind == "event" and wait.event is not None and wait.key is not None:
            turn.key_waits = [*turn.key_waits, KeyWait(wait.event, wait.key, token, step)]
            turn.needs = [*turn.needs, EarlyEvents(token, step, wait.event, wait.key)]


def _wait_key(turn: Turn, place: Place, raw: bytes) -> str | Failure:
    """The key that events for this wait are sent to; a failure if it is missing, empty or too long for any event."""
    wait = place.node.wait
    about = f"The key {wait.key if wait is not None else None!r} of {place.id!r}"
    value = place.key.evaluate(turn.namespaces(place, raw)) if place.key is not None else None
    if value is None:
        return Failure("WAIT_KEY_MISSING", f"{about} has no value, so no event could reach it.")
    key = value if isinstance(value, str) else encode(value).decode()
    size = len(key.encode())
    if not 1 <= size <= MOST_KEY_BYTES:
        return Failure("WAIT_KEY_INVALID", f"{about} has {size} bytes; a key has 1 to {MOST_KEY_BYTES}.")
    return key


def _enter_timer(turn: Turn, place: Place, move: Move) -> None:
    due = due_of(turn, place, move.raw)
    if isinstance(due, Failure):
        fail_entry(turn, place, move, due)
        return
    wait = turn.timer(move.path, wait_id(token_id(move.path, move.hop), move.run, "timer"), "timer", due)
    _rest(turn, place, move, (wait,), move.raw, StepStatus.WAITING)


def _enter_emit(turn: Turn, place: Place, move: Move) -> None:
    raw = turn.input_for(place, move.raw)
    if place.node.awaits:
        token = token_id(move.path, move.hop)
        effect = effect_id(turn.now, turn.instance.id, token, move.run)
        wait = Wait(wait_id(token, move.run, "receipt"), "receipt", ref=effect)
        step = _rest(turn, place, move, (wait,), raw, StepStatus.WAITING)
        _emit(turn, place, move, step, raw)
        return
    way, records, _ = choose(turn, place, "completed", move.raw)
    if way is None:
        fail_entry(turn, place, move, no_edge(place, "completed"), records=records)
        return
    step = turn.open(
        place, move, StepStatus.COMPLETED, input=raw, closed=True, chosen=way.chosen, output=move.raw,
        closing=closing(records),
    )  # fmt: skip
    _emit(turn, place, move, step.id, raw)
    turn.moves.append(Move(move.path, move.hop + 1, way.target, move.raw, move.held, place.id, fence=move.fence))


def _emit(turn: Turn, place: Place, move: Move, step: bytes, raw: bytes) -> None:
    node, instance, token = place.node, turn.instance.id, token_id(move.path, move.hop)
    effect, type = effect_id(turn.now, instance, token, move.run), node.handler or node.kind
    payload = encode({"config": node.config, "data": msgspec.Raw(raw), **_delivery_limits(place)})
    key = effect_key(instance, token, move.run)
    turn.effects = [*turn.effects, Effect(effect, step, token, type, payload, key, node.awaits)]
    turn.note("effect_emitted", place.id, token, {"effect": effect.hex(), "type": type})


def _delivery_limits(place: Place) -> dict[str, Any]:
    """The node's own limits of delivery; the delivering worker has defaults for the rest."""
    node = place.node
    limits: dict[str, Any] = {} if node.timeout is None else {"timeout": node.timeout}
    if node.retry is not None or not node.idempotent:
        limits["retry"] = place.retry
    return limits


def _rest(turn: Turn, place: Place, move: Move, waits: tuple[Wait, ...], raw: bytes, status: StepStatus) -> bytes:
    """Rest the token on an open step until one of its waits, or an edge's event, is met."""
    turn.release(move)
    if place.node.deadline is not None:
        waits = (*waits, *_deadline(turn, place, move))
    step = turn.open(place, move, status, input=raw, detail=_detail(waits))
    turn.tokens[move.path] = Token(
        hop=move.hop,
        node=place.id,
        step=step.id,
        at=turn.now,
        fence=move.held or move.fence,
        phase=Phase.RESTING,
        calls=0,
        run=move.run,
        last=move.last,
        waits=waits,
        value=msgspec.Raw(move.raw),
        entity_version=turn.version_seen(place),
    )
    turn.note("step_waiting", place.id, step.token)
    if turn.early:
        ask(turn, place, step.token, step.id)
    return step.id


def _detail(waits: tuple[Wait, ...]) -> dict[str, Any] | None:
    return {"waits": waits} if waits else None


def _deadline(turn: Turn, place: Place, move: Move) -> tuple[Wait, ...]:
    wait = wait_id(token_id(move.path, move.hop), move.run, "deadline")
    return (turn.timer(move.path, wait, "deadline", turn.now + seconds(place.node.deadline or 0)),)


# --- join and end -------------------------------------------------------------------------------------------------


def _enter_join(turn: Turn, place: Place, move: Move) -> None:
    """Record the arrival of a token from inside the scope, or fire the join with the parent's own token."""
    if move.path.count("/") > place.depth:
        turn.release(move)
        arrive(turn, place, move)
        return
    if move.cause == JOIN_TOO_LARGE:
        message = f"What the branches bring to {place.id!r} is too large to be kept together."
        fail_entry(turn, place, move, Failure(CONTEXT_TOO_LARGE, message), output=move.raw)
        return
    if move.cause == JOIN_FAILED:
        fail_entry(turn, place, move, Failure("JOIN_FAILED", f"No branch reached {place.id!r}."), output=move.raw)
        return
    way, records, _ = choose(turn, place, "completed", move.raw)
    if way is None:
        fail_entry(turn, place, move, no_edge(place, "completed"), records=records, output=move.raw)
        return
    turn.open(
        place, move, StepStatus.COMPLETED, input=move.raw, closed=True, chosen=way.chosen, output=move.raw,
        closing=closing(records),
    )  # fmt: skip
    turn.note("join_completed", place.id, token_id(move.path, move.hop))
    turn.moves.append(Move(move.path, move.hop + 1, way.target, move.raw, 0, place.id, fence=move.fence))


def _enter_end(turn: Turn, place: Place, move: Move) -> None:
    turn.release(move)
    step = turn.open(
        place, move, StepStatus.COMPLETED, input=move.raw, closed=True, chosen=NOTHING_CHOSEN, output=move.raw
    )
    turn.note("token_ended", place.id, token_id(move.path, move.hop))
    if place.state is not None:
        announce(turn, place, move, step.id, is_over=True)
    turn.result = move.raw
    branch_over(turn, move.path, "ended")


_ENTER: Final[dict[Behaviour, Callable[[Turn, Place, Move], None]]] = {
    Behaviour.PASS: _enter_pass,
    Behaviour.WORK: _enter_work,
    Behaviour.CALL: _enter_work,
    Behaviour.REST: _enter_rest,
    Behaviour.TIMER: _enter_timer,
    Behaviour.EMIT: _enter_emit,
    Behaviour.JOIN: _enter_join,
    Behaviour.END: _enter_end,
}
