"""Plain steps of a rollback: a compensation succeeded and the next one follows, or it was the last.

Like the plain steps forward: made without the machinery for the rest, and exactly what the long way would give.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.decision import Closed, Decision, Dispatch, Event, Facts, Moved, Plain, Release, Retried
from holdfast.core.ids import token_id
from holdfast.core.program import Program
from holdfast.core.signals import SYSTEM, WorkDone
from holdfast.core.state import EMPTY, Instance, Rollback, State, Token
from holdfast.core.status import STEP_COMPLETED, WORKING, InstanceStatus, StepStatus
from holdfast.core.turn import NONE, encode
from holdfast.core.undos import Undo, Undos

_ROLLED_BACK: Final = StepStatus.ROLLED_BACK
_COMPENSATION: Final = StepStatus.COMPENSATION
_FAILED: Final = InstanceStatus.FAILED


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
        return _go_on(program, instance, signal, rollback, token, done, plan.rest)
    return _end(program, instance, signal, rollback, token, done)


def _go_on(
    program: Program,
    instance: Instance,
    signal: WorkDone,
    rollback: Rollback,
    token: Token,
    done: Undo,
    rest: Undos,
) -> Decision | None:
    path, held, state, undo = signal.path, signal.fence, instance.state, rest[0]
    if undo.path != path or undo.is_evidence or undo.fence > held or undo.at != done.at:
        return None
    place = program.places[undo.node]
    version, fence, node = instance.version + 1, held + 1, place.node
    after = State(
        {path: Token(undo.hop, undo.node, undo.step, undo.at, fence, WORKING, 1, undo.run)}, state.scopes, state.chain,
        state.early, state.parked, state.stopping, state.expires,
        Rollback(
            rollback.target, rollback.reason, rollback.by, rollback.first, rollback.to_root, rest, rollback.broken
        ),
        state.ghosts,
    )  # fmt: skip
    return _decision(
        later(instance, version, instance.status, instance.reason, after),
        _close(token, version, signal.raw),
        [
            undo_event(version, 1, "compensation_completed", done),
            undo_event(version, 2, "compensation_started", undo),
        ],
        [
            Dispatch(
                path, undo.step, undo.at, place.queue, place.id, fence, held, 1, rest.input, node.priority, node.timeout
            )
        ],
        NONE,
        [Retried(undo.step, undo.at, 1, fence, None)],
        "undo",
        (_taken_back(program, done), Moved(undo.of, undo.of_at, _COMPENSATION)),
    )


def _end(
    program: Program, instance: Instance, signal: WorkDone, rollback: Rollback, token: Token, done: Undo
) -> Decision | None:
    state = instance.state
    if instance.parent is not None or state.expires is not None or state.ghosts or state.scopes:
        return None
    version = instance.version + 1
    status = _FAILED if rollback.broken else rollback.target
    actor = SYSTEM.id
    return _decision(
        later(instance, version, status, rollback.reason, EMPTY),
        _close(token, version, signal.raw),
        [
            undo_event(version, 1, "compensation_completed", done),
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


def undo_event(version: int, ordinal: int, type: str, undo: Undo) -> Event:
    name = token_id(undo.path, undo.hop)
    return Event(version, ordinal, type, undo.node, name, SYSTEM.id, b'{"undoes":"%b"}' % undo.of.hex().encode())


def later(before: Instance, version: int, status: InstanceStatus, reason: str | None, state: State) -> Instance:
    """The instance on its way back; what it has gathered stays as it is."""
    return Instance(
        before.id, before.org, before.definition, before.flow, before.flow_version, version, status, state, before.data,
        reason, before.entity_version, before.parent, before.parent_token, before.trace, before.created, before.starter,
        before.partition, before.correlation,
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
