"""Unserved steps: no live service offers their handler. They wait and never fail for it, but operators learn of them.

Every worker checks now and then; there is no leader. The unserved queues cost a few index probes; only where there is
one do its first steps get a mark and, once they have waited a while, an event on their instance. The gap to the next
event grows with the wait, so that a step that waits for a week has dozens of them and not a hundred thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.process.pause import pause
from holdfast.runtime.worker.wakeups import Notifier
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue.work import list_unserved, note_missing

log = logger("holdfast.missing")

HEAD: Final = 1000  # steps of a queue that are counted and told of, in the order in which they would be claimed
LONGEST: Final = 6 * 3600.0  # seconds between two events of one step


class MissingHandlers:
    def __init__(
        self,
        session: Callable[[], Awaitable[Session]],
        notifier: Notifier,
        *,
        cooldown: float,
        jitter: float,
        log_throttle: float,
    ) -> None:
        self.waiting: int | None = None  # steps, as of the last look
        self._session = session
        self._notifier = notifier
        self._cooldown = cooldown
        self._jitter = min(max(jitter, 0.0), 1.0)
        self._log_throttle = log_throttle
        self._logged: dict[str, float] = {}  # when each queue was last complained of

    async def serve(self) -> None:
        """Check periodically; with a cooldown of 0, never."""
        while self._cooldown > 0:
            await pause(self._cooldown, self._jitter)
            try:
                await self.look()
            except (Disconnected, DatabaseError, StoreError) as failure:
                log.warning("The check for missing handlers failed, will retry: %s", failure)

    async def look(self) -> None:
        session = await self._session()
        unserved = await list_unserved(session, HEAD)
        self.waiting = sum(steps for _, steps, _ in unserved)
        self._logged = {queue: at for queue, at in self._logged.items() if queue in {name for name, _, _ in unserved}}
        for queue, steps, seconds in unserved:
            self._complain(queue, steps, seconds)
        if unserved:
            queues = [queue for queue, _, _ in unserved]
            if await note_missing(session, queues, HEAD, self._cooldown, self._jitter, LONGEST):
                self._notifier.hint()  # a claim passes over rows that are being marked

    def _complain(self, queue: str, steps: int, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        if seconds < self._cooldown or now - self._logged.get(queue, -self._log_throttle) < self._log_throttle:
            return
        self._logged[queue] = now
        log.warning(
            "No live worker has the handler %r: %d%s steps wait, the first for %.0f s",
            queue, steps, " or more" if steps == HEAD else "", seconds,
        )  # fmt: skip
