"""Due timers: of a timer node, a retry, a task, a step's deadline, the whole instance."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.kernel.builder import NULL, Move, Turn, encode
from holdfast.core.kernel.failure import end_instance, fail_visit
from holdfast.core.kernel.leave import leave
from holdfast.core.kernel.routing import choose
from holdfast.core.kernel.schedule import due_from
from holdfast.core.kernel.scopes import after_root, cancel_all, cancel_children, end_work, outran
from holdfast.core.machine.stays import PROMPT, STALE
from holdfast.core.machine.timeouts import prompt, tell_stale
from holdfast.core.model.control_rows import Expired, Rescheduled, TimerParked
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Failure, Reschedule, TimerDue
from holdfast.core.model.state import ROOT, Parked, Token, Wait, value_of
from holdfast.core.model.status import InstanceStatus, Phase
from holdfast.core.model.timestamps import seconds, to_iso
from holdfast.core.people.tasks import pass_due
from holdfast.core.rollback.rollback import begin
from holdfast.core.signals import timeout_dlq
from holdfast.core.signals.results import call_again, close_cancelling, status_of_failure
from holdfast.errors import Conflict, NotFound, Refused

EXPIRY: Final = "expiry"
_TIMED: Final = frozenset({Phase.RESTING, Phase.WORKING, Phase.RETRYING})  # where a token can run out of time
_MOVABLE: Final = ("timer", "deadline", PROMPT, STALE)  # what an operator may move; a retry has its own plan
_OF_A_STAY: Final = {PROMPT: prompt, STALE: tell_stale}


def set_expiry(turn: Turn, wait: str = EXPIRY) -> None:
    timeout = turn.program.policy.timeout
    if timeout is not None:
        turn.expires = turn.timer("", wait, EXPIRY, turn.now + seconds(timeout))


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
    turn.control(TimerParked(path=signal.path, wait=signal.wait, purpose=signal.purpose))
    turn.note("timer_parked", detail={"wait": signal.wait})


def fire_parked(turn: Turn, timer: Parked) -> None:
    """Fire a timer that fell due during a suspension, unless the moves of the resume have ended its wait."""
    if not _is_awaited(turn, timer.path, timer.wait):
        return
    timer_due(turn, TimerDue(timer.path, timer.wait, timer.purpose))


def reschedule(turn: Turn, signal: Reschedule) -> None:
    """Move or cancel a wait's timer. The wait gets a new id, so a signal for the old one is stale from now on."""
    path, wait = _found(turn, signal)
    renewed = Wait(_renewed(wait.id), wait.kind)
    if not signal.cancelled:
        renewed = turn.timer(path, renewed.id, wait.kind, due_from(turn.now, signal.at, signal.delay))
    if wait.ref is not None:
        turn.timers_ended = [*turn.timers_ended, wait.ref]
    turn.parked = tuple(p for p in turn.parked if (p.path, p.wait) != (path, wait.id))
    if path:
        token = turn.tokens[path]
        waits = tuple(renewed if w.id == wait.id else w for w in token.waits)
        turn.tokens[path] = msgspec.structs.replace(token, waits=waits)
    else:
        turn.expires = renewed
    turn.control(Rescheduled(path=path, was=wait.id, wait=renewed))
    due, was = (None if moment is None else to_iso(moment) for moment in (renewed.due, wait.due))
    detail = {"purpose": wait.kind, "due": due, "was": was, "reason": signal.reason}
    name = token_id(path, turn.tokens[path].hop) if path else None
    turn.note("timer_cancelled" if signal.cancelled else "timer_rescheduled", signal.node, name, detail)


def _found(turn: Turn, signal: Reschedule) -> tuple[str, Wait]:
    """The path and the wait that the signal means: the timer rather than the deadline, if a node has both."""
    if signal.node is None:
        if turn.expires is None:
            raise _not_waiting("The instance has no timeout of its own.")
        return "", turn.expires
    if signal.node not in turn.program.places:
        raise NotFound(
            f"The flow {turn.program.name!r} has no node {signal.node!r}.",
            code="NODE_UNKNOWN",
            hint="Name a node of the version the instance runs on.",
        )
    found = {
        path: min(waits, key=lambda wait: _MOVABLE.index(wait.kind))
        for path, token in turn.tokens.items()
        if token.node == signal.node
        and signal.token in (None, token_id(path, token.hop))
        and (waits := [wait for wait in token.waits if wait.kind in _MOVABLE])
    }
    if not found:
        raise _not_waiting(f"Nothing at {signal.node!r} waits for a moment now.")
    if len(found) > 1:
        names = ", ".join(sorted(token_id(path, turn.tokens[path].hop) for path in found))
        raise Conflict(
            f"Several tokens wait at {signal.node!r}: {names}.", code="WAIT_AMBIGUOUS", hint="Name the token."
        )
    return next(iter(found.items()))


def _not_waiting(message: str) -> Conflict:
    return Conflict(message, code="TIMER_NOT_WAITING", hint="Read the instance to see what it waits for.")


def _renewed(wait: str) -> str:
    base, _, lap = wait.partition("~")
    return f"{base}~{int(lap or 0) + 1}"


