"""The database's time between two readings of it: the last readings plus the time that has passed here since.

A commit that needs no lock beforehand (see `committer`) has no statement to read the time in before it decides. It
takes the time from here and reads the clock again with its writes, so the estimate is never older than the last commit.

The database read its clock somewhere between the question and the arrival of its answer. So every reading bounds the
difference of the two clocks from both sides. The estimate is the greatest lower bound, and a slow answer, whose bounds
are wide, moves it nowhere. Only an upper bound below it does: the clocks drift, or one was set back.
"""

from __future__ import annotations

import time
from typing import Final

TRUSTED_SECONDS = 5.0
SET_BACK: Final = 1_000_000  # microseconds; a clock that is less behind is waited for, one that is more is followed


class DatabaseClock:
    def __init__(self) -> None:
        self._offset: int | None = None  # the database's clock less ours, in microseconds
        self._trusted_until = 0.0
        self._moved_at = 0.0
        self._latest = 0

    def observe(self, now: int, asked_at: float, came_at: float | None = None) -> None:
        """An answer that was asked for before the clock was moved may be of the time before."""
        if asked_at < self._moved_at:
            return
        came_at = time.monotonic() if came_at is None else came_at
        least, most = now - _microseconds(came_at), now - _microseconds(asked_at)
        known = least if self._offset is None else max(self._offset, least)
        self._offset = min(known, most)
        self._trusted_until = came_at + TRUSTED_SECONDS

    def distrust(self) -> None:
        """The clock of the database was moved: nothing is known until it is asked again."""
        self._offset, self._trusted_until, self._moved_at = None, 0.0, time.monotonic()

    @property
    def is_trusted(self) -> bool:
        return time.monotonic() < self._trusted_until

    def now(self, at: float | None = None) -> int:
        """Never before what it said the last time, unless the database's clock was set back by more than a moment."""
        estimate = _microseconds(time.monotonic() if at is None else at) + (self._offset or 0)
        if not 0 < self._latest - estimate <= SET_BACK:
            self._latest = estimate
        return self._latest


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)
