"""Hints to other processes: there is something to do, something is to stop. Coalesced, outside the state transaction,
never relied on."""

from __future__ import annotations

import asyncio

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue.work import notify_stops, notify_workers

log = logger("holdfast.wakeups")

INTERVAL = 0.05  # at most one NOTIFY per process in this time: each takes a lock all committers share


class Notifier:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self._pending = False
        self._ready = False  # something is there to be done
        self._stopped: set[bytes] = set()  # instances in which something is to stop
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def hint(self) -> None:
        self._ready = True
        self._soon()

    def tell(self, instance: bytes) -> None:
        """Handlers that run for this instance should see whether they are still wanted."""
        self._stopped.add(instance)
        self._soon()

    def _soon(self) -> None:
        if self._pending:
            return
        self._pending = True
        self._timer = self._loop.call_later(max(0.0, self._last + INTERVAL - self._loop.time()), self._send)

    def _send(self) -> None:
        self._pending = False
        self._last = self._loop.time()
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        ready, self._ready = self._ready, False
        stopped, self._stopped = self._stopped, set()
        try:
            if stopped:
                await notify_stops(self._session, stopped)
            if ready:
                await notify_workers(self._session)
        except (Disconnected, DatabaseError, StoreError) as failure:
            log.warning("A hint was lost, the scan will do: %s", failure)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # or it would send on a session that is closed by then
        if self._pending:
            self._send()
        await asyncio.gather(*self._tasks, return_exceptions=True)
