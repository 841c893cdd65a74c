"""The engine for code without an event loop: the same verbs, each waiting for its answer.

    with SyncEngine() as engine:
        engine.register("reserve", reserve)
        engine.publish(Flow("order").step("reserve", "reserve").build())
        instance = engine.start("order", {"amount": 5}, key="order-17")
        with engine.worker():
            instance = engine.wait(instance.id)

There is one engine, the asynchronous one; it runs on a loop in a thread of its own, so leases and timers work while
the program does something else. A verb hands its coroutine to that loop and serves its own thread meanwhile: blocking
calls on a connection (`conn=`) run in the thread that brought the connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.errors import HoldfastError
from holdfast.runtime.commit.options import Options
from holdfast.runtime.consumers.events import ConsumerEvent
from holdfast.runtime.engine import Engine
from holdfast.runtime.process.loop import run
from holdfast.store.connections import RUN_THERE
from holdfast.store.notices import Notice

P = ParamSpec("P")
R = TypeVar("R")


def _verb(
    verb: Callable[Concatenate[Engine, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncEngine, P], R]:
    @wraps(verb)
    def call(self: SyncEngine, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.wait_for(verb(self.engine, *args, **kwargs))

    return call


class SyncEngine:
    """An engine with blocking verbs. `engine` is the asynchronous one inside; await its verbs on its own loop only."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        org: str | None = None,
        options: Options | None = None,
        direct_dsn: str | None = None,
        pooled: bool | None = None,
        app: str | None = None,
    ) -> None:
        self._speak_for(Engine(dsn, org=org, options=options, direct_dsn=direct_dsn, pooled=pooled, app=app))
        self._loop = _LoopThread()
        self._is_view = False  # the loop is another's to start and to stop

    def _speak_for(self, engine: Engine) -> None:
        """Take the verbs that need no loop as they are: they register functions."""
        self.engine = engine
        self.handler = engine.handler
        self.register = engine.register
        self.call = engine.call
        self.effect = engine.effect
        self.register_effect = engine.register_effect
        self.use = engine.use
        self.consumer = engine.consumer
        self.on_notice = engine.on_notice
        self.openapi = engine.openapi
        self.load_invokers = engine.load_invokers

    def for_org(self, org: str) -> SyncEngine:
        """The same engine for another organisation: a view that shares all of it and costs nothing to make."""
        view = object.__new__(SyncEngine)
        view.__dict__ = {**self.__dict__, "_is_view": True}
        view._speak_for(self.engine.for_org(org))
        return view

    def __enter__(self) -> SyncEngine:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        if not self._is_view:
            self._loop.start()
        try:
            self.wait_for(self.engine.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        if self._loop.is_running:
            try:
                self.wait_for(self.engine.close())
            finally:
                self._stop()

    def _stop(self) -> None:
        if not self._is_view:
            self._loop.stop()

    @property
    def dsn(self) -> str:
        return self.engine.dsn

    @property
    def org(self) -> str:
        return self.engine.org

    publish = _verb(Engine.publish)
    publish_many = _verb(Engine.publish_many)
    publish_contract = _verb(Engine.publish_contract)
    contracts = _verb(Engine.contracts)
    contract_versions = _verb(Engine.contract_versions)
    contract = _verb(Engine.contract)
    effective = _verb(Engine.effective)
    contract_difference = _verb(Engine.contract_difference)
    contract_difference_page = _verb(Engine.contract_difference_page)
    simulate_document = _verb(Engine.simulate_document)
    publish_table = _verb(Engine.publish_table)
    tables = _verb(Engine.tables)
    table = _verb(Engine.table)
    save_patch_draft = _verb(Engine.save_patch_draft)
    patch_draft = _verb(Engine.patch_draft)
    drop_patch_draft = _verb(Engine.drop_patch_draft)
    check_patch = _verb(Engine.check_patch)
    publish_patch = _verb(Engine.publish_patch)
    patches = _verb(Engine.patches)
    patch = _verb(Engine.patch)
    restore_patch = _verb(Engine.restore_patch)
    archive_patch = _verb(Engine.archive_patch)
    rebase = _verb(Engine.rebase)
    contract_events = _verb(Engine.contract_events)
    import_machine = _verb(Engine.import_machine)
    load_machine = _verb(Engine.load_machine)
    page_machines = _verb(Engine.page_machines)
    describe_machine = _verb(Engine.describe_machine)
    machine_of = _verb(Engine.machine_of)
    trigger = _verb(Engine.trigger)
    trigger_answer = _verb(Engine.trigger_answer)
    backfill = _verb(Engine.backfill)
    machine = _verb(Engine.machine)
    ack = _verb(Engine.ack)
    start = _verb(Engine.start)
    run = _verb(Engine.run)
    start_and_settle = _verb(Engine.start_and_settle)
    start_many = _verb(Engine.start_many)
    advance = _verb(Engine.advance)
    advance_and_settle = _verb(Engine.advance_and_settle)
    descriptor = _verb(Engine.descriptor)
    describe_list = _verb(Engine.describe_list)
    signal = _verb(Engine.signal)
    signal_key = _verb(Engine.signal_key)
    cancel = _verb(Engine.cancel)
    abort = _verb(Engine.abort)
    suspend = _verb(Engine.suspend)
    resume = _verb(Engine.resume)
    force_fail = _verb(Engine.force_fail)
    reschedule = _verb(Engine.reschedule)
    cancel_timer = _verb(Engine.cancel_timer)
    dead_letters = _verb(Engine.dead_letters)
    find_dead_letters = _verb(Engine.find_dead_letters)
    dead_letter = _verb(Engine.dead_letter)
    requeue = _verb(Engine.requeue)
    replay_dead_letters = _verb(Engine.replay_dead_letters)
    discard_dead_letters = _verb(Engine.discard_dead_letters)
    runtime = _verb(Engine.runtime)
    get = _verb(Engine.get)
    steps = _verb(Engine.steps)
    events = _verb(Engine.events)
    list = _verb(Engine.list)
    find = _verb(Engine.find)
    instances_by_id = _verb(Engine.instances_by_id)
    flows = _verb(Engine.flows)
    page_flows = _verb(Engine.page_flows)
    page_versions = _verb(Engine.page_versions)
    flow = _verb(Engine.flow)
    statistics = _verb(Engine.statistics)
    wait = _verb(Engine.wait)
    settle = _verb(Engine.settle)
    standing = _verb(Engine.standing)
    drain = _verb(Engine.drain)
    stuck = _verb(Engine.stuck)
    reenqueue = _verb(Engine.reenqueue)
    rebuild = _verb(Engine.rebuild)
    migrate = _verb(Engine.migrate)
    revert_migration = _verb(Engine.revert_migration)
    rerun = _verb(Engine.rerun)
    maintain = _verb(Engine.maintain)
    workers = _verb(Engine.workers)
    all_dead_letters = _verb(Engine.all_dead_letters)
    doctor = _verb(Engine.doctor)
    effects = _verb(Engine.effects)
    list_effects = _verb(Engine.list_effects)
    get_effect = _verb(Engine.get_effect)
    replay_effect = _verb(Engine.replay_effect)
    notices = _verb(Engine.notices)
    notice_place = _verb(Engine.notice_place)
    activity = _verb(Engine.activity)
    set_activity = _verb(Engine.set_activity)
    freeze_activity = _verb(Engine.freeze_activity)
    unfreeze_activity = _verb(Engine.unfreeze_activity)
    activities = _verb(Engine.activities)
    lifecycle = _verb(Engine.lifecycle)
    tasks = _verb(Engine.tasks)
    inbox = _verb(Engine.inbox)
    tasks_about = _verb(Engine.tasks_about)
    task = _verb(Engine.task)
    task_events = _verb(Engine.task_events)
    claim = _verb(Engine.claim)
    release = _verb(Engine.release)
    assign = _verb(Engine.assign)
    delegate = _verb(Engine.delegate)
    decide = _verb(Engine.decide)

    @contextmanager
    def worker(self, **options: Any) -> Generator[None]:
        """Run handlers in this process for as long as the block lasts."""
        working = self.engine.worker(**options)
        self.wait_for(_awaited(working.__aenter__))
        try:
            yield
        finally:
            self.wait_for(_awaited(lambda: working.__aexit__(None, None, None)))

    register_consumer = _verb(Engine.register_consumer)
    beat_consumer = _verb(Engine.beat_consumer)
    remove_consumer = _verb(Engine.remove_consumer)
    consumers = _verb(Engine.consumers)
    get_consumer = _verb(Engine.get_consumer)
    known_consumer = _verb(Engine.known_consumer)
    receive = _verb(Engine.receive)
    deliveries = _verb(Engine.deliveries)
    replay_consumer = _verb(Engine.replay_consumer)
    settle_directly = _verb(Engine.settle_directly)

    def listen(self, env: str, consumer: str, *, most: int = 50, life: float | None = None) -> Generator[ConsumerEvent]:
        """Yield facts of a consumer as they become due, in order for each instance, for ever or for `life` seconds."""
        return self._followed(self.engine.listen(env, consumer, most=most, life=life))

    def follow_notices(self, **wanted: Any) -> Generator[Notice]:
        """Follow notices as they are committed; takes what `Engine.follow_notices` takes."""
        return self._followed(self.engine.follow_notices(**wanted))

    def _followed(self, items: AsyncIterator[R]) -> Generator[R]:
        try:
            while (item := self.wait_for(_next(items))) is not None:
                yield item
        finally:
            self.wait_for(_closed_generator(items))

    def wake(self) -> None:
        """Look for work now."""
        self._loop.soon(self.engine.wake)

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the engine's loop and wait for its result."""
        if not self._loop.is_running or self._loop.is_here:
            work.close()
            raise _closed() if not self._loop.is_running else _inside()
        errands = _Errands()
        token = RUN_THERE.set(errands.send)
        try:
            result = self._loop.submit(work)
        finally:
            RUN_THERE.reset(token)
        result.add_done_callback(errands.end)
        try:
            errands.serve()
        except BaseException:
            result.cancel()
            raise
        return result.result()


class _Errands:
    """Errands of a coroutine in the thread that waits for it."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._over = False

    def serve(self) -> None:
        while (errand := self._queue.get()) is not None:
            errand()

    def end(self, _: object) -> None:
        self._over = True
        self._queue.put(None)

    async def send(self, function: Callable[[], Any]) -> Any:
        if self._over:  # tasks that outlive the verb that made them inherit this
            return function()
        done: Future[Any] = Future()

        def errand() -> None:
            try:
                done.set_result(function())
            except Exception as failure:
                done.set_exception(failure)

        self._queue.put(errand)
        return await asyncio.wrap_future(done)


async def _next(items: AsyncIterator[R]) -> R | None:
    return await anext(items, None)


async def _closed_generator(items: Any) -> None:
    await items.aclose()


async def _awaited(step: Callable[[], Any]) -> Any:
    return await step()


class _LoopThread:
    """A thread with an event loop that runs until `stop`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self) -> None:
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: run(self._stay(ready)), name="holdfast-loop", daemon=True)
        self._thread.start()
        ready.result()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join()

    def submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def soon(self, function: Callable[[], None]) -> None:
        if self.is_running:
            self._loop.call_soon_threadsafe(function)

    async def _stay(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        ready.set_result(None)
        await self._end.wait()


def _closed() -> HoldfastError:
    return HoldfastError(
        "The engine is not open.", code="ENGINE_CLOSED", hint="Use it inside `with SyncEngine() as engine:`."
    )


def _inside() -> HoldfastError:
    return HoldfastError(
        "An async handler would block the loop it runs on.",
        code="SYNC_INSIDE_LOOP",
        hint="Await the verbs of `engine.engine` there, or write the handler as a plain function.",
    )
