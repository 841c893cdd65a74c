"""What handlers and calls came back with. A result counts only for the step and the fence it was produced under."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.compiler.graph import Behaviour
from holdfast.core import overtime
from holdfast.core.decision import Call, Dispatch, LastCall, Release, Retried
from holdfast.core.failure import fail_visit
from holdfast.core.ids import token_id, wait_id
from holdfast.core.leave import leave_with_output, shrug_off
from holdfast.core.program import Place
from holdfast.core.retry import delay_before
from holdfast.core.rollback import AFTER_STOP, COMPENSATION, not_undone, undone
from holdfast.core.scopes import OUT, WORKFLOW_STOPPED
from holdfast.core.signals import CallDue, CallsSpent, Failure, WorkDone, WorkFailed
from holdfast.core.state import Token, Wait
from holdfast.core.status import CANCELLING, SUSPENDED, InstanceStatus, Phase, StepStatus
from holdfast.core.turn import Turn, encode
from holdfast.errors import Refused

STOPPED: Final = "STOPPED"  # of a call that was not made, or obeyed when it was told to stop


def _token_of(turn: Turn, path: str, step: bytes, fence: int) -> tuple[Token, Place]:
    token = turn.tokens.get(path)
    if token is None or token.step != step or fence < token.fence or token.phase not in OUT:
        raise Refused("The result belongs to a step or a lease that is already over.", code="STALE_RESULT")
    return token, turn.program.places[token.node]


def work_done(turn: Turn, signal: WorkDone) -> None:
    path = signal.path
    if _is_ghost(turn, path, signal.step, signal.fence):
        _come_late(turn, path, signal.fence, signal.raw)
        return
    token, place = _token_of(turn, path, signal.step, signal.fence)
    if token.phase is CANCELLING:
        close_cancelling(turn, path, token, signal.fence, StepStatus.COMPLETED, output=signal.raw)
        return
    if token.phase is Phase.EXPIRING:
        overtime.come_back(turn, token)
    if place.node.kind == COMPENSATION:
        undone(turn, path, token, signal.raw, signal.fence, signal.calls)
        return
    leave_with_output(turn, path, token, place, signal.raw, signal.fence)


def work_failed(turn: Turn, signal: WorkFailed) -> None:
    path = signal.path
    if _is_ghost(turn, path, signal.step, signal.fence):
        _come_late(turn, path, signal.fence, None)
        return
    token, place = _token_of(turn, path, signal.step, signal.fence)
    if token.phase is CANCELLING:
        close_cancelling(
            turn, path, token, signal.fence, status_of_failure(turn, signal.failure), error=encode(signal.failure)
        )
    elif token.phase is Phase.EXPIRING:
        _fail_late(turn, signal, token, place)
    elif signal.retryable and signal.calls < place.retry.calls:
        _retry(turn, signal, token, place)
    elif place.node.kind == COMPENSATION:
        not_undone(turn, path, token, place, signal.failure, signal.fence, signal.calls, signal.input)
    elif place.node.best_effort:
        shrug_off(turn, path, token, place, signal.failure, signal.fence, signal.calls)
    else:
        fail_visit(turn, path, token, place, signal.failure, signal.fence, input=signal.input, calls=signal.calls)


def _fail_late(turn: Turn, signal: WorkFailed, token: Token, place: Place) -> None:
    """There is no time for another call. A handler that stopped as it was told has no failure of its own."""
    failure = None if signal.failure.code == STOPPED else signal.failure
    if place.node.best_effort and failure is not None:
        overtime.come_back(turn, token)
        shrug_off(turn, signal.path, token, place, failure, signal.fence, signal.calls)
        return
    overtime.give_up(turn, signal.path, token, place, failure, signal.fence, input=signal.input, calls=signal.calls)


def _is_ghost(turn: Turn, path: str, step: bytes, fence: int) -> bool:
    ghost = turn.ghosts.get(path)
    return ghost is not None and ghost.step == step and fence >= ghost.fence


def _come_late(turn: Turn, path: str, fence: int, raw: bytes | None) -> None:
    """A loser's handler is back. Its success is kept as evidence: a rollback will take it back too."""
    ghost = turn.ghosts[path]
    turn.ghosts = {p: t for p, t in turn.ghosts.items() if p != path}
    turn.released.append(Release(path, fence))
    turn.control("late", {"path": path, "step": ghost.step.hex(), "done": raw is not None}, raw)
    turn.note("step_finished_late", ghost.node, token_id(path, ghost.hop), {"succeeded": raw is not None})


def status_of_failure(turn: Turn, failure: Failure) -> StepStatus:
    """Of a handler that was out when the instance stopped: it was told to stop, never began, or failed by itself."""
    rollback = turn.rollback
    if rollback is None or failure.code == STOPPED:
        return StepStatus.SKIPPED
    return StepStatus.SKIPPED if rollback.target is InstanceStatus.CANCELLED else StepStatus.FAILED


