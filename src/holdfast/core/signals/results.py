"""Results of handlers and calls. A result counts only for the step and the fence it was produced under."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.kernel.builder import Turn, encode
from holdfast.core.kernel.failure import fail_visit
from holdfast.core.kernel.leave import leave_with_output, shrug_off
from holdfast.core.kernel.retry import delay_before
from holdfast.core.kernel.scopes import OUT, WORKFLOW_STOPPED
from holdfast.core.model.control_rows import FinishedLate
from holdfast.core.model.decision import Call, Dispatch, LastCall, Release, Retried
from holdfast.core.model.ids import token_id, wait_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import CallDue, CallsSpent, Failure, WorkDone, WorkFailed
from holdfast.core.model.state import Token, Wait
from holdfast.core.model.status import CANCELLING, SUSPENDED, InstanceStatus, Phase, StepStatus
from holdfast.core.rollback.rollback import AFTER_STOP, not_undone, undone
from holdfast.core.signals import timeout_dlq
from holdfast.errors import Refused
from holdfast.graph.model import Behaviour

LOST_CALL: Final = {"code": "LEASE_LOST", "message": "The worker was lost while it ran."}
STOPPED: Final = "STOPPED"  # of a call that was not made, or that stopped when it was asked to


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
    _note_lost_calls(turn, path, token, place, signal.calls)
    if token.phase is CANCELLING:
        close_cancelling(turn, path, token, signal.fence, StepStatus.COMPLETED, output=signal.raw)
        return
    if token.phase is Phase.EXPIRING:
        timeout_dlq.come_back(turn, token)
    if place.traits.undoes:
        undone(turn, path, token, signal.raw, signal.fence, signal.calls)
        return
    leave_with_output(turn, path, token, place, signal.raw, signal.fence, calls=signal.calls, input=signal.input)


def work_failed(turn: Turn, signal: WorkFailed) -> None:
    path = signal.path
    if _is_ghost(turn, path, signal.step, signal.fence):
        _come_late(turn, path, signal.fence, None)
        return
    token, place = _token_of(turn, path, signal.step, signal.fence)
    _note_lost_calls(turn, path, token, place, signal.calls)
    if token.phase is CANCELLING:
        close_cancelling(
            turn, path, token, signal.fence, status_of_failure(turn, signal.failure), error=encode(signal.failure)
        )
    elif token.phase is Phase.EXPIRING:
        _fail_late(turn, signal, token, place)
    elif signal.retryable and signal.calls < place.retry.calls:
        _retry(turn, signal, token, place)
    elif place.traits.undoes:
        not_undone(turn, path, token, place, signal.failure, signal.fence, signal.calls, signal.input)
    elif place.node.best_effort:
        shrug_off(turn, path, token, place, signal.failure, signal.fence, signal.calls)
    else:
        fail_visit(turn, path, token, place, signal.failure, signal.fence, input=signal.input, calls=signal.calls)


def _note_lost_calls(turn: Turn, path: str, token: Token, place: Place, calls: int) -> None:
    """Note calls that began and never returned: their worker was lost, so no other signal reports them."""
    event = "compensation_retried" if place.traits.undoes else "step_retried"
    for lost in range(max(token.calls, 1), calls):
        turn.note(event, place.id, token_id(path, token.hop), {"calls": lost, **LOST_CALL})


def _fail_late(turn: Turn, signal: WorkFailed, token: Token, place: Place) -> None:
    """Record a failure after the timeout; no call follows. A handler that stopped as asked has none of its own."""
    failure = None if signal.failure.code == STOPPED else signal.failure
    if place.node.best_effort and failure is not None:
        timeout_dlq.come_back(turn, token)
        shrug_off(turn, signal.path, token, place, failure, signal.fence, signal.calls)
        return
    timeout_dlq.give_up(turn, signal.path, token, place, failure, signal.fence, input=signal.input, calls=signal.calls)


def _is_ghost(turn: Turn, path: str, step: bytes, fence: int) -> bool:
    ghost = turn.ghosts.get(path)
    return ghost is not None and ghost.step == step and fence >= ghost.fence


def _come_late(turn: Turn, path: str, fence: int, raw: bytes | None) -> None:
    """Record the late result of a loser's handler. A success is kept as evidence: a rollback compensates it too."""
    ghost = turn.ghosts[path]
    turn.ghosts = {p: t for p, t in turn.ghosts.items() if p != path}
    turn.released.append(Release(path, fence))
    turn.control(FinishedLate(path=path, step=ghost.step.hex(), done=raw is not None), raw)
    turn.note("step_finished_late", ghost.node, token_id(path, ghost.hop), {"succeeded": raw is not None})


