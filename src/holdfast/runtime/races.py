"""Races of several callers for one change: an overtaken caller reads again, and none starves.

The callers of one process queue up, first come, first served. So each of them races only against other processes and
against the engine's own steps, and pauses between its tries so that the others get through.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Final, TypeVar

from holdfast.errors import Busy
from holdfast.runtime.process.pause import pause

SHORTEST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.05
JITTER: Final = 0.9

T = TypeVar("T")


class _Queue:
    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # wakes those who wait in the order they came
        self.callers = 0


class Races:
    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._queues: dict[Hashable, _Queue] = {}

    async def settle(self, key: Hashable, attempt: Callable[[], Awaitable[T | None]], busy: Busy) -> T:
        """Return the first answer of `attempt` that is not None. Raise `busy` when there is none after `patience`
        seconds.

        A try that is under way is never cut off, so a caller that gets `busy` has changed nothing.
        """
        now = asyncio.get_running_loop().time
        deadline, wait = now() + self.patience, SHORTEST_PAUSE
        async with self._turn(key, deadline, busy):
            while (answer := await attempt()) is None:
                left = deadline - now()
                if left <= 0:
                    raise busy
                await pause(min(wait, left), JITTER)
                wait = min(2 * wait, LONGEST_PAUSE)
            return answer

    @contextlib.asynccontextmanager
    async def _turn(self, key: Hashable, deadline: float, busy: Busy) -> AsyncGenerator[None, None]:
        queue = self._queues.setdefault(key, _Queue())
        queue.callers += 1
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await queue.lock.acquire()
            except TimeoutError:
                raise busy from None
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.callers -= 1
            if not queue.callers:
                del self._queues[key]
