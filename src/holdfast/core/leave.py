"""How a token leaves a node: its open step ends and it goes on, or is held in front of the next node."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.failure import fail_visit, keep_error, no_edge
from holdfast.core.ids import token_id
from holdfast.core.program import Place
from holdfast.core.signals import Failure
from holdfast.core.state import Token, value_of
from holdfast.core.status import STEP_COMPLETED, Phase
from holdfast.core.turn import NULL, Move, Turn, about, encode
from holdfast.core.ways import choose, closing


def leave_with_output(
    turn: Turn, path: str, token: Token, place: Place, raw: bytes, held: int, *, error: bytes | None = None
) -> None:
    """The step succeeded: `raw`, or what its mapping makes of it, is its output and the token's new value."""
    if place.output is not None and error is None:
        raw = turn.evaluate_all(place, place.output, value_of(token) or NULL, response=raw)
    turn.take_output(raw)
    leave(turn, path, token, place, raw, held, output=raw, error=error)


def shrug_off(turn: Turn, path: str, token: Token, place: Place, failure: Failure, held: int, calls: int = 0) -> None:
    """What is done at best effort and fails does not stop a flow; the context may remember why."""
    turn.error = encode(failure)
    if place.node.best_effort:
        name = token_id(path, token.hop)
        turn.note("step_failed", place.id, name, about(failure, calls))
        keep_error(turn, place.id, failure)
        leave(turn, path, token, place, value_of(token) or NULL, held, error=turn.error, shrugged=True)
    elif turn.program.merges:
        leave_with_output(turn, path, token, place, encode({"_last_error": failure}), held, error=turn.error)
    else:
        leave(turn, path, token, place, value_of(token) or NULL, held, error=turn.error)


def leave(
    turn: Turn,
    path: str,
    token: Token,
    place: Place,
    raw: bytes,
    held: int,
    *,
    output: bytes | None = None,
    error: bytes | None = None,
    **facts: Any,
) -> None:
    """The token's open step is completed and the token goes on with the value `raw`."""
    way, records, _ = choose(turn, place, "completed", raw)
    if way is None:
        fail_visit(turn, path, token, place, no_edge(place, "completed"), held, output=output, records=records)
        return
    del turn.tokens[path]
    record = closing(records, **facts)
    turn.close(token, STEP_COMPLETED, "completed", chosen=way.chosen, output=output, error=error, closing=record)
    turn.note("step_completed", place.id, token_id(path, token.hop))
    if token.waits:
        turn.end_waits(path, token)
    turn.moves.append(Move(path, token.hop + 1, way.target, raw, held, place.id, fence=token.fence))


def hold(turn: Turn, move: Move) -> None:
    """The token stays in front of its node; nothing of the node has happened yet."""
    turn.release(move)
    fence = move.held or move.fence
    value = msgspec.Raw(move.raw)
    turn.tokens[move.path] = Token(
        move.hop, move.node, fence=fence, phase=Phase.HELD, run=move.run, last=move.last, value=value
    )
    detail = {"path": move.path, "hop": move.hop, "node": move.node, "run": move.run, "last": move.last}
    turn.control("hold", detail, move.raw)
