"""Rollback: begin, plan and run the compensations of an instance.

A rollback has three strides, each a decision of its own:

    begin   no token moves forward any more: waiting steps are skipped, running handlers may finish and are recorded
    plan    when no handler or sub-flow runs any more, the history is read and every compensation gets a row, with its
            place in the order
    run     one compensation after another; the last one ends the instance

The order is strictly backwards: the step that failed first, then the deepest step of each branch in the order the
branches were written, then the split, then the steps before it. It ends at a save point.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.kernel.builder import NULL, Turn, about, counted, encode
from holdfast.core.kernel.scopes import WORKFLOW_STOPPED, awaits_child, cancel_children, cancel_token, is_out
from holdfast.core.model.control_rows import RollbackBegun, RollbackPlanned
from holdfast.core.model.decision import Dispatch, History, Letter, Moved, Opened, Release, Retried
from holdfast.core.model.ids import COMPENSATE, letter_id, receipt_key, step_id, token_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Failure, HistoryRead, PastStep
from holdfast.core.model.state import Instance, Rollback, Token
from holdfast.core.model.status import TERMINAL, InstanceStatus, Phase, StepStatus
from holdfast.core.rollback.order import backwards, executed
from holdfast.core.rollback.pending import Undo, Undos, detail_of, worth_keeping
from holdfast.errors import Refused

COMPENSATION: Final = "compensation"  # the kind of node, and the source of its dead letter
AFTER_STOP: Final = "after_cancel"  # the outcome of a step whose handler was running when the instance stopped
OUT_OF_CALLS: Final = "COMPENSATION_EXHAUSTED"
_PENDING: Final = StepStatus.PENDING  # looked up once: a member of an enumeration is a search for every step
_CANCELLED: Final = StepStatus.CANCELLED


# --- begin --------------------------------------------------------------------------------------------------------


def begin(
    turn: Turn,
    target: InstanceStatus,
    reason: str | None,
    *,
    by: str | None = None,
    first: bytes = b"",
    to_root: bool = False,
    is_told: bool = False,
) -> None:
    """Begin a rollback: no token moves forward from here.

    `first` is the step that failed, whose own row records the rollback; without one, a control row does. `is_told`:
    running handlers are asked to stop; else they may finish.
    """
    turn.rollback = Rollback(target, reason, by, first, to_root)
    if not first:
        turn.control(RollbackBegun(target=target, reason=reason, by=by, root=to_root))
    turn.note("rollback_started", detail={"target": target, "reason": reason, "by": by})
    turn.status, turn.reason, turn.parked = InstanceStatus.ROLLING_BACK, reason, ()
    turn.moves.clear()
    if turn.expires is not None:
        if turn.expires.ref is not None:
            turn.timers_ended = [*turn.timers_ended, turn.expires.ref]
        turn.expires = None
    for path, token in sorted(turn.tokens.items()):
        stop_token(turn, path, token, "cancelled" if by is not None else "rolled_back", is_told=is_told)
    turn.scopes = {}  # no branches will meet any more


def stop_token(turn: Turn, path: str, token: Token, reason: str, *, is_told: bool) -> None:
    """Stop a token: await its handler or sub-flow if one runs, else end it now."""
    if token.phase is Phase.EXPIRING:  # asked to stop before
        turn.tokens[path] = msgspec.structs.replace(token, phase=Phase.CANCELLING, failed=None)
    elif is_out(turn, path, token):
        turn.tokens[path] = msgspec.structs.replace(token, phase=Phase.CANCELLING)
        if is_told:
            turn.stops = (*turn.stops, path)
        else:
            turn.halts = (*turn.halts, path)
    elif token.phase is Phase.RESTING and awaits_child(turn, token):
        cancel_children(turn, token, reason)
        turn.end_waits(path, token)
        waits = tuple(wait for wait in token.waits if wait.kind == "child")
        turn.tokens[path] = msgspec.structs.replace(token, phase=Phase.CANCELLING, waits=waits)
    else:
        # Between two calls it has failed as often as it was called, and may have left something behind.
        was_called = token.phase is Phase.RETRYING and token.calls > 0 and not is_told
        if was_called:
            cancel_token(turn, path, AFTER_STOP, StepStatus.FAILED, noted=WORKFLOW_STOPPED)
        else:
            cancel_token(turn, path, reason, StepStatus.SKIPPED, noted=WORKFLOW_STOPPED)


# --- plan ---------------------------------------------------------------------------------------------------------


def history_read(turn: Turn, signal: HistoryRead) -> None:
    rollback = turn.rollback
    if rollback is None or rollback.plan is not None or turn.tokens or turn.ghosts:
        raise Refused("No rollback waits for its plan.", code="NOT_ROLLING_BACK")
    past = executed(turn.program, signal.steps, to_root=rollback.to_root)
    fences = _highest_fences(signal.steps)
    undos: list[Undo] = []
    inputs: list[bytes] = []
    moved: list[Moved] = []
    places = turn.program.places
    for step in backwards(past.steps, rollback.first):
        place = places.get(step.node)  # a migration may have dropped a node without a compensation
        undo = None if place is None else place.node.undo
        is_evidence = step.status == _CANCELLED
        if undo is not None:
            raw = what_was_done(step)
            undos.append(
                open_compensation(
                    turn=turn,
                    place=places[undo],
                    path=step.path,
                    hop=step.hop,
                    of=step.id,
                    of_at=step.at,
                    fence=fences[step.path],
                    ordinal=len(undos),
                    raw=raw,
                    is_evidence=is_evidence,
                )
            )
            inputs.append(raw)
        elif not is_evidence:
            moved.append(Moved(step.id, step.at, StepStatus.ROLLED_BACK))
    turn.moved = (*turn.moved, *moved)
    if not undos:  # else the rows of the compensations tell that there is a plan
        turn.control(RollbackPlanned(save_point=past.save_point))
    turn.note("rollback_planned", detail={"compensations": len(undos), "save_point": past.save_point})
    turn.rollback = msgspec.structs.replace(rollback, plan=Undos(undos, worth_keeping(inputs)), first=b"")
    run_next(turn)


def _highest_fences(steps: list[PastStep]) -> dict[str, int]:
    """The highest fence of each path.

    A compensation must not use the fence of a step after the one it undoes: a stop for that step's handler would stop
    the compensation.
    """
    fences: dict[str, int] = {}
    for step in steps:
        if step.fence >= fences.get(step.path, 0):
            fences[step.path] = step.fence
    return fences


def what_was_done(step: PastStep) -> bytes:
    return b'{"input":%b,"output":%b}' % (step.input or NULL, step.output or NULL)


def open_compensation(
    turn: Turn,
    place: Place,
    path: str,
    hop: int,
    of: bytes,
    of_at: int,
    fence: int,
    ordinal: int,
    raw: bytes,
    *,
    run: int = 0,
    is_evidence: bool = False,
) -> Undo:
    """Open the row of a compensation that is still to run; its receipt makes it the only one of its kind."""
    detail = detail_of(ordinal, of, of_at, is_evidence=is_evidence)
    row = compensation_row(
        instance=turn.instance,
        place=place,
        path=path,
        hop=hop,
        run=run,
        version=turn.version,
        ordinal=turn.seq,
        now=turn.now,
        raw=raw,
        detail=detail,
        fence=fence,
    )
    turn.opened.append(row)
    turn.seq += 1
    return Undo(
        node=place.id,
        path=path,
        hop=hop,
        step=row.id,
        at=turn.now,
        of=of,
        of_at=of_at,
        fence=fence,
        run=run,
        is_evidence=is_evidence,
    )


def compensation_row(
    instance: Instance,
    place: Place,
    path: str,
    hop: int,
    run: int,
    version: int,
    ordinal: int,
    now: int,
    raw: bytes,
    detail: bytes,
    fence: int,
) -> Opened:
    """The row of a compensation that is still to run."""
    id, token = instance.id, token_id(path, hop)
    key = receipt_key(id, place.id_bytes, token, instance.entity_version, COMPENSATE, run)
    return Opened(
        id=step_id(now, key, id[15]),
        node=place.id,
        behaviour=place.behaviour,
        path=path,
        hop=hop,
        token=token,
        key=key,
        run=run,
        version=version,
        ordinal=ordinal,
        cause="rollback",
        status=_PENDING,
        input=raw,
        fence=fence,
        calls=0,
        detail=detail,
        kind=COMPENSATE,
    )


# --- run ----------------------------------------------------------------------------------------------------------


def run_next(turn: Turn, *, left: str = "", held: int = 0) -> None:
    """Begin the next compensation. `held` is the fence of the last one's work row, on the path `left`."""
    rollback = turn.rollback
    if rollback is None or not rollback.plan or turn.status is InstanceStatus.SUSPENDED:
        if held:
            turn.released.append(Release(left, held))
        return
    undo = rollback.plan[0]
    if held and left != undo.path:
        turn.released.append(Release(left, held))
        held = 0
    place = turn.program.places[undo.node]
    fence = max(undo.fence, held) + 1
    if not undo.is_evidence:
        turn.moved = (*turn.moved, Moved(undo.of, undo.of_at, StepStatus.COMPENSATION))
    turn.note("compensation_started", undo.node, token_id(undo.path, undo.hop), {"undoes": undo.of.hex()})
    turn.tokens[undo.path] = Token(undo.hop, undo.node, undo.step, undo.at, fence, Phase.WORKING, 1, undo.run)
    if not _begin_at_once(turn, undo, fence):
        turn.retried = [*turn.retried, Retried(undo.step, undo.at, 1, fence, None)]
    turn.dispatches.append(
        Dispatch(
            path=undo.path,
            step=undo.step,
            at=undo.at,
            queue=place.queue,
            node=place.id,
            fence=fence,
            held=held,
            calls=1,
            input=rollback.plan.input,
            priority=place.node.priority,
            timeout=place.node.timeout,
        )
    )


