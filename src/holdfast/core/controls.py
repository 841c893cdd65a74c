"""What control rows tell a rebuild: the things that happen to an instance and to no step of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.compiler.graph import Behaviour
from holdfast.core import detours
from holdfast.core.failure import with_error
from holdfast.core.overtime import expiring
from holdfast.core.rows import StepRow, read_error
from holdfast.core.state import ROOT, Parked, Rollback, Stopping, Token, Wait, value_of
from holdfast.core.status import InstanceStatus, Phase
from holdfast.core.turn import NULL, Move, encode, merged

if TYPE_CHECKING:
    from holdfast.core.rebuild import Rebuild


class _Rescheduled(msgspec.Struct):
    path: str
    was: str
    wait: Wait


_rescheduled = msgspec.json.Decoder(_Rescheduled).decode


def _suspend(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.status, rebuild.reason = InstanceStatus(detail["status"]), detail["reason"]
    if rebuild.program.policy.keeps_error and "message" in detail:
        rebuild.context = with_error(rebuild.context, detail["reason"], detail["message"], detail["node"])


def _resume(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rollback = rebuild.undoing.rollback
    rebuild.status = InstanceStatus.RUNNING if rollback is None else InstanceStatus.ROLLING_BACK
    rebuild.reason = None if rollback is None else rollback.reason
    rebuild.chain, rebuild.parked = 0, ()
    for path, token in list(rebuild.tokens.items()):
        is_dead = token.phase is Phase.DEAD
        is_postponed = token.failed is not None and token.failed.is_postponed  # each has a row of its own
        if token.phase is Phase.HELD or (is_dead and detail["again"] and not is_postponed):
            del rebuild.tokens[path]
            run = token.run + 1 if is_dead else token.run
            raw = value_of(token) or NULL
            rebuild.moves[path] = Move(path, token.hop, token.node, raw, last=token.last, run=run)


def _fate(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    token = rebuild.tokens.pop(detail["path"])
    error = None if token.failed is None else bytes(token.failed.error)
    rebuild.meet_fate(detail["path"], detail["fate"], read_error(error).code, token.step)


def _lost(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    """The failure that did it, and what it took with it, have rows of their own."""
    path = detail["path"]
    for scope_id in [scope_id for scope_id, scope in rebuild.scopes.items() if scope.parent == path]:
        rebuild.close_scope(scope_id)
    rebuild.branch_over(path, "failed")


def _hold(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    path, hop, node = detail["path"], detail["hop"], detail["node"]
    rebuild.moves.pop(path, None)
    place = rebuild.program.places[node]
    if place.behaviour is Behaviour.JOIN and path.count("/") == place.depth:
        rebuild.close_scope(f"{path}/{hop - 1}")
    value = msgspec.Raw(row.input or NULL)
    rebuild.tokens[path] = Token(hop, node, phase=Phase.HELD, run=detail["run"], last=detail["last"], value=value)


def _escape(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    path, hop = detail["path"], detail["hop"]
    move = rebuild.moves[detail["from"]]
    rebuild.close_scope(f"{path}/{hop - 1}")
    rebuild.moves[path] = msgspec.structs.replace(move, path=path, hop=hop)


def _park(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.parked = (*rebuild.parked, Parked(**detail))


def _reschedule(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    moved = _rescheduled(row.detail or b"{}")
    rebuild.parked = tuple(p for p in rebuild.parked if (p.path, p.wait) != (moved.path, moved.was))
    if not moved.path:
        rebuild.expires = moved.wait
        return
    token = rebuild.tokens[moved.path]
    waits = tuple(moved.wait if w.id == moved.was else w for w in token.waits)
    rebuild.tokens[moved.path] = msgspec.structs.replace(token, waits=waits)


def _overdue(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    path, passed = detail["path"], detail["wait"]
    token = rebuild.tokens[path]
    rebuild.tokens[path] = msgspec.structs.replace(token, waits=tuple(w for w in token.waits if w.id != passed))


def _keep(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.early += 1


def _cancel(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.stopping = Stopping(detail["by"], detail["reason"])
    if rebuild.status is not InstanceStatus.RUNNING:
        rebuild.status, rebuild.reason = InstanceStatus.RUNNING, None
    rebuild.stop_all()


def _rollback(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    """Somebody cancelled the instance, or its time was over; a step that failed tells of it in its own row."""
    target = InstanceStatus(detail["target"])
    rebuild.turn_back(Rollback(target, detail["reason"], detail["by"], to_root=detail["root"]))


def _plan(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.undoing.is_planned = True


def _undo_again(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.undoing.begin(Rollback(InstanceStatus(detail["target"]), rebuild.reason))
    rebuild.undoing.is_planned = True


def _late(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.ghosts.pop(detail["path"], None)


def _requeue(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    path = detail["path"]
    token = rebuild.tokens.pop(path)
    if detail.get("new") and rebuild.program.merges:
        rebuild.context = merged(rebuild.context, row.input or NULL)
    rebuild.moves[path] = Move(path, token.hop, token.node, row.input or NULL, last=token.last, run=token.run + 1)


def _abort(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.end(InstanceStatus.ABORTED, detail["reason"])


def _force_fail(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.end(InstanceStatus.FAILED, detail["reason"])


def _expire(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    rebuild.chain, rebuild.expires = 0, None
    for path in detail.get("out", ()):
        rebuild.tokens[path] = expiring(rebuild.tokens[path], encode(detail["error"]), rebuild.version)
    if detail.get("edge") or detail.get("buried"):  # the rows of the steps tell the rest
        return
    if detail["node"] is None:
        if rebuild.program.policy.on_error != "rollback":  # which has a row of its own
            rebuild.end(InstanceStatus.FAILED, detail.get("reason", "WORKFLOW_TIMEOUT"))
        return
    rebuild.tokens, rebuild.scopes, rebuild.parked = {}, {}, ()
    rebuild.moves = {ROOT: Move(ROOT, detail["hop"], detail["node"], rebuild.context)}


CONTROLS: Final[dict[str, Callable[[Rebuild, StepRow, dict[str, Any]], None]]] = {
    "@suspend": _suspend,
    "@resume": _resume,
    "@fate": _fate,
    "@lost": _lost,
    "@hold": _hold,
    "@escape": _escape,
    "@park": _park,
    "@reschedule": _reschedule,
    "@keep": _keep,
    "@overdue": _overdue,
    "@cancel": _cancel,
    "@abort": _abort,
    "@force_fail": _force_fail,
    "@expire": _expire,
    "@rollback": _rollback,
    "@plan": _plan,
    "@undo_again": _undo_again,
    "@late": _late,
    "@requeue": _requeue,
    "@migrate": detours.migrate,
    "@rerun": detours.rerun,
}
