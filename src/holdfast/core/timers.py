"""Moments that have come: of a timer node, a retry, a step's deadline, the whole instance."""

from __future__ import annotations

from typing import Final

from holdfast.core.failure import end_instance, fail_visit
from holdfast.core.ids import token_id
from holdfast.core.leave import leave
from holdfast.core.moments import seconds
from holdfast.core.program import Place
from holdfast.core.results import close_cancelling, dispatch_again
from holdfast.core.scopes import cancel_children, cancel_token, end_work
from holdfast.core.signals import Failure, TimerDue
from holdfast.core.state import ROOT, Parked, Token, value_of
from holdfast.core.status import InstanceStatus, Phase, StepStatus
from holdfast.core.turn import NULL, Move, Turn, encode
from holdfast.errors import Refused

EXPIRY: Final = "expiry"


def set_expiry(turn: Turn) -> None:
    timeout = turn.program.policy.timeout
    if timeout is not None:
        turn.expires = turn.timer("", EXPIRY, EXPIRY, turn.now + seconds(timeout))


def timer_due(turn: Turn, signal: TimerDue) -> None:
    if not _is_awaited(turn, signal.path, signal.wait):
        raise Refused("The timer belongs to a wait that is already over.", code="STALE_TIMER")
    if turn.status is InstanceStatus.SUSPENDED:
        _park(turn, signal)
    else:
        _fire(turn, signal.path, signal.wait, signal.purpose)


def _is_awaited(turn: Turn, path: str, wait: str) -> bool:
    if any(p.wait == wait and p.path == path for p in turn.parked):
        return False
    if not path:
        expires = turn.expires
        return expires is not None and expires.id == wait and turn.stopping is None and bool(turn.tokens)
    token = turn.tokens.get(path)
    return token is not None and any(w.id == wait for w in token.waits)


def _park(turn: Turn, signal: TimerDue) -> None:
    parked = Parked(signal.path, signal.wait, signal.purpose)
    turn.parked = (*turn.parked, parked)
    turn.control("park", {"path": signal.path, "wait": signal.wait, "purpose": signal.purpose})
    turn.note("timer_parked", detail={"wait": signal.wait})


def fire_parked(turn: Turn, timer: Parked) -> None:
    """What fell due while the instance was suspended; it may have been overtaken by what the resume set in motion."""
    if not _is_awaited(turn, timer.path, timer.wait):
        return
    timer_due(turn, TimerDue(timer.path, timer.wait, timer.purpose))


def _fire(turn: Turn, path: str, wait: str, purpose: str) -> None:
    if purpose == EXPIRY:
        _expire(turn)
        return
    token = turn.tokens[path]
    place = turn.program.places[token.node]
    turn.note("timer_fired", place.id, token_id(path, token.hop), {"purpose": purpose, "wait": wait})
    if purpose == "retry":
        dispatch_again(turn, path, token, place, token.calls + 1, token.fence, 0, None)
        return
    turn.chain = 0
    if purpose == "timer":
        leave(turn, path, token, place, value_of(token) or NULL, 0)
    else:
        _miss_deadline(turn, path, token, place)


def _miss_deadline(turn: Turn, path: str, token: Token, place: Place) -> None:
    failure = Failure("STEP_DEADLINE", f"{place.id!r} was not done within {place.node.deadline:g} s.")
    if token.phase is Phase.CANCELLING:
        close_cancelling(turn, path, token, 0, StepStatus.FAILED, error=encode(failure))
        return
    if token.phase is Phase.WORKING:
        end_work(turn, path)
    cancel_children(turn, token, "deadline")
    fail_visit(turn, path, token, place, failure, 0, on="timeout")


def _expire(turn: Turn) -> None:
    """The whole instance is out of time: every token ends and a root token goes where the policy says."""
    policy = turn.program.policy
    hop, fence = _after_root(turn)
    turn.chain, turn.expires = 0, None
    turn.control("expire", {"node": policy.on_timeout, "hop": hop})
    turn.note("instance_expired")
    if policy.on_timeout is None:
        turn.error = encode(Failure("WORKFLOW_TIMEOUT", f"The instance was not done within {policy.timeout:g} s."))
        end_instance(turn, InstanceStatus.FAILED, "WORKFLOW_TIMEOUT")
        return
    for path in sorted(turn.tokens):
        cancel_token(turn, path, "expired")
    turn.scopes, turn.parked = {}, ()
    turn.moves.append(Move(ROOT, hop, policy.on_timeout, turn.context, cause="timeout", fence=fence))


def _after_root(turn: Turn) -> tuple[int, int]:
    """The next hop of the root token, wherever its branches are now, and its last fence."""
    root = turn.tokens.get(ROOT)
    if root is not None:
        return root.hop + 1, root.fence
    scope = next(s for s in turn.scopes.values() if s.parent == ROOT)
    return scope.hop + 1, scope.fence
