"""The one function of the kernel: a graph, an instance, a signal and the facts in; a decision out.

Nothing here reads a clock, draws a random number or touches the world, so a decision can be computed again at any time
(a batch that must be retried, a replay, a test by the hundred thousand) and is always the same. An illegal signal is an
error and changes nothing; a stale one — it names a wait or a step the instance has left behind — is an error too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.decision import Call, Decision, Dispatch, Facts, Release, Retried
from holdfast.core.failure import end_instance, fail_visit
from holdfast.core.ids import token_id
from holdfast.core.moments import seconds
from holdfast.core.program import Place, Program
from holdfast.core.retry import delay_before
from holdfast.core.scopes import branch_over, cancel_children, cancel_token
from holdfast.core.signals import (
    Abort,
    CallDue,
    Cancel,
    ChildFinished,
    EventArrived,
    Failure,
    ForceFail,
    ReceiptArrived,
    Resume,
    Signal,
    Started,
    Suspend,
    TimerDue,
    WorkDone,
    WorkFailed,
)
from holdfast.core.state import ROOT, Instance, Parked, Stopping, Token, Wait
from holdfast.core.status import TERMINAL, InstanceStatus, Phase, StepStatus
from holdfast.core.turn import Move, Turn, encode
from holdfast.core.walk import leave_with_output, walk
from holdfast.core.ways import choose
from holdfast.errors import Conflict, Forbidden, Refused

ENGINE_EVENTS = frozenset({"completed", "error", "timeout"})


def decide(program: Program, instance: Instance, signal: Signal, facts: Facts) -> Decision:
    _check_legal(instance, signal)
    turn = Turn(program, instance, facts)
    _APPLY[type(signal)](turn, signal)
    if turn.moves:
        walk(turn)
    return turn.finish()


def _check_legal(instance: Instance, signal: Signal) -> None:
    if instance.status in TERMINAL:
        raise Conflict(
            f"The instance is over: {instance.status}.", code="INSTANCE_OVER", hint="Start a new one if it should run again."
        )
    if (type(signal) is Started) == (instance.version > 0):
        if instance.version:
            raise Refused("The instance has already been started.", code="ALREADY_STARTED")
        raise Conflict("The instance has not been started yet.", code="INSTANCE_PENDING", hint="Try again in a moment.")
    wanted = getattr(signal, "if_version", None)
    if wanted is not None and wanted != instance.version:
        raise Conflict(
            f"The instance is at version {instance.version}, not {wanted}.",
            code="VERSION_CONFLICT",
            hint="Read it again and decide on what you see then.",
        )


# --- start ------------------------------------------------------------------------------------------------------------


def _started(turn: Turn, signal: Started) -> None:
    turn.status = InstanceStatus.RUNNING
    turn.note("instance_started")
    policy = turn.program.policy
    if policy.timeout is not None:
        turn.timer("", "expiry", "expiry", turn.now + seconds(policy.timeout))
    turn.moves.append(Move(ROOT, 0, turn.program.entry, signal.raw, cause="started"))


# --- results of work ---------------------------------------------------------------------------------------------------


def _token_at(turn: Turn, path: str, step: bytes) -> tuple[Token, Place]:
    token = turn.tokens.get(path)
    if token is None or token.step != step or token.phase is Phase.DEAD:
        raise Refused("The result belongs to a step that is already over.", code="STALE_RESULT")
    return token, turn.program.places[token.node]


def _work_done(turn: Turn, signal: WorkDone) -> None:
    token, place = _token_at(turn, signal.path, signal.step)
    if token.phase is Phase.CANCELLING:
        _close_cancelling(turn, signal.path, token, signal.fence, output=signal.raw)
        return
    leave_with_output(turn, signal.path, token, place, signal.raw, signal.fence)


def _work_failed(turn: Turn, signal: WorkFailed) -> None:
    token, place = _token_at(turn, signal.path, signal.step)
    if token.phase is Phase.CANCELLING:
        _close_cancelling(turn, signal.path, token, signal.fence, error=encode(signal.failure))
        return
    if signal.retryable and signal.calls < place.retry.calls:
        _retry(turn, signal, token, place)
        return
    fail_visit(turn, signal.path, token, place, signal.failure, signal.fence, input=signal.input)


def _close_cancelling(turn: Turn, path: str, token: Token, fence: int, **result: Any) -> None:
    """A handler that was out when the instance was cancelled has come back: recorded, not followed."""
    del turn.tokens[path]
    status = StepStatus.FAILED if "error" in result else StepStatus.COMPLETED
    turn.close(token, status, "after_cancel", **result)
    turn.released.append(Release(path, fence))
    turn.end_waits(path, token)
    turn.note(f"step_{status}", token.node, token_id(path, token.hop), {"after": "cancel"})
    branch_over(turn, path, "ended")


def _retry(turn: Turn, signal: WorkFailed, token: Token, place: Place) -> None:
    """Same step, same receipt, one more call: at once under the present lease, or later by a timer."""
    path, calls, name = signal.path, signal.calls, token_id(signal.path, token.hop)
    pause = delay_before(place.retry, calls, token.step)
    turn.error = encode(signal.failure)
    turn.note("step_retried", place.id, name, {"calls": calls, "code": signal.failure.code, "message": signal.failure.message})
    if pause or signal.input is None or turn.status is InstanceStatus.SUSPENDED:
        wait = turn.timer(path, f"{name}:retry:{calls}", "retry", turn.now + pause)
        turn.retried.append(Retried(token.step, token.at, calls, signal.fence, turn.error))
        turn.released.append(Release(path, signal.fence))
        turn.tokens[path] = msgspec.structs.replace(
            token, phase=Phase.RETRYING, calls=calls, fence=signal.fence, waits=(*_but_retry(token), wait)
        )
        return
    _dispatch_again(turn, path, token, place, calls + 1, signal.fence, signal.fence, signal.input)


def _but_retry(token: Token) -> tuple[Wait, ...]:
    return tuple(w for w in token.waits if w.kind != "retry")


def _dispatch_again(
    turn: Turn, path: str, token: Token, place: Place, calls: int, fence: int, held: int, input: bytes | None
) -> None:
    turn.retried.append(Retried(token.step, token.at, calls, fence + 1, turn.error))
    node = place.node
    turn.dispatches.append(
        Dispatch(
            path, token.step, token.at, place.queue, place.id, fence + 1, held, calls, input, node.priority, node.timeout,
            place.queue.startswith("call:"),
        )
    )  # fmt: skip
    turn.tokens[path] = msgspec.structs.replace(
        token, phase=Phase.WORKING, calls=calls, fence=fence + 1, waits=_but_retry(token)
    )


def _call_due(turn: Turn, signal: CallDue) -> None:
    """A call's turn: ask for it to be run in this transaction, and go on once its answer is a fact."""
    token, place = _token_at(turn, signal.path, signal.step)
    answer = turn.facts.answers.get(signal.step)
    if answer is not None:
        leave_with_output(turn, signal.path, token, place, answer, signal.fence)
        return
    name = token_id(signal.path, token.hop)
    turn.needs.append(Call(signal.step, signal.path, place.id, place.node.handler or "", name, signal.input, signal.calls))


