"""The base of the engine's verbs: its parts, their life, the worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Self

from holdfast.errors import Conflict, HoldfastError
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.commit.committer import Committer
from holdfast.runtime.commit.options import Options
from holdfast.runtime.commit.starter import Starter
from holdfast.runtime.consumers.answers import Answers
from holdfast.runtime.consumers.attaching import attach
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.runtime.consumers.receiving import Ears
from holdfast.runtime.consumers.registry import Consumers
from holdfast.runtime.effects import outbox
from holdfast.runtime.effects.kinds import Kind, Kinds
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.hooks.chain import Hooks
from holdfast.runtime.hooks.middleware import Middleware
from holdfast.runtime.hooks.rate_limit import RateLimit, check_limits
from holdfast.runtime.hooks.turnstile import Turnstile
from holdfast.runtime.machines.board import NoticeBoard
from holdfast.runtime.machines.refs import Refs
from holdfast.runtime.ops.operations import Operations
from holdfast.runtime.races import Races
from holdfast.runtime.telemetry.backlog import Backlog
from holdfast.runtime.telemetry.metrics import Stats
from holdfast.runtime.telemetry.spans import Telemetry
from holdfast.runtime.validation import check_org
from holdfast.runtime.worker.apps import check_app
from holdfast.runtime.worker.background import Reader
from holdfast.runtime.worker.cancellation import OtherWorkers
from holdfast.runtime.worker.handlers import Registry
from holdfast.runtime.worker.options import take_options
from holdfast.runtime.worker.wakeups import Notifier
from holdfast.runtime.worker.worker import Worker
from holdfast.settings import Settings
from holdfast.store import embedded
from holdfast.store.activities import read_entry
from holdfast.store.admin.schema import migrate
from holdfast.store.caller_transaction import BorrowedVerbs
from holdfast.store.pg.connect import Address
from holdfast.store.pg.reconnecting import StandingSession
from holdfast.store.pg.session import Session
from holdfast.store.reads.instances import read_error


class Base:
    """The parts of an engine, in one dictionary that its views for other organisations share: connections, handlers and
    workers opened through one view are there for all. Only the slots are each view's own."""

    __slots__ = ("__dict__", "__weakref__", "_is_view", "org")

    org: str
    _is_view: bool

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
        settings = Settings.from_environment()
        self.dsn: str = Address(
            dsn or settings.dsn,
            direct=direct_dsn or settings.direct_dsn,
            pooled=settings.pooled if pooled is None else pooled,
        )
        self.org = settings.org if org is None else org  # an empty one is a mistake, not the default
        check_org(self.org)
        self._is_view = False
        self.options = options or Options(
            keep_early=settings.keep_early,
            aging=settings.aging,
            race_patience=settings.race_patience,
            max_context=settings.max_context,
            fast_paths=settings.fast_paths,
            stale_after=settings.stale_after,
        )
        self.races = Races(self.options.race_patience)
        self.app = check_app(app if app is not None else settings.app or None)  # None: that of each function
        self.handlers = Registry(self.app)
        self.calls = Registry(self.app)
        self.effect_kinds = Kinds()
        self.effect_options = EffectOptions.from_environment()
        self.telemetry = Telemetry()
        self.hooks = Hooks()
        self._turnstile = Turnstile(lambda: self.dsn)
        self.consumers_here = Consumers()
        self.consumer_options = ConsumerOptions.from_settings(settings)
        self.board = NoticeBoard(self._opened, self.org, self._hint)
        self.catalog = Catalog()
        self.refs = Refs()
        self._stack = contextlib.AsyncExitStack()
        self._worker: Worker | None = None
        self._open = False

    def for_org(self, org: str) -> Self:
        """The same engine for another organisation: a view that shares all of it and costs nothing to make."""
        check_org(org)
        view = object.__new__(type(self))
        view.__dict__ = self.__dict__
        view.org, view._is_view = org, True
        return view

    # --- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        self._refuse_view()
        try:
            await self._open_parts()
        except BaseException:
            await self._stack.aclose()  # what was opened before the failure
            raise

    async def _open_parts(self) -> None:
        if not self.dsn:
            server = await asyncio.to_thread(embedded.start)
            self.dsn = Address(server.dsn, directory=server.directory)
        await asyncio.to_thread(migrate, self.dsn)
        self.telemetry.refresh()
        self._session = await StandingSession.open(self.dsn)
        self._stack.push_async_callback(self._session.close)
        self._backlog = Backlog(self._asking)
        self._notifier = Notifier(self._session)
        self._stack.push_async_callback(self._notifier.stop)
        self._stack.push_async_callback(self.board.close)
        self._ears = Ears(self.board.news)
        self._stack.push_async_callback(self._ears.close)
        self._starter = Starter(self.dsn)
        self._stack.push_async_callback(self._starter.close)
        self._stack.push_async_callback(self._turnstile.close)
        self._stack.push_async_callback(self.hooks.close)
        self.hooks.read_error = partial(read_error, self._session)
        self.committer = Committer(self.dsn, self.catalog, self.options, self.org, OtherWorkers(self._notifier))
        self.committer.hooks = self.hooks
        self._stack.push_async_callback(self.committer.stop)
        await self.committer.start()
        self._open = True

    async def close(self) -> None:
        self._refuse_view()
        self._open = False
        await self._stack.aclose()

    def _refuse_view(self) -> None:
        if self._is_view:
            raise HoldfastError(
                "This is a view of an engine; it is opened and closed with that engine.",
                code="ENGINE_IS_A_VIEW",
                hint="Open and close the engine that `for_org` was called on.",
            )

    # --- what this process can do ----------------------------------------------------------------------------------

    def handler(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function as the handler of that name."""
        return lambda function: self.register(name, function)

    def register(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.handlers.register(name, function)

    def call(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function as an operation that runs inside the engine's transaction: `async def f(ctx, data)`."""
        return lambda function: self.calls.register(name, function)

    def effect(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function that delivers effects of that kind: `def f(ctx, data)`, sync or async."""
        return lambda function: self.register_effect(name, function)

    def register_effect(self, name: str, kind: Callable[..., Any] | Kind) -> Any:
        self.effect_kinds.register(name, kind)
        return kind

    def use(self, *middleware: Middleware) -> Self:
        """Add hooks around what this process does; the first that is used is the outermost."""
        check_limits((*self.hooks.middleware, *middleware))
        self.hooks.use(middleware)
        for added in middleware:
            if isinstance(added, RateLimit):
                added.attach(self._turnstile)
        return self

    # --- work ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def worker(self, **options: Any) -> AsyncGenerator[Worker, None]:
        """Run handlers in this process for as long as the block lasts."""
        self._opened()
        if self._worker is not None:
            raise Conflict("A worker runs in this engine already.", code="WORKER_RUNNING")
        worker = Worker(
            dsn=self.dsn,
            committer=self.committer,
            handlers=self.handlers,
            calls=self.calls,
            notifier=self._notifier,
            telemetry=self.telemetry,
            backlog=self._backlog,
            options=take_options(options),
            reader=Reader(self._opened),
            board=self.board,
        )
        outbox.attach(
            worker, self.dsn, self.effect_kinds, self.effect_options, self._announce, self.committer.incidents
        )
        attach(
            worker, self.dsn, self.consumers_here, self.consumer_options, self.effect_options, self._answers,
            self._present_entry,
        )  # fmt: skip
        await worker.start()
        self._worker = worker
        try:
            yield worker
        finally:
            self._worker = None
            await worker.stop()

    def lifespan(
        self, *, worker: Mapping[str, Any] | bool = True
    ) -> Callable[[Any], contextlib.AbstractAsyncContextManager[None]]:
        """Make the lifespan of a web application: `FastAPI(lifespan=engine.lifespan())` opens the engine and runs a
        worker, with options or without any (False). A mounted application is never started, so this is for the
        outermost one."""

        @contextlib.asynccontextmanager
        async def life(_: Any) -> AsyncGenerator[None, None]:
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(self)
                if worker is not False:
                    await stack.enter_async_context(self.worker(**({} if worker is True else worker)))
                yield

        return life

    @property
    def running_worker(self) -> Worker | None:
        """The worker of this process, while one runs."""
        return self._worker

    async def drain(self, timeout: float | None = None) -> None:
        """Run all due work in this process until none is left: for tests and scripts."""
        async with contextlib.AsyncExitStack() as stack:
            worker = self._worker or await stack.enter_async_context(self.worker())
            async with asyncio.timeout(timeout):
                while not await worker.is_done():
                    await asyncio.sleep(0.002)
                await self.hooks.told()
                await self.board.told()

    def wake(self) -> None:
        """Look for work now, and at the clock of the database: a test may have moved it."""
        self.committer.clock.distrust()
        self._look()

    def _look(self) -> None:
        if self._worker is not None:
            self._worker.wake()
        else:
            self.board.news.wake()

    def _announce(self) -> None:
        self._look()
        self._notifier.hint()

    def _hint(self) -> None:
        self._notifier.hint()

    async def look_at_backlog(self) -> None:
        """Let `stats` know how much waits in the database. A worker looks by itself, a process without one here."""
        self._opened()
        await self._backlog.refresh()

    def stats(self) -> Stats:
        counters, incidents, worker = self.committer.counters, self.committer.incidents, self._worker
        waiting = self._backlog.waiting
        return Stats(
            commits=counters.commits,
            steps_closed=counters.steps,
            batches_retried=counters.retried,
            results_rejected=counters.rejected,
            hook_failures=self.hooks.failures + self.board.failures,
            hook_notices_dropped=self.hooks.untold,
            default_partition_rows=worker.upkeep.default_rows if worker and worker.upkeep else 0,
            handlers_running=worker.executor.running if worker else 0,
            jobs_queued=len(worker.executor.jobs) if worker else 0,
            results_buffered=len(self.committer.buffer),
            instances_cached=len(self.committer.snapshots.cache),
            lease_seconds_left=worker.lease.seconds_left if worker else None,
            steps_unserved=self._backlog.unserved
            if worker is None or worker.missing.waiting is None
            else worker.missing.waiting,
            consumer_open_facts=self._backlog.open_facts(self.org),
            consumer_seconds_behind=self._backlog.seconds_behind(self.org),
            signals_queued=waiting and waiting.signals,
            effects_pending=waiting and waiting.effects,
            dead_letters_open=waiting and waiting.letters,
            instances_suspended=waiting and waiting.suspended,
            instances_in_dlq=waiting and waiting.dlq,
            steps_taken_over=incidents.takeovers,
            leases_lost=incidents.leases_lost,
            calls_failed=incidents.calls_failed.of(self.org),
            instances_stopped=incidents.instances_stopped.of(self.org),
            dead_letters=incidents.letters.of(self.org),
            timeouts=self.committer.timeouts.counts.of(self.org),
            notices=self.board.counts,
        )

    @property
    def _answers(self) -> Answers:
        return Answers(self.committer, self._opened, self.board, self.consumer_options, self._announce)

    async def _present_entry(self, org: str, instance: bytes) -> int | None:
        entry = await read_entry(self._opened(), org, instance, None)
        return None if entry is None else entry.number

    async def _asking(self) -> Session:
        return self._session

    @property
    def _operations(self) -> Operations:
        return Operations(self)

    @property
    def _borrowed(self) -> BorrowedVerbs:
        return BorrowedVerbs(self.org, partial(self._announce_from_anywhere, asyncio.get_running_loop()))

    def _announce_from_anywhere(self, loop: asyncio.AbstractEventLoop) -> None:
        """Announce the commit of a caller in another thread. If the engine is closed by then, a scan finds the work."""
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: self._announce() if self._open else None)

    def _opened(self) -> Session:
        if not self._open:
            raise HoldfastError(
                "The engine is not open.", code="ENGINE_CLOSED", hint="Use it inside `async with Engine() as engine:`."
            )
        return self._session
