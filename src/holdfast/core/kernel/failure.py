"""Failure of a visit: the token takes an edge for it, loses a race, or meets the policy of the graph.

The fate of a token that has no edge to take is decided before its row is written, because the row records it:

    dead      the token stays where it failed until a resume or a requeue runs its node again
    postponed the instance is suspended: the token stays, and meets one of the fates below when the instance is resumed
    lost      the token's branch of an `any` join, however deep, drops out; when no branch is left, the join fails
    rollback  the instance rolls back
    fatal     the instance fails, and every other token ends with it
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.kernel.builder import NOTHING_CHOSEN, NULL, Move, Turn, about, encode, merged
from holdfast.core.kernel.routing import Choice, Records, choose, closing
from holdfast.core.kernel.scopes import WORKFLOW_STOPPED, cancel_token, is_last_hope, lose, runner_of
from holdfast.core.model.control_rows import FateMet
from holdfast.core.model.decision import Letter, Release
from holdfast.core.model.ids import letter_id, token_id
from holdfast.core.model.program import LAST_ERROR, Place
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import Failed, Token, value_of
from holdfast.core.model.status import InstanceStatus, Phase, StepStatus
from holdfast.core.rollback.rollback import abandon, begin
from holdfast.errors import Refused

DEAD: Final = "dead"
POSTPONED: Final = "postponed"
LOST: Final = "lost"
FATAL: Final = "fatal"
ROLLBACK: Final = "rollback"
PAUSED_REASON: Final = "STEP_PAUSED"  # DLQ mode: nothing is rolled back, a person looks at it
_BURIES: Final = {"suspend": InstanceStatus.SUSPENDED, "dlq": InstanceStatus.DLQ}


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
    records: Records | None = None,
    input: bytes | None = None,
    calls: int = 0,
    buried_for: str | None = None,
) -> None:
    """End an open step without success. `input` is the input of its call, for a token that carries no value.

    `buried_for` is the reason of a dead letter that is written whatever the edges and the policy say.
    """
    turn.error = encode(failure)
    known = value_of(token) or input
    value = known or NULL
    keep_error(turn, place.id, failure)
    way, tried, _ = (None, None, False) if buried_for else _way_out(turn, place, on, value)
    fate = DEAD if buried_for else None if way else _fate(turn, path)
    if fate in (DEAD, POSTPONED) and known is None:
        raise Refused(
            f"The failure of {place.id!r} does not say what the step was called with, so it could never run again.",
            code="INPUT_MISSING",
            hint="Send the failure with the step's input.",
        )
    del turn.tokens[path]
    turn.end_waits(path, token)
    status = _status_of(turn, fate)
    turn.close(
        token, status, on, chosen=way.chosen if way else NOTHING_CHOSEN, output=output, error=turn.error,
        closing=_closing(records, tried, fate),
    )  # fmt: skip
    turn.note("step_failed", place.id, token_id(path, token.hop), about(failure, calls or token.calls))
    fence = held or token.fence
    if way is not None:
        turn.moves.append(Move(path, token.hop + 1, way.target, value, held, place.id, on, fence=fence))
        return
    if held:
        turn.released.append(Release(path, held))
    token = msgspec.structs.replace(token, value=msgspec.Raw(value), fence=fence)
    _meet_fate(turn, path, token, failure, fate, buried_for or PAUSED_REASON)


def fail_entry(
    turn: Turn,
    place: Place,
    move: Move,
    failure: Failure,
    *,
    records: Records | None = None,
    output: bytes | None = None,
    buried_for: str | None = None,
) -> None:
    """Fail a node on entry: one row, opened and closed. `buried_for` as in `fail_visit`."""
    turn.error = encode(failure)
    keep_error(turn, place.id, failure)
    way, tried, _ = (None, None, False) if buried_for else _way_out(turn, place, "error", move.raw)
    fate = DEAD if buried_for else None if way else _fate(turn, move.path)
    step = turn.open(
        place, move, _status_of(turn, fate), input=move.raw, closed=True, chosen=way.chosen if way else NOTHING_CHOSEN,
        output=output, closing=_closing(records, tried, fate), error=turn.error,
    )  # fmt: skip
    turn.note("step_failed", place.id, step.token, about(failure))
    fence = move.held or move.fence
    if way is not None:
        onward = Move(move.path, move.hop + 1, way.target, move.raw, move.held, place.id, "error", fence=fence)
        turn.moves.append(onward)
        return
    turn.release(move)
    value = msgspec.Raw(move.raw)
    token = Token(
        hop=move.hop,
        node=place.id,
        step=step.id,
        at=turn.now,
        fence=fence,
        run=move.run,
        last=move.last,
        value=value,
        entity_version=turn.version_seen(place),
    )
    _meet_fate(turn, move.path, token, failure, fate, buried_for or PAUSED_REASON)


def keep_error(turn: Turn, node: str, failure: Failure) -> None:
    if turn.program.policy.keeps_error:
        turn.context = with_error(turn.context, failure.code, failure.message, node)


def with_error(context: bytes, code: str, message: str, node: str | None) -> bytes:
    """The context with the last error in it; a later success leaves it there."""
    return merged(context, encode({LAST_ERROR: {"code": code, "message": message, "step": node}}))


def no_edge(place: Place, on: str) -> Failure:
    return Failure("NO_EDGE_MATCHED", f"No {on!r} edge of {place.id!r} applies and it has no default edge.")


def _way_out(turn: Turn, place: Place, on: str, raw: bytes) -> Choice:
    """Choose the edge for this kind of failure. A timeout without an edge of its own takes the `error` edge."""
    choice = choose(turn, place, on, raw)
    if choice[0] is None and on == "timeout":
        return choose(turn, place, "error", raw)
    return choice


def _closing(before: Records | None, tried: Records | None, fate: str | None) -> bytes | None:
    records = [*(before or ()), *(tried or ())]
    return closing(records, fate=fate) if fate else closing(records)


def _fate(turn: Turn, path: str) -> str:
    runner = runner_of(turn, path)
    if runner is not None and not is_last_hope(turn, runner):
        return LOST
    if turn.program.policy.on_error in _BURIES and not (runner and _join_has_a_way_out(turn, runner)):
        return DEAD
    if turn.status is InstanceStatus.SUSPENDED:
        return POSTPONED
    if runner is not None:
        return LOST
    return ROLLBACK if turn.program.policy.on_error == "rollback" else FATAL


def _status_of(turn: Turn, fate: str | None) -> StepStatus:
    """The status of the failed step: `paused` if it is dead in DLQ mode, where it waits for a person; else `failed`."""
    return StepStatus.PAUSED if fate == DEAD and turn.program.policy.on_error == "dlq" else StepStatus.FAILED


def _join_has_a_way_out(turn: Turn, runner: str) -> bool:
    join = turn.program.joins[turn.scopes[runner.rpartition(".")[0]].split]
    return join is not None and "error" in turn.program.places[join].ways


def _meet_fate(
    turn: Turn, path: str, token: Token, failure: Failure, fate: str | None, letters_reason: str = PAUSED_REASON
) -> None:
    if fate == DEAD:
        _bury(turn, path, token, failure, letters_reason)
    elif fate == POSTPONED:
        turn.tokens[path] = _dead(turn, token, is_postponed=True)
    elif fate == LOST:
        lose(turn, runner_of(turn, path) or path)
    elif fate == ROLLBACK:
        begin(turn, InstanceStatus.FAILED, failure.code, first=token.step)
    else:
        end_instance(turn, InstanceStatus.FAILED, failure.code)


def _bury(turn: Turn, path: str, token: Token, failure: Failure, letters_reason: str) -> None:
    """Keep the token, dead, until a resume or a requeue runs its node again. In DLQ mode it gets a dead letter."""
    turn.tokens[path] = dead = _dead(turn, token)
    if turn.program.policy.on_error == "dlq":
        turn.letters = (*turn.letters, _letter(turn, path, dead, letters_reason))
    status = _BURIES.get(turn.program.policy.on_error, turn.status)
    if turn.status not in (InstanceStatus.SUSPENDED, status):
        turn.suspend(status, failure.code, token.node, token_id(path, token.hop))


def _dead(turn: Turn, token: Token, *, is_postponed: bool = False) -> Token:
    failed = Failed(msgspec.Raw(turn.error or NULL), turn.version, is_postponed)
    return msgspec.structs.replace(token, phase=Phase.DEAD, waits=(), failed=failed)


def failure_of(failed: Failed) -> Failure:
    return msgspec.json.decode(failed.error, type=Failure)


def postponed(turn: Turn) -> list[str]:
    """The paths of the tokens that failed while the instance was suspended, in the order of their failures."""
    found = [(t.failed.version, path) for path, t in turn.tokens.items() if t.failed and t.failed.is_postponed]
    return [path for _, path in sorted(found)]


def meet_postponed(turn: Turn, path: str) -> None:
    """Decide the fate of a token that failed while the instance was suspended. Its handler is not called again."""
    token = turn.tokens.get(path)
    if token is None or token.failed is None:
        return  # the fate of an earlier failure ended this token too
    turn.error = bytes(token.failed.error)
    del turn.tokens[path]
    fate = _fate(turn, path)
    if fate == DEAD:
        fate = LOST  # only the last branch of a race is not buried at once
    turn.control(FateMet(path=path, fate=fate))
    _meet_fate(turn, path, token, failure_of(token.failed), fate)


def _letter(turn: Turn, path: str, token: Token, reason: str) -> Letter:
    place = turn.program.places[token.node]
    return Letter(
        id=letter_id(turn.now, token.step),
        source="step",
        step=token.step,
        at=token.at,
        path=path,
        token=token_id(path, token.hop),
        node=place.id,
        behaviour=place.node.kind,
        input=value_of(token),
        error=turn.error,
        reason=reason,
        calls=token.calls,
    )


def end_instance(turn: Turn, status: InstanceStatus, reason: str | None) -> None:
    """End the instance now, and every token with it."""
    turn.moves.clear()
    turn.status, turn.reason = status, reason
    abandon(turn, str(status))
    for path in sorted(turn.tokens):
        cancel_token(turn, path, str(status), StepStatus.SKIPPED, noted=WORKFLOW_STOPPED)
    turn.scopes = {}
    turn.note(f"instance_{status}", detail=_ending(turn, status, reason))


def _ending(turn: Turn, status: InstanceStatus, reason: str | None) -> dict[str, str | None] | None:
    """The detail of the event of the end. An abort names its actor: the one who asked for it, or who rejected."""
    if status is InstanceStatus.ABORTED:
        return {"by": turn.actor, "reason": reason}
    return None if reason is None else {"reason": reason}
