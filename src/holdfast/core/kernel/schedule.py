"""Due times of timer nodes: after some seconds, at a moment, or at the next match of a cron expression."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

from holdfast.core.kernel.builder import Turn
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Failure
from holdfast.core.model.timestamps import from_datetime, from_json, seconds, to_datetime
from holdfast.errors import Refused
from holdfast.graph.checks.fields import LONGEST_DURATION
from holdfast.graph.cron import next_match, read_zone
from holdfast.graph.model import Node

FURTHEST: Final = seconds(LONGEST_DURATION)


def due_of(turn: Turn, place: Place, raw: bytes) -> int | Failure:
    """The moment a timer node waits for; a failure when its data gives none, or one out of range."""
    node, now = place.node, turn.now
    if node.cron is not None:
        return _next_match(node, turn.after)
    if place.until is not None:
        return _at_moment(node, place.until.evaluate(turn.namespaces(place, raw)), now)
    if place.after is not None:
        return _after_seconds(node, place.after.evaluate(turn.namespaces(place, raw)), now)
    return now + seconds(node.delay or 0)


def _next_match(node: Node, now: int) -> int | Failure:
    """Find the first match after `now`, or after the moment that has just fired if that is later.

    A commit reads the time before it reads its signals. Another worker may fire a timer in between, so the moment
    that fired can lie after the time of the commit; matched from there, the same moment would come twice.
    """
    zone = read_zone(node.timezone)
    match = None if zone is None else next_match(node.cron or "", zone, to_datetime(now))
    if match is None:
        message = f"The cron expression {node.cron!r} of {node.id!r} has no next match in {node.timezone or 'UTC'}."
        return Failure("TIMER_NOT_A_MOMENT", message)
    return _within_reach(node, from_datetime(match), now)


def _at_moment(node: Node, value: Any, now: int) -> int | Failure:
    due = from_json(_placed(value, node.timezone))
    if due is None:
        return Failure("TIMER_NOT_A_MOMENT", f"The expression {node.until!r} of {node.id!r} gave no moment in time.")
    return _within_reach(node, due, now)


def _placed(value: Any, timezone: str | None) -> Any:
    """Read a text without an offset as local time in the node's zone; None if it is no time."""
    zone = read_zone(timezone)
    if timezone is None or zone is None or not isinstance(value, str):
        return value
    try:
        local = datetime.fromisoformat(value)
        return value if local.tzinfo is not None else local.replace(tzinfo=zone).isoformat()
    except (ValueError, OverflowError):
        return None


def _after_seconds(node: Node, value: Any, now: int) -> int | Failure:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        message = f"The expression {node.after!r} of {node.id!r} gave no number of seconds."
        return Failure("TIMER_NOT_A_MOMENT", message)
    if not 0 <= value <= LONGEST_DURATION:
        return _out_of_range(node, f"{value:g} seconds")
    return now + seconds(value)


def _within_reach(node: Node, due: int, now: int) -> int | Failure:
    """Accept a moment up to 100 years from now. A moment in the past is due at once."""
    return due if due - now <= FURTHEST else _out_of_range(node, to_datetime(due).isoformat())


def _out_of_range(node: Node, what: str) -> Failure:
    return Failure("TIMER_OUT_OF_RANGE", f"{node.id!r} would wait for {what}; a timer waits for 0 s to 100 years.")


def due_from(now: int, at: int | None, delay: float | None) -> int:
    """The moment a caller asked for, its range checked against the time of the decision."""
    due = now + seconds(delay or 0) if at is None else at
    if due - now > FURTHEST:
        raise Refused(
            f"{to_datetime(due).isoformat()} is more than 100 years away.",
            code="TIMER_OUT_OF_RANGE",
            hint="Check the year, or the unit: delays are seconds.",
        )
    return due
