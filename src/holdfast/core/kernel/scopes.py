"""Splits, joins and escapes: how tokens part, meet, and leave their siblings behind.

A scope is done when every branch of its split is: arrived at the join, ended, or failed. `all` fires when no branch is
missing; `any` fires with the first arrival and cancels the rest with audit rows (WF-16). A scope is removed in the
very decision that fires its join, so a join cannot fire twice and join and escape exclude each other.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.kernel.builder import Move, Overflow, Turn, encode, encode_data
from holdfast.core.model.control_rows import BranchLost, Escaped
from holdfast.core.model.decision import Answered, Moved, Outgoing, Release
from holdfast.core.model.ids import derived_id, token_id
from holdfast.core.model.program import Place, Way
from holdfast.core.model.signals import Actor
from holdfast.core.model.state import ROOT, Arrival, Instance, Scope, Token
from holdfast.core.model.status import TERMINAL, InstanceStatus, Phase, StepStatus

_GHOST: Final = encode({"ghost": True})
_PARENT: Final = "parent: "
WORKFLOW_STOPPED: Final = "workflow_stopped"  # the trail's reason for a step that ended with its instance
OUT: Final = frozenset({Phase.WORKING, Phase.CANCELLING, Phase.EXPIRING})  # a handler or a sub-flow may still report
_UNSTOPPED: Final = frozenset({Phase.WORKING, Phase.EXPIRING})  # ... and its success still counts
MOST_CLAIMS: Final = 1 << 20  # upper bound on the claims of one dispatch, after releases and lost leases too
JOIN_FAILED: Final = "join_failed"  # the cause of a move onto a join that no branch reached
JOIN_TOO_LARGE: Final = "join_too_large"  # ... and onto one where more arrived than can be kept; it gets no outputs
BRANCH_FAILED: Final = "branch_failed"  # the reason for tokens that end because their branch of a race failed


def open_scope(turn: Turn, place: Place, move: Move, ways: list[Way], record: bytes | None) -> None:
    """Open the scope of a split: every edge that holds gets a branch with a copy of the value."""
    turn.release(move)
    scope_id = f"{move.path}/{move.hop}"
    children = [f"{scope_id}.{index}" for index in range(len(ways))]
    turn.open(
        place, move, StepStatus.COMPLETED, input=move.raw, detail={"children": children}, closed=True,
        chosen=encode([way.id for way in ways]), output=move.raw, closing=record,
    )  # fmt: skip
    turn.note("scope_opened", place.id, token_id(move.path, move.hop), {"children": children})
    scope = Scope(place.id, move.path, move.hop, len(ways), fence=move.held or move.fence)
    turn.scopes = {**turn.scopes, scope_id: scope}
    for path, way in zip(reversed(children), reversed(ways), strict=True):
        turn.moves.append(Move(path, 0, way.target, move.raw, cause="split"))


def arrive(turn: Turn, place: Place, move: Move) -> None:
    """Record a branch's arrival at its join. If that settles the scope, the parent moves on to fire the join."""
    scope_id, _, index = move.path.rpartition(".")
    turn.note("branch_arrived", place.id, token_id(move.path, move.hop))
    _settle(turn, scope_id, index, Arrival(move.last, msgspec.Raw(move.raw)))


def branch_over(turn: Turn, path: str, outcome: str) -> None:
    """Record the end of a token that reached no join. In a scope, its siblings may now be complete without it."""
    scope_id, _, index = path.rpartition(".")
    if scope_id:
        _settle(turn, scope_id, index, Arrival(outcome=outcome))


def _settle(turn: Turn, scope_id: str, index: str, arrival: Arrival) -> None:
    scope = turn.scopes[scope_id]
    mode = turn.program.join_modes.get(scope.split, "all")
    scope = msgspec.structs.replace(scope, done={**scope.done, index: arrival})
    if len(scope.done) < scope.width and not (mode == "any" and arrival.outcome == "completed"):
        turn.scopes = {**turn.scopes, scope_id: scope}
        return
    close_scope(turn, scope_id, "join_settled")
    join = turn.program.joins.get(scope.split)
    if join is None or all(a.outcome == "ended" for a in scope.done.values()):
        branch_over(turn, scope.parent, "ended")
        return
    value = join_value(scope, mode, index)
    cause = "join" if value["status"] == "completed" else JOIN_FAILED
    try:
        raw = turn.composed(encode_data(value), "What the branches bring")
    except Overflow:
        raw, cause = encode({**value, "outputs": {}}), JOIN_TOO_LARGE
    turn.moves.append(Move(scope.parent, scope.hop + 1, join, raw, cause=cause, fence=scope.fence))


