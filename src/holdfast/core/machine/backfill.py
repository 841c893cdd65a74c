"""Backfill: the past of an object that lived before its machine, as entries without facts.

The whole past is one decision on a new instance: all of it or nothing. No fact is emitted, no gate holds, and guards
are passed, because what happened has happened; conditions must hold all the same, or the past would not fit.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.kernel.builder import NULL, Turn
from holdfast.core.kernel.routing import choose
from holdfast.core.machine.triggers import event_of, shift, tell_answer
from holdfast.core.model.arrival import Arrival
from holdfast.core.model.signals import Backfilled
from holdfast.core.model.state import ROOT
from holdfast.errors import Conflict, Refused

MOST: Final = 1_000  # events at once


def backfilled(turn: Turn, signal: Backfilled) -> None:
    if turn.instance.version:
        raise Conflict(
            "The instance has a history of its own already.",
            code="BACKFILL_TOO_LATE",
            hint="Backfill an object before its first trigger.",
        )
    event, came_from = "", turn.program.entry
    for number, past in enumerate(signal.events):
        event = event_of(turn.program, past.event)
        token = turn.tokens.get(ROOT)
        came_from = "" if token is None else token.node
        place = turn.program.places.get(came_from)
        turn.unguarded = True
        way, records, _ = (None, None, False) if place is None else choose(turn, place, event, past.raw or NULL)
        turn.unguarded = False
        if way is None:
            raise Refused(
                f"Event {number + 1} of the past, {event!r}, does not apply in {came_from or 'the end'!r}.",
                code="BACKFILL_NOT_APPLICABLE",
                hint="Send the events in their order, as the machine takes them.",
                place=f"events[{number}]",
            )
        arrival = Arrival(event, came_from, past.occurred_at, needs_ack=False, by=past.by, is_past=True)
        shift(turn, ROOT, arrival, past.raw, way, records)
    turn.answer = tell_answer(turn, event, came_from)
