"""How tokens walk: what happens when one enters a node, one function per behaviour, found through a table.

`walk` drains the moves of a turn. A move may end in an open step (work, rest, timer), in a meeting (join), in the
token's end, or in further moves; the compiler has proved that automatic nodes alone never form a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.compiler.graph import Behaviour
from holdfast.core.decision import Call, Child, Dispatch, EarlyEvents, Effect, KeyWait, Release
from holdfast.core.failure import fail_visit
from holdfast.core.ids import derived_id, token_id
from holdfast.core.moments import from_json, seconds
from holdfast.core.program import Place
from holdfast.core.scopes import arrive, branch_over, escape, open_scope
from holdfast.core.signals import Failure
from holdfast.core.state import Token, Wait
from holdfast.core.status import InstanceStatus, Phase, StepStatus
from holdfast.core.turn import Move, Turn, encode
from holdfast.core.ways import choose

NOTHING_CHOSEN = b"[]"
_AUTOMATIC = frozenset({Behaviour.PASS, Behaviour.WORK, Behaviour.CALL, Behaviour.EMIT})
_DECISIONS = frozenset({"human", "approval"})


def walk(turn: Turn) -> None:
    moves, places = turn.moves, turn.program.places
    while moves:
        move = moves.pop()
        if turn.status is InstanceStatus.SUSPENDED:
            hold(turn, move)
            continue
        place = places[move.node]
        inside = place.depth + 1 if place.behaviour is Behaviour.JOIN else place.depth
        if move.path.count("/") > inside:
            move = escape(turn, move, inside)
        _ENTER[place.behaviour](turn, place, move)


def hold(turn: Turn, move: Move) -> None:
    """The token stays in front of its node; nothing of the node has happened yet."""
    release(turn, move)
    turn.tokens[move.path] = Token(
        move.hop, move.node, phase=Phase.HELD, run=move.run, last=move.last, value=msgspec.Raw(move.raw), fence=move.held
    )


def release(turn: Turn, move: Move) -> None:
    if move.held:
        turn.released.append(Release(move.path, move.held))


def leave(turn: Turn, path: str, token: Token, place: Place, on: str, raw: bytes, held: int, status: StepStatus) -> None:
    """The token's open step ends with `raw` as its output and the token goes on along an `on` edge."""
    way, record, _ = choose(turn, place, on, raw)
    if way is None:
        failure = Failure("NO_EDGE_MATCHED", f"No {on!r} edge of {place.id!r} applies and it has no default edge.")
        fail_visit(turn, path, token, place, failure, held, output=raw, chosen=NOTHING_CHOSEN, closing=record)
        return
    del turn.tokens[path]
    turn.close(token, status, on, chosen=way.chosen, output=raw, closing=record)
    turn.note("step_completed", place.id, token_id(path, token.hop))
    if token.waits:
        turn.end_waits(path, token)
    turn.moves.append(Move(path, token.hop + 1, way.target, raw, held, place.id))


# --- entering a node, by behaviour ----------------------------------------------------------------------------------


def _at_chain_limit(turn: Turn, place: Place, move: Move) -> bool:
    limit = turn.program.policy.chain_limit
    if limit is None or place.behaviour not in _AUTOMATIC:
        return False
    if turn.chain < limit:
        turn.chain += 1
        return False
    turn.status, turn.reason = InstanceStatus.SUSPENDED, "WORKFLOW_CHAIN_LIMIT"
    turn.error = encode(
        Failure("WORKFLOW_CHAIN_LIMIT", f"More than {limit} automatic steps in a row, stopped before {place.id!r}.")
    )
    turn.note("instance_suspended", place.id, token_id(move.path, move.hop), {"reason": turn.reason})
    hold(turn, move)
    return True


def _enter_pass(turn: Turn, place: Place, move: Move) -> None:
    if _at_chain_limit(turn, place, move):
        return
    if place.is_split:
        open_scope(turn, place, move)
        return
    output = move.raw
    if place.mapping is not None:
        output = turn.evaluate_all(place.mapping, move.raw)
        turn.take_output(output)
    way, record, _ = choose(turn, place, "completed", output)
    if way is None:
        step = turn.pass_through(
            place, move, chosen=NOTHING_CHOSEN, output=output, closing=record, status=StepStatus.FAILED
        )
        failure = Failure("NO_EDGE_MATCHED", f"No edge of {place.id!r} applies and it has no default edge.")
        turn.opened[-1] = msgspec.structs.replace(step, error=encode(failure))
        release(turn, move)
        token = Token(move.hop, place.id, step.id, turn.now, value=msgspec.Raw(move.raw), last=move.last)
        fail_visit(turn, move.path, token, place, failure, 0, closed=True)
        return
    turn.pass_through(place, move, chosen=way.chosen, output=output, closing=record)
    turn.note("step_passed", place.id, token_id(move.path, move.hop))
    last = move.last if place.mapping is None else place.id
    turn.moves.append(Move(move.path, move.hop + 1, way.target, output, move.held, last))


