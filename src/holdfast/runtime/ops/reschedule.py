"""Moments an operator or a sender names: read and checked at the edge, before anything is stored."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from holdfast.core.model.signals import Reschedule
from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import HoldfastError, Refused
from holdfast.graph.checks.fields import LONGEST_DURATION
from holdfast.runtime.validation import check_text


def take_moment(at: Any, delay: Any) -> tuple[int | None, float | None]:
    """A moment or a number of seconds, as the core counts them; at most one is given."""
    if at is not None and delay is not None:
        raise Refused("Both `at` and `delay` are given.", code="TIMER_INVALID", hint="Name one of the two.")
    return _moment(at), _seconds(delay)


def rescheduled(node: str | None, at: Any, delay: Any, token: str | None, reason: str | None) -> Reschedule:
    _check_names(node, token)
    if at is None and delay is None:
        raise Refused("Neither `at` nor `delay` is given.", code="TIMER_INVALID", hint="Name one of the two.")
    moment, seconds = take_moment(at, delay)
    return Reschedule(node, moment, seconds, token=token, reason=reason)


def cancelled(node: str | None, token: str | None, reason: str | None) -> Reschedule:
    _check_names(node, token)
    return Reschedule(node, cancelled=True, token=token, reason=reason)


def _check_names(node: str | None, token: str | None) -> None:
    check_text(node, "node")
    check_text(token, "token")


def _moment(at: Any) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise Refused(
            f"{at!r} is no moment in time.",
            code="TIMER_INVALID",
            hint="Pass a datetime with a time zone, for example datetime.now(UTC) + timedelta(days=1).",
        )
    try:
        return from_datetime(at)
    except OverflowError:
        raise _out_of_range(f"{at.isoformat()} lies outside of the calendar.") from None


def _seconds(delay: Any) -> float | None:
    if delay is None:
        return None
    if isinstance(delay, bool) or not isinstance(delay, int | float) or math.isnan(delay):
        raise Refused(f"{delay!r} is no number of seconds.", code="TIMER_INVALID", hint="Delays are seconds, from 0.")
    if not 0 <= delay <= LONGEST_DURATION:
        raise _out_of_range(f"A delay of {delay:g} s cannot be waited for.")
    return float(delay)


def _out_of_range(message: str) -> HoldfastError:
    return Refused(message, code="TIMER_OUT_OF_RANGE", hint="Waits last 0 seconds to 100 years.")