# --- time --------------------------------------------------------------------------------------------------------------


def _timer_due(turn: Turn, signal: TimerDue) -> None:
    if turn.status is InstanceStatus.SUSPENDED and signal.purpose != "expiry":
        turn.parked = (*turn.parked, Parked(signal.path, signal.wait, signal.purpose))
        turn.note("timer_parked", detail={"wait": signal.wait})
        return
    turn.chain = 0
    if signal.purpose == "expiry":
        _expire(turn)
        return
    token = turn.tokens.get(signal.path)
    if token is None or all(w.id != signal.wait for w in token.waits):
        raise Refused("The timer belongs to a wait that is already over.", code="STALE_TIMER")
    place = turn.program.places[token.node]
    turn.note("timer_fired", place.id, token_id(signal.path, token.hop), {"purpose": signal.purpose})
    if signal.purpose == "retry":
        _dispatch_again(turn, signal.path, token, place, token.calls + 1, token.fence, 0, None)
    elif signal.purpose == "timer":
        raw = bytes(token.value) if token.value is not None else b"null"
        leave_with_output(turn, signal.path, token, place, raw, 0)
    else:
        _miss_deadline(turn, signal.path, token, place)


def _miss_deadline(turn: Turn, path: str, token: Token, place: Place) -> None:
    if token.phase in (Phase.WORKING, Phase.CANCELLING):
        turn.released.append(Release(path, 0))
    cancel_children(turn, token, "deadline")
    failure = Failure("STEP_DEADLINE", f"{place.id!r} was not done within {place.node.deadline:g} s.")
    fail_visit(turn, path, token, place, failure, 0, on="timeout")


