"""Cancellation of running handlers: their instance was cancelled, their branch lost, or their time is over.

The commit that decides it stops the handlers of its own process at once. All others get a hint that names the instance,
and a worker that runs a step of it asks the database for the step's state: the hint itself proves nothing, since the
token may have moved meanwhile. Hints get lost, so every worker also polls now and then.

A rollback's halt differs in one respect: a handler that runs may finish, one that does not must not begin. So does the
pause of a suspension, but paused work returns to the queue, its call not counted, and begins after the resume.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from holdfast.core.model.decision import Decision
from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.port import NoWorker
from holdfast.runtime.worker.context import Job
from holdfast.runtime.worker.executor import Executor
from holdfast.runtime.worker.wakeups import Notifier
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue.work import Stopped, find_stopped, instances_hinted

log = logger("holdfast.stopping")

RETRY_PAUSE = 0.5

_Call = tuple[bytes, str, int]  # instance, path, fence


class Stopping:
    def __init__(
        self,
        executor: Executor,
        notifier: Notifier,
        pause: float,
        ask: Callable[[], Awaitable[tuple[Session, bytes]]],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._executor = executor
        self._notifier = notifier
        self._pause = pause
        self._ask = ask  # the session to ask on, and the id the work is leased to
        self._settled = settled  # waits until the executor knows all work taken on before
        self._ended: set[_Call] = set()
        self._halted: set[_Call] = set()
        self._paused: set[_Call] = set()
        self._heard: set[bytes] | None = set()  # None: all of them
        self._wake = asyncio.Event()

    # --- commits of this process -----------------------------------------------------------------------------------

    def note(self, instance: bytes, decision: Decision, held: dict[tuple[bytes, str], int]) -> None:
        """Note the paths that the decision stops. Work that is not held here may run elsewhere."""
        for calls, paths in ((self._ended, _ended(decision)), (self._halted, decision.halts)):
            for path in paths:
                fence = held.get((instance, path))
                if fence is None:
                    self._notifier.tell(instance)
                else:
                    calls.add((instance, path, fence))

    def pause(self, instance: bytes, path: str, held: dict[tuple[bytes, str], int]) -> None:
        fence = held.get((instance, path))
        if fence is None:
            self._notifier.tell(instance)
        else:
            self._paused.add((instance, path, fence))

    def tell(self) -> None:
        """Stop the handlers noted for the commit at hand."""
        if self._ended or self._halted or self._paused:
            found = Stopped(self._ended, self._halted, self._paused)
            self._ended, self._halted, self._paused = set(), set(), set()
            self._tell(found)

    # --- commits of others -----------------------------------------------------------------------------------------

    def hear(self, hint: str) -> None:
        """Instances in which something was stopped; an empty hint names none and means any."""
        named = instances_hinted(hint)
        self._heard = None if not named or self._heard is None else self._heard | named
        self._wake.set()

    async def serve(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._wake.wait()
            hinted = self._wake.is_set()
            instances, self._heard = self._heard if hinted else None, set()
            self._wake.clear()
            try:
                await self._look(instances)
            except (Disconnected, DatabaseError, StoreError) as failure:
                log.warning("Polling for stop requests failed, will retry: %s", failure)
                await asyncio.sleep(RETRY_PAUSE)
                self.hear("")

    async def _look(self, instances: set[bytes] | None) -> None:
        await self._settled()
        jobs = self._executor.doing(instances)
        if jobs:
            session, worker = await self._ask()
            self._tell(await find_stopped(session, [_call(job) for job in jobs], worker))

    def _tell(self, found: Stopped) -> None:
        if found.ended:
            self._executor.tell(lambda job: _call(job) in found.ended)
        if found.halted:
            self._executor.tell(lambda job: _call(job) in found.halted, running=False)
        if found.paused:
            self._executor.pause(lambda job: _call(job) in found.paused)


class OtherWorkers(NoWorker):
    """The port of a process that runs no handlers: it notifies the workers of others of stopped work."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    def committed(self, plan: Plan) -> None:
        for id, entry in plan.entries.items():
            if any(decision.halts or decision.paused or any(_ended(decision)) for decision in entry.decisions):
                self._notifier.tell(id)


def _ended(decision: Decision) -> Iterator[str]:
    """Paths whose work has ended, or is to end, without waiting for its handler."""
    yield from decision.stops
    for release in decision.released:
        if not release.fence:
            yield release.path


def _call(job: Job) -> _Call:
    return job.instance, job.path, job.fence
