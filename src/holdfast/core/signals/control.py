"""An operator's control of a whole instance: cancel, abort, force-fail, suspend, resume."""

from __future__ import annotations

from holdfast.core.kernel.builder import NULL, Move, Turn, encode
from holdfast.core.kernel.failure import end_instance, failure_of, meet_postponed, postponed
from holdfast.core.kernel.walk import walk
from holdfast.core.model.control_rows import Aborted, Cancelled, ForceFailed, Resumed
from holdfast.core.model.decision import Answered
from holdfast.core.model.ids import token_id
from holdfast.core.model.signals import Abort, Cancel, Failure, ForceFail, Resume, Suspend
from holdfast.core.model.state import Stopping, Token, value_of
from holdfast.core.model.status import InstanceStatus, Phase
from holdfast.core.rollback.rollback import begin, run_next, stop_token
from holdfast.core.signals import early
from holdfast.core.signals.timers import fire_parked
from holdfast.errors import Conflict


def cancel(turn: Turn, signal: Cancel) -> None:
    """Cancel the instance: running handlers and sub-flows are asked to stop and awaited; other tokens end now."""
    _refuse_while_stopping(turn)
    turn.note("cancellation_started", detail={"by": turn.actor, "reason": signal.reason})
    if turn.program.policy.on_cancel == "rollback":
        begin(turn, InstanceStatus.CANCELLED, signal.reason, by=turn.actor, to_root=True, is_told=True)
        return
    turn.control(Cancelled(by=turn.actor, reason=signal.reason))
    turn.stopping = Stopping(turn.actor, signal.reason)
    turn.parked = ()
    if turn.status is not InstanceStatus.RUNNING:
        turn.status, turn.reason = InstanceStatus.RUNNING, None
    for path, token in sorted(turn.tokens.items()):
        stop_token(turn, path, token, "cancelled", is_told=True)
    turn.scopes = {}  # no branches will meet any more


def abort(turn: Turn, signal: Abort) -> None:
    turn.control(Aborted(by=turn.actor, reason=signal.reason))
    turn.note("abort_started", detail={"by": turn.actor, "reason": signal.reason})
    end_instance(turn, InstanceStatus.ABORTED, signal.reason)


def force_fail(turn: Turn, signal: ForceFail) -> None:
    turn.error = encode(Failure("FORCED", signal.reason or "Failed by an operator."))
    turn.control(ForceFailed(by=turn.actor, reason=signal.reason))
    turn.note("instance_force_failed", detail={"by": turn.actor, "reason": signal.reason})
    end_instance(turn, InstanceStatus.FAILED, signal.reason)


def suspend(turn: Turn, signal: Suspend) -> None:
    if turn.status is InstanceStatus.SUSPENDED:
        raise Conflict("The instance is already suspended.", code="INSTANCE_SUSPENDED", hint="Resume it to go on.")
    if turn.rollback is None:
        _refuse_while_stopping(turn)
    turn.suspend(InstanceStatus.SUSPENDED, signal.reason)


def resume(turn: Turn, signal: Resume) -> None:
    """Resume the instance: postponed failures meet their fate, held tokens enter their nodes, parked timers fire.

    Dead tokens run again, each as a new row, if the graph is not in DLQ mode or the resume is out of `dlq` itself.
    After a mere pause in DLQ mode they wait on for a person. Timers fire in the order in which they were parked.
    """
    if turn.status not in (InstanceStatus.SUSPENDED, InstanceStatus.DLQ):
        raise Conflict(
            "The instance is not suspended.", code="INSTANCE_NOT_SUSPENDED", hint="There is nothing to resume."
        )
    backwards = turn.rollback
    runs_again = turn.status is InstanceStatus.DLQ or turn.program.policy.on_error != "dlq"
    turn.status = InstanceStatus.RUNNING if backwards is None else InstanceStatus.ROLLING_BACK
    turn.reason, turn.chain = None if backwards is None else backwards.reason, 0
    parked, turn.parked = turn.parked, ()
    turn.rearms = turn.program.machine is not None
    turn.control(Resumed(by=turn.actor, reason=signal.reason, again=runs_again))
    turn.note("instance_resumed", detail={"by": turn.actor, "reason": signal.reason})
    for path in postponed(turn):
        meet_postponed(turn, path)
        walk(turn)
    if not runs_again:
        _wait_on(turn)
    for path, token in sorted(turn.tokens.items(), reverse=True):
        if token.phase is Phase.HELD:
            _set_out_again(turn, path, token, token.run)
        elif token.phase is Phase.DEAD and runs_again:
            turn.superseded = [*turn.superseded, (token.step, token.at)]
            answer = Answered(token.step, "replayed", turn.actor, signal.reason or "resumed")
            turn.letters_resolved = (*turn.letters_resolved, answer)
            _set_out_again(turn, path, token, token.run + 1)
    if backwards is not None and not turn.tokens:
        run_next(turn)
    walk(turn)
    asking = early.ask_again(turn) if backwards is None else frozenset[str]()
    for timer in early.put_off(turn, parked, asking):
        fire_parked(turn, timer)
        walk(turn)


def _wait_on(turn: Turn) -> None:
    """Return to DLQ mode if any token is dead, with the reason of the first failure. The letters stay as they were."""
    dead = [(t.failed.version, path, failure_of(t.failed)) for path, t in turn.tokens.items() if t.failed is not None]
    if dead:
        _, path, failure = min(dead, key=lambda one: one[:2])
        token = turn.tokens[path]
        turn.suspend(InstanceStatus.DLQ, failure.code, token.node, token_id(path, token.hop))


def _set_out_again(turn: Turn, path: str, token: Token, run: int) -> None:
    del turn.tokens[path]
    raw = value_of(token) or NULL
    turn.moves.append(
        Move(
            path=path,
            hop=token.hop,
            node=token.node,
            raw=raw,
            held=0,
            last=token.last,
            cause="resumed",
            run=run,
            fence=token.fence,
        )
    )


def _refuse_while_stopping(turn: Turn) -> None:
    if turn.rollback is not None:
        raise Conflict(
            "The instance is already taking back what it did.",
            code="INSTANCE_ROLLING_BACK",
            hint="Wait for its end, or abort it to leave the rest as it is.",
        )
    if turn.stopping is not None:
        raise Conflict(
            "The instance is already being cancelled.",
            code="INSTANCE_STOPPING",
            hint="Wait for the handlers that are still out, or abort it.",
        )
