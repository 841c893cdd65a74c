"""Rounds of polling the database: when the next one is due, and what a failed one means."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from holdfast.errors import StoreError
from holdfast.store.pg.session import DatabaseError, Disconnected, Session

TROUBLE: Final = (Disconnected, DatabaseError, StoreError)


class Looks:
    """Rest between two looks, until something is due or hinted at."""

    def __init__(self, calm: float) -> None:
        self._calm = calm  # seconds between looks that follow from mere hints
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()

    def wake(self, *, urgent: bool = True) -> None:
        """Look now; a mere hint that something happened somewhere is followed only now and then."""
        self._wake.set()
        if urgent:
            self._urgent.set()

    async def rest(self, pause: float) -> bool:
        """Sleep until something is due or a hint arrives. At first only urgent hints count: hints come in swarms.

        True: this process asked for the round itself.
        """
        await within(self._urgent, min(self._calm, pause))
        if pause > self._calm and not self._urgent.is_set():
            await within(self._wake, pause - self._calm)
        is_urgent = self._urgent.is_set()
        self._wake.clear()
        self._urgent.clear()
        return is_urgent


async def within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so many seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def reopened(session: Session | None, dsn: str) -> Session:
    """The session, or a new one if it is broken or there is none."""
    if session is not None:
        if not session.broken:
            return session
        await session.close()
    return await Session.open(dsn)


def report(log: logging.Logger, sentence: str, failure: Exception) -> None:
    """Log trouble with the database as a line, and any other failure, which is a defect, with its traceback."""
    log.warning(sentence, failure, exc_info=None if isinstance(failure, TROUBLE) else failure)
