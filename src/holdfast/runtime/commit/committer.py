"""The committer's lanes, from the buffer to the answered COMMIT. The theory is in the package's docstring.

Two lanes overlap: while one waits for PostgreSQL the other decides and encodes. A lane takes the buffer at once when
no commit is under way, and lingers a moment when one is, so batches grow with load and a lone flow never waits. A
handler's result leaves the buffer only after its commit, or after the database has said that its lease is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from uuid import uuid4

from holdfast.core.model.decision import Decision
from holdfast.core.model.signals import Acknowledged, WorkDone, WorkFailed
from holdfast.core.model.state import Instance
from holdfast.errors import Busy, HoldfastError, StoreError
from holdfast.logs import logger
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.clock import DatabaseClock
from holdfast.runtime.commit.crash_guard import Caution
from holdfast.runtime.commit.deliveries import no_consumer
from holdfast.runtime.commit.failures import Mishaps
from holdfast.runtime.commit.follow_ups import plan_known_rollbacks, plan_rollbacks
from holdfast.runtime.commit.history_cache import Trails
from holdfast.runtime.commit.instance_cache import Outcome, Snapshots
from holdfast.runtime.commit.items import Item
from holdfast.runtime.commit.options import Counters, Options
from holdfast.runtime.commit.port import Port
from holdfast.runtime.hooks.chain import Hooks
from holdfast.runtime.telemetry.incidents import QUIET, Incidents
from holdfast.runtime.telemetry.timeouts import Timeouts
from holdfast.store.commit.ensuring import ensure_instances
from holdfast.store.commit.locks import SIGNALS_PER_INSTANCE, Locked, dates, lock
from holdfast.store.pg.connect import pauses
from holdfast.store.pg.partitions import Months
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, Disconnected, Session
from holdfast.store.pg.transaction import clock_of, pin_impatiently
from holdfast.store.queue.work import weight_of_a_point

log = logger("holdfast.commit")

_RESULTS = (WorkDone, WorkFailed)
LOOKS = 3  # times the linger a lane waits for more
BUSY_PAUSE = 0.005
BUSY_PATIENCE = 1.0
RECONNECT_PAUSE = 0.25


class Committer:
    def __init__(self, dsn: str, catalog: Catalog, options: Options, home: str, port: Port) -> None:
        self.dsn = dsn
        self.catalog = catalog
        self.options = options
        self.point = weight_of_a_point(options.aging)
        self.counters = Counters()
        self.timeouts = Timeouts(home)
        self.incidents = Incidents(home)
        self.clock = DatabaseClock()
        self.months = Months()
        self.worker: bytes | None = None
        self.port = port
        self.signals_ready = False
        self.buffer: deque[Item] = deque()
        self.snapshots = Snapshots()
        self.trails = Trails()
        self.hooks = Hooks()
        self.active = 0
        self.under_way: set[object] = set()  # commits whose answer has not been acted upon, calls included
        self._claiming = 0  # instances the lanes may be taking on right now
        self._deferred = 0  # items of busy instances, about to come back
        self._busy: set[bytes] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sessions: list[Session] = []
        self._stopping = False
        self._mishaps = Mishaps(self)
        self.caution = Caution(self)

    async def start(self) -> None:
        for _ in range(self.options.lanes):
            self._sessions.append(
                await Session.open_settled(self.dsn)
            )  # one by one: `stop` closes what a failure leaves
        self._tasks = [asyncio.create_task(self._lane(n), name=f"holdfast-lane-{n}") for n in range(self.options.lanes)]

    async def stop(self, patience: float = 5.0) -> None:
        """Commit the buffer, then close; wait for a database that is away until `patience` is over."""
        deadline = asyncio.get_running_loop().time() + patience
        while not self.is_idle and not any(t.done() for t in self._tasks):
            if asyncio.get_running_loop().time() > deadline:
                log.error("Left %d results uncommitted: their steps will be done again", len(self.buffer))
                break
            self.wake()
            await asyncio.sleep(0.001)
        self._stopping = True
        self.wake()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._mishaps.give_up(list(self.buffer), StoreError("The engine was closed.", code="ENGINE_CLOSED"))
        for session in self._sessions:
            await session.close()

    def add(self, item: Item) -> None:
        self.buffer.append(item)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        return not (self.buffer or self.active or self._deferred or self._busy)

    async def apply(self, item: Item, timeout: float | None = None) -> Outcome:
        """Commit one signal and return its outcome; raise a legal refusal.

        The answer to a COMMIT may be lost with its connection. The signal is then sent again, and its receipt shows
        that it was received: the caller would get a conflict with itself otherwise. An answer of a consumer needs none,
        because a second one changes nothing.
        """
        loop = asyncio.get_running_loop()
        if item.receipt is None and item.fresh is None and type(item.signal) is not Acknowledged:
            item.receipt = str(uuid4())
        item.answer = loop.create_future()
        item.deadline = loop.time() + (self.options.race_patience if timeout is None else timeout)
        self.add(item)
        return await item.answer

    # --- lanes ---------------------------------------------------------------------------------------------------

    async def _lane(self, number: int) -> None:
        options = self.options
        while not self._stopping:
            room = self.port.room() - self._claiming if self.signals_ready else 0
            if not self.buffer and room <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            if room <= 0:
                await self._gather()
            items = self._take()
            room = min(room, options.batch - len(items)) if self.signals_ready else 0
            if not items and room <= 0:  # all that is there belongs to instances the other lane holds
                await asyncio.sleep(options.linger / 4)
                continue
            room = max(0, room)
            self.active += 1
            self._claiming += room
            flight = object()
            self.under_way.add(flight)
            try:
                await self._commit(number, items, room)
            except Exception:
                log.exception("A commit failed in an unexpected way")
                self._put_back(items)
                await asyncio.sleep(RECONNECT_PAUSE)
            finally:
                self.active -= 1
                self._claiming -= room
                self.under_way.discard(flight)

    async def _gather(self) -> None:
        """Let a batch grow towards a lane's share while another lane is under way and results keep coming in. Once
        they only trickle in, from handlers that wait for something, more patience would cost more than it saves."""
        patience = LOOKS
        while patience and self.active and len(self.buffer) < self._share:
            before = len(self.buffer)
            await asyncio.sleep(self.options.linger)
            patience = patience - 1 if len(self.buffer) - before >= self._share // 8 else 0

    @property
    def _share(self) -> int:
        """The number of items one lane takes, so that the other lane has something to overlap with."""
        options, under_way = self.options, max(len(self.snapshots.cache), len(self.buffer))
        return min(options.batch, max(options.share, under_way // options.lanes))

    async def answered(self) -> None:
        """Wait until every commit that is under way now has been answered and acted upon."""
        present = self.under_way.copy()
        while present & self.under_way:
            await asyncio.sleep(0.001)

    def _take(self) -> list[Item]:
        items: list[Item] = []
        later: list[Item] = []
        buffer, busy = self.buffer, self._busy
        limit = self._share
        while buffer and len(items) < limit:
            item = buffer.popleft()
            (later if item.instance in busy else items).append(item)
        buffer.extendleft(reversed(later))
        return items

    async def _commit(self, number: int, items: list[Item], claim: int) -> None:
        ids = {item.instance for item in items}
        self._busy |= ids
        session = self._sessions[number]
        try:
            await self._try(session, items, claim, ids)
        except Disconnected:
            self.snapshots.forget(ids)
            self._sessions[number] = await self._reconnect(session)
            for item in items:
                item.unsure = True
            self._put_back(items)
            self.port.reconnected()
        finally:
            self._busy -= ids

    async def _try(self, session: Session, items: list[Item], claim: int, ids: set[bytes]) -> None:
        if claim and self.caution.left:
            if items:
                await self._try(session, items, 0, ids)
            items, claim, attempt = [], 1, self.caution.take_one(session, ids)
        else:
            attempt = self.attempt(session, items, claim, ids)
        try:
            await attempt
        except Disconnected:
            raise
        except Exception as failure:
            if self.months.are_to_blame(failure):
                await session.run([ROLLBACK])
                self.snapshots.forget(ids)
                self.signals_ready = True
                self._put_back(items)
                return
            await self._mishaps.after_failure(session, items, failure, claim, ids)

    async def attempt(
        self, session: Session, items: list[Item], claim: int, ids: set[bytes], signals: int = SIGNALS_PER_INSTANCE
    ) -> Plan:
        """One transaction. Nothing of it is acted upon before its COMMIT has been answered."""
        if self.clock.is_trusted:
            await self.months.look(session, self.clock.now())
        plan = self._plan_unlocked(items) if not claim else None
        if plan is not None:
            await self._write_unlocked(session, plan)
        else:
            plan = await self._write_locked(session, items, claim, ids, signals)
        await self.conclude(session, items, plan)
        return plan

    async def conclude(self, session: Session, items: list[Item], plan: Plan) -> None:
        """Act upon an answered COMMIT: publish its decisions, then handle its broken and busy items."""
        self.committed(plan)
        mishaps = self._mishaps
        if mishaps.results or mishaps.signals:
            mishaps.relieve(items, plan)
        if plan.broken:
            await mishaps.after_broken(session, items, plan)
        if plan.busy:
            await self._defer(session, plan.busy)

    def _plan_unlocked(self, items: list[Item]) -> Plan | None:
        """A plan over our own snapshots; None when the items need locks, or something fetched, before the decision."""
        if not self.clock.is_trusted:
            return None
        instances: dict[bytes, Instance] = {}
        for item in items:
            if item.unsure:
                return None
            if item.fresh is None:
                cached = self.snapshots.cache.get(item.instance)
                if cached is None or item.tries or type(item.signal) not in _RESULTS:
                    return None
                instances[item.instance] = cached
        now, ahead = dates(self.clock.now(), instances.values())
        if ahead:
            return None
        locked = Locked(now, instances, {}, [], 0)
        plan = self._plan(locked)
        plan.point, plan.month = self.point, self.months.at(plan.locked.now)
        items.sort(key=_by_instance)
        return plan if plan.make_unlocked(items) else None

    def _plan(self, locked: Locked) -> Plan:
        options = self.options
        plan = Plan(self.catalog, locked, self.worker, self.port.leases, options.max_context, fast=options.fast_paths)
        plan.stale_after = options.stale_after
        return plan

    async def _write_unlocked(self, session: Session, plan: Plan) -> None:
        begin = [BEGIN, pin_impatiently(session)]
        asked_at = time.monotonic()
        if plan.rollbacks:
            plan_known_rollbacks(plan, self.trails)
        if plan.rollbacks:
            results = await session.run(begin)
            await plan_rollbacks(plan, session)
            await session.run([*plan.writes(), COMMIT])
        else:
            results = await session.run([*begin, *plan.writes(), COMMIT])
        self.clock.observe(clock_of(results[1]), asked_at)

    async def _write_locked(
        self, session: Session, items: list[Item], claim: int, ids: set[bytes], signals: int
    ) -> Plan:
        ensuring = [item for item in items if item.ensure is not None]
        if ensuring:
            await self._ensure(session, items, ensuring)
        known = [
            (i, self.snapshots.cache.get(i))
            for i in {item.instance for item in items if item.fresh is None or item.unsure}
        ]
        locked = await lock(session, known, claim, signals, begun=bool(ensuring))
        if claim:
            self.signals_ready = locked.has_more
            self.hold(locked, ids)
        return await self.write(session, locked, items)

    async def _ensure(self, session: Session, items: list[Item], ensuring: list[Item]) -> None:
        """Insert the instances that triggers need. One that another process has inserted is one more to lock."""
        wanted = {item.instance: item.ensure for item in ensuring if item.ensure is not None}
        ordered = sorted(wanted.values(), key=lambda ensure: ensure.order)
        holders = dict(zip((one.id for one in ordered), await ensure_instances(session, ordered), strict=True))
        for item in ensuring:
            holder = holders[item.instance]
            if holder == item.instance:
                continue
            items.remove(item)
            if holder is not None:
                item.instance, item.ensure = holder, None
                self._put_back([item])
            elif item.answer is not None and not item.answer.done():
                item.answer.set_exception(no_consumer(item.ensure.flow if item.ensure is not None else ""))

    def hold(self, locked: Locked, ids: set[bytes]) -> None:
        """The instances that were claimed are the lane's, too."""
        ids.update(locked.instances)
        self._busy |= ids

    async def write(self, session: Session, locked: Locked, items: list[Item]) -> Plan:
        self.clock.observe(locked.clock, locked.asked_at, locked.answered_at)
        plan = self._plan(locked)
        plan.keep_for, plan.point = self.options.keep_early, self.point
        plan.month = self.months.at(locked.now)
        await plan.make(session, items)
        await session.run([*plan.writes(), *self._mishaps.burials(plan), COMMIT])
        return plan

    def committed(self, plan: Plan) -> None:
        """Publish committed decisions. Handlers of the next steps start, and callers are answered, from here and not
        before.
        """
        self.counters.commits += 1
        snapshots, trails = self.snapshots, self.trails
        loud: list[Decision] = []
        for id, entry in plan.entries.items():
            snapshots.committed(plan, id, entry)
            trails.committed(plan, id, entry)
            for decision in entry.decisions:
                self.counters.steps += len(decision.closed)
                if decision.plain not in QUIET:
                    loud.append(decision)
        for item in plan.stale:
            self.counters.rejected += 1
            self.port.dropped(item)
        for answer, decision in plan.answers:
            if not answer.done():
                answer.set_result(_outcome(decision, plan.locked.now))
        for answer, reply in plan.replies:
            if not answer.done():
                answer.set_result(Outcome(None, plan.locked.now, answer=reply))
        for item, refusal in plan.refused:
            if item.answer is not None and not item.answer.done():
                item.answer.set_exception(refusal)
        self.port.committed(plan)
        if loud or plan.buried or plan.stale or plan.deliveries.changes:
            self.incidents.committed(plan, loud)
        if plan.locked.signals:
            self.timeouts.committed(plan)
        if self.hooks.flows:
            self.hooks.committed(plan)

    async def _defer(self, session: Session, items: list[Item]) -> None:
        """Put items of locked instances back for later.

        An instance may also be gone: a standby that took over may not have had it. So the database is asked now and
        then whether waiting results are still ours to give.
        """
        now = asyncio.get_running_loop().time()
        overdue = [item for item in items if item.answer is None and 0.0 < item.deadline < now]
        kept = await self._mishaps.without_lost_results(session, overdue)
        dropped = {id(item) for item in overdue} - {id(item) for item in kept}
        for item in items:
            if item.answer is None and not item.deadline > now:
                item.deadline = now + BUSY_PATIENCE
            if id(item) not in dropped:
                self._later(item)

    def _later(self, item: Item) -> None:
        """Bring an item back after a pause. Results wait as long as it takes; a caller gets Busy at its deadline."""
        loop = asyncio.get_running_loop()
        if item.answer is not None and loop.time() > item.deadline:
            if not item.answer.done():
                item.answer.set_exception(Busy())
            return
        self._deferred += 1
        loop.call_later(BUSY_PAUSE, self._come_back, item)

    def _come_back(self, item: Item) -> None:
        self._deferred -= 1
        self.add(item)

    def _put_back(self, items: list[Item]) -> None:
        """Return items to the buffer, unless they were answered meanwhile or are there already."""
        there = {id(item) for item in self.buffer}
        again = [i for i in items if id(i) not in there and (i.answer is None or not i.answer.done())]
        self.buffer.extendleft(reversed(again))
        self._wake.set()

    def release(self, ids: set[bytes]) -> None:
        """Mark these instances as free for every lane."""
        self._busy -= ids

    async def _reconnect(self, session: Session) -> Session:
        await session.close()
        waits = pauses()
        while True:
            try:
                return await Session.open_settled(self.dsn)
            except HoldfastError as failure:
                log.warning("The database is away: %s", failure.message)
                await asyncio.sleep(next(waits))


def _outcome(decision: Decision | None, now: int) -> Outcome:
    if decision is None:
        return Outcome(None, now)
    return Outcome(decision.instance, decision.instance.updated, answer=decision.answer)


def _by_instance(item: Item) -> bytes:
    return item.instance
