"""Plain decisions of a rollback: the turn (a step fails for good), the plan, the next compensation, the end.

Each function returns exactly the decision of the general path (a property test compares them), and None in any unusual
case. Most sagas fail with one token and one path behind it; forks, late results and rows other than
those of steps are left to the general path.

Rows of more than twelve fields are built from positions, as in `forward.py`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from holdfast.core.kernel.builder import NONE, NOTHING_CHOSEN, about, encode
from holdfast.core.kernel.failure import ROLLBACK
from holdfast.core.kernel.routing import closing
from holdfast.core.model.decision import (
    Closed,
    Decision,
    Dispatch,
    Event,
    Facts,
    History,
    Moved,
    Need,
    Opened,
    Plain,
    Release,
    Retried,
)
from holdfast.core.model.ids import FORWARD, token_id
from holdfast.core.model.program import Program
from holdfast.core.model.signals import SYSTEM, HistoryRead, PastStep, WorkDone, WorkFailed
from holdfast.core.model.state import EMPTY, Instance, Rollback, State, Token
from holdfast.core.model.status import ROLLING_BACK, STEP_COMPLETED, STEP_RUNNING, WORKING, InstanceStatus, StepStatus
from holdfast.core.rollback.order import DONE
from holdfast.core.rollback.pending import Undo, Undos, detail_of, worth_keeping
from holdfast.core.rollback.rollback import compensation_row, what_was_done

_FAILED: Final = InstanceStatus.FAILED
_STEP_FAILED: Final = StepStatus.FAILED
_COMPENSATION: Final = StepStatus.COMPENSATION
_ROLLED_BACK: Final = StepStatus.ROLLED_BACK
_TURNS_BACK: Final = closing(None, fate=ROLLBACK)
_HISTORY: Final[list[Need]] = [History()]  # shared like NONE: never append to it
_hop: Final = attrgetter("hop")


def fail(program: Program, instance: Instance, signal: WorkFailed, facts: Facts) -> Decision | None:
    """Fail the only token of a running instance for good, without an edge to take, and begin the rollback."""
    state = instance.state
    token = state.tokens.get(signal.path)
    if (
        token is None
        or token.step != signal.step
        or token.phase is not WORKING
        or token.fence > signal.fence
        or token.waits
        or signal.calls > token.calls  # lost calls need events of their own
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
        tokens={},
        scopes={},
        chain=state.chain,
        early=state.early,
        parked=(),
        stopping=state.stopping,
        expires=None,
        rollback=Rollback(_FAILED, failure.code, None, token.step),
        ghosts=state.ghosts,
    )
    told = encode(about(failure, signal.calls or token.calls))
    begun = encode({"target": _FAILED, "reason": failure.code, "by": None})
    return Decision(
        _later(instance, version, ROLLING_BACK, failure.code, turned, facts.now),
        NONE,
        [
            Closed(
                id=token.step, at=token.at, status=_STEP_FAILED, outcome="error", version=version, ordinal=0,
                chosen=NOTHING_CHOSEN, output=None, error=error, closing=_TURNS_BACK, node=token.node,
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
    """Plan the rollback of steps that ran one after another on a single path, the last of which failed."""
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
        done = program.places.get(step.node)  # a migration may have dropped a node without a compensation
        if done is None or done.node.undo is None:
            moved.append(Moved(step.id, step.at, _ROLLED_BACK))
            continue
        place, ordinal, raw = program.places[done.node.undo], len(undos), what_was_done(step)
        detail = detail_of(ordinal, step.id, step.at, is_evidence=False)
        row = compensation_row(
            instance=instance,
            place=place,
            path=step.path,
            hop=step.hop,
            run=0,
            version=version,
            ordinal=ordinal,
            now=now,
            raw=raw,
            detail=detail,
            fence=fence,
        )
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
        _later(instance, version, ROLLING_BACK, instance.reason, _planned(state, rollback, first, left), now),
        opened,
        NONE,
        [
            Event(version, count, "rollback_planned", None, None, SYSTEM.id, told),
            _undo_event(version, count + 1, "compensation_started", first),
        ],
        [
            Dispatch(
                path=first.path, step=first.step, at=now, queue=place.queue, node=place.id, fence=fence + 1, held=0,
                calls=1, input=left.input, priority=place.node.priority, timeout=place.node.timeout,
            )
        ],
        NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, False, NONE, None, NONE, "plan", (), (),
        tuple(moved),
    )  # fmt: skip


def _fence_of_a_line(steps: list[PastStep]) -> int | None:
    """The highest fence of steps that were all done one after another on a single path; None if they were not."""
    path, hop, fence = steps[-1].path, -1, 0
    for step in steps:
        if step.path != path or step.hop <= hop or step.kind != FORWARD or step.status not in DONE:
            return None
        hop, fence = step.hop, max(fence, step.fence)
    return fence


def _since_save_point(program: Program, rollback: Rollback, steps: list[PastStep]) -> tuple[list[PastStep], str | None]:
    """The steps after the nearest save point, the last one first, and the name of that save point."""
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
        tokens={first.path: token},
        scopes=state.scopes,
        chain=state.chain,
        early=state.early,
        parked=state.parked,
        stopping=state.stopping,
        expires=state.expires,
        rollback=planned,
        ghosts=state.ghosts,
    )


def take_back(program: Program, instance: Instance, signal: WorkDone, facts: Facts) -> Decision | None:
    state = instance.state
    rollback, token = state.rollback, state.tokens.get(signal.path)
    if (
        rollback is None
        or not rollback.plan
        or token is None
        or token.step != signal.step
        or token.phase is not WORKING
        or token.fence > signal.fence
        or token.waits
        or signal.calls > 1
        or len(state.tokens) > 1
        or facts.actor is not SYSTEM
    ):
        return None
    plan = rollback.plan
    done = plan[0]
    if done.is_evidence or done.step != token.step:
        return None
    if len(plan) > 1:
        return _go_on(program, instance, signal, rollback, token, done, plan.rest, facts.now)
    return _end(program, instance, signal, rollback, token, done, facts.now)


def _go_on(
    program: Program,
    instance: Instance,
    signal: WorkDone,
    rollback: Rollback,
    token: Token,
    done: Undo,
    rest: Undos,
    now: int,
) -> Decision | None:
    path, held, state, undo = signal.path, signal.fence, instance.state, rest[0]
    if undo.path != path or undo.is_evidence or undo.fence > held or undo.at != done.at:
        return None
    place = program.places[undo.node]
    version, fence, node = instance.version + 1, held + 1, place.node
    after = State(
        tokens={path: Token(undo.hop, undo.node, undo.step, undo.at, fence, WORKING, 1, undo.run)},
        scopes=state.scopes,
        chain=state.chain,
        early=state.early,
        parked=state.parked,
        stopping=state.stopping,
        expires=state.expires,
        rollback=Rollback(
            rollback.target, rollback.reason, rollback.by, rollback.first, rollback.to_root, rest, rollback.broken
        ),
        ghosts=state.ghosts,
    )
    return _decision(
        _later(instance, version, instance.status, instance.reason, after, now),
        _close(token, version, signal.raw),
        [
            _undo_event(version, 1, "compensation_completed", done),
            _undo_event(version, 2, "compensation_started", undo),
        ],
        [
            Dispatch(
                path=path,
                step=undo.step,
                at=undo.at,
                queue=place.queue,
                node=place.id,
                fence=fence,
                held=held,
                calls=1,
                input=rest.input,
                priority=node.priority,
                timeout=node.timeout,
            )
        ],
        NONE,
        [Retried(undo.step, undo.at, 1, fence, None)],
        "undo",
        (_taken_back(program, done), Moved(undo.of, undo.of_at, _COMPENSATION)),
    )


def _end(
    program: Program, instance: Instance, signal: WorkDone, rollback: Rollback, token: Token, done: Undo, now: int
) -> Decision | None:
    state = instance.state
    if instance.parent is not None or state.expires is not None or state.ghosts or state.scopes:
        return None
    version = instance.version + 1
    status = _FAILED if rollback.broken else rollback.target
    actor = SYSTEM.id
    return _decision(
        _later(instance, version, status, rollback.reason, EMPTY, now),
        _close(token, version, signal.raw),
        [
            _undo_event(version, 1, "compensation_completed", done),
            Event(version, 2, "rollback_completed", None, None, actor, encode({"broken": rollback.broken})),
            Event(
                version, 3, f"instance_{status}", None, None, actor,
                encode({"by": rollback.by, "reason": rollback.reason}),
            ),
        ],
        NONE,
        [Release(signal.path, signal.fence)],
        NONE,
        "undone",
        (_taken_back(program, done),),
    )  # fmt: skip


def _taken_back(program: Program, done: Undo) -> Moved:
    return Moved(done.of, done.of_at, _ROLLED_BACK, program.undoes.get(done.node, ""))


def _close(token: Token, version: int, raw: bytes) -> Closed:
    return Closed(token.step, token.at, STEP_COMPLETED, "completed", version, 0, None, raw, node=token.node)


def _undo_event(version: int, ordinal: int, type: str, undo: Undo) -> Event:
    name = token_id(undo.path, undo.hop)
    return Event(version, ordinal, type, undo.node, name, SYSTEM.id, b'{"undoes":"%b"}' % undo.of.hex().encode())


def _later(
    before: Instance, version: int, status: InstanceStatus, reason: str | None, state: State, now: int
) -> Instance:
    """The instance after a decision of the rollback; its context stays as it is."""
    return Instance(
        before.id, before.org, before.definition, before.flow, before.flow_version, version, status, state, before.data,
        reason, before.entity_version, before.parent, before.parent_token, before.trace, before.created, before.starter,
        before.partition, before.correlation, now,
    )  # fmt: skip


def _decision(
    after: Instance,
    closed: Closed,
    events: list[Event],
    dispatches: list[Dispatch],
    released: list[Release],
    retried: list[Retried],
    plain: Plain,
    moved: tuple[Moved, ...],
) -> Decision:
    return Decision(
        after, NONE, [closed], events, dispatches, released, retried, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
        False, NONE, None, NONE, plain, (), (), moved,
    )  # fmt: skip
