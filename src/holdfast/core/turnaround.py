"""The plain turn backwards: a step fails for good, and the steps before it on its path are to be taken back.

Like the plain steps forward: made without the machinery for the rest, and exactly what the long way would give. Most
sagas that fail do so where nothing else of them is under way; forks, late results and other rows than those of steps
are left to the long way.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from holdfast.core.backwards import DONE
from holdfast.core.decision import Closed, Decision, Dispatch, Event, Facts, History, Moved, Need, Opened, Release
from holdfast.core.failure import ROLLBACK
from holdfast.core.ids import FORWARD, token_id
from holdfast.core.plain_undo import later, undo_event
from holdfast.core.program import Program
from holdfast.core.rollback import compensation_row, what_was_done
from holdfast.core.signals import SYSTEM, HistoryRead, PastStep, WorkFailed
from holdfast.core.state import Instance, Rollback, State, Token
from holdfast.core.status import ROLLING_BACK, STEP_COMPLETED, STEP_RUNNING, WORKING, InstanceStatus, StepStatus
from holdfast.core.turn import NONE, NOTHING_CHOSEN, about, encode
from holdfast.core.undos import Undo, Undos, detail_of, worth_keeping
from holdfast.core.ways import closing

_FAILED: Final = InstanceStatus.FAILED
_STEP_FAILED: Final = StepStatus.FAILED
_COMPENSATION: Final = StepStatus.COMPENSATION
_ROLLED_BACK: Final = StepStatus.ROLLED_BACK
_TURNS_BACK: Final = closing(None, fate=ROLLBACK)
_HISTORY: Final[list[Need]] = [History()]  # nobody appends to it, as to NONE
_hop: Final = attrgetter("hop")


def fail(program: Program, instance: Instance, signal: WorkFailed, facts: Facts) -> Decision | None:
    """The only token of a running instance fails for good, and no edge leads on from there."""
    state = instance.state
    token = state.tokens.get(signal.path)
    if (
        token is None
        or token.step != signal.step
        or token.phase is not WORKING
        or token.fence > signal.fence
        or token.waits
        or len(state.tokens) > 1
        or state.scopes
        or state.ghosts
        or state.expires is not None
        or state.rollback is not None
        or facts.actor is not SYSTEM
    ):
        return None
    place, policy, failure = program.places[token.node], program.policy, signal.failure
    if (
        (signal.retryable and signal.calls < place.retry.calls)
        or "error" in place.ways
        or place.node.best_effort
        or policy.on_error != "rollback"
        or policy.keeps_error
    ):
        return None
    version, path, error, actor = instance.version + 1, signal.path, encode(failure), SYSTEM.id
    turned = State(
        {}, {}, state.chain, state.early, (), state.stopping, None,
        Rollback(_FAILED, failure.code, None, token.step), state.ghosts,
    )  # fmt: skip
    told = encode(about(failure, signal.calls or token.calls))
    begun = encode({"target": _FAILED, "reason": failure.code, "by": None})
    return Decision(
        later(instance, version, ROLLING_BACK, failure.code, turned),
        NONE,
        [
            Closed(
                token.step, token.at, _STEP_FAILED, "error", version, 0, NOTHING_CHOSEN, None, error, _TURNS_BACK,
                token.node,
            )
        ],
        [
            Event(version, 1, "step_failed", place.id, token_id(path, token.hop), actor, told),
            Event(version, 2, "rollback_started", None, None, actor, begun),
        ],
        NONE, [Release(path, signal.fence)], NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, False, _HISTORY,
        error, NONE, "fail",
    )  # fmt: skip


def plan(program: Program, instance: Instance, signal: HistoryRead, facts: Facts) -> Decision | None:
    """Everything that was done stands on one path, one step after another, and the last one is what failed."""
    state = instance.state
    rollback, steps = state.rollback, sorted(signal.steps, key=_hop)
    if (
        rollback is None
        or rollback.plan is not None
        or instance.status is not ROLLING_BACK
        or state.tokens
        or state.ghosts
        or facts.actor is not SYSTEM
        or not steps
        or steps[-1].id != rollback.first
    ):
        return None
    fence = _fence_of_a_line(steps)
    past, save_point = _since_save_point(program, rollback, steps)
    if fence is None:
        return None
    version, now = instance.version + 1, facts.now
    opened: list[Opened] = []
    undos: list[Undo] = []
    inputs: list[bytes] = []
    moved: list[Moved] = []
    for step in past:
        done = program.places.get(step.node)  # a migration may have dropped what needs no compensation
        if done is None or done.node.undo is None:
            moved.append(Moved(step.id, step.at, _ROLLED_BACK))
            continue
        place, ordinal, raw = program.places[done.node.undo], len(undos), what_was_done(step)
        detail = detail_of(ordinal, step.id, step.at, is_evidence=False)
        row = compensation_row(instance, place, step.path, step.hop, 0, version, ordinal, now, raw, detail, fence)
        opened.append(row)
        undos.append(Undo(place.id, step.path, step.hop, row.id, now, step.id, step.at, fence))
        inputs.append(raw)
    if not undos:
        return None
    first, count, left = undos[0], len(undos), Undos(undos, worth_keeping(inputs))
    opened[0] = msgspec.structs.replace(opened[0], status=STEP_RUNNING, fence=fence + 1, calls=1)
    moved.append(Moved(first.of, first.of_at, _COMPENSATION))
    told = encode({"compensations": count, "save_point": save_point})
    place = program.places[first.node]
    return Decision(
        later(instance, version, ROLLING_BACK, instance.reason, _planned(state, rollback, first, left)),
        opened,
        NONE,
        [
            Event(version, count, "rollback_planned", None, None, SYSTEM.id, told),
            undo_event(version, count + 1, "compensation_started", first),
        ],
        [
            Dispatch(
                first.path, first.step, now, place.queue, place.id, fence + 1, 0, 1, left.input, place.node.priority,
                place.node.timeout,
            )
        ],
        NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, False, NONE, None, NONE, "plan", (), (),
        tuple(moved),
    )  # fmt: skip


def _fence_of_a_line(steps: list[PastStep]) -> int | None:
    """The highest fence of steps that all stand on one path, one behind another, and count; None: they do not."""
    path, hop, fence = steps[-1].path, -1, 0
    for step in steps:
        if step.path != path or step.hop <= hop or step.kind != FORWARD or step.status not in DONE:
            return None
        hop, fence = step.hop, max(fence, step.fence)
    return fence


def _since_save_point(program: Program, rollback: Rollback, steps: list[PastStep]) -> tuple[list[PastStep], str | None]:
    """The last step first, and the save point before the first of them."""
    past = steps[::-1]
    if program.save_points and not rollback.to_root:
        for index, step in enumerate(past):
            if step.node in program.save_points and step.status == STEP_COMPLETED:
                return past[:index], step.node
    return past, None


def _planned(state: State, rollback: Rollback, first: Undo, left: Undos) -> State:
    token = Token(first.hop, first.node, first.step, first.at, first.fence + 1, WORKING, 1)
    planned = Rollback(rollback.target, rollback.reason, rollback.by, b"", rollback.to_root, left, rollback.broken)
    return State(
        {first.path: token}, state.scopes, state.chain, state.early, state.parked, state.stopping, state.expires,
        planned, state.ghosts,
    )  # fmt: skip
