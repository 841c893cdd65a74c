"""The backlog of the whole installation, for the gauges: every worker looks now and then, without a leader.

A process without a worker looks when it is asked and its last look is old. After a failed look the figures are unknown:
a gauge has no value then, rather than one that was true once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.process.pause import pause
from holdfast.runtime.worker.unserved import HEAD
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue.work import Waiting, count_backlog, list_unserved

log = logger("holdfast.backlog")

PAUSE: Final = 10.0
MOST: Final = 10_000  # of each kind are counted: beyond that it is too much, however much it is


class Backlog:
    """The backlog at the last look; None before the first one, and after one that failed."""

    def __init__(self, session: Callable[[], Awaitable[Session]], pause: float = PAUSE) -> None:
        self.waiting: Waiting | None = None
        self.unserved: int | None = None  # steps that wait for a handler no live worker has
        self._session = session
        self._pause = pause
        self._looked_at: float | None = None
        self._turn = asyncio.Lock()

    async def serve(self) -> None:
        """Count periodically until cancelled. The first count waits, too: a worker that only drains a queue need not
        pay for it.
        """
        while True:
            await pause(self._pause)
            await self._try()

    async def refresh(self) -> None:
        """Look, unless the last look is recent: a crowd of scrapers costs the database as much as one."""
        async with self._turn:
            if self._looked_at is None or time.monotonic() - self._looked_at >= self._pause:
                await self._try()

    async def look(self) -> None:
        session = await self._session()
        self.waiting = await count_backlog(session, MOST)
        self.unserved = sum(steps for _, steps, _ in await list_unserved(session, HEAD))

    async def _try(self) -> None:
        self._looked_at = time.monotonic()
        try:
            await self.look()
        except (Disconnected, DatabaseError, StoreError) as failure:
            self.waiting = self.unserved = None
            log.warning("How much waits could not be seen: %s", failure)
