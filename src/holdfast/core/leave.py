"""How a token leaves a node: its open step ends and it goes on, or is held in front of the next node."""

from __future__ import annotations

import msgspec

from holdfast.core.failure import fail_visit, no_edge
from holdfast.core.ids import token_id
from holdfast.core.program import Place
from holdfast.core.state import Token
from holdfast.core.status import STEP_COMPLETED, Phase
from holdfast.core.turn import Move, Turn
from holdfast.core.ways import choose, closing


def leave_with_output(
    turn: Turn, path: str, token: Token, place: Place, raw: bytes, held: int, *, error: bytes | None = None
) -> None:
    """The step succeeded: `raw` is its output and the token's new value."""
    turn.take_output(raw)
    leave(turn, path, token, place, raw, held, output=raw, error=error)


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
) -> None:
    """The token's open step is completed and the token goes on with the value `raw`."""
    way, records, _ = choose(turn, place, "completed", raw)
    if way is None:
        fail_visit(turn, path, token, place, no_edge(place, "completed"), held, output=output, records=records)
        return
    del turn.tokens[path]
    record = closing(records)
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
