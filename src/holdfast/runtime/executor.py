"""Runs handlers: async ones on the loop, sync ones in threads, each under its own time limit.

No task per step: a runner drains jobs one after another, and only when its handler really suspends does the next runner
take over. There are never more runners than the concurrency that was asked for.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from holdfast.compiler.graph import Behaviour
from holdfast.core.signals import WorkDone
from holdfast.runtime.context import Context, Job
from holdfast.runtime.edge import take_payload
from holdfast.runtime.failures import failed, time_limit
from holdfast.runtime.handlers import DoNotRetry, Handler, Registry
from holdfast.runtime.items import Item
from holdfast.runtime.telemetry import Telemetry

log = logging.getLogger("holdfast.handlers")

_decode = msgspec.json.decode


class Executor:
    def __init__(
        self,
        registry: Registry,
        concurrency: int,
        deliver: Callable[[Item], None],
        telemetry: Telemetry,
        is_lost: Callable[[Job], bool],
        run_call: Callable[[Job], Awaitable[None]],
    ) -> None:
        self.registry = registry
        self.concurrency = concurrency
        self.jobs: deque[Job] = deque()
        self.running = 0
        self._deliver = deliver
        self._telemetry = telemetry
        self._is_lost = is_lost
        self._run_call = run_call
        self._idle: list[asyncio.Future[None]] = []
        self._waking = 0
        self._runners: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(max_workers=min(concurrency, 64), thread_name_prefix="holdfast-handler")
        self._stopping = False

    def add(self, job: Job) -> None:
        self.jobs.append(job)

    def dispatch(self) -> None:
        """Wake one runner, or make one; it wakes the next when it finds more to do. Where many handlers are suspended
        the next ones will be too, and a turn of the loop for each would add up: then several are woken at once."""
        if not self.jobs or self._waking or self._stopping:
            return
        for _ in range(min(len(self.jobs), 1 + self.running // 8)):
            if self._idle:
                self._waking += 1
                self._idle.pop().set_result(None)
            elif len(self._runners) < self.concurrency:
                self._waking += 1
                runner = asyncio.create_task(self._run(), name="holdfast-runner")
                self._runners.add(runner)
                runner.add_done_callback(self._runners.discard)
            else:
                return

    async def stop(self, grace: float) -> None:
        """Let running handlers finish within the grace time, then cancel them."""
        self._stopping = True
        deadline = asyncio.get_running_loop().time() + grace
        while self.running and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for runner in list(self._runners):
            runner.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._waking -= 1
        while not self._stopping:
            while not self.jobs:
                turn = loop.create_future()
                self._idle.append(turn)
                await turn
                self._waking -= 1
                if self._stopping:
                    return
            job = self.jobs.popleft()
            self.running += 1
            self.dispatch()
            try:
                await self._handle(job)
            finally:
                self.running -= 1

    async def _handle(self, job: Job) -> None:
        if job.place.behaviour is Behaviour.CALL:
            await self._run_call(job)
            return
        handler = self.registry.get(job.place.node.handler or "")
        try:
            if handler is None:  # queues are served by handler, so it has been taken away since the claim
                raise DoNotRetry(f"There is no handler {job.place.node.handler!r} in this worker.")
            value = await self._call(handler, job)
            raw = take_payload(value, f"the result of {job.place.id!r}")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError) and _is_cancelled():
                raise
            self._deliver(Item(job.instance, failed(job, failure)))
            return
        self._deliver(Item(job.instance, WorkDone(job.path, job.step, job.fence, raw), input=job.input))

    async def _call(self, handler: Handler, job: Job) -> object:
        context = Context(job, self._is_lost)
        data = _decode(job.input)
        if handler.convert is not None:
            data = handler.convert(data)
        limit = job.place.node.timeout
        if limit is None and not self._telemetry.tracing:
            if handler.is_async:  # nearly always: one frame less
                return await handler.function(context, data)
            return await self._invoke(handler, context, data)
        with self._telemetry.step(context, job.trace):
            async with time_limit(job):
                return await self._invoke(handler, context, data)

    async def _invoke(self, handler: Handler, context: Context, data: object) -> object:
        if handler.is_async:
            return await handler.function(context, data)
        loop = asyncio.get_running_loop()
        # What the caller traces goes along into the thread.
        run = partial(contextvars.copy_context().run, handler.function, context, data)
        return await loop.run_in_executor(self._threads, run)


def _is_cancelled() -> bool:
    """Somebody wants this runner to end; otherwise the handler raised it, because a task it awaited was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
