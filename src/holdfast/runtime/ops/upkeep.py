"""Upkeep beside the work: every worker checks now and then for due tasks; the first to see one runs it."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.process.pause import pause
from holdfast.store.admin.upkeep import Upkeep, run_all, run_due

log = logger("holdfast.maintenance")

FIRST_LOOK: Final = 1.0  # seconds after the start: one that only drains a queue need not pay for it
PAUSE: Final = 10.0  # the queues turn over fast: their vacuum is due most often


class Maintenance:
    def __init__(self, dsn: str, retention: Retention, pause: float = PAUSE) -> None:
        self._dsn = dsn
        self._keep = retention.seconds()
        self._pause = pause
        self._stop = threading.Event()
        self._told: set[str] = set()
        self.default_rows = 0  # found in default partitions so far

    async def serve(self) -> None:
        """Run due tasks until cancelled; a task under way then ends with its current batch."""
        try:
            await asyncio.sleep(min(FIRST_LOOK, self._pause))
            while True:
                try:
                    self._tell(await asyncio.to_thread(run_due, self._dsn, self._keep, self._stop))
                except StoreError as failure:
                    log.warning("The upkeep has to wait: %s", failure.message)
                await pause(self._pause)
        finally:
            self._stop.set()

    def _tell(self, done: list[Upkeep]) -> None:
        for upkeep in done:
            if upkeep.error is None:
                self._told.discard(upkeep.task)
            elif upkeep.task not in self._told:  # the same complaint every few minutes would be noise
                self._told.add(upkeep.task)
                log.error("The upkeep of %s failed: %s", upkeep.task, upkeep.error)
            if upkeep.result.get("in_default"):
                self._alarm(upkeep)
            elif any(upkeep.result.values()):
                log.info("The upkeep of %s: %s", upkeep.task, upkeep.result)

    def _alarm(self, upkeep: Upkeep) -> None:
        self.default_rows += upkeep.result["in_default"]
        log.error(
            "%d rows lay in a default partition, because their month had none when they came; %s. Look why no upkeep"
            " ran for months, or whether a clock is wrong, and run `holdfast doctor`.",
            upkeep.result["in_default"],
            "they have moved to their months"
            if upkeep.error is None and upkeep.is_complete
            else "some are still there",
        )


async def maintain(dsn: str, retention: Retention) -> list[Upkeep]:
    """Every task once, to its end."""
    return await asyncio.to_thread(run_once, dsn, retention)


def run_once(dsn: str, retention: Retention) -> list[Upkeep]:
    """The same for code without an event loop."""
    return run_all(dsn, retention.seconds())