def _begin_at_once(turn: Turn, undo: Undo, fence: int) -> bool:
    """Open the row as running if this very decision opens it, which spares it an update; else return False."""
    for index, opened in enumerate(turn.opened):
        if opened.id == undo.step:
            turn.opened[index] = msgspec.structs.replace(opened, status=StepStatus.RUNNING, calls=1, fence=fence)
            return True
    return False


def undone(turn: Turn, path: str, token: Token, raw: bytes, fence: int, calls: int) -> None:
    """Close a compensation that succeeded: its step is rolled back, and the next compensation begins."""
    turn.close(token, StepStatus.COMPLETED, "completed", output=raw)
    _go_on(turn, path, token, fence, StepStatus.ROLLED_BACK, "compensation_completed", counted(calls))


def not_undone(
    turn: Turn, path: str, token: Token, place: Place, failure: Failure, fence: int, calls: int, raw: bytes | None
) -> None:
    """Close a compensation that is out of calls and leave a dead letter for a person; the rollback continues."""
    error = encode(failure)
    turn.close(token, StepStatus.FAILED, "error", error=error)
    id = letter_id(turn.now, token.step)
    turn.letters = (
        *turn.letters,
        Letter(
            id=id,
            source=COMPENSATION,
            step=token.step,
            at=token.at,
            path=path,
            token=token_id(path, token.hop),
            node=place.id,
            behaviour=place.behaviour,
            input=raw,
            error=error,
            reason=OUT_OF_CALLS,
            calls=calls,
        ),
    )
    if turn.rollback is not None:
        turn.rollback = msgspec.structs.replace(turn.rollback, broken=True)
    detail = {**about(failure, calls), "letter": id.hex()}
    _go_on(turn, path, token, fence, StepStatus.FAILED, "compensation_failed", detail)