def join_value(scope: Scope, mode: str, last: str) -> dict[str, Any]:
    """The value a join passes on: the outputs of its branches in declaration order, for `any` of the winner only."""
    arrived = [i for i in sorted(scope.done, key=int) if scope.done[i].outcome == "completed"]
    if mode == "any" and arrived:
        arrived = [last]
    outputs: dict[str, Any] = {}
    for index in arrived:
        arrival = scope.done[index]
        name = arrival.step or scope.split  # an edge may lead from the split straight to its join
        outputs[name if name not in outputs else f"{name}.{index}"] = arrival.value
    return {
        "strategy": mode,
        "status": "completed" if arrived else "failed",
        "completed": len(arrived),
        "failed": sum(a.outcome == "failed" for a in scope.done.values()),
        "outputs": outputs,
    }


def runner_of(turn: Turn, path: str) -> str | None:
    """The branch that the innermost race loses when `path` fails: `path`, or the branch around it; None without one."""
    while (scope := turn.scopes.get(path.rpartition(".")[0])) is not None:
        if turn.program.join_modes.get(scope.split) == "any":
            return path
        path = scope.parent
    return None


def is_last_hope(turn: Turn, runner: str) -> bool:
    """Check if all other branches of the race are done."""
    scope = turn.scopes[runner.rpartition(".")[0]]
    return len(scope.done) + 1 == scope.width


def lose(turn: Turn, runner: str) -> None:
    """Drop a branch out of its race, with everything still under way in its forks."""
    inside = [scope_id for scope_id, scope in turn.scopes.items() if scope.parent == runner]
    for scope_id in inside:
        close_scope(turn, scope_id, BRANCH_FAILED)
    if inside:
        turn.control(BranchLost(path=runner))
    branch_over(turn, runner, "failed")


def escape(turn: Turn, move: Move, depth: int) -> Move:
    """Move the token out of its scopes down to `depth`: siblings are cancelled, the parent continues in its place."""
    turn.release(move)
    path, hop, fence = move.path, move.hop, 0
    while path.count("/") > depth:
        scope_id = path.rpartition(".")[0]
        scope = turn.scopes[scope_id]
        turn.note("scope_escaped", move.node, token_id(path, hop), {"scope": scope_id})
        close_scope(turn, scope_id, "escaped")
        path, hop, fence = scope.parent, scope.hop + 1, scope.fence
    turn.control(Escaped(came_from=move.path, path=path, hop=hop))
    return msgspec.structs.replace(move, path=path, hop=hop, held=0, fence=fence)


def close_scope(turn: Turn, scope_id: str, reason: str) -> None:
    """Cancel every token that still lives in the scope, nested scopes included."""
    inside = scope_id + "."
    for path in sorted(p for p in turn.tokens if p.startswith(inside)):
        cancel_token(turn, path, reason, leaves_ghost=True)
    turn.moves[:] = [m for m in turn.moves if not m.path.startswith(inside)]
    turn.scopes = {s: v for s, v in turn.scopes.items() if s != scope_id and not s.startswith(inside)}


def cancel_token(
    turn: Turn,
    path: str,
    reason: str,
    status: StepStatus = StepStatus.CANCELLED,
    *,
    leaves_ghost: bool = False,
    noted: str | None = None,
) -> None:
    """Cancel a token: its step, work, timers and children end with it, each with a trace.

    `noted` is the reason for the audit trail, if it is not `reason`.
    """
    token = turn.tokens.pop(path)
    name = token_id(path, token.hop)
    is_ghost = leaves_ghost and _may_succeed(turn, path, token)
    if is_ghost:
        turn.ghosts = {**turn.ghosts, path: token}
        turn.stops = (*turn.stops, path)
    elif token.phase in OUT:
        end_work(turn, path)
    has_ended = token.phase is Phase.DEAD and not _let_go_of_dead(turn, token, reason)
    if token.phase is not Phase.DEAD and token.step:
        turn.close(token, status, reason, closing=_GHOST if is_ghost else None)
    turn.end_waits(path, token)
    cancel_children(turn, token, reason)
    turn.needs = [need for need in turn.needs if need.token != name]
    if not has_ended:
        turn.note(f"step_{status}", token.node, name, {"reason": noted or reason})


def was_dispatched(turn: Turn, path: str, token: Token) -> bool:
    """Check if this very decision dispatched the token's work, so that no handler has it yet."""
    name = token_id(path, token.hop)
    return any(d.path == path for d in turn.dispatches) or any(need.token == name for need in turn.needs)


