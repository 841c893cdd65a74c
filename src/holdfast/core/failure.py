"""What a failed visit leads to: an error edge, a lost branch, or the policy of the graph."""

from __future__ import annotations

import msgspec

from holdfast.core.decision import Release
from holdfast.core.ids import token_id
from holdfast.core.program import Place
from holdfast.core.scopes import branch_over, cancel_token
from holdfast.core.signals import Failure
from holdfast.core.state import Token
from holdfast.core.status import InstanceStatus, Phase, StepStatus
from holdfast.core.turn import Move, Turn, encode
from holdfast.core.ways import choose

NULL = b"null"


def fail_visit(
    turn: Turn,
    path: str,
    token: Token,
    place: Place,
    failure: Failure,
    held: int,
    *,
    on: str = "error",
    output: bytes | None = None,
    chosen: bytes | None = None,
    closing: bytes | None = None,
    closed: bool = False,
    input: bytes | None = None,
) -> None:
    """The visit is over and did not succeed. `closed`: its row is already written as failed."""
    turn.error = encode(failure)
    raw = bytes(token.value) if token.value is not None else input if input is not None else NULL
    way, record, _ = (None, None, False) if chosen is not None else choose(turn, place, on, raw)
    turn.tokens.pop(path, None)
    turn.end_waits(path, token)
    if not closed:
        taken = way.chosen if way else chosen
        turn.close(token, StepStatus.FAILED, on, chosen=taken, output=output, error=turn.error, closing=record or closing)
    turn.note("step_failed", place.id, token_id(path, token.hop), {"code": failure.code, "message": failure.message})
    if way is not None:
        turn.moves.append(Move(path, token.hop + 1, way.target, raw, held, place.id, on))
        return
    if held:
        turn.released.append(Release(path, held))
    _apply_policy(turn, path, token, failure, raw)


def _apply_policy(turn: Turn, path: str, token: Token, failure: Failure, raw: bytes) -> None:
    if turn.stopping is not None:
        branch_over(turn, path, "failed")
        return
    if turn.status is InstanceStatus.SUSPENDED or turn.program.policy.on_error == "suspend":
        _bury(turn, path, token, failure, raw)
        return
    if _loses_race(turn, path):
        branch_over(turn, path, "failed")
        return
    fail_instance(turn, failure.code)


def _bury(turn: Turn, path: str, token: Token, failure: Failure, raw: bytes) -> None:
    """The token waits, dead, for a resume that runs its node again."""
    turn.tokens[path] = msgspec.structs.replace(token, phase=Phase.DEAD, waits=(), value=msgspec.Raw(raw))
    if turn.status is not InstanceStatus.SUSPENDED:
        turn.status, turn.reason = InstanceStatus.SUSPENDED, failure.code
        turn.note("instance_suspended", token.node, token_id(path, token.hop), {"reason": failure.code})


def _loses_race(turn: Turn, path: str) -> bool:
    """In an `any` scope a failed branch just loses, unless it was the last hope."""
    scope_id = path.rpartition(".")[0]
    if not scope_id:
        return False
    scope = turn.scopes[scope_id]
    if turn.program.join_modes.get(scope.split) != "any":
        return False
    others = [a for a in scope.done.values() if a.outcome != "completed"]
    return len(others) + 1 < scope.width


def fail_instance(turn: Turn, reason: str) -> None:
    end_instance(turn, InstanceStatus.FAILED, reason)


def end_instance(turn: Turn, status: InstanceStatus, reason: str | None, *, step: StepStatus = StepStatus.CANCELLED) -> None:
    """Every token ends now and the instance with them."""
    turn.moves.clear()
    for path in sorted(turn.tokens):
        cancel_token(turn, path, str(status), step)
    turn.scopes = {}
    turn.status, turn.reason = status, reason
    turn.note(f"instance_{status}", detail=None if reason is None else {"reason": reason})
