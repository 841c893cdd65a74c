"""Delays before a retry: fixed, linear or exponential, spread by a jitter that follows from ids."""

from __future__ import annotations

from holdfast.core.model.ids import fraction
from holdfast.core.model.timestamps import seconds
from holdfast.graph.model import Retry


def delay_before(retry: Retry, calls: int, step: bytes) -> int:
    """Microseconds between the failure of call number `calls` and the next call."""
    growth = {"fixed": 1, "linear": calls, "exponential": 2 ** min(calls - 1, 62)}[retry.backoff]
    pause = min(retry.delay * growth, retry.max_delay)
    if retry.jitter:
        pause *= 1 - retry.jitter * fraction(step, calls)
    return seconds(pause)
