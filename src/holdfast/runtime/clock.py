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
        self._moved_at = 0.0

    def observe(self, now: int, asked_at: float) -> None:
        """An answer that was asked for before the clock was moved may be of the time before."""
        if asked_at < self._moved_at:
            return
        self._offset = now - time.monotonic_ns() // 1000
        self._trusted_until = time.monotonic() + TRUSTED_SECONDS

    def distrust(self) -> None:
        """The clock of the database was moved: nothing is known until it is asked again."""
        self._trusted_until, self._moved_at = 0.0, time.monotonic()

    @property
    def is_trusted(self) -> bool:
        return time.monotonic() < self._trusted_until

    def now(self) -> int:
        return time.monotonic_ns() // 1000 + self._offset