def _go_on(
    turn: Turn, path: str, token: Token, fence: int, status: StepStatus, event: str, detail: dict[str, Any]
) -> None:
    rollback = turn.rollback
    assert rollback is not None
    assert rollback.plan is not None
    del turn.tokens[path]
    turn.end_waits(path, token)
    undo = rollback.plan[0]
    if not undo.is_evidence:
        step = turn.program.undoes.get(undo.node, "")
        turn.moved = (*turn.moved, Moved(undo.of, undo.of_at, status, step))
    turn.note(event, token.node, token_id(path, token.hop), {**detail, "undoes": undo.of.hex()})
    left = rollback.plan.rest
    if turn.status is InstanceStatus.SUSPENDED or not left or left[0].path != path:
        left = left.with_fence(path, fence)
    turn.rollback = msgspec.structs.replace(rollback, plan=left)
    run_next(turn, left=path, held=fence)


# --- the end ------------------------------------------------------------------------------------------------------


def settle_rollback(turn: Turn, rollback: Rollback) -> bool:
    """Continue or end the rollback at the end of a turn. True: the instance has just ended with it."""
    if turn.tokens or (rollback.plan is None and turn.ghosts):
        return False
    if rollback.plan is None:
        turn.needs = [*turn.needs, History()]
        return False
    if rollback.plan:  # suspended between two compensations
        return False
    turn.rollback = None
    if turn.instance.status in TERMINAL:
        return False  # a requeued compensation has run; the instance had ended before
    turn.status = InstanceStatus.FAILED if rollback.broken else rollback.target
    turn.reason = rollback.reason
    turn.note("rollback_completed", detail={"broken": rollback.broken})
    turn.note(f"instance_{turn.status}", detail={"by": rollback.by, "reason": rollback.reason})
    return True


def abandon(turn: Turn, reason: str) -> None:
    """Stop the rollback itself: compensations not yet run are skipped; the step of a running one becomes failed."""
    rollback = turn.rollback
    turn.rollback = None
    if rollback is None or not rollback.plan:
        return
    present = rollback.plan[0]
    if present.path in turn.tokens and not present.is_evidence:
        turn.moved = (*turn.moved, Moved(present.of, present.of_at, StepStatus.FAILED))
    for undo in rollback.plan:
        if undo.path not in turn.tokens or turn.tokens[undo.path].step != undo.step:
            never = Token(undo.hop, undo.node, undo.step, undo.at)
            turn.close(never, StepStatus.SKIPPED, reason)
