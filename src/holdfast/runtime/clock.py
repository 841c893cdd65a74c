"""The database's time between two readings of it: the last reading plus what has passed here since.

A commit that needs no lock beforehand (see `committer`) has no statement to read the time in before it decides. It
takes the time from here and reads the clock again with its writes, so the estimate is never older than the last commit.
"""

from __future__ import annotations

import time

TRUSTED_SECONDS = 5.0


class DatabaseClock:
    def __init__(self) -> None:
        self._offset = 0
        self._trusted_until = 0.0

    def observe(self, now: int) -> None:
        self._offset = now - time.monotonic_ns() // 1000
        self._trusted_until = time.monotonic() + TRUSTED_SECONDS

    def distrust(self) -> None:
        self._trusted_until = 0.0

    @property
    def is_trusted(self) -> bool:
        return time.monotonic() < self._trusted_until

    def now(self) -> int:
        return time.monotonic_ns() // 1000 + self._offset
