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
from holdfast.runtime.telemetry.flow_counts import OTHERS
from holdfast.runtime.worker.unserved import HEAD
from holdfast.store.consumers import Behind, list_behind
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue.work import Waiting, count_backlog, list_unserved

log = logger("holdfast.backlog")

PAUSE: Final = 10.0
MOST_CONSUMERS: Final = 100  # are looked at, and are labels
MOST: Final = 10_000  # of each kind are counted: beyond that it is too much, however much it is


class Backlog:
    """The backlog at the last look; None before the first one, and after one that failed."""

    def __init__(self, session: Callable[[], Awaitable[Session]], pause: float = PAUSE) -> None:
        self.waiting: Waiting | None = None
        self.behind: list[Behind] | None = None  # consumers with open facts
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
        self.behind = await list_behind(session, MOST_CONSUMERS)
        self.unserved = sum(steps for _, steps, _ in await list_unserved(session, HEAD))

    async def _try(self) -> None:
        self._looked_at = time.monotonic()
        try:
            await self.look()
        except (Disconnected, DatabaseError, StoreError) as failure:
            self.waiting = self.unserved = self.behind = None
            log.warning("How much waits could not be seen: %s", failure)

    def open_facts(self, org: str) -> dict[tuple[str, ...], int] | None:
        """Open facts by environment and consumer of one organisation; those of all others together."""
        return None if self.behind is None else _by_consumer(org, self.behind, lambda one: one.open, sum)

    def seconds_behind(self, org: str) -> dict[tuple[str, ...], int] | None:
        """Seconds since the oldest open fact, by environment and consumer; the most of all other organisations."""
        return None if self.behind is None else _by_consumer(org, self.behind, lambda one: round(one.seconds), max)


def _by_consumer(
    org: str, behind: list[Behind], value: Callable[[Behind], int], fold: Callable[[list[int]], int]
) -> dict[tuple[str, ...], int]:
    own = {(one.environment, one.name): value(one) for one in behind if one.org == org}
    others = [value(one) for one in behind if one.org != org]
    return own | ({(OTHERS, OTHERS): fold(others)} if others else {})
