"""What an operator does to a whole instance: cancel, abort, force-fail, suspend, resume."""

from __future__ import annotations

import msgspec

from holdfast.core.failure import end_instance
from holdfast.core.scopes import cancel_token
from holdfast.core.signals import Abort, Cancel, Failure, ForceFail, Resume, Suspend
from holdfast.core.state import Stopping, Token, value_of
from holdfast.core.status import InstanceStatus, Phase, StepStatus
from holdfast.core.timers import fire_parked
from holdfast.core.turn import NULL, Move, Turn, encode
from holdfast.core.walk import walk
from holdfast.errors import Conflict


def cancel(turn: Turn, signal: Cancel) -> None:
    """Handlers that are out finish and are recorded; everything else stops now."""
    _refuse_while_stopping(turn)
    turn.control("cancel", {"by": turn.actor, "reason": signal.reason})
    turn.note("instance_cancel_requested", detail={"by": turn.actor, "reason": signal.reason})
    turn.stopping = Stopping(turn.actor, signal.reason)
    turn.parked = ()
    if turn.status is not InstanceStatus.RUNNING:
        turn.status, turn.reason = InstanceStatus.RUNNING, None
    for path, token in sorted(turn.tokens.items()):
        if token.phase is not Phase.WORKING:
            cancel_token(turn, path, "cancelled")
        elif path in turn.facts.idle:
            cancel_token(turn, path, "cancelled", StepStatus.SKIPPED)
        else:
            turn.tokens[path] = msgspec.structs.replace(token, phase=Phase.CANCELLING)
    turn.scopes = {}  # nobody will meet any more


def abort(turn: Turn, signal: Abort) -> None:
    turn.control("abort", {"by": turn.actor, "reason": signal.reason})
    turn.note("instance_abort_requested", detail={"by": turn.actor, "reason": signal.reason})
    end_instance(turn, InstanceStatus.ABORTED, signal.reason)


def force_fail(turn: Turn, signal: ForceFail) -> None:
    turn.error = encode(Failure("FORCED", signal.reason or "Failed by an operator."))
    turn.control("force_fail", {"by": turn.actor, "reason": signal.reason})
    turn.note("instance_force_failed", detail={"by": turn.actor, "reason": signal.reason})
    end_instance(turn, InstanceStatus.FAILED, signal.reason)


def suspend(turn: Turn, signal: Suspend) -> None:
    if turn.status is InstanceStatus.SUSPENDED:
        raise Conflict("The instance is already suspended.", code="INSTANCE_SUSPENDED", hint="Resume it to go on.")
    _refuse_while_stopping(turn)
    turn.suspend(InstanceStatus.SUSPENDED, signal.reason)


def resume(turn: Turn, signal: Resume) -> None:
    """Held tokens enter their nodes, dead ones run again as a new row, parked timers fire in the order they came."""
    if turn.status not in (InstanceStatus.SUSPENDED, InstanceStatus.DLQ):
        raise Conflict(
            "The instance is not suspended.", code="INSTANCE_NOT_SUSPENDED", hint="There is nothing to resume."
        )
    turn.status, turn.reason, turn.chain = InstanceStatus.RUNNING, None, 0
    parked, turn.parked = turn.parked, ()
    turn.control("resume", {"by": turn.actor})
    turn.note("instance_resumed", detail={"by": turn.actor})
    for path, token in sorted(turn.tokens.items(), reverse=True):
        if token.phase is Phase.HELD:
            _set_out_again(turn, path, token, token.run)
        elif token.phase is Phase.DEAD:
            turn.superseded = [*turn.superseded, (token.step, token.at)]
            _set_out_again(turn, path, token, token.run + 1)
    walk(turn)
    for timer in parked:
        fire_parked(turn, timer)
        walk(turn)


def _set_out_again(turn: Turn, path: str, token: Token, run: int) -> None:
    del turn.tokens[path]
    raw = value_of(token) or NULL
    turn.moves.append(Move(path, token.hop, token.node, raw, 0, token.last, "resumed", run, token.fence))


def _refuse_while_stopping(turn: Turn) -> None:
    if turn.stopping is not None:
        raise Conflict(
            "The instance is already being cancelled.",
            code="INSTANCE_STOPPING",
            hint="Wait for the handlers that are still out, or abort it.",
        )
