"""How much waits in the whole installation, for the gauges: every worker looks now and then, and nobody leads."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import StoreError
from holdfast.runtime.pause import pause
from holdfast.store.queue import count_backlog
from holdfast.store.session import DatabaseError, Disconnected, Session

log = logging.getLogger("holdfast.backlog")

PAUSE: Final = 10.0
MOST: Final = 10_000  # of each kind are counted: beyond that it is too much, however much it is


class Backlog:
    """As of the last look."""

    def __init__(self, session: Callable[[], Awaitable[Session]], pause: float = PAUSE) -> None:
        self.signals = 0  # in the queue
        self.effects = 0  # that wait for their next delivery
        self.letters = 0  # that nobody has answered
        self._session = session
        self._pause = pause

    async def serve(self) -> None:
        """Until cancelled. The first look waits, too: one that only drains a queue need not pay for it."""
        while True:
            await pause(self._pause)
            try:
                await self.look()
            except (Disconnected, DatabaseError, StoreError) as failure:
                log.warning("How much waits could not be seen: %s", failure)

    async def look(self) -> None:
        self.signals, self.effects, self.letters = await count_backlog(await self._session(), MOST)