def _expire(turn: Turn) -> None:
    """The whole instance is out of time: every token ends and a root token goes where the policy says."""
    turn.note("instance_expired")
    policy = turn.program.policy
    hop = _root_hop(turn) + 1
    if policy.on_timeout is None:
        turn.error = encode(Failure("WORKFLOW_TIMEOUT", f"The instance was not done within {policy.timeout:g} s."))
        end_instance(turn, InstanceStatus.FAILED, "WORKFLOW_TIMEOUT")
        return
    for path in sorted(turn.tokens):
        cancel_token(turn, path, "expired")
    turn.scopes, turn.parked = {}, ()
    if turn.status is InstanceStatus.SUSPENDED:
        turn.status, turn.reason = InstanceStatus.RUNNING, None
    turn.moves.append(Move(ROOT, hop, policy.on_timeout, turn.context, cause="timeout"))


def _root_hop(turn: Turn) -> int:
    root = turn.tokens.get(ROOT)
    if root is not None:
        return root.hop
    return max((s.hop for s in turn.scopes.values() if s.parent == ROOT), default=0)


# --- events, children, receipts ----------------------------------------------------------------------------------------


def _event_arrived(turn: Turn, signal: EventArrived) -> None:
    if turn.status is InstanceStatus.SUSPENDED:
        raise Conflict("The instance is suspended.", code="INSTANCE_SUSPENDED", hint="Resume it first.")
    if turn.stopping is not None:
        raise Conflict("The instance is being cancelled.", code="INSTANCE_STOPPING")
    if signal.event in ENGINE_EVENTS:
        raise Refused(f"{signal.event!r} is the engine's own event.", code="EVENT_RESERVED", hint="Send a name of yours.")
    matches = [path for path, token in turn.tokens.items() if _expects(turn, path, token, signal)]
    if not matches:
        _keep_early(turn, signal)
        return
    if len(matches) > 1:
        names = sorted(turn.tokens[p].node for p in matches)
        raise Conflict(
            f"Several steps wait for {signal.event!r}: {', '.join(names)}.",
            code="EVENT_AMBIGUOUS",
            hint="Name the step or the token it is meant for.",
        )
    if signal.kept:
        turn.early -= 1
    turn.chain = 0
    _take_event(turn, matches[0], signal)


def _expects(turn: Turn, path: str, token: Token, signal: EventArrived) -> bool:
    if token.phase is not Phase.RESTING:
        return False
    if signal.node is not None and signal.node != token.node:
        return False
    if signal.token is not None and signal.token != token_id(path, token.hop):
        return False
    if signal.event in turn.program.places[token.node].ways:
        return True
    return any(w.kind == "event" and w.event == signal.event for w in token.waits)


