"""When a failed step is called again: fixed, linear or exponential, spread by a jitter that follows from ids."""

from __future__ import annotations

from holdfast.compiler.graph import Retry
from holdfast.core.ids import fraction
from holdfast.core.moments import seconds


def delay_before(retry: Retry, calls: int, step: bytes) -> int:
    """Microseconds between the failure of call number `calls` and the next call."""
    growth = {"fixed": 1, "linear": calls, "exponential": 2 ** min(calls - 1, 62)}[retry.backoff]
    pause = min(retry.delay * growth, retry.max_delay)
    if retry.jitter:
        pause *= 1 - retry.jitter * fraction(step, calls)
    return seconds(pause)
