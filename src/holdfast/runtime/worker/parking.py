"""Return of work that may not run yet: it leaves this worker until its moment, its call not counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.worker.context import Job
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue.work import park_work, return_claims

log = logger("holdfast.worker")


class Parking:
    def __init__(
        self, session: Callable[[], Session], let_go: Callable[[Job], None], on_doubt: Callable[[], None]
    ) -> None:
        self._session = session
        self._let_go = let_go  # it is out of our hands
        self._on_doubt = on_doubt  # whether it was parked is unknown
        self._leaving: list[tuple[Job, float | None]] = []  # None: for anybody, at once
        self._task: asyncio.Task[None] | None = None

    def postpone(self, job: Job, seconds: float) -> None:
        self._leave(job, seconds)

    def give_back(self, job: Job) -> None:
        """Return a job that was not begun. A row that another worker holds by now is left alone."""
        self._leave(job, None)

    def _leave(self, job: Job, seconds: float | None) -> None:
        self._leaving.append((job, seconds))
        if self._task is None:
            self._task = asyncio.create_task(self._park_all(), name="holdfast-parking")

    async def settled(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _park_all(self) -> None:
        try:
            while self._leaving:
                leaving, self._leaving = self._leaving, []
                await self._park(leaving)
        finally:
            self._task = None

    async def _park(self, leaving: list[tuple[Job, float | None]]) -> None:
        parked: dict[bytes, list[tuple[bytes, str, int, float]]] = {}
        returned: dict[bytes, list[tuple[bytes, str, int]]] = {}
        for job, seconds in leaving:
            if seconds is None:
                returned.setdefault(job.holder, []).append((job.instance, job.path, job.fence))
            else:
                parked.setdefault(job.holder, []).append((job.instance, job.path, job.fence, seconds))
        try:
            for holder, claims in parked.items():
                await park_work(self._session(), claims, holder)
            for holder, unbegun in returned.items():
                await return_claims(self._session(), unbegun, holder)
        except (Disconnected, DatabaseError, StoreError) as failure:
            log.warning("Work that is not begun could not be given back yet: %s", failure)
            self._on_doubt()
        for job, _ in leaving:
            self._let_go(job)