def _enter_work(turn: Turn, place: Place, move: Move) -> None:
    if _at_chain_limit(turn, place, move):
        return
    raw = turn.input_for(place, move.raw)
    fence = move.held + 1
    step = turn.open(place, move, StepStatus.RUNNING, input=raw, fence=fence, calls=1)
    waits = _deadline(turn, place, move.path, step.token)
    turn.tokens[move.path] = Token(
        move.hop,
        place.id,
        step.id,
        turn.now,
        fence,
        calls=1,
        run=move.run,
        last=move.last,
        waits=waits,
        value=msgspec.Raw(move.raw) if place.keeps_value else None,
    )
    node = place.node
    inline = place.behaviour is Behaviour.CALL and turn.facts.inline_calls
    if inline:
        _run_inline(turn, place, move, step.id, step.token, raw)
    else:
        turn.dispatches.append(
            Dispatch(
                move.path, step.id, turn.now, place.queue, place.id, fence, move.held, 1, raw, node.priority,
                node.timeout, place.behaviour is Behaviour.CALL,
            )
        )  # fmt: skip
    turn.note("step_started", place.id, step.token)


def _run_inline(turn: Turn, place: Place, move: Move, step: bytes, token: str, raw: bytes) -> None:
    """A call reached inside a call's transaction runs there too: its answer is awaited or already here."""
    release(turn, move)
    answer = turn.facts.answers.get(step)
    if answer is None:
        turn.needs.append(Call(step, move.path, place.id, place.node.handler or "", token, raw, 1))
        return
    leave_with_output(turn, move.path, turn.tokens[move.path], place, answer, 0)


def leave_with_output(turn: Turn, path: str, token: Token, place: Place, raw: bytes, held: int) -> None:
    turn.take_output(raw)
    leave(turn, path, token, place, "completed", raw, held, StepStatus.COMPLETED)


def _enter_rest(turn: Turn, place: Place, move: Move) -> None:
    release(turn, move)
    node = place.node
    waits: list[Wait] = []
    token = token_id(move.path, move.hop)
    if node.wait is not None:
        key = _wait_key(turn, place, move.raw)
        waits.append(Wait(f"{token}:event", "event", node.wait.event, key))
    if node.child is not None:
        child = derived_id(turn.instance.id[15], turn.instance.id, token.encode(), b"%d" % move.run)
        waits.append(Wait(f"{token}:child", "child", ref=child))
    raw = turn.input_for(place, move.raw)
    status = StepStatus.WAITING_DECISION if node.kind in _DECISIONS else StepStatus.WAITING
    waits.extend(_deadline(turn, place, move.path, token))
    step = turn.open(place, move, status, input=raw, detail=_waits_detail(waits))
    turn.tokens[move.path] = _resting(turn, place, move, step.id, tuple(waits))
    turn.note("step_waiting", place.id, token)
    for wait in waits:
        if wait.kind == "child" and wait.ref is not None and node.child is not None:
            turn.children.append(Child(wait.ref, node.child.flow, node.child.version, raw, token))
        if wait.kind == "event" and wait.event is not None and wait.key is not None:
            turn.key_waits.append(KeyWait(wait.event, wait.key, token, step.id))
            turn.needs.append(EarlyEvents(token, step.id, wait.event, wait.key))
    if turn.early and node.wait is not None:
        turn.needs.append(EarlyEvents(token, step.id, node.wait.event))


def _wait_key(turn: Turn, place: Place, raw: bytes) -> str | None:
    if place.key is None:
        return None
    value = place.key.evaluate(turn.scope(raw))
    return value if isinstance(value, str) else encode(value).decode()


def _enter_timer(turn: Turn, place: Place, move: Move) -> None:
    release(turn, move)
    node = place.node
    if place.until is not None:
        due = from_json(place.until.evaluate(turn.scope(move.raw)))
    else:
        due = turn.now + seconds(node.delay or 0)
    token = token_id(move.path, move.hop)
    if due is None:
        failure = Failure("TIMER_NOT_A_MOMENT", f"The expression {node.until!r} of {place.id!r} gave no moment in time.")
        step = turn.pass_through(
            place, move, chosen=NOTHING_CHOSEN, status=StepStatus.FAILED, error=encode(failure)
        )
        waiting = Token(move.hop, place.id, step.id, turn.now, value=msgspec.Raw(move.raw), last=move.last)
        fail_visit(turn, move.path, waiting, place, failure, 0, closed=True)
        return
    waits = (turn.timer(move.path, f"{token}:timer", "timer", due), *_deadline(turn, place, move.path, token))
    step = turn.open(place, move, StepStatus.WAITING, input=move.raw, detail=_waits_detail(waits))
    turn.tokens[move.path] = _resting(turn, place, move, step.id, waits)
    turn.note("step_waiting", place.id, token)


