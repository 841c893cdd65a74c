"""A DLQ flow whose time is over while handlers and sub-flows are out.

They are told to stop and awaited, because what they did counts however late it is told: a success completes its step,
and the token goes on as far as it can without anything being begun. What would begin then is a dead letter instead, as
is what comes back without a success.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.failure import fail_entry, fail_visit, failure_of
from holdfast.core.program import Place
from holdfast.core.scopes import awaits_child, cancel_children, is_out
from holdfast.core.signals import Failure
from holdfast.core.state import Failed, Token
from holdfast.core.status import Phase
from holdfast.core.turn import Move, Turn, encode

EXPIRED: Final = "expired"


def outlives(turn: Turn, path: str, token: Token) -> bool:
    """Somebody may come back with a success, so the end of the time is not yet the end of the step."""
    return is_out(turn, path, token) or (token.phase is Phase.RESTING and awaits_child(turn, token))


def expiring(token: Token, failure: bytes, version: int) -> Token:
    """Of a token at rest only the sub-flow is awaited."""
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
    """From here on nothing begins in this decision."""
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
    """It came back without a success, or not at all. `failure`: its own, where it has more to tell than the clock."""
    why = _why(token)
    turn.chain = 0  # a moment ended the step, whoever brings the news
    fail_visit(
        turn, path, token, place, failure or why, held, on="timeout", input=input, calls=calls, buried_for=why.code
    )


def begin_not(turn: Turn, place: Place, move: Move, why: Failure) -> None:
    fail_entry(turn, place, move, why, buried_for=why.code)


def _why(token: Token) -> Failure:
    assert token.failed is not None
    return failure_of(token.failed)
