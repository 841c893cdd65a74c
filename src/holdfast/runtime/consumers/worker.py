"""Deliveries worker: claims due facts for the consumers of this process and for those it pushes to.

It runs beside the handlers. A claim is the attempt: it is counted, and the fact is due again by itself, so a process
that dies needs no successor to clean up. Order is in the rows: only the first open facts of an instance are ever due,
so one consumer has many instances in hand and each instance in order. Nothing is claimed for a consumer that is down,
and nothing is written for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.consumers.answers import Answers
from holdfast.runtime.consumers.filling import fill_all
from holdfast.runtime.consumers.here import HereRunner
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.runtime.consumers.push import Push, Pusher
from holdfast.runtime.consumers.registry import Consumer, Consumers
from holdfast.runtime.worker.looks import TROUBLE, Looks, reopened, report
from holdfast.store import consumers as stored
from holdfast.store import deliveries
from holdfast.store.consumers import PushConsumer
from holdfast.store.deliveries import Claimed, DeliveryKey, Wanted
from holdfast.store.pg.session import Session
from holdfast.store.queue.lease import Lease

log = logger("holdfast.consumers")

CALM: Final = 0.01  # seconds between looks that follow from mere hints
PATIENCE: Final = 0.5  # seconds before a lost connection is looked at again
PUSH_LOOK: Final = 1.0  # seconds between looks at who is pushed to
LEFT_FOR: Final = 30.0  # seconds a pushed consumer is left to workers that have what this one lacks
BEATS: Final = 3  # within the ttl of a consumer

Taker = Consumer | PushConsumer


class DeliveriesWorker:
    def __init__(
        self,
        dsn: str,
        registry: Consumers,
        options: ConsumerOptions,
        lease: Lease,
        answers: Answers,
        runner: HereRunner,
        pusher: Pusher,
    ) -> None:
        self._dsn = dsn
        self._registry = registry
        self._options = options
        self._lease = lease
        self._answers = answers
        self._runner = runner
        self._pusher = pusher
        self._loop = asyncio.get_running_loop()
        self._looks, self._fills = Looks(CALM), Looks(CALM)
        self._here: dict[bytes, Consumer] = {}  # registered in the database, by id
        self._pushed: dict[bytes, PushConsumer] = {}
        self._push_looked = -PUSH_LOOK
        self._left: dict[bytes, float] = {}  # pushed consumers this process lacks something for; until
        self._down: set[bytes] = set()  # found out since the last look
        self._inflight: dict[bytes, dict[DeliveryKey, Claimed]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: set[tuple[str, str, str]] = set()
        self._looked = False
        self._filled = False
        self._stopping = False

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._session = await Session.open(self._dsn)
        self._beats = await Session.open(self._dsn)
        self._registry.on_added = self._on_added
        self._loops = [
            asyncio.create_task(self._look_around(), name="holdfast-deliveries"),
            asyncio.create_task(self._fill(), name="holdfast-filling"),
            asyncio.create_task(self._beat(), name="holdfast-beats"),
        ]

    def _on_added(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.wake)

    async def stop(self, grace: float) -> None:
        """Stop claiming and let handlers finish; facts of those that do not are due again at once."""
        self._stopping = True
        self._registry.on_added = lambda: None
        self.wake()
        looking, *others = self._loops
        await asyncio.wait([looking], timeout=PATIENCE)
        for task in [looking, others[0]]:
            task.cancel()
        await asyncio.gather(looking, others[0], return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        left = [claimed for held in self._inflight.values() for claimed in held.values()]
        for task in [*self._tasks, *others]:
            task.cancel()
        await asyncio.gather(*self._tasks, *others, return_exceptions=True)
        with contextlib.suppress(*TROUBLE):
            await deliveries.extend(self._session, left, 0)
        await self._runner.close()
        await self._pusher.close()
        await self._session.close()
        await self._beats.close()

    def wake(self, *, urgent: bool = True) -> None:
        """Look now: facts may be due, or a consumer may be new."""
        self._looks.wake(urgent=urgent)
        self._fills.wake(urgent=urgent)

    @property
    def is_idle(self) -> bool:
        return not any(self._inflight.values())

    async def is_done(self) -> bool:
        """Check that no fact is in hand, none due that this process could send, and that no consumer lacks its past."""
        if not (self.is_idle and self._looked and self._filled and self._registered):
            return False
        try:
            if await stored.list_filling(self._session):
                self._fills.wake()
                return False
            await self._see_pushed(urgent=True)
            due = await deliveries.read_next_due(self._session, [*self._here, *self._reachable()])
        except TROUBLE:
            return False
        if any(seconds <= 0 for seconds in due.values()):
            self.wake()
            return False
        return self.is_idle

    @property
    def _registered(self) -> bool:
        return len(self._known) == sum(1 for _ in self._registry)

    # --- taking on -------------------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        urgent = True
        while not self._stopping:
            try:
                pause = await self._round(urgent)
            except Exception as failure:  # whatever it is, the other consumers must go on
                report(log, "Deliveries could not be read and will be looked at again: %s", failure)
                self._answers.alarm("The look for due facts", failure)
                pause = PATIENCE
                with contextlib.suppress(StoreError):
                    self._session = await reopened(self._session, self._dsn)
            urgent = await self._looks.rest(pause)

    async def _round(self, urgent: bool) -> float:
        """Claim deliveries while there is room; returns the seconds until the next round."""
        await self._register()
        await self._see_pushed(urgent=urgent)
        while not self._stopping and self._lease.is_fresh:
            if not await self._claim():
                break
        self._looked = True
        there = [id for id in (*self._here, *self._reachable()) if self._room(id) > 0]
        due = await deliveries.read_next_due(self._session, there)
        probes = [c.probe_in for c in self._pushed.values() if c.probe_in is not None]
        return max(CALM, min([self._options.scan, *due.values(), *probes]))

    async def _register(self) -> None:
        """Register consumers of this process that are new here."""
        for consumer in self._registry:
            if consumer.key not in self._known:
                known = await stored.register(self._session, consumer.org, consumer.new)
                await stored.beat(self._session, [known.id])
                self._here[known.id] = consumer
                self._known.add(consumer.key)
                self._filled = False
                self._fills.wake()

    async def _see_pushed(self, *, urgent: bool) -> None:
        now = self._loop.time()
        if not urgent and now < self._push_looked + PUSH_LOOK:
            return
        self._push_looked = now
        self._down.clear()
        self._left = {id: until for id, until in self._left.items() if until > now}
        found = await stored.list_push(self._session)
        self._pushed = {one.id: one for one in found if one.id not in self._left}

    def _reachable(self) -> list[bytes]:
        return [id for id, one in self._pushed.items() if one.probe_in is None and id not in self._down]

    def _room(self, id: bytes) -> int:
        taker = self._taker(id)
        most = taker.new.in_flight if isinstance(taker, Consumer) else taker.in_flight
        return most - len(self._inflight.get(id, ()))

    def _taker(self, id: bytes) -> Taker:
        return self._here[id] if id in self._here else self._pushed[id]

    async def _claim(self) -> bool:
        """Claim due deliveries; False: there were none."""
        answers = self._answers
        wanted = [Wanted(id, self._room(id), answers.delivered) for id in self._here if self._room(id) > 0]
        wanted += [Wanted(id, self._room(id), answers.pending) for id in self._reachable() if self._room(id) > 0]
        wanted += [Wanted(id, 1, answers.pending, is_probe=True) for id in await self._probes()]
        claimed = await deliveries.claim_deliveries(self._session, wanted, self._options.page, answers.delivered)
        for one in claimed:
            self._begin(one)
        return bool(claimed)

    async def _probes(self) -> list[bytes]:
        """Consumers that are down and whose turn to be probed this process has taken."""
        due = [one for one in self._pushed.values() if one.probe_in is not None and one.probe_in <= 0]
        taken = [one.id for one in due if await stored.begin_probe(self._session, one.id, self._recheck)]
        for one in due:
            del self._pushed[one.id]  # until the next look; those that are probed are needed once more
            if one.id in taken:
                self._pushed[one.id] = one
                self._down.add(one.id)
        return taken

    @property
    def _recheck(self) -> int:
        return round(self._options.recheck * 1_000_000)

    # --- sending ---------------------------------------------------------------------------------------------------

    def _begin(self, claimed: Claimed) -> None:
        held = self._inflight.setdefault(claimed.key.consumer, {})
        if claimed.key in held:
            return  # its handler still runs: it was put off for too short a time
        held[claimed.key] = claimed
        taker = self._taker(claimed.key.consumer)
        task = asyncio.create_task(self._send(claimed, taker), name="holdfast-delivery")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, claimed: Claimed, taker: Taker) -> None:
        try:
            if claimed.over is not None:
                await self._answers.try_close(claimed.key, claimed.over)
            elif isinstance(taker, Consumer):
                await self._runner.run(claimed, taker)
            else:
                await self._push(claimed, taker)
        except Exception as failure:  # the fact is due again
            report(log, "A fact could not be delivered and will be sent again: %s", failure)
        finally:
            del self._inflight[claimed.key.consumer][claimed.key]
            self._looks.wake()

    async def _push(self, claimed: Claimed, consumer: PushConsumer) -> None:
        pushed = await self._pusher.push(claimed, consumer)
        was_down = consumer.probe_in is not None
        if pushed is Push.REACHED:
            if was_down:
                await stored.note_reach(self._beats, consumer.id, reached=True, recheck=self._recheck)
                self._push_looked = -PUSH_LOOK
            return
        if pushed is Push.DOWN:
            self._down.add(consumer.id)
            await stored.note_reach(self._beats, consumer.id, reached=False, recheck=self._recheck)
        else:
            self._left[consumer.id] = self._loop.time() + LEFT_FOR
            self._pushed.pop(consumer.id, None)
        await deliveries.give_back(self._beats, [claimed])

    # --- beats and the past ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Beat for the consumers of this process, and keep what their handlers hold from being sent again."""
        extended = self._loop.time()
        while True:
            ttl = min([self._options.ttl, *(one.new.ttl for one in self._here.values())])
            await asyncio.sleep(min(ttl / BEATS, self._options.delivered_resend / BEATS))
            try:
                self._beats = await reopened(self._beats, self._dsn)
                await stored.beat(self._beats, self._here)
                if self._loop.time() >= extended + self._options.delivered_resend / BEATS:
                    extended = self._loop.time()
                    running = [c for id in self._here for c in self._inflight.get(id, {}).values()]
                    await deliveries.extend(self._beats, running, self._answers.delivered)
            except Exception as failure:
                report(log, "Consumers could not beat: %s", failure)

    async def _fill(self) -> None:
        """Give new consumers their past, also those registered in other processes."""
        session: Session | None = None
        try:
            while True:
                pause = self._options.scan
                try:
                    session = await reopened(session, self._dsn)
                    left = await fill_all(session, self._answers)
                    self._filled = self._registered
                    pause = PATIENCE / 10 if left else pause
                    self._looks.wake()
                except Exception as failure:
                    report(log, "Past facts could not be given to consumers yet: %s", failure)
                    self._answers.alarm("The filling of new consumers", failure)
                await self._fills.rest(pause)
        finally:
            if session is not None:
                await session.close()
