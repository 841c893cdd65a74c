"""Rate limits: a bucket of tokens for each caller, filled at a steady rate, in this process only.

The number of buckets is bounded: the caller that was quiet the longest is forgotten first, and a forgotten bucket is a
full one, so forgetting never refuses a request.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from holdfast.server.http.refusals import RateLimited

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
        """Take a token for one request, or refuse it with the time after which there will be one."""
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
        self._put(who, tokens - 1, now)

    def give_back(self, who: Hashable) -> None:
        """One request that was taken and is counted elsewhere, or not at all."""
        if not self._rate:
            return
        tokens, at = self._buckets.get(who, (self._burst, self._clock()))
        self._put(who, min(self._burst, tokens + 1), at)

    def _put(self, who: Hashable, tokens: float, at: float) -> None:
        self._buckets[who] = (tokens, at)
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
