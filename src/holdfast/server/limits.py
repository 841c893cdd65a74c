"""How often somebody may ask: a bucket of tokens for each, filled at a steady rate, in this process only.

The number of buckets is bounded: whoever was quiet the longest is forgotten first, and a forgotten bucket is a full
one, so forgetting never refuses anybody.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from holdfast.server.refusals import RateLimited

MOST_BUCKETS: Final = 100_000


class RateLimiter:
    def __init__(
        self, rate: float, burst: int, *, most: int = MOST_BUCKETS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._most = most
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, and when that was

    def take(self, who: Hashable) -> None:
        """One request of somebody; refused with the time after which it would be taken."""
        if not self._rate:
            return
        now = self._clock()
        tokens, at = self._buckets.get(who, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        if tokens < 1:
            wait = (1 - tokens) / self._rate
            raise RateLimited(
                f"More than {self._rate:g} requests per second come from this caller.",
                hint="Wait as long as Retry-After says.",
                retry_after=wait,
            )
        self._buckets[who] = (tokens - 1, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