def _keep_early(turn: Turn, signal: EventArrived) -> None:
    if signal.event in turn.program.early and signal.token is None and not signal.kept:
        turn.keep = True
        turn.early += 1
        turn.note("event_kept", detail={"event": signal.event})
        return
    raise Refused(
        f"Nothing in this instance waits for {signal.event!r} now.",
        code="EVENT_NOT_EXPECTED",
        hint="Read the instance to see which steps are open and what they accept.",
    )


def _take_event(turn: Turn, path: str, signal: EventArrived) -> None:
    token = turn.tokens[path]
    place = turn.program.places[token.node]
    guard = place.node.guard
    if guard is not None and guard not in turn.facts.actor.capabilities:
        raise Forbidden(f"Acting on {place.id!r} needs the capability {guard!r}.", code="CAPABILITY_MISSING")
    value = bytes(token.value) if token.value is not None else b"null"
    seen = (signal.raw or b"null") if turn.program.merges else value
    on = signal.event if signal.event in place.ways else "completed"
    way, record, guarded = choose(turn, place, on, seen)
    if way is None:
        if guarded:
            raise Forbidden(f"{signal.event!r} on {place.id!r} needs a capability the actor lacks.", code="GUARD_REFUSED")
        raise Refused(f"No edge of {place.id!r} takes {signal.event!r} with this data.", code="NO_EDGE_MATCHED")
    output = signal.raw if signal.raw is not None else value
    turn.take_output(output)
    del turn.tokens[path]
    turn.note("event_received", place.id, token_id(path, token.hop), {"event": signal.event, "id": signal.id.hex()})
    turn.close(token, _answer_status(place, signal.event), signal.event, chosen=way.chosen, output=output, closing=record)
    turn.end_waits(path, token)
    cancel_children(turn, token, signal.event)
    turn.moves.append(Move(path, token.hop + 1, way.target, output, 0, place.id, "event"))


def _answer_status(place: Place, event: str) -> StepStatus:
    if place.node.kind not in ("human", "approval"):
        return StepStatus.COMPLETED
    return StepStatus.REJECTED if event in ("rejected", "reject") else StepStatus.CONFIRMED


def _waiting_for(turn: Turn, name: str, kind: str) -> tuple[str, Token, Place]:
    path = name.rpartition("@")[0]
    token = turn.tokens.get(path)
    if token is None or token_id(path, token.hop) != name or all(w.kind != kind for w in token.waits):
        raise Refused("The answer belongs to a wait that is already over.", code="STALE_ANSWER")
    return path, token, turn.program.places[token.node]


def _child_finished(turn: Turn, signal: ChildFinished) -> None:
    path, token, place = _waiting_for(turn, signal.token, "child")
    if signal.status == InstanceStatus.COMPLETED:
        leave_with_output(turn, path, token, place, signal.raw or b"null", 0)
        return
    failure = signal.failure or Failure("CHILD_" + signal.status.upper(), f"The sub-flow of {place.id!r} ended {signal.status}.")
    fail_visit(turn, path, token, place, failure, 0)


def _receipt_arrived(turn: Turn, signal: ReceiptArrived) -> None:
    path, token, place = _waiting_for(turn, signal.token, "receipt")
    if signal.failure is not None:
        fail_visit(turn, path, token, place, signal.failure, 0)
        return
    leave_with_output(turn, path, token, place, signal.raw or b"null", 0)


# --- control -----------------------------------------------------------------------------------------------------------