def _fire(turn: Turn, path: str, wait: str, purpose: str) -> None:
    if purpose == EXPIRY:
        _expire(turn)
        return
    token = turn.tokens[path]
    place = turn.program.places[token.node]
    turn.note("timer_fired", place.id, token_id(path, token.hop), {"purpose": purpose, "wait": wait})
    if purpose == "retry":
        call_again(turn, path, token, place)
        return
    if purpose == "due":
        pass_due(turn, path, token, place, wait)
        return
    if purpose in _OF_A_STAY:
        _OF_A_STAY[purpose](turn, path, token, place, wait)
        return
    turn.chain = 0
    if purpose == "timer":
        turn.after = max(turn.now, next((w.due for w in token.waits if w.id == wait and w.due is not None), 0))
        leave(turn, path, token, place, value_of(token) or NULL, 0)
    else:
        _miss_deadline(turn, path, token, place)


def _miss_deadline(turn: Turn, path: str, token: Token, place: Place) -> None:
    failure = Failure(turn.program.rules.deadline_code, f"{place.id!r} was not done within {place.node.deadline:g} s.")
    if token.phase is Phase.CANCELLING:
        close_cancelling(turn, path, token, 0, status_of_failure(turn, failure), error=encode(failure))
        return
    if token.phase is Phase.EXPIRING:
        end_work(turn, path)
        timeout_dlq.give_up(turn, path, outran(token), place)
        return
    if turn.program.rules.deadline_expires_instance and not _has_timeout_edge(turn, token, place):
        _end_expiry(turn)
        _run_out(turn, failure)
        return
    _give_up(turn, path, token, place, failure)


def _give_up(turn: Turn, path: str, token: Token, place: Place, failure: Failure) -> None:
    if token.phase is Phase.WORKING:
        end_work(turn, path)
        token = outran(token)
    cancel_children(turn, token, "deadline")
    fail_visit(turn, path, token, place, failure, 0, on="timeout")


def _has_timeout_edge(turn: Turn, token: Token, place: Place) -> bool:
    return choose(turn, place, "timeout", value_of(token) or NULL)[0] is not None


def _end_expiry(turn: Turn) -> None:
    """End the timer of the instance's timeout: a missed deadline counts as that timeout, which must not fire again."""
    if turn.expires is not None and turn.expires.ref is not None:
        turn.timers_ended = [*turn.timers_ended, turn.expires.ref]


def _expire(turn: Turn) -> None:
    """Handle the timeout of the whole instance.

    In a workflow the present step's `timeout` edge comes before the policy. Then the instance has its whole time again,
    so that the steps that follow are bounded as well.
    """
    failure = Failure("WORKFLOW_TIMEOUT", f"The instance was not done within {turn.program.policy.timeout:g} s.")
    token = turn.tokens.get(ROOT) if turn.program.rules.expiry_takes_edge else None
    if token is None or token.phase not in _TIMED or not _has_timeout_edge(turn, token, _place_of(turn, token)):
        _run_out(turn, failure)
        return
    turn.chain = 0
    set_expiry(turn, f"{EXPIRY}~{turn.version}")
    turn.control(Expired(edge=True, wait=turn.expires))
    turn.note("instance_expired", token.node, token_id(ROOT, token.hop))
    _give_up(turn, ROOT, token, _place_of(turn, token), failure)


def _place_of(turn: Turn, token: Token) -> Place:
    return turn.program.places[token.node]


def _run_out(turn: Turn, failure: Failure) -> None:
    """Handle a timeout by the policy: continue at its node, roll back, fail, or bury the steps in DLQ mode."""
    policy = turn.program.policy
    hop, fence = after_root(turn)
    turn.chain, turn.expires = 0, None
    because = {} if failure.code == "WORKFLOW_TIMEOUT" else {"reason": failure.code}
    is_buried = policy.on_timeout is None and policy.on_error == "dlq"
    out = [path for path, token in turn.tokens.items() if timeout_dlq.outlives(turn, path, token)] if is_buried else []
    row = Expired(
        goes_to=policy.on_timeout, hop=hop, buried=is_buried, reason=because.get("reason", msgspec.UNSET),
        out=out or msgspec.UNSET, error=failure if out else msgspec.UNSET,
    )  # fmt: skip
    turn.control(row)
    turn.note("instance_expired", detail=because or None)
    if is_buried:
        _bury_all(turn, failure, out)
        return
    if policy.on_timeout is None:
        turn.error = encode(failure)
        if policy.on_error == "rollback":
            begin(turn, InstanceStatus.FAILED, failure.code, is_told=True)
            return
        if turn.program.rules.expiry_cancels:
            cancel_all(turn, timeout_dlq.EXPIRED)
        end_instance(turn, InstanceStatus.FAILED, failure.code)
        return
    cancel_all(turn, timeout_dlq.EXPIRED)
    turn.scopes, turn.parked = {}, ()
    turn.moves.append(Move(ROOT, hop, policy.on_timeout, turn.context, cause="timeout", fence=fence))


def _bury_all(turn: Turn, failure: Failure, out: list[str]) -> None:
    """Bury open steps, each with a dead letter. Handlers and sub-flows that run are awaited first; dead steps stay."""
    for path, token in sorted(turn.tokens.items()):
        if path in out:
            timeout_dlq.tell(turn, path, token, failure)
            continue
        if token.phase not in _TIMED:
            continue
        if token.phase is Phase.WORKING:
            end_work(turn, path)
            token = outran(token)
        cancel_children(turn, token, timeout_dlq.EXPIRED)
        name = token_id(path, token.hop)
        turn.needs = [need for need in turn.needs if need.token != name]
        fail_visit(turn, path, token, _place_of(turn, token), failure, 0, on="timeout", buried_for=failure.code)
