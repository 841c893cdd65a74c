"""Telling handlers that their step is not wanted any more: its instance was cancelled, its branch lost, its time is up.

The commit that says so tells the handlers of its own process at once. All others get a hint that names the instance,
and whoever runs something for it asks the database what has become of that: the hint itself proves nothing, since the
token may have moved on meanwhile. Hints get lost, so everybody also asks unasked, now and then.

What a rollback halts is different in one respect: a handler that runs may finish, one that does not must not begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from holdfast.core.decision import Decision
from holdfast.errors import StoreError
from holdfast.runtime.context import Job
from holdfast.runtime.executor import Executor
from holdfast.runtime.plan import Plan
from holdfast.runtime.wakeups import Notifier
from holdfast.store.queue import find_stopped, instances_hinted
from holdfast.store.session import DatabaseError, Disconnected, Session

log = logging.getLogger("holdfast.stopping")

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
        self._settled = settled  # what was taken on before now is known to the executor then
        self._ended: set[_Call] = set()
        self._halted: set[_Call] = set()
        self._heard: set[bytes] | None = set()  # None: nobody knows which
        self._wake = asyncio.Event()

    # --- commits of this process -----------------------------------------------------------------------------------

    def note(self, instance: bytes, decision: Decision, held: dict[tuple[bytes, str], int]) -> None:
        """What the decision stops. Work that is not held here may run elsewhere."""
        for calls, paths in ((self._ended, _ended(decision)), (self._halted, decision.halts)):
            for path in paths:
                fence = held.get((instance, path))
                if fence is None:
                    self._notifier.tell(instance)
                else:
                    calls.add((instance, path, fence))

    def tell(self) -> None:
        """Whom the commit at hand has stopped."""
        if self._ended or self._halted:
            ended, halted = self._ended, self._halted
            self._ended, self._halted = set(), set()
            self._tell(ended, halted)

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
                log.warning("Whether handlers are to stop could not be asked and will be: %s", failure)
                await asyncio.sleep(RETRY_PAUSE)
                self.hear("")

    async def _look(self, instances: set[bytes] | None) -> None:
        await self._settled()
        jobs = self._executor.doing(instances)
        if jobs:
            session, worker = await self._ask()
            ended, halted = await find_stopped(session, [_call(job) for job in jobs], worker)
            self._tell(ended, halted)

    def _tell(self, ended: set[_Call], halted: set[_Call]) -> None:
        if ended:
            self._executor.tell(lambda job: _call(job) in ended)
        if halted:
            self._executor.tell(lambda job: _call(job) in halted, running=False)


def tell_others(notifier: Notifier, plan: Plan) -> None:
    """After a commit of a process that runs no handlers."""
    for id, entry in plan.entries.items():
        if any(decision.halts or any(_ended(decision)) for decision in entry.decisions):
            notifier.tell(id)


def _ended(decision: Decision) -> Iterator[str]:
    """Paths whose work has ended, or is to end, without waiting for its handler."""
    yield from decision.stops
    for release in decision.released:
        if not release.fence:
            yield release.path


def _call(job: Job) -> _Call:
    return job.instance, job.path, job.fence
