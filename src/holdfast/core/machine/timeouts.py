"""Timeouts of a stay: decided as an event by the system, or written as a notice."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.kernel.builder import NULL, Turn
from holdfast.core.kernel.routing import choose
from holdfast.core.machine.triggers import shift
from holdfast.core.model.arrival import Arrival
from holdfast.core.model.control_rows import WaitsChanged
from holdfast.core.model.decision import Notice
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place
from holdfast.core.model.state import Token, Wait
from holdfast.core.model.timestamps import seconds
from holdfast.graph.machine import REPEAT, StateTimeout

STATE_STALE: Final = "STATE_STALE"


def prompt(turn: Turn, path: str, token: Token, place: Place, wait: str) -> None:
    """Decide a timeout as its event. It passes gates and guards: both are for those who send events."""
    timeout = _timeout(place)
    assert timeout.event is not None
    turn.unguarded = True
    way, records, _ = choose(turn, place, timeout.event, NULL)
    turn.unguarded = False
    if way is None:
        turn.note("timeout_refused", place.id, token_id(path, token.hop), {"event": timeout.event})
        _pass(turn, path, token, wait, timeout)
        return
    shift(turn, path, Arrival(timeout.event, place.id, turn.now, by_timeout=True), None, way, records)


def tell_stale(turn: Turn, path: str, token: Token, place: Place, wait: str) -> None:
    timeout = _timeout(place)
    message = f"{place.id!r} has lasted longer than {timeout.after:g} s."
    detail = {"state": place.id, "lifecycle": token.hop, "seconds": timeout.after}
    turn.notices = [*turn.notices, Notice(STATE_STALE, "overdue", message, place.id, detail)]
    _pass(turn, path, token, wait, timeout)


def _timeout(place: Place) -> StateTimeout:
    assert place.state is not None
    assert place.state.timeout is not None
    return place.state.timeout


def _pass(turn: Turn, path: str, token: Token, wait: str, timeout: StateTimeout) -> None:
    """End the wait, or begin it anew where the timeout repeats."""
    left = tuple(w for w in token.waits if w.id != wait)
    if timeout.mode == REPEAT:
        left = (*left, _again(turn, path, token, wait, timeout))
    turn.tokens[path] = msgspec.structs.replace(token, waits=left)
    turn.control(WaitsChanged(path=path, waits=left, because="timeout"))


def _again(turn: Turn, path: str, token: Token, wait: str, timeout: StateTimeout) -> Wait:
    base, _, lap = wait.partition("~")
    kind = next(w.kind for w in token.waits if w.id == wait)
    return turn.timer(path, f"{base}~{int(lap or 0) + 1}", kind, turn.now + seconds(timeout.after))
