"""Gives back work that may not be run yet: out of this worker's hands until its moment, its call not counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from holdfast.errors import StoreError
from holdfast.runtime.context import Job
from holdfast.store.parking import park_work
from holdfast.store.session import DatabaseError, Disconnected, Session

log = logging.getLogger("holdfast.worker")


class Parking:
    def __init__(
        self, session: Callable[[], Session], let_go: Callable[[Job], None], on_doubt: Callable[[], None]
    ) -> None:
        self._session = session
        self._let_go = let_go  # it is out of our hands
        self._on_doubt = on_doubt  # whether it was parked is unknown
        self._leaving: list[tuple[Job, float]] = []
        self._task: asyncio.Task[None] | None = None

    def postpone(self, job: Job, seconds: float) -> None:
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

    async def _park(self, leaving: list[tuple[Job, float]]) -> None:
        by_holder: dict[bytes, list[tuple[bytes, str, int, float]]] = {}
        for job, seconds in leaving:
            by_holder.setdefault(job.holder, []).append((job.instance, job.path, job.fence, seconds))
        try:
            for holder, claims in by_holder.items():
                await park_work(self._session(), claims, holder)
        except (Disconnected, DatabaseError, StoreError) as failure:
            log.warning("Work that must wait could not be parked, it goes back to its queue: %s", failure)
            self._on_doubt()
        for job, _ in leaving:
            self._let_go(job)
