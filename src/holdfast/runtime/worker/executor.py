"""Executor of handlers: async ones on the loop, sync ones in threads, each under its own time limit.

There is no task per step: a runner drains jobs one after another, and only when its handler really suspends does the
next runner take over. There are never more runners than the configured concurrency.

Immediately before every call the executor checks that the lease is still ours, for whatever the job has waited: a slot,
a gate, a hook, a thread. A call that is not begun goes back, and is not counted.

To stop a handler, its runner is cancelled, so that the CancelledError arrives where the handler waits; the runner takes
the cancellation back afterwards and continues with the next job. A plain function cannot be interrupted: it sees a
flag, and one that still waits for a thread is not begun.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Final

import msgspec

from holdfast.core.model.signals import WorkDone
from holdfast.graph.model import Behaviour
from holdfast.logs import logger
from holdfast.payloads import encode
from holdfast.runtime.commit.items import Item
from holdfast.runtime.hooks.chain import Hooks
from holdfast.runtime.telemetry.spans import Telemetry
from holdfast.runtime.validation import take_payload
from holdfast.runtime.worker.background import Reader
from holdfast.runtime.worker.context import Context, Job, check
from holdfast.runtime.worker.failures import failed, time_limit
from holdfast.runtime.worker.handlers import DoNotRetry, Handler, Registry
from holdfast.runtime.worker.synthetic_failures import not_begun, stopped

log = logger("holdfast.handlers")

HALTED: Final = "halted"
PAUSED: Final = "paused"
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
        hooks: Hooks,
        postpone: Callable[[Job, float], None],
        give_back: Callable[[Job], None],
        reader: Reader,
    ) -> None:
        self.registry = registry
        self.concurrency = concurrency
        self.jobs: deque[Job] = deque()
        self.running = 0
        self._deliver = deliver
        self._telemetry = telemetry
        self._is_lost = is_lost
        self._run_call = run_call
        self._hooks = hooks
        self._postpone = postpone
        self._give_back = give_back
        self._reader = reader
        self._idle: list[asyncio.Future[None]] = []
        self._waking = 0
        self._runners: set[asyncio.Task[None]] = set()
        self._at: dict[asyncio.Task[None], Job] = {}  # what each busy runner is doing
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

    def doing(self, instances: Collection[bytes] | None = None) -> list[Job]:
        """Calls that run or wait for their turn: of these instances, or all."""
        jobs = chain(self._at.values(), self.jobs)
        return [job for job in jobs if not job.told and (instances is None or job.instance in instances)]

    def running_under(self, holder: bytes | None) -> list[Job]:
        """Calls that run under this lease."""
        return [job for job in self._at.values() if job.holder == holder and not job.unbegun]

    def tell(self, is_meant: Callable[[Job], bool], *, running: bool = True) -> None:
        """Stop jobs: waiting ones are not begun, running ones are cancelled.

        A call inside a transaction needs no cancellation: `decide` checks there whether it still counts.
        """
        if running:
            for runner, job in self._at.items():
                if not job.told and job.place.behaviour is not Behaviour.CALL and is_meant(job):
                    _interrupt(runner, job)
        else:
            self._withhold(HALTED, is_meant)
        waiting = list(self.jobs)
        self.jobs.clear()
        for job in waiting:
            if job.place.behaviour is not Behaviour.CALL and is_meant(job):
                self._deliver(Item(job.instance, not_begun(job), unmade=True))
            else:
                self.jobs.append(job)

    def pause(self, is_meant: Callable[[Job], bool]) -> None:
        """Calls that have not begun go back until their instance is resumed; those that run may finish."""
        self._withhold(PAUSED, is_meant)
        waiting = list(self.jobs)
        self.jobs.clear()
        for job in waiting:
            (self._give_back if is_meant(job) else self.jobs.append)(job)

    def _withhold(self, why: str, is_meant: Callable[[Job], bool]) -> None:
        """Withhold jobs that a runner holds before their call: at a gate, in a hook, waiting for a thread. A call that
        has begun does not check.
        """
        for job in self._at.values():
            if not job.withheld and is_meant(job):
                job.withheld = why

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
        me = asyncio.current_task()
        assert me is not None
        self._waking -= 1
        while not self._stopping:
            while not self.jobs:
                self._at.pop(me, None)
                turn = loop.create_future()
                self._idle.append(turn)
                await turn
                self._waking -= 1
                if self._stopping:
                    return
            self._at[me] = job = self.jobs.popleft()
            self.running += 1
            self.dispatch()
            try:
                await self._handle(job)
            finally:
                self.running -= 1
                if job.interrupted:
                    me.uncancel()

    async def _handle(self, job: Job) -> None:
        if self._has_waits(job) and self._is_lost(job):
            self._give_back(job)
            return
        if self._hooks.gates and not await self._is_admitted(job):
            return
        if job.place.behaviour is Behaviour.CALL:
            await self._run_call(job)
            return
        handler = self.registry.get(job.place.handler)
        try:
            if handler is None:  # queues are served by handler, so it has been taken away since the claim
                raise DoNotRetry(f"There is no handler {job.place.handler!r} in this worker.")
            value = await self._call(handler, job)
            raw = take_payload(value, f"the result of {job.place.id!r}")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:
            if job.unbegun:
                self._take_back(job)
            else:
                self._fail(job, failure)
            return
        if job.unbegun:  # whatever a hook has made of it
            self._take_back(job)
            return
        done = WorkDone(job.path, job.step, job.fence, raw, job.calls, job.input)
        self._deliver(Item(job.instance, done, input=job.input))

    def _has_waits(self, job: Job) -> bool:
        """Check for anything between here and the call that takes time or has effects: a gate, a hook, a transaction, a
        thread, a span. Without, the check immediately before the call is the only one that is needed.
        """
        node = job.place.node
        return bool(
            self._hooks.gates or self._hooks.calls or self._telemetry.tracing
            or job.place.behaviour is Behaviour.CALL or node.timeout is not None
        )  # fmt: skip

    def _take_back(self, job: Job) -> None:
        if job.withheld == HALTED:
            self._deliver(Item(job.instance, not_begun(job), unmade=True))
        else:
            self._give_back(job)

    def _fail(self, job: Job, failure: BaseException) -> None:
        if isinstance(failure, asyncio.CancelledError) and _is_cancelled(job):
            raise failure
        if not (job.told and isinstance(failure, asyncio.CancelledError)):
            self._deliver(Item(job.instance, failed(job, failure)))
        elif job.thread is not None and job.thread.cancelled():  # no thread has taken it up
            self._deliver(Item(job.instance, not_begun(job), unmade=True))
        else:
            self._deliver(Item(job.instance, stopped(job)))

    async def _is_admitted(self, job: Job) -> bool:
        try:
            seconds = await self._hooks.admit(Context(job, self._is_lost, self._reader))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:
            self._fail(job, failure)
            return False
        if seconds:
            self._postpone(job, seconds)
        return not seconds

    async def _call(self, handler: Handler, job: Job) -> object:
        context = Context(job, self._is_lost, self._reader)
        if self._hooks.calls:
            return await self._call_in_layers(handler, job, context)
        data = _decode(job.input)
        if handler.convert is not None:
            data = handler.convert(data)
        limit = job.place.node.timeout
        if limit is None and not self._telemetry.tracing:
            if handler.is_async:  # nearly always: one frame less
                check(job, self._is_lost)
                return await handler.function(context, data)
            return await self._invoke(handler, job, context, data)
        with self._telemetry.step(context, job.trace):
            async with time_limit(job):
                return await self._invoke(handler, job, context, data)

    async def _call_in_layers(self, handler: Handler, job: Job, context: Context) -> object:
        async def run() -> object:
            data = _decode(job.input)
            if handler.convert is not None:
                data = handler.convert(data)
            value = await self._invoke(handler, job, context, data)
            encode(value, f"the result of {job.place.id!r}")  # else hooks would be told of a success that is none
            return value

        decode = partial(_decode, job.input)
        if job.place.node.timeout is None and not self._telemetry.tracing:
            return await self._hooks.call(context, decode, run)
        with self._telemetry.step(context, job.trace):
            async with time_limit(job):
                return await self._hooks.call(context, decode, run)

    async def _invoke(self, handler: Handler, job: Job, context: Context, data: object) -> object:
        check(job, self._is_lost)
        if handler.is_async:
            return await handler.function(context, data)
        # What the caller traces goes along into the thread.
        run = partial(contextvars.copy_context().run, partial(self._run_plain, handler, job, context, data))
        job.thread = self._threads.submit(run)
        try:
            return await asyncio.wrap_future(job.thread)
        except asyncio.CancelledError:
            # Nobody waits for the thread any more, be it for its time limit; or the function itself raised this.
            job.told = job.told or not job.thread.done()
            raise

    def _run_plain(self, handler: Handler, job: Job, context: Context, data: object) -> object:
        """Run a plain function in its thread, after one more check: it may have waited for the thread."""
        check(job, self._is_lost)
        return handler.function(context, data)


def _interrupt(runner: asyncio.Task[None], job: Job) -> None:
    job.told = True
    if job.thread is not None:
        job.thread.cancel()  # works as long as no thread has taken it up
    else:
        job.interrupted = True
        runner.cancel()


def _is_cancelled(job: Job) -> bool:
    """Check that this runner itself is to end, rather than its handler or a task the handler awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > job.interrupted