def _cancel(turn: Turn, signal: Cancel) -> None:
    """Handlers that are out finish and are recorded; everything else stops now."""
    turn.note("instance_cancel_requested", detail={"by": turn.actor, "reason": signal.reason})
    turn.stopping = Stopping(turn.actor, signal.reason)
    turn.parked = ()
    if turn.status is InstanceStatus.SUSPENDED:
        turn.status, turn.reason = InstanceStatus.RUNNING, None
    for path, token in sorted(turn.tokens.items()):
        if token.phase is Phase.WORKING and path not in turn.facts.idle:
            turn.tokens[path] = msgspec.structs.replace(token, phase=Phase.CANCELLING)
        else:
            dead = token.phase is Phase.WORKING
            cancel_token(turn, path, "cancelled", StepStatus.SKIPPED if dead else StepStatus.CANCELLED)
    live = {p.rpartition(".")[0] for p in turn.tokens}
    turn.scopes = {s: v for s, v in turn.scopes.items() if any(x == s or x.startswith(s + ".") for x in live)}
    for scope_id, scope in turn.scopes.items():
        turn.scopes[scope_id] = _only_live(turn, scope_id, scope)


def _only_live(turn: Turn, scope_id: str, scope: Any) -> Any:
    """While stopping a scope waits only for the branches whose handlers are still out."""
    inside = scope_id + "."
    live = {p[len(inside) :].split("/")[0] for p in turn.tokens if p.startswith(inside)}
    return msgspec.structs.replace(scope, width=len(live), done={})


def _abort(turn: Turn, signal: Abort) -> None:
    turn.note("instance_abort_requested", detail={"by": turn.actor, "reason": signal.reason})
    end_instance(turn, InstanceStatus.ABORTED, signal.reason)


def _force_fail(turn: Turn, signal: ForceFail) -> None:
    turn.error = encode(Failure("FORCED", signal.reason or "Failed by an operator."))
    turn.note("instance_force_failed", detail={"by": turn.actor, "reason": signal.reason})
    end_instance(turn, InstanceStatus.FAILED, signal.reason)


def _suspend(turn: Turn, signal: Suspend) -> None:
    if turn.status is InstanceStatus.SUSPENDED:
        raise Conflict("The instance is already suspended.", code="INSTANCE_SUSPENDED")
    if turn.stopping is not None:
        raise Conflict("The instance is being cancelled.", code="INSTANCE_STOPPING")
    turn.status, turn.reason = InstanceStatus.SUSPENDED, signal.reason
    turn.note("instance_suspended", detail={"by": turn.actor, "reason": signal.reason})


def _resume(turn: Turn, signal: Resume) -> None:
    """Held tokens enter their nodes, dead ones run again as a new row, parked timers fire in the order they fell due."""
    if turn.status is not InstanceStatus.SUSPENDED:
        raise Conflict("The instance is not suspended.", code="INSTANCE_NOT_SUSPENDED")
    turn.status, turn.reason, turn.chain = InstanceStatus.RUNNING, None, 0
    parked, turn.parked = turn.parked, ()
    turn.note("instance_resumed", detail={"by": turn.actor})
    for path, token in sorted(turn.tokens.items(), reverse=True):
        raw = bytes(token.value) if token.value is not None else b"null"
        if token.phase is Phase.HELD:
            del turn.tokens[path]
            turn.moves.append(Move(path, token.hop, token.node, raw, 0, token.last, "resumed", token.run))
        elif token.phase is Phase.DEAD:
            del turn.tokens[path]
            turn.superseded.append((token.step, token.at))
            turn.moves.append(Move(path, token.hop, token.node, raw, 0, token.last, "resumed", token.run + 1))
    walk(turn)
    for timer in parked:
        token = turn.tokens.get(timer.path)
        if token is not None and any(w.id == timer.wait for w in token.waits):
            _timer_due(turn, TimerDue(timer.path, timer.wait, timer.purpose))
            walk(turn)


_APPLY: dict[type, Callable[[Turn, Any], None]] = {
    Started: _started,
    WorkDone: _work_done,
    WorkFailed: _work_failed,
    CallDue: _call_due,
    TimerDue: _timer_due,
    EventArrived: _event_arrived,
    ChildFinished: _child_finished,
    ReceiptArrived: _receipt_arrived,
    Cancel: _cancel,
    Abort: _abort,
    ForceFail: _force_fail,
    Suspend: _suspend,
    Resume: _resume,
}