def _enter_emit(turn: Turn, place: Place, move: Move) -> None:
    if _at_chain_limit(turn, place, move):
        return
    node = place.node
    raw = turn.input_for(place, move.raw)
    token = token_id(move.path, move.hop)
    if not node.awaits:
        way, record, _ = choose(turn, place, "completed", move.raw)
        chosen = way.chosen if way else NOTHING_CHOSEN
        step = turn.pass_through(place, move, chosen=chosen, output=move.raw, closing=record)
        turn.opened[-1] = msgspec.structs.replace(step, input=raw)
        _emit(turn, place, step.id, token, raw)
        if way is None:
            release(turn, move)
            failure = Failure("NO_EDGE_MATCHED", f"No edge of {place.id!r} applies and it has no default edge.")
            ended = Token(move.hop, place.id, step.id, turn.now, value=msgspec.Raw(move.raw), last=move.last)
            fail_visit(turn, move.path, ended, place, failure, 0, closed=True)
            return
        turn.moves.append(Move(move.path, move.hop + 1, way.target, move.raw, move.held, place.id))
        return
    release(turn, move)
    wait = Wait(f"{token}:receipt", "receipt")
    waits = (wait, *_deadline(turn, place, move.path, token))
    step = turn.open(place, move, StepStatus.WAITING, input=raw, detail=_waits_detail(waits))
    turn.tokens[move.path] = _resting(turn, place, move, step.id, waits)
    _emit(turn, place, step.id, token, raw)


def _emit(turn: Turn, place: Place, step: bytes, token: str, raw: bytes) -> None:
    node = place.node
    effect = derived_id(turn.instance.id[15], step, b"effect")
    payload = encode({"config": node.config, "data": msgspec.Raw(raw)})
    turn.effects.append(Effect(effect, step, token, node.handler or node.kind, payload, effect.hex(), node.awaits))
    turn.note("effect_emitted", place.id, token, {"effect": effect.hex(), "type": node.handler or node.kind})


def _enter_join(turn: Turn, place: Place, move: Move) -> None:
    release(turn, move)
    met = arrive(turn, place, move)
    if met is None:
        return
    way, record, _ = choose(turn, place, "completed", met.raw)
    if way is None:
        failure = Failure("NO_EDGE_MATCHED", f"No edge of {place.id!r} applies and it has no default edge.")
        step = turn.pass_through(
            place, met, chosen=NOTHING_CHOSEN, output=met.raw, closing=record, status=StepStatus.FAILED,
            error=encode(failure),
        )  # fmt: skip
        token = Token(met.hop, place.id, step.id, turn.now, value=msgspec.Raw(met.raw), last=met.last)
        fail_visit(turn, met.path, token, place, failure, 0, closed=True)
        return
    turn.pass_through(place, met, chosen=way.chosen, output=met.raw, closing=record)
    turn.note("join_completed", place.id, token_id(met.path, met.hop))
    turn.moves.append(Move(met.path, met.hop + 1, way.target, met.raw, 0, place.id))


def _enter_end(turn: Turn, place: Place, move: Move) -> None:
    release(turn, move)
    turn.pass_through(place, move, chosen=NOTHING_CHOSEN, output=move.raw)
    turn.note("token_ended", place.id, token_id(move.path, move.hop))
    turn.result = move.raw
    branch_over(turn, move.path, "ended")


_ENTER: dict[Behaviour, Callable[[Turn, Place, Move], None]] = {
    Behaviour.PASS: _enter_pass,
    Behaviour.WORK: _enter_work,
    Behaviour.CALL: _enter_work,
    Behaviour.REST: _enter_rest,
    Behaviour.TIMER: _enter_timer,
    Behaviour.EMIT: _enter_emit,
    Behaviour.JOIN: _enter_join,
    Behaviour.END: _enter_end,
}


def _resting(turn: Turn, place: Place, move: Move, step: bytes, waits: tuple[Wait, ...]) -> Token:
    return Token(
        move.hop,
        place.id,
        step,
        turn.now,
        phase=Phase.RESTING,
        run=move.run,
        last=move.last,
        waits=waits,
        value=msgspec.Raw(move.raw),
    )


def _deadline(turn: Turn, place: Place, path: str, token: str) -> tuple[Wait, ...]:
    limit = place.node.deadline
    if limit is None:
        return ()
    return (turn.timer(path, f"{token}:deadline", "deadline", turn.now + seconds(limit)),)


def _waits_detail(waits: Any) -> dict[str, Any]:
    return {"waits": list(waits)}
