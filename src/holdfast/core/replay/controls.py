"""Control rows in a rebuild: changes of an instance that belong to none of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from holdfast.core.kernel.builder import NULL, Move, encode, merged
from holdfast.core.kernel.failure import with_error
from holdfast.core.model.control_rows import (
    Aborted,
    BranchLost,
    Cancelled,
    Checkpoint,
    ControlRow,
    EntityFollowed,
    Escaped,
    EventKept,
    EventsLapsed,
    Expired,
    FateMet,
    FinishedLate,
    ForceFailed,
    Held,
    Interrupted,
    Migrated,
    Requeued,
    Rerun,
    Rescheduled,
    Resumed,
    RollbackBegun,
    RollbackPlanned,
    Suspended,
    TaskOverdue,
    TimerParked,
    UndoneAgain,
    WaitsChanged,
    read_control,
)
from holdfast.core.model.rows import StepRow, read_error
from holdfast.core.model.snapshot import read_state
from holdfast.core.model.state import ROOT, Parked, Rollback, Stopping, Token, value_of
from holdfast.core.model.status import InstanceStatus, Phase
from holdfast.core.replay.rebuild import Rebuild
from holdfast.core.signals.migrate import moved
from holdfast.core.signals.timeout_dlq import expiring
from holdfast.graph.model import Behaviour


def _suspend(rebuild: Rebuild, row: StepRow, told: Suspended) -> None:
    rebuild.status, rebuild.reason = told.status, told.reason
    if rebuild.program.policy.keeps_error and told.message is not UNSET and told.at is not UNSET:
        rebuild.context = with_error(rebuild.context, told.reason, told.message, told.at)


def _resume(rebuild: Rebuild, row: StepRow, told: Resumed) -> None:
    rollback = rebuild.undoing.rollback
    rebuild.status = InstanceStatus.RUNNING if rollback is None else InstanceStatus.ROLLING_BACK
    rebuild.reason = None if rollback is None else rollback.reason
    rebuild.chain, rebuild.parked = 0, ()
    for path, token in list(rebuild.tokens.items()):
        is_dead = token.phase is Phase.DEAD
        is_postponed = token.failed is not None and token.failed.is_postponed  # each has a row of its own
        if token.phase is Phase.HELD or (is_dead and told.again and not is_postponed):
            del rebuild.tokens[path]
            run = token.run + 1 if is_dead else token.run
            raw = value_of(token) or NULL
            rebuild.moves[path] = Move(path, token.hop, token.node, raw, last=token.last, run=run)


def _fate(rebuild: Rebuild, row: StepRow, told: FateMet) -> None:
    token = rebuild.tokens.pop(told.path)
    error = None if token.failed is None else bytes(token.failed.error)
    rebuild.meet_fate(told.path, told.fate, read_error(error).code, token.step)


def _lost(rebuild: Rebuild, row: StepRow, told: BranchLost) -> None:
    """Drop a lost branch and its scopes. Its failure, and the steps that ended with it, have rows of their own."""
    path = told.path
    for scope_id in [scope_id for scope_id, scope in rebuild.scopes.items() if scope.parent == path]:
        rebuild.close_scope(scope_id)
    rebuild.branch_over(path, "failed")


def _hold(rebuild: Rebuild, row: StepRow, told: Held) -> None:
    path, hop, node = told.path, told.hop, told.at
    rebuild.moves.pop(path, None)
    place = rebuild.program.places[node]
    if place.behaviour is Behaviour.JOIN and path.count("/") == place.depth:
        rebuild.close_scope(f"{path}/{hop - 1}")
    value = msgspec.Raw(row.input or NULL)
    rebuild.tokens[path] = Token(
        hop=hop,
        node=node,
        phase=Phase.HELD,
        run=told.run,
        last=told.last,
        value=value,
        entity_version=rebuild.version_seen(place),
    )


def _escape(rebuild: Rebuild, row: StepRow, told: Escaped) -> None:
    path, hop = told.path, told.hop
    move = rebuild.moves[told.came_from]
    rebuild.close_scope(f"{path}/{hop - 1}")
    rebuild.moves[path] = msgspec.structs.replace(move, path=path, hop=hop)


def _park(rebuild: Rebuild, row: StepRow, told: TimerParked) -> None:
    rebuild.parked = (*rebuild.parked, Parked(told.path, told.wait, told.purpose))


def _reschedule(rebuild: Rebuild, row: StepRow, told: Rescheduled) -> None:
    rebuild.parked = tuple(p for p in rebuild.parked if (p.path, p.wait) != (told.path, told.was))
    if not told.path:
        rebuild.expires = told.wait
        return
    token = rebuild.tokens[told.path]
    waits = tuple(told.wait if w.id == told.was else w for w in token.waits)
    rebuild.tokens[told.path] = msgspec.structs.replace(token, waits=waits)


def _overdue(rebuild: Rebuild, row: StepRow, told: TaskOverdue) -> None:
    path, passed = told.path, told.wait
    token = rebuild.tokens[path]
    rebuild.tokens[path] = msgspec.structs.replace(token, waits=tuple(w for w in token.waits if w.id != passed))


def _change_waits(rebuild: Rebuild, row: StepRow, told: WaitsChanged) -> None:
    rebuild.tokens[told.path] = msgspec.structs.replace(rebuild.tokens[told.path], waits=told.waits)


def _keep(rebuild: Rebuild, row: StepRow, told: EventKept) -> None:
    rebuild.early += 1


def _lapse(rebuild: Rebuild, row: StepRow, told: EventsLapsed) -> None:
    rebuild.early = max(0, rebuild.early - told.events)


def _entity(rebuild: Rebuild, row: StepRow, told: EntityFollowed) -> None:
    """Follow the document. The approvals that are asked again are closed and opened by rows of their own."""
    for path in told.asked:
        token = rebuild.tokens.pop(path)
        raw = value_of(token) or NULL
        rebuild.moves[path] = Move(path, token.hop, token.node, raw, last=token.last, run=token.run + 1)


def _interrupt(rebuild: Rebuild, row: StepRow, told: Interrupted) -> None:
    raw = row.input or NULL
    if told.merged and rebuild.program.merges:
        rebuild.context = merged(rebuild.context, raw)
    rebuild.chain, rebuild.tokens, rebuild.scopes = 0, {}, {}
    rebuild.parked = tuple(timer for timer in rebuild.parked if not timer.path)
    rebuild.moves = {ROOT: Move(ROOT, told.hop, told.goes_to, raw)}


def _cancel(rebuild: Rebuild, row: StepRow, told: Cancelled) -> None:
    rebuild.stopping = Stopping(told.by, told.reason)
    if rebuild.status is not InstanceStatus.RUNNING:
        rebuild.status, rebuild.reason = InstanceStatus.RUNNING, None
    rebuild.stop_all()


def _rollback(rebuild: Rebuild, row: StepRow, told: RollbackBegun) -> None:
    """Begin the rollback of a cancel or a timeout. A failed step records the rollback in its own row."""
    rebuild.turn_back(Rollback(told.target, told.reason, told.by, to_root=told.root))


def _plan(rebuild: Rebuild, row: StepRow, told: RollbackPlanned) -> None:
    rebuild.undoing.is_planned = True


def _undo_again(rebuild: Rebuild, row: StepRow, told: UndoneAgain) -> None:
    rebuild.undoing.begin(Rollback(told.target, rebuild.reason))
    rebuild.undoing.is_planned = True


def _late(rebuild: Rebuild, row: StepRow, told: FinishedLate) -> None:
    rebuild.ghosts.pop(told.path, None)


def _requeue(rebuild: Rebuild, row: StepRow, told: Requeued) -> None:
    path = told.path
    token = rebuild.tokens.pop(path)
    if told.new and rebuild.program.merges:
        rebuild.context = merged(rebuild.context, row.input or NULL)
    rebuild.moves[path] = Move(path, token.hop, token.node, row.input or NULL, last=token.last, run=token.run + 1)


def _abort(rebuild: Rebuild, row: StepRow, told: Aborted) -> None:
    rebuild.end(InstanceStatus.ABORTED, told.reason)


def _force_fail(rebuild: Rebuild, row: StepRow, told: ForceFailed) -> None:
    rebuild.end(InstanceStatus.FAILED, told.reason)


def _expire(rebuild: Rebuild, row: StepRow, told: Expired) -> None:
    rebuild.chain, rebuild.expires = 0, told.wait or None
    for path in told.out or ():
        rebuild.tokens[path] = expiring(rebuild.tokens[path], encode(told.error), rebuild.version)
    if told.edge or told.buried:  # the rows of the steps tell the rest
        return
    if not isinstance(told.goes_to, str):
        if rebuild.program.policy.on_error != "rollback":  # which has a row of its own
            rebuild.end(InstanceStatus.FAILED, told.reason or "WORKFLOW_TIMEOUT")
        return
    assert isinstance(told.hop, int)
    rebuild.tokens, rebuild.scopes, rebuild.parked = {}, {}, ()
    rebuild.moves = {ROOT: Move(ROOT, told.hop, told.goes_to, rebuild.context)}


def _migrate(rebuild: Rebuild, row: StepRow, told: Migrated) -> None:
    target = rebuild.programs[bytes.fromhex(told.went_to.definition)]
    for standing in told.tokens.values():
        token = _as_stored(rebuild, rebuild.tokens[standing.path])
        rebuild.tokens[standing.path] = moved(token, standing, target)
    gone = {(standing.path, wait) for standing in told.tokens.values() for wait in standing.lifted}
    if told.expires is None:
        gone |= {(timer.path, timer.wait) for timer in rebuild.parked if not timer.path}
    rebuild.parked = tuple(timer for timer in rebuild.parked if (timer.path, timer.wait) not in gone)
    rebuild.scopes = {id: msgspec.structs.replace(scope, split=told.scopes[id]) for id, scope in rebuild.scopes.items()}
    rebuild.expires = told.expires
    rebuild.follow(target)


def _as_stored(rebuild: Rebuild, token: Token) -> Token:
    """Drop a value that the snapshot did not carry before the migration, so it does not after."""
    if token.phase in (Phase.HELD, Phase.DEAD) or rebuild.program.places[token.node].keeps_value:
        return token
    return msgspec.structs.replace(token, value=msgspec.UNSET)


def _rerun(rebuild: Rebuild, row: StepRow, told: Rerun) -> None:
    path: str = told.path
    inside = path + "/"
    rebuild.tokens = {p: t for p, t in rebuild.tokens.items() if p != path and not p.startswith(inside)}
    rebuild.scopes = {id: scope for id, scope in rebuild.scopes.items() if not id.startswith(inside)}
    rebuild.parked = tuple(t for t in rebuild.parked if t.path != path and not t.path.startswith(inside))
    scope_id, _, index = path.rpartition(".")
    scope = rebuild.scopes.get(scope_id)
    if scope is not None:
        done = {i: arrival for i, arrival in scope.done.items() if i != index}
        rebuild.scopes[scope_id] = msgspec.structs.replace(scope, done=done)
    if told.merged is not None:
        rebuild.context = merged(rebuild.context, encode(told.merged))
    rebuild.chain = 0
    raw = row.input or NULL
    rebuild.moves[path] = Move(path, told.hop, told.at, raw, last=told.last, run=told.run)


def _begin_anew(rebuild: Rebuild, row: StepRow, told: Checkpoint) -> None:
    """Take the instance as the checkpoint has it."""
    rebuild.status, rebuild.reason, rebuild.context = told.status, told.reason, row.input or b"{}"
    state = read_state(bytes(told.state))
    rebuild.tokens, rebuild.scopes, rebuild.ghosts = dict(state.tokens), dict(state.scopes), dict(state.ghosts)
    rebuild.chain, rebuild.early, rebuild.parked = state.chain, state.early, state.parked
    rebuild.stopping, rebuild.expires = state.stopping, state.expires
    rebuild.moves = {}


FOLLOWERS: Final[dict[type[ControlRow], Callable[[Rebuild, StepRow, Any], None]]] = {
    Suspended: _suspend,
    Resumed: _resume,
    FateMet: _fate,
    BranchLost: _lost,
    Held: _hold,
    Escaped: _escape,
    TimerParked: _park,
    Rescheduled: _reschedule,
    TaskOverdue: _overdue,
    WaitsChanged: _change_waits,
    EventKept: _keep,
    EventsLapsed: _lapse,
    EntityFollowed: _entity,
    Interrupted: _interrupt,
    Cancelled: _cancel,
    RollbackBegun: _rollback,
    RollbackPlanned: _plan,
    UndoneAgain: _undo_again,
    FinishedLate: _late,
    Requeued: _requeue,
    Aborted: _abort,
    ForceFailed: _force_fail,
    Expired: _expire,
    Migrated: _migrate,
    Rerun: _rerun,
    Checkpoint: _begin_anew,
}
_BY_NODE: Final = {row.node: (row, follower) for row, follower in FOLLOWERS.items()}


def follow(rebuild: Rebuild, row: StepRow) -> None:
    """Apply a control row to a rebuild."""
    rebuild.entity_version = row.entity_version
    kind, follower = _BY_NODE[row.node]
    follower(rebuild, row, read_control(kind, row.detail))
