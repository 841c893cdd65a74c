"""Splits, joins and escapes: how tokens part, meet, and leave their siblings behind.

A scope is done when every branch of its split is: arrived at the join, ended, or failed. `all` fires when nobody is
missing; `any` fires with the first arrival and cancels the rest with audit rows (WF-16). A scope is removed in the
very decision that fires its join, so a join cannot fire twice and join and escape exclude each other.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.decision import Outgoing, Release
from holdfast.core.ids import derived_id, token_id
from holdfast.core.program import Place
from holdfast.core.state import Arrival, Scope, Token
from holdfast.core.status import Phase, StepStatus
from holdfast.core.turn import Move, Turn, encode


def open_scope(turn: Turn, place: Place, move: Move) -> None:
    """Only a split fans out: every way whose condition holds gets a branch with a copy of the value."""
    if move.held:
        turn.released.append(Release(move.path, move.held))
    ways = place.ways["completed"]
    scope_id = f"{move.path}/{move.hop}"
    chosen = encode([way.id for way in ways])
    detail = {"children": [f"{scope_id}.{i}" for i in range(len(ways))]}
    turn.pass_through(place, move, chosen=chosen, output=move.raw, detail=detail)
    turn.note("scope_opened", place.id, token_id(move.path, move.hop), detail)
    turn.scopes = {**turn.scopes, scope_id: Scope(place.id, move.path, move.hop, len(ways))}
    for index in range(len(ways) - 1, -1, -1):
        turn.moves.append(Move(f"{scope_id}.{index}", 0, ways[index].target, move.raw, 0, None, "split"))


def arrive(turn: Turn, place: Place, move: Move) -> Move | None:
    """A branch reaches its join. When that settles the scope, the parent's move onto the join; else nothing."""
    scope_id, _, index = move.path.rpartition(".")
    turn.note("branch_arrived", place.id, token_id(move.path, move.hop))
    arrival = Arrival(move.last or f"{scope_id}.{index}", msgspec.Raw(move.raw))
    return _settle(turn, scope_id, index, arrival)


def branch_over(turn: Turn, path: str, outcome: str) -> bool:
    """A branch ended without reaching the join. False: the token was not in a scope."""
    scope_id, _, index = path.rpartition(".")
    if not scope_id:
        return False
    met = _settle(turn, scope_id, index, Arrival(outcome=outcome))
    if met is not None:
        turn.moves.append(met)
    return True


def _settle(turn: Turn, scope_id: str, index: str, arrival: Arrival) -> Move | None:
    scope = turn.scopes[scope_id]
    done = {**scope.done, index: arrival}
    mode = turn.program.join_modes.get(scope.split, "all")
    fires = arrival.outcome == "completed" and mode == "any"
    if not fires and len(done) < scope.width:
        turn.scopes = {**turn.scopes, scope_id: msgspec.structs.replace(scope, done=done)}
        return None
    close_scope(turn, scope_id, "join_settled")
    return _meet(turn, scope, done, mode, index)


def _meet(turn: Turn, scope: Scope, done: dict[str, Arrival], mode: str, index: str) -> Move | None:
    """The parent's next move once its scope is settled."""
    arrived = {i: a for i, a in sorted(done.items(), key=lambda item: int(item[0])) if a.outcome == "completed"}
    join = turn.program.joins.get(scope.split)
    if not arrived or join is None:
        branch_over(turn, scope.parent, "ended")
        return None
    if mode == "any":
        arrived = {index: done[index]}
    failed = sum(a.outcome == "failed" for a in done.values())
    value: dict[str, Any] = {
        "strategy": mode,
        "status": "completed",
        "completed": len(arrived),
        "failed": failed,
        "outputs": {a.step: a.value for a in arrived.values()},
    }
    return Move(scope.parent, scope.hop + 1, join, encode(value), 0, None, "join")


def escape(turn: Turn, move: Move, depth: int) -> Move:
    """The token leaves its scopes down to `depth`: siblings are cancelled, the parent continues in its place."""
    path, hop = move.path, move.hop
    if move.held:
        turn.released.append(Release(move.path, move.held))
    while path.count("/") > depth:
        scope_id = path.rpartition(".")[0]
        scope = turn.scopes[scope_id]
        turn.note("scope_escaped", move.node, token_id(path, hop), {"scope": scope_id})
        close_scope(turn, scope_id, "escaped")
        path, hop = scope.parent, scope.hop + 1
    return move._replace(path=path, hop=hop, held=0)


def close_scope(turn: Turn, scope_id: str, reason: str) -> None:
    """Cancel whatever still lives in the scope, nested scopes included."""
    inside = scope_id + "."
    for path in sorted(p for p in turn.tokens if p.startswith(inside)):
        cancel_token(turn, path, reason)
    turn.moves[:] = [m for m in turn.moves if not m.path.startswith(inside)]
    turn.scopes = {s: v for s, v in turn.scopes.items() if s != scope_id and not s.startswith(inside)}


def cancel_token(turn: Turn, path: str, reason: str, status: StepStatus = StepStatus.CANCELLED) -> None:
    """The token is dead: its step, work, timers and children end with it, each with a trace."""
    token = turn.tokens.pop(path)
    name = token_id(path, token.hop)
    if token.phase in (Phase.WORKING, Phase.CANCELLING):
        turn.released.append(Release(path, 0))
    if token.step and token.phase is not Phase.DEAD:
        turn.close(token, status, reason)
    turn.end_waits(path, token)
    cancel_children(turn, token, reason)
    turn.note(f"step_{status}", token.node, name, {"reason": reason})


def cancel_children(turn: Turn, token: Token, reason: str) -> None:
    for wait in token.waits:
        if wait.kind == "child" and wait.ref is not None:
            signal = derived_id(wait.ref[15], wait.ref, b"cancel", turn.instance.id, b"%d" % turn.version)
            turn.outgoing.append(Outgoing(wait.ref, signal, "cancel", encode({"reason": f"parent: {reason}"})))
