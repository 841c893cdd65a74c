"""Instance timeout in DLQ mode while handlers or sub-flows are still running.

They are asked to stop and awaited, because their results count however late they come: a success completes its step,
and the token moves as far as it can without a new step beginning. A step that would begin then becomes a dead letter
instead, as does a step whose handler or sub-flow ends without a success.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.kernel.builder import Move, Turn, encode
from holdfast.core.kernel.failure import fail_entry, fail_visit, failure_of
from holdfast.core.kernel.scopes import awaits_child, cancel_children, is_out
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import Failed, Token
from holdfast.core.model.status import Phase

EXPIRED: Final = "expired"


def outlives(turn: Turn, path: str, token: Token) -> bool:
    """Check if a handler or a sub-flow may still succeed, so that the timeout does not end the step yet."""
    return is_out(turn, path, token) or (token.phase is Phase.RESTING and awaits_child(turn, token))


def expiring(token: Token, failure: bytes, version: int) -> Token:
    """The token in the phase after the timeout. Of a resting token's waits only the sub-flow is kept."""
    waits = tuple(w for w in token.waits if w.kind == "child") if token.phase is Phase.RESTING else token.waits
    failed = Failed(msgspec.Raw(failure), version)
    return msgspec.structs.replace(token, phase=Phase.EXPIRING, waits=waits, failed=failed)


def tell(turn: Turn, path: str, token: Token, failure: Failure) -> None:
    if token.phase is Phase.RESTING:
        cancel_children(turn, token, EXPIRED)
        turn.end_waits(path, token)
    else:
        turn.stops = (*turn.stops, path)
    turn.tokens[path] = expiring(token, encode(failure), turn.version)


def come_back(turn: Turn, token: Token) -> None:
    """Let no step begin in this decision from here on."""
    turn.overtime = _why(token)


def give_up(
    turn: Turn,
    path: str,
    token: Token,
    place: Place,
    failure: Failure | None = None,
    held: int = 0,
    *,
    input: bytes | None = None,
    calls: int = 0,
) -> None:
    """Bury a step that ended without a success, or not at all. `failure`: its own, if it says more than the timeout."""
    why = _why(token)
    turn.chain = 0  # a moment ended the step, by any signal
    fail_visit(
        turn, path, token, place, failure or why, held, on="timeout", input=input, calls=calls, buried_for=why.code
    )


def begin_not(turn: Turn, place: Place, move: Move, why: Failure) -> None:
    fail_entry(turn, place, move, why, buried_for=why.code)


def _why(token: Token) -> Failure:
    assert token.failed is not None
    return failure_of(token.failed)