def is_out(turn: Turn, path: str, token: Token) -> bool:
    """Check if a handler may be running for this token, with a result that would still count."""
    return (
        token.phase in _UNSTOPPED
        and path not in turn.facts.idle
        and not awaits_child(turn, token)
        and not was_dispatched(turn, path, token)
    )


def _may_succeed(turn: Turn, path: str, token: Token) -> bool:
    """Check if a loser's handler may still succeed at a step with a compensation; a rollback must know of that."""
    return turn.program.places[token.node].node.undo is not None and is_out(turn, path, token)


def _let_go_of_dead(turn: Turn, token: Token, reason: str) -> bool:
    """Skip a dead step if it is paused, discard its letter and return True; a failed step stays failed."""
    is_paused = turn.program.policy.on_error == "dlq" and not (token.failed and token.failed.is_postponed)
    if is_paused:
        turn.moved = (*turn.moved, Moved(token.step, token.at, StepStatus.SKIPPED))
        turn.letters_resolved = (*turn.letters_resolved, Answered(token.step, "discarded", turn.actor, reason))
    return is_paused


def release_ghosts(turn: Turn) -> None:
    """Release the work of handlers that are still running when the instance ends; it takes no results any more."""
    turn.released.extend(Release(path, 0) for path in turn.ghosts)
    turn.ghosts = {}


def awaits_child(turn: Turn, token: Token) -> bool:
    """Check if a sub-flow runs for this token that was started before this decision."""
    started = {child.id for child in turn.children}
    return any(wait.kind == "child" and wait.ref is not None and wait.ref not in started for wait in token.waits)


def end_work(turn: Turn, path: str) -> None:
    """End the token's work row, under any lease. Work that this very decision was going to dispatch is dropped."""
    dispatched = [d for d in turn.dispatches if d.path == path]
    if not dispatched:
        turn.released.append(Release(path, 0))
        return
    turn.dispatches = [d for d in turn.dispatches if d.path != path]
    held = dispatched[0].held
    if held:
        turn.released.append(Release(path, held))


def outran(token: Token) -> Token:
    """Raise the fence of a token whose work was ended while a worker may hold it.

    Each claim of that work has raised its fence, by a number that is not known here. The next work on the path needs a
    fence above them all, or a stop meant for the old work would stop the new.
    """
    return msgspec.structs.replace(token, fence=token.fence + MOST_CLAIMS)


def cancel_all(turn: Turn, reason: str) -> None:
    for path in sorted(turn.tokens):
        cancel_token(turn, path, reason)


def after_root(turn: Turn) -> tuple[int, int]:
    """The next hop of the root token, however deep its branches are now, and its last fence."""
    root = turn.tokens.get(ROOT)
    if root is not None:
        return root.hop + 1, (outran(root) if root.phase in OUT else root).fence
    scope = next(s for s in turn.scopes.values() if s.parent == ROOT)
    return scope.hop + 1, scope.fence


def cancel_children(turn: Turn, token: Token, reason: str) -> None:
    """Stop the sub-flows of the token as their parent stops: by an abort, which compensates nothing, or a cancel."""
    kind = "abort" if turn.status is InstanceStatus.ABORTED else "cancel"
    payload = encode({"actor": Actor(turn.actor), "reason": _as_parents(_reason_of_stop(turn) or reason)})
    for wait in token.waits:
        if wait.kind != "child" or wait.ref is None:
            continue
        if any(child.id == wait.ref for child in turn.children):
            turn.children = [child for child in turn.children if child.id != wait.ref]
            continue
        signal = derived_id(wait.ref[15], wait.ref, kind.encode(), turn.instance.id, b"%d" % turn.version)
        turn.outgoing = [*turn.outgoing, Outgoing(wait.ref, signal, kind, payload)]


def _reason_of_stop(turn: Turn) -> str | None:
    """The reason for which the whole instance stops, in the caller's words; None if none was given, or if it runs."""
    if turn.status in TERMINAL:
        return turn.reason
    stop = turn.rollback or turn.stopping
    return None if stop is None else stop.reason


def is_of_parent(instance: Instance, reason: str | None) -> bool:
    """Recognise the reason of a stop that a sub-flow's parent has sent."""
    return instance.parent is not None and (reason or "").startswith(_PARENT)


def _as_parents(reason: str) -> str:
    """Mark the reason of a stop as the parent's. For a child of a child, it is not marked a second time."""
    return reason if reason.startswith(_PARENT) else _PARENT + reason
