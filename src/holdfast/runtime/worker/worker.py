"""Worker: claims ready work, runs its handlers, keeps its lease, and leaves in order.

It sleeps until work is due or hinted at; a slow scan runs anyway, because a hint may get lost. Recovery is part of that
scan and nothing special: work whose worker has no lease is work like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic

from holdfast.core.model.decision import Dispatch
from holdfast.core.model.program import CALL_QUEUE
from holdfast.core.model.signals import CallDue, WorkDone, WorkFailed
from holdfast.core.model.state import Instance
from holdfast.errors import HoldfastError, StoreError
from holdfast.logs import logger
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.committer import Committer
from holdfast.runtime.commit.items import Item
from holdfast.runtime.consumers.worker import DeliveriesWorker
from holdfast.runtime.effects.worker import EffectsWorker
from holdfast.runtime.machines.board import NoticeBoard
from holdfast.runtime.machines.staleness import Staleness
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.upkeep import Maintenance
from holdfast.runtime.telemetry.backlog import Backlog
from holdfast.runtime.telemetry.spans import Telemetry
from holdfast.runtime.worker.background import Reader
from holdfast.runtime.worker.calls import Calls
from holdfast.runtime.worker.cancellation import Stopping
from holdfast.runtime.worker.context import Job
from holdfast.runtime.worker.executor import Executor
from holdfast.runtime.worker.handlers import Registry, nobody_asks, queues_of
from holdfast.runtime.worker.options import WorkerOptions
from holdfast.runtime.worker.parking import Parking
from holdfast.runtime.worker.synthetic_failures import most_calls, not_run, undecidable, worn_out
from holdfast.runtime.worker.unserved import MissingHandlers
from holdfast.runtime.worker.wakeups import Notifier
from holdfast.store.pg.listen import listen
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.queue import work as queue
from holdfast.store.queue.lease import Lease
from holdfast.store.queue.work import ClaimedWork

log = logger("holdfast.worker")

LOOK_AGAIN = 0.1  # seconds that queued work waits at most while there is little room for it
AGAIN_SECONDS = 0.1  # until a signal that could not be decided upon is tried again


class Worker:
    def __init__(
        self,
        dsn: str,
        committer: Committer,
        handlers: Registry,
        calls: Registry,
        notifier: Notifier,
        telemetry: Telemetry,
        backlog: Backlog,
        options: WorkerOptions,
        reader: Reader,
        board: NoticeBoard,
    ) -> None:
        self.options = options
        self._capacity = max(options.capacity, options.concurrency)  # else some handlers could never be busy
        self._dsn = dsn
        self._committer = committer
        self._registries = handlers, calls
        self._notifier = notifier
        self._parking = Parking(lambda: self._session, self._parked, self.reconnected)
        self._calls = Calls(
            dsn, committer, calls, telemetry, self._is_lost, self._parking.give_back, options.calls, reader
        )  # fmt: skip
        self.executor = Executor(
            registry=handlers,
            concurrency=options.concurrency,
            deliver=self._deliver,
            telemetry=telemetry,
            is_lost=self._is_lost,
            run_call=self._calls.run,
            hooks=committer.hooks,
            postpone=self._parking.postpone,
            give_back=self._parking.give_back,
            reader=reader,
        )
        self._held: dict[tuple[bytes, str], int] = {}  # steps leased to us, by fence
        self._taking_on, self._reopening = asyncio.Lock(), asyncio.Lock()
        self._pause = min(options.scan, options.lease / 3)
        self._stopping = Stopping(self.executor, notifier, self._pause, self._asking, self._settled)
        self.missing = MissingHandlers(
            self._reopen,
            notifier,
            cooldown=options.missing_handler_cooldown,
            jitter=options.missing_handler_jitter,
            log_throttle=options.missing_handler_log_throttle,
        )
        self._backlog = backlog
        self._board = board
        self._staleness = Staleness(board)
        self._draining = False
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._strays = False
        self._has_looked = False
        self._is_full = False
        self._next_look: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ears: list[asyncio.Task[None]] = []
        self.lease = Lease(dsn, options.lease, self._new_incarnation)
        self._serve()
        self.effects: EffectsWorker | None = None
        self.deliveries: DeliveriesWorker | None = None
        self.upkeep: Maintenance | None = None

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await asyncio.to_thread(self.lease.start)
        committer = self._committer
        self._session = await Session.open(self._dsn)
        for registry in self._registries:
            registry.on_added = self._on_registered
        self._serve()  # handlers registered meanwhile, too
        await self._warn_of_rivals()
        if await self._may_have_lost_others():
            committer.caution.begin()
        committer.worker = self.lease.id
        self._port_before, committer.port = committer.port, self
        committer.signals_ready = True
        if self.effects is not None:
            await self.effects.start()
        if self.deliveries is not None:
            await self.deliveries.start()
        self._tasks = [
            asyncio.create_task(self._scan(), name="holdfast-scan"),
            asyncio.create_task(self.missing.serve(), name="holdfast-missing"),
            asyncio.create_task(self._backlog.serve(), name="holdfast-backlog"),
            asyncio.create_task(self._board.serve(), name="holdfast-notices"),
        ]
        self._ears = [
            asyncio.create_task(listen(self._dsn, self.wake, self._stopping.hear), name="holdfast-listen"),
            asyncio.create_task(self._stopping.serve(), name="holdfast-stopping"),
        ]
        if self.options.maintenance:
            self.upkeep = Maintenance(self._dsn, self.options.retention or Retention.from_environment())
            self._tasks.append(asyncio.create_task(self.upkeep.serve(), name="holdfast-maintenance"))
        committer.wake()

    def _serve(self) -> None:
        """Serve all handlers registered by now."""
        self.queues = queues_of(*self._registries, self.options.queues)
        self._served = frozenset(self.queues)
        self.lease.origins = self._origins()
        self._claims = self.lease.queues = [*self.queues, *queue.UNRUN_QUEUES]

    def _origins(self) -> dict[str, str]:
        handlers, calls = self._registries
        return {**handlers.origins, **{CALL_QUEUE + name: origin for name, origin in calls.origins.items()}}

    async def _warn_of_rivals(self) -> None:
        """Two services that offer one name run each other's steps: say so before it happens."""
        mine = self._origins()
        with contextlib.suppress(Disconnected, DatabaseError):
            for name, origin, host, pid in await queue.list_rivals(self._session, mine):
                log.warning(
                    "The handler %r of %s is also offered by %s, pid %d on %s: either may run the other's steps; give"
                    " each service its own app (Engine(app=...), --app, HOLDFAST_APP)",
                    name, mine[name], origin, pid, host,
                )  # fmt: skip

    def _on_registered(self) -> None:
        """Serve a new handler, registered in any thread."""
        self._loop.call_soon_threadsafe(self._serve_more)

    def _serve_more(self) -> None:
        self._serve()
        self.wake()

    async def _may_have_lost_others(self) -> bool:
        try:
            return await queue.has_lost_workers(self._session)
        except (Disconnected, DatabaseError):
            return True  # the scan finds a new connection; until then, care costs little

    async def stop(self) -> None:
        """Stop claiming, commit the results of running handlers, return work that was not started."""
        self._draining = True
        for registry in self._registries:
            registry.on_added = nobody_asks
        await _end(self._tasks)
        leaving = [part.stop(self.options.grace) for part in (self.effects, self.deliveries) if part is not None]
        await asyncio.gather(self.executor.stop(self.options.grace), *leaving)
        await _end(self._ears)  # not before: handlers that still run can be told to stop
        await self._calls.close()
        await self._parking.settled()
        await self._all_committed(self.options.grace)
        for job in self.executor.jobs:
            self._held.pop((job.instance, job.path), None)
        self.executor.jobs.clear()
        with contextlib.suppress(Disconnected, DatabaseError, StoreError):
            await self._reopen()
            await self._free_strays()
        await self._session.close()
        await asyncio.to_thread(self.lease.stop)
        committer = self._committer
        committer.worker = None
        committer.port = self._port_before
        committer.snapshots.leave_all()
        self._notifier.hint()

    async def _all_committed(self, patience: float) -> None:
        """Wait until all results are committed. Those left at the end run again elsewhere once the lease is over."""
        deadline = self._loop.time() + patience
        while not self._committer.is_idle and self._loop.time() < deadline:
            self._committer.wake()
            await asyncio.sleep(0.001)

    def wake(self) -> None:
        self._committer.signals_ready = True
        self._committer.wake()
        self._wake.set()
        self._board.news.wake()
        if self.effects is not None:
            self.effects.wake(urgent=False)
        if self.deliveries is not None:
            self.deliveries.wake(urgent=False)

    @property
    def is_idle(self) -> bool:
        return not (self.executor.jobs or self.executor.running or self._held) and self._committer.is_idle

    async def is_done(self) -> bool:
        """Check that no work is in hand, and none due that this process could do."""
        if self.deliveries is None:
            return await self._are_steps_done()
        return await self._are_steps_done() and await self.deliveries.is_done() and await self._are_steps_done()

    async def _are_steps_done(self) -> bool:
        effects = self.effects
        if effects is None:
            return await self._is_work_done()
        # An outcome stored between the two questions may have brought a signal.
        stored = effects.stored
        return (
            await effects.is_done() and await self._is_work_done() and await effects.is_done()
            and effects.stored == stored
        )  # fmt: skip

    async def _is_work_done(self) -> bool:
        if not (self.is_idle and self._has_looked):  # only the first look finds what a dead worker left
            return False
        try:
            left = await queue.is_anything_left(
                self._session, self._claims, self.lease.id, stale=not self._staleness.is_resting
            )
        except (Disconnected, DatabaseError):
            left = True  # the scan is about to find a new connection
        if left:
            self.wake()
        return not left and self.is_idle

    # --- the committer's questions and news ------------------------------------------------------------------------

    def leases(self, dispatch: Dispatch) -> bool:
        if dispatch.queue not in self._served or self._draining or not self._is_fresh:
            return False
        if len(self._held) >= self._capacity:
            self._is_full = True  # this one will wait in the queue: what comes next must not pass it
            return False
        return bool(dispatch.held) or not self._is_full  # new work goes behind queued work

    @property
    def _is_fresh(self) -> bool:
        """Check that the lease is good and that the committer acts under it, not under the one before."""
        return monotonic() < self.lease.trusted_until and self._committer.worker == self.lease.id

    def room(self) -> int:
        return min(self.options.claim, self._capacity - len(self._held)) if not self._draining else 0

    def committed(self, plan: Plan) -> None:
        """Turn steps leased to us into jobs, and hint at work for other workers."""
        for id, entry in plan.entries.items():
            for decision in entry.decisions:
                if decision.released or decision.stops or decision.halts:
                    self._stopping.note(id, decision, self._held)
                for release in decision.released:
                    self._held.pop((id, release.path), None)
                for dispatch in decision.dispatches:
                    self._on_dispatch(plan, entry.decisions[-1].instance, dispatch)
                for path in decision.paused:
                    self._stopping.pause(id, path, self._held)
                if (
                    decision.timers or decision.resumed or decision.outgoing or decision.children or decision.effects
                    or decision.facts
                ):  # fmt: skip
                    self.wake()
                    self._notifier.hint()
                    if decision.effects and self.effects is not None:
                        self.effects.wake()
        if self.deliveries is not None and (plan.deliveries.known or _tells(plan)):
            self.deliveries.wake()
        if plan.halted:
            self._loop.call_later(AGAIN_SECONDS, self.wake)
        if self._is_full and len(self._held) < self._capacity:
            self._look_again()
        self._stopping.tell()
        self.executor.dispatch()

    def _look_again(self) -> None:
        """Schedule the next claim after one that stopped for want of room: at once when half of the capacity is free.

        Before that, queued work waits a moment longer, but not for as long as the steps in hand keep handing off.
        """
        if len(self._held) * 2 < self._capacity:
            self._wake.set()
        elif self._next_look is None or self._next_look.when() <= self._loop.time():
            self._next_look = self._loop.call_later(LOOK_AGAIN, self._wake.set)

    def _on_dispatch(self, plan: Plan, instance: Instance, dispatch: Dispatch) -> None:
        token = instance.state.tokens.get(dispatch.path)
        program = self._committer.catalog.known(instance.definition)
        if (
            dispatch.step not in plan.leased
            or dispatch.input is None
            or token is None
            or program is None
            or plan.worker is None
            or plan.worker != self._committer.worker
        ):
            self._held.pop((instance.id, dispatch.path), None)
            self._wake.set()
            self._notifier.hint()
            return
        self._held[instance.id, dispatch.path] = dispatch.fence
        self.executor.add(
            Job(
                instance=instance.id,
                org=instance.org,
                flow=instance.flow,
                path=dispatch.path,
                hop=token.hop,
                step=dispatch.step,
                fence=dispatch.fence,
                calls=dispatch.calls,
                place=program.places[dispatch.node],
                input=dispatch.input,
                trace=instance.trace,
                holder=plan.worker,
            )
        )

    def _deliver(self, item: Item) -> None:
        self._committer.add(item)

    def dropped(self, item: Item) -> None:
        """Forget the held token of a dropped result, unless it has a newer fence."""
        signal = item.signal
        if isinstance(signal, WorkDone | WorkFailed | CallDue):
            held = item.instance, signal.path
            if self._held.get(held) == signal.fence:
                del self._held[held]

    def _parked(self, job: Job) -> None:
        if self._held.get((job.instance, job.path)) == job.fence:
            del self._held[job.instance, job.path]
        self._committer.snapshots.goes_elsewhere(job.instance)
        self._wake.set()  # the next look may have to be sooner

    def _is_lost(self, job: Job) -> bool:
        lease = self.lease
        return job.holder != lease.id or monotonic() >= lease.trusted_until

    async def _asking(self) -> tuple[Session, bytes]:
        return await self._reopen(), self.lease.id

    async def _settled(self) -> None:
        """Wait until all work leased to us before now is a job, or is over."""
        await self._committer.answered()
        async with self._taking_on:
            pass

    def _new_incarnation(self, id: bytes) -> None:
        self._loop.call_soon_threadsafe(self._begin_anew, id)

    def _begin_anew(self, id: bytes) -> None:
        """Continue under a new id after the loss of the lease: work in hand belongs to others, unstarted steps are not
        run.
        """
        self._committer.incidents.lease_lost(self.executor.running_under(self._committer.worker))
        self._committer.worker = id
        for job in self.executor.jobs:
            self._parking.give_back(job)
        self.executor.jobs.clear()
        self.executor.tell(lambda job: job.holder != id)
        self._held.clear()
        self._committer.snapshots.leave_all()
        self.wake()

    def reconnected(self) -> None:
        """Look in the next scan for steps leased to us that are no job."""
        self._strays = True
        self._wake.set()

    # --- the scan --------------------------------------------------------------------------------------------------

    async def _scan(self) -> None:
        rounds = 0
        while True:
            self._wake.clear()  # before the look: a hint that comes while we look is not lost
            try:
                pause = await self._round(rounds)
            except (Disconnected, DatabaseError, HoldfastError) as failure:
                log.warning("The scan failed and will be repeated: %s", failure)
                pause = 0.5
                self._strays = True  # it may have claimed more than it heard of
                with contextlib.suppress(StoreError):
                    await self._reopen()
            rounds += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _round(self, rounds: int) -> float:
        """One look at everything; how long the next may wait."""
        self.lease.beat()
        if self._strays:
            self._strays = False  # before the look: an answer that is lost meanwhile may have leased what it misses
            await self._free_strays()
        freed, taken_over = await queue.reclaim_work(self._session, 1000)
        self._committer.incidents.taken_over(taken_over)
        if freed:
            self._notifier.hint()
        while await queue.fire_timers(self._session, 1000):
            self._committer.signals_ready = True
            self._committer.wake()
        await self._claim()
        if rounds % 100 == 99:
            await queue.prune_workers(self._session)
        self._has_looked = True
        timer, stale = await queue.read_dues(self._session)
        stale = await self._staleness.look(self._session, stale)
        self._committer.signals_ready = True
        self._committer.wake()
        return min([self._pause, *(max(0.0, due) for due in (timer, stale) if due is not None)])

    async def _free_strays(self) -> None:
        """Give back work that is leased to us and unknown here: the answer of the commit that leased it was lost."""
        worker = self.lease.id
        leased = await queue.list_leased(self._session, worker)
        await self._committer.answered()
        if worker != self._committer.worker or worker != self.lease.id:
            return  # what the incarnation before us had in hand is not known here any more, and may be running
        strays = [(id, path, fence) for id, path, fence in leased if self._held.get((id, path)) != fence]
        await queue.return_claims(self._session, strays, worker)

    async def _claim(self) -> None:
        while not self._draining and self._is_fresh:
            limit = self.room()
            if limit <= 0:
                self._is_full = True
                return
            async with self._taking_on:
                worker = self.lease.id
                claimed = await queue.claim_work(self._session, self._claims, limit, worker)
                if worker != self._committer.worker:
                    return  # leased to the one we were; it is found and freed like anybody's
                for work in claimed:
                    await self._take_on(work, worker)
            self.executor.dispatch()
            self._is_full = len(claimed) >= limit  # not before the answer: until then something may wait
            if not self._is_full:
                return

    async def _take_on(self, work: ClaimedWork, worker: bytes) -> None:
        self._held[work.instance, work.path] = work.fence
        if work.unrun:
            self._deliver(Item(work.instance, not_run(work)))
            return
        try:
            program = await self._committer.catalog.program(self._session, work.definition)
            place = program.places[work.node]
        except (HoldfastError, KeyError) as failure:
            self._deliver(Item(work.instance, undecidable(work, failure)))
            return
        self._committer.snapshots.forget_older(work.instance, work.version)
        if work.calls > most_calls(program, place):
            self._deliver(Item(work.instance, worn_out(work, place.node.idempotent), unmade=True))
            return
        self.executor.add(
            Job(
                instance=work.instance,
                org=work.org,
                flow=program.name,
                path=work.path,
                hop=work.hop,
                step=work.step,
                fence=work.fence,
                calls=work.calls,
                place=place,
                input=work.input,
                trace=work.trace,
                holder=worker,
            )
        )

    async def _reopen(self) -> Session:
        """The session, a new one if it is out of step."""
        async with self._reopening:
            if self._session.broken:
                await self._session.close()
                self._session = await Session.open(self._dsn)
            return self._session


def _tells(plan: Plan) -> bool:
    """Check for facts that consumers are to be sent."""
    return any(decision.facts for entry in plan.entries.values() for decision in entry.decisions)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
