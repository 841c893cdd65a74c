"""Stays: what entering a state brings. Its facts go out, its gates hold it, its timeout begins."""

from __future__ import annotations

from typing import Final

from holdfast.core.kernel.builder import NULL, Move, Turn
from holdfast.core.machine.facts import Entry, rule_of, tell_hook, tell_transition
from holdfast.core.machine.gates import gate_waits, phases, released_at_entry
from holdfast.core.model.arrival import Arrival
from holdfast.core.model.ids import token_id, wait_id
from holdfast.core.model.program import Place
from holdfast.core.model.state import Wait
from holdfast.core.model.timestamps import seconds
from holdfast.graph.machine import ONCE, StateTimeout

PROMPT: Final = "prompt"  # the timer of a timeout that is decided as an event
STALE: Final = "stale"  # the timer of a timeout that is told as a notice


def entry_of(turn: Turn, place: Place, move: Move, arrival: Arrival, step: bytes = b"") -> Entry:
    return Entry(
        path=move.path,
        hop=move.hop,
        run=move.run,
        step=step,
        state=place.id,
        came_from=arrival.came_from,
        event=arrival.event,
        actor=turn.actor,
        payload=move.raw or NULL,
        occurred_at=arrival.occurred_at,
        needs_ack=arrival.needs_ack,
    )


def stay_waits(turn: Turn, place: Place, move: Move) -> tuple[Wait, ...]:
    """The waits of a new stay: the gates of its first phase, and its timeout."""
    arrival, waits = turn.arrival, ()
    if arrival is not None:
        entry = entry_of(turn, place, move, arrival)
        waits = gate_waits(turn, entry, released_at_entry(rule_of(place, arrival.event)))
    timeout = place.state.timeout if place.state is not None else None
    if timeout is None or _goes_on(arrival, place, timeout):
        return waits
    purpose = timeout_of(place) or PROMPT
    wait = wait_id(token_id(move.path, move.hop), move.run, purpose)
    return (*waits, turn.timer(move.path, wait, purpose, turn.now + seconds(timeout.after)))


def timeout_of(place: Place) -> str | None:
    """The purpose of the timer that a stay in a state has."""
    timeout = place.state.timeout if place.state is not None else None
    if timeout is None:
        return None
    return STALE if timeout.event is None else PROMPT


def _goes_on(arrival: Arrival | None, place: Place, timeout: StateTimeout) -> bool:
    """Check if the stay continues: a timeout that fires once per stay led back to its own state."""
    return arrival is not None and arrival.by_timeout and arrival.came_from == place.id and timeout.mode == ONCE


def announce(turn: Turn, place: Place, move: Move, step: bytes, *, is_over: bool = False) -> None:
    """Tell consumers of an entry. At an end nothing waits any more, so its phases go out together, in their order."""
    arrival = turn.arrival
    if arrival is None:  # the first state is entered by a start, which is no transition
        return
    entry, rule = entry_of(turn, place, move, arrival, step), rule_of(place, arrival.event)
    tell_transition(turn, entry, rule)
    hooks = released_at_entry(rule)
    if is_over:
        hooks = iter([*(h for h in rule.hooks if h.order is None), *(h for _, some in phases(rule) for h in some)])
    for hook in hooks:
        tell_hook(turn, entry, hook)