def status_of_failure(turn: Turn, failure: Failure) -> StepStatus:
    """The status of a step whose handler ended without success after the instance had stopped.

    `failed` if the handler failed by itself and the instance rolls back to `failed`; else `skipped`.
    """
    rollback = turn.rollback
    if rollback is None or failure.code == STOPPED:
        return StepStatus.SKIPPED
    return StepStatus.SKIPPED if rollback.target is InstanceStatus.CANCELLED else StepStatus.FAILED


def close_cancelling(turn: Turn, path: str, token: Token, fence: int, status: StepStatus, **result: bytes) -> None:
    """Record the result of a handler that was running when the instance stopped; the token moves no further."""
    del turn.tokens[path]
    turn.close(token, status, AFTER_STOP, **result)
    turn.released.append(Release(path, fence))
    turn.end_waits(path, token)
    turn.note(f"step_{status}", token.node, token_id(path, token.hop), {"reason": WORKFLOW_STOPPED})


def _retry(turn: Turn, signal: WorkFailed, token: Token, place: Place) -> None:
    """Call the step once more, with the same receipt: at once under the present lease, or later by a timer."""
    path, calls, failure = signal.path, signal.calls, signal.failure
    name = token_id(path, token.hop)
    pause = delay_before(place.retry, calls, token.step)
    error = encode(failure)
    is_compensation = place.traits.undoes
    if not is_compensation:  # the failure that began the rollback stays the instance's last error
        turn.error = error
    event = "compensation_retried" if is_compensation else "step_retried"
    turn.note(event, place.id, name, {"calls": calls, "code": failure.code, "message": failure.message})
    if not pause and signal.input is not None and turn.status is not SUSPENDED:
        dispatch_again(
            turn=turn,
            path=path,
            token=token,
            place=place,
            calls=calls + 1,
            fence=signal.fence,
            held=signal.fence,
            input=signal.input,
            error=error,
        )
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
            path=path,
            step=token.step,
            at=token.at,
            queue=place.queue,
            node=place.id,
            fence=fence + 1,
            held=held,
            calls=calls,
            input=input,
            priority=node.priority,
            timeout=node.timeout,
            call=is_call,
        )
    )
    turn.tokens[path] = msgspec.structs.replace(
        token, phase=Phase.WORKING, calls=calls, fence=fence + 1, waits=_but_retry(token)
    )


def call_again(turn: Turn, path: str, token: Token, place: Place) -> None:
    """Dispatch the next call, which is due. If a migration has left none, ask for the result of the last one."""
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
    """Ask for a call to be run in this transaction; leave its step once the answer is a fact."""
    path = signal.path
    token, place = _token_of(turn, path, signal.step, signal.fence)
    if signal.step in turn.facts.answers:
        _note_lost_calls(turn, path, token, place, signal.calls)
    if token.phase is CANCELLING:
        close_cancelling(turn, path, token, signal.fence, StepStatus.SKIPPED)
        return
    if token.phase is Phase.EXPIRING:
        timeout_dlq.give_up(turn, path, token, place, None, signal.fence, input=signal.input)
        return
    answer = turn.facts.answers.get(signal.step)
    if answer is not None:
        leave_with_output(turn, path, token, place, answer, signal.fence, calls=signal.calls)
        return
    name = token_id(path, token.hop)
    turn.needs = [
        *turn.needs,
        Call(signal.step, path, place.id, place.handler, name, signal.input, signal.calls),
    ]
