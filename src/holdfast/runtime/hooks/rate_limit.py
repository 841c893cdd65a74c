"""A limit on how often a step is called, over all workers of a database together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.runtime.hooks.middleware import Middleware
from holdfast.runtime.hooks.turnstile import Turnstile
from holdfast.runtime.worker.context import Context
from holdfast.store.queue.rate_limits import Bucket

GRAIN: Final = 0.1  # seconds: what waits comes back in batches, and a bucket that cannot hold one would lose tokens
LEAST: Final = 1e-6


class RateLimit(Middleware):
    """`RateLimit("order:charge", rate=10, burst=20)`: `rate` calls a second in the long run, `burst` at once after a
    pause, which is never less than a tenth of a second's worth. A call beyond that waits in the queue, uncounted. The
    key is the name of the flow, a colon and the name of the step; either name may have colons of its own."""

    def __init__(self, key: str, *, rate: float, burst: float | None = None) -> None:
        if not isinstance(key, str) or ":" not in key[1:-1]:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _invalid(f"The limit {key!r} does not name a flow and a step.", 'Write it as "flow:step".')
        if not _is_number(rate) or not LEAST <= rate < math.inf:
            raise _invalid(f"The limit {key!r} has the rate {rate!r}.", "Give the calls per second, above 0.")
        if burst is not None and (not _is_number(burst) or not 1 <= burst < math.inf):
            raise _invalid(f"The limit {key!r} has the burst {burst!r}.", "Give a number of calls, at least 1.")
        self.key = key
        self.rate = float(rate)
        self.burst = max(burst or 0.0, 1 + rate * GRAIN)
        self._turnstile: Turnstile | None = None

    def attach(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile

    async def admit(self, ctx: Context) -> float | None:
        if self._turnstile is None or f"{ctx.flow}:{ctx.step}" != self.key:
            return None
        return await self._turnstile.turn(Bucket(ctx.org, self.key, self.rate, self.burst))


def check_limits(middleware: Sequence[Middleware]) -> None:
    """Refuse two limits with one key: they would share a bucket and disagree about it."""
    keys = [m.key for m in middleware if isinstance(m, RateLimit)]
    for key in keys:
        if keys.count(key) > 1:
            raise _invalid(f"There are two limits for {key!r}.", "Keep the stricter one.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _invalid(message: str, hint: str) -> HoldfastError:
    return HoldfastError(message, code="RATE_LIMIT_INVALID", hint=hint)