def close_cancelling(turn: Turn, path: str, token: Token, fence: int, status: StepStatus, **result: bytes) -> None:
    """A handler that was out when the instance was cancelled has come back: recorded, not followed."""
    del turn.tokens[path]
    turn.close(token, status, AFTER_STOP, **result)
    turn.released.append(Release(path, fence))
    turn.end_waits(path, token)
    turn.note(f"step_{status}", token.node, token_id(path, token.hop), {"reason": WORKFLOW_STOPPED})


def _retry(turn: Turn, signal: WorkFailed, token: Token, place: Place) -> None:
    """Same step, same receipt, one more call: at once under the present lease, or later by a timer."""
    path, calls, failure = signal.path, signal.calls, signal.failure
    name = token_id(path, token.hop)
    pause = delay_before(place.retry, calls, token.step)
    error = encode(failure)
    is_compensation = place.node.kind == COMPENSATION
    if not is_compensation:  # what the instance failed of stays its last error
        turn.error = error
    event = "compensation_retried" if is_compensation else "step_retried"
    turn.note(event, place.id, name, {"calls": calls, "code": failure.code, "message": failure.message})
    if not pause and signal.input is not None and turn.status is not SUSPENDED:
        dispatch_again(turn, path, token, place, calls + 1, signal.fence, signal.fence, signal.input, error)
        return
    purpose = "undo" if is_compensation else "retry"  # the step and its compensation share their token
    wait = turn.timer(path, wait_id(name, token.run, f"{purpose}:{calls}"), "retry", turn.now + pause)
    turn.retried = [
        *turn.retried,
        Retried(token.step, token.at, calls, signal.fence, _error_with_retry(failure, calls, wait)),
    ]
    turn.released.append(Release(path, signal.fence))
    turn.tokens[path] = msgspec.structs.replace(
        token, phase=Phase.RETRYING, calls=calls, fence=signal.fence, waits=(*_but_retry(token), wait)
    )


def _error_with_retry(failure: Failure, calls: int, wait: Wait) -> bytes:
    """The open row's error tells the next attempt; it counts as long as no further call is on the row."""
    retry: dict[str, Any] = {"after": calls, "wait": wait}
    return encode({**msgspec.to_builtins(failure), "retry": retry})


def _but_retry(token: Token) -> tuple[Wait, ...]:
    return tuple(w for w in token.waits if w.kind != "retry")


def dispatch_again(
    turn: Turn,
    path: str,
    token: Token,
    place: Place,
    calls: int,
    fence: int,
    held: int,
    input: bytes | None,
    error: bytes | None = None,
) -> None:
    turn.retried = [*turn.retried, Retried(token.step, token.at, calls, fence + 1, error)]
    node, is_call = place.node, place.behaviour is Behaviour.CALL
    turn.dispatches.append(
        Dispatch(
            path, token.step, token.at, place.queue, place.id, fence + 1, held, calls, input, node.priority,
            node.timeout, is_call,
        )
    )  # fmt: skip
    turn.tokens[path] = msgspec.structs.replace(
        token, phase=Phase.WORKING, calls=calls, fence=fence + 1, waits=_but_retry(token)
    )


def call_again(turn: Turn, path: str, token: Token, place: Place) -> None:
    """The next call is due. A migration may have left none: then the last one was the last."""
    name = token_id(path, token.hop)
    if token.calls >= place.retry.calls:
        turn.needs = [*turn.needs, LastCall(name, path, token.step, token.at)]
        return
    if not token.calls:
        turn.note("step_started", place.id, name)
    dispatch_again(turn, path, token, place, token.calls + 1, token.fence, 0, None)


def calls_spent(turn: Turn, signal: CallsSpent) -> None:
    path, token = signal.path, turn.tokens.get(signal.path)
    if token is None or token.step != signal.step or token.phase is not Phase.RETRYING:
        raise Refused("The step does not wait for a call any more.", code="STALE_RESULT")
    place = turn.program.places[token.node]
    if place.node.best_effort:
        shrug_off(turn, path, token, place, signal.failure, 0, token.calls)
    else:
        fail_visit(turn, path, token, place, signal.failure, 0, input=signal.input)


def call_due(turn: Turn, signal: CallDue) -> None:
    """A call's turn: ask for it to be run in this transaction, and go on once its answer is a fact."""
    path = signal.path
    token, place = _token_of(turn, path, signal.step, signal.fence)
    if token.phase is CANCELLING:
        close_cancelling(turn, path, token, signal.fence, StepStatus.SKIPPED)
        return
    if token.phase is Phase.EXPIRING:
        overtime.give_up(turn, path, token, place, None, signal.fence, input=signal.input)
        return
    answer = turn.facts.answers.get(signal.step)
    if answer is not None:
        leave_with_output(turn, path, token, place, answer, signal.fence)
        return
    name = token_id(path, token.hop)
    turn.needs = [
        *turn.needs,
        Call(signal.step, path, place.id, place.node.handler or "", name, signal.input, signal.calls),
    ]
