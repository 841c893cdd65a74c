"""Leaving a node: close the token's open step and move the token on, or hold it in front of the next node."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.kernel.builder import NULL, Move, Overflow, Turn, about, counted, encode, merged
from holdfast.core.kernel.failure import fail_visit, keep_error, no_edge
from holdfast.core.kernel.routing import choose, closing
from holdfast.core.model.control_rows import Held
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import LAST_ERROR, Place
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import Token, value_of
from holdfast.core.model.status import STEP_COMPLETED, Phase
from holdfast.errors import PayloadError
from holdfast.graph.model import Behaviour


def leave_with_output(
    turn: Turn,
    path: str,
    token: Token,
    place: Place,
    raw: bytes,
    held: int,
    *,
    calls: int = 0,
    input: bytes | None = None,
) -> None:
    """Complete a step that succeeded. `raw`, or its mapping if it has one, is the output and the token's new value."""
    try:
        if place.output is not None:
            raw = turn.evaluate_all(place, place.output, value_of(token) or NULL, response=raw)
        raw = turn.take_output(raw)
    except Overflow as overflow:
        _fail_for_size(turn, path, token, place, overflow, held, calls, input)
        return
    leave(turn, path, token, place, raw, held, output=raw, calls=calls)


def _fail_for_size(
    turn: Turn, path: str, token: Token, place: Place, overflow: Overflow, held: int, calls: int, input: bytes | None
) -> None:
    """Refuse the output of a success that is too large to keep. A call raises, and its transaction undoes it; any other
    step records the error."""
    if place.behaviour is Behaviour.CALL:
        raise PayloadError(overflow.failure.message, code=overflow.failure.code)
    if place.node.best_effort:
        shrug_off(turn, path, token, place, overflow.failure, held, calls)
    else:
        fail_visit(turn, path, token, place, overflow.failure, held, input=input, calls=calls)


def shrug_off(turn: Turn, path: str, token: Token, place: Place, failure: Failure, held: int, calls: int = 0) -> None:
    """Complete a best-effort step although it failed; the error may be kept in the context."""
    turn.error = encode(failure)
    if place.node.best_effort:
        name = token_id(path, token.hop)
        turn.note("step_failed", place.id, name, about(failure, calls))
        keep_error(turn, place.id, failure)
        leave(turn, path, token, place, value_of(token) or NULL, held, error=turn.error, shrugged=True)
    elif turn.program.merges:
        raw = encode({LAST_ERROR: failure})
        turn.context = merged(turn.context, raw)  # small, and kept even where the context is full
        leave(turn, path, token, place, raw, held, output=raw, error=turn.error)
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
    calls: int = 0,
    **facts: Any,
) -> None:
    """Complete the token's open step and move the token on with the value `raw`."""
    way, records, _ = choose(turn, place, "completed", raw)
    if way is None:
        fail_visit(turn, path, token, place, no_edge(place, "completed"), held, output=output, records=records)
        return
    del turn.tokens[path]
    record = closing(records, **facts)
    turn.close(token, STEP_COMPLETED, "completed", chosen=way.chosen, output=output, error=error, closing=record)
    turn.note("step_completed", place.id, token_id(path, token.hop), counted(calls) or None)
    if token.waits:
        turn.end_waits(path, token)
    turn.moves.append(Move(path, token.hop + 1, way.target, raw, held, place.id, fence=token.fence))


def hold(turn: Turn, move: Move) -> None:
    """Hold the token in front of its node; nothing of the node has happened yet."""
    turn.release(move)
    fence = move.held or move.fence
    value = msgspec.Raw(move.raw)
    turn.tokens[move.path] = Token(
        hop=move.hop,
        node=move.node,
        fence=fence,
        phase=Phase.HELD,
        run=move.run,
        last=move.last,
        value=value,
        entity_version=turn.version_seen(turn.program.places[move.node]),
    )
    turn.control(Held(path=move.path, hop=move.hop, at=move.node, run=move.run, last=move.last), move.raw)
