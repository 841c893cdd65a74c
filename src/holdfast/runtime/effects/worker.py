"""Effects worker: claims due effects from the outbox, delivers them, and stores their outcomes.

It runs beside the handlers under the same lease. An effect is claimed before it is delivered, under a fence and with
its attempt counted, so an attempt is made by one worker; the outcome counts only under that fence. A process may die
between a delivery and the commit of its outcome: then the effect is due again and is delivered again, under the same
key.

Limits hold per target and over all workers: a claim counts the deliveries in flight, and one claim is made at a time.
Targets take turns in a claim, so a slow one with a long queue does not block the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from holdfast.core.model.signals import Failure
from holdfast.errors import PayloadError, StoreError
from holdfast.logs import logger
from holdfast.runtime.effects import delivery as attempts
from holdfast.runtime.effects.delivery import Asked, Delivered, Delivery, EffectFailed
from holdfast.runtime.effects.kinds import Kind, OpenKinds
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.telemetry.incidents import Incidents
from holdfast.runtime.worker.context import NotBegun
from holdfast.runtime.worker.failures import describe
from holdfast.runtime.worker.looks import TROUBLE, Looks, reopened, report
from holdfast.store import effects as outbox
from holdfast.store.effects import ClaimedEffect, CountedOutcome, FinishedEffect
from holdfast.store.pg.session import DatabaseError, Session
from holdfast.store.queue.lease import Lease

log = logger("holdfast.effects")

BATCH: Final = 200  # outcomes in one commit
RECLAIM: Final = 500
RECLAIM_PAUSE: Final = 0.5  # seconds between looks for what dead workers left
PATIENCE: Final = 0.5  # seconds before a full target or a lost connection is looked at again
LEFT_FOR: Final = 30.0  # seconds until a worker looks again for what it lacked
BARREN_FOR: Final = 5.0  # seconds until a target is looked at again where all that is due is left to others
CALM: Final = 0.25  # seconds between looks that follow from mere hints


class EffectsWorker:
    def __init__(
        self,
        dsn: str,
        kinds: OpenKinds,
        options: EffectOptions,
        lease: Lease,
        on_receipts: Callable[[], None],
        incidents: Incidents,
    ) -> None:
        self._dsn = dsn
        self._incidents = incidents
        self._kinds = kinds
        self._options = options
        self._lease = lease
        self._on_receipts = on_receipts
        self._loop = asyncio.get_running_loop()
        self._looks = Looks(CALM)
        self._inflight: dict[bytes, ClaimedEffect] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._finished: list[tuple[ClaimedEffect, FinishedEffect]] = []
        self._outcome = asyncio.Event()
        self._committing = False
        self._strays = False
        self._leaving: list[tuple[ClaimedEffect, EffectFailed]] = []  # what others must deliver, to be given back
        self._passed: dict[
            tuple[str, str, str], float
        ] = {}  # (kind, target, organisation) we lack something for; until
        self._barren: dict[tuple[str, str], float] = {}  # (kind, target) where nothing else is due; until
        self._outcomes: Session | None = None  # opened for the first outcome: many workers never have one
        self._reclaimed = -RECLAIM_PAUSE
        self._cursor = "", ""  # kind and target the last claim ended with
        self._looked = False
        self._stopping = False
        self.stored = 0  # outcomes that counted
        self.rejected = 0  # outcomes that came after the lease had passed on

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._session = await Session.open(self._dsn)
        self._tasks = [
            asyncio.create_task(self._look_around(), name="holdfast-effects"),
            asyncio.create_task(self._store_outcomes(), name="holdfast-effects-outcomes"),
        ]

    async def stop(self, grace: float) -> None:
        """Stop claiming and let deliveries finish; those that do not are due again soon, for another worker."""
        self._stopping = True
        looking, storing = self._tasks
        self.wake()
        await asyncio.wait([looking], timeout=PATIENCE)  # cut short, a claim would leave leased effects behind
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=grace)
        for task in [*self._deliveries]:
            task.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)
        deadline = self._loop.time() + max(grace, PATIENCE)
        while (self._finished or self._committing) and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        storing.cancel()
        await asyncio.gather(storing, return_exceptions=True)
        await self._kinds.close()
        await self._session.close()
        if self._outcomes is not None:
            await self._outcomes.close()

    def wake(self, *, urgent: bool = True) -> None:
        """Look now; a mere hint that something happened somewhere is followed only now and then."""
        self._looks.wake(urgent=urgent)

    @property
    def is_idle(self) -> bool:
        return not (self._inflight or self._finished or self._committing or self._leaving)

    async def is_done(self) -> bool:
        """Check that no delivery is in flight, and none due that this process could make."""
        if not (self.is_idle and self._looked):
            return False
        try:
            due = await self._heads()
        except TROUBLE:
            return False
        if any(seconds <= 0 and key not in self._barren for key, seconds in due.items()):
            self.wake()
            return False
        return self.is_idle

    # --- taking on -------------------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        while not self._stopping:
            try:
                pause = await self._round()
            except Exception as failure:  # whatever it is, the others' effects must go on
                report(log, "The outbox could not be read and will be looked at again: %s", failure)
                pause = PATIENCE
                self._strays = True  # it may have claimed more than it heard of
                with contextlib.suppress(StoreError):
                    self._session = await reopened(self._session, self._dsn)
            await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        """Sleep until an effect is due or a hint arrives."""
        if await self._looks.rest(pause):
            self._barren.clear()

    async def _round(self) -> float:
        """Take on what there is room for; how long the next look may wait."""
        if self._strays:
            await self._free_strays()
            self._strays = False
        if self._leaving:
            await self._leave()
        if self._loop.time() >= self._reclaimed + RECLAIM_PAUSE:
            self._incidents.deliveries_taken_over(await outbox.reclaim_effects(self._session, RECLAIM))
            self._reclaimed = self._loop.time()
        pause = self._options.scan
        while not self._stopping:
            heads = await self._heads()
            self._looked = True
            now = self._loop.time()
            self._barren = {key: until for key, until in self._barren.items() if until > now}
            later = [due for due in heads.values() if due > 0]
            pause = min(
                [self._options.scan, self._lease.seconds / 3, *later, *(u - now for u in self._barren.values())]
            )
            due = [key for key, seconds in heads.items() if seconds <= 0 and key not in self._barren]
            room = self._options.concurrency - len(self._inflight)
            if not due:
                return pause
            if room <= 0 or not self._lease.is_fresh or not await self._claim(due, room):
                return min(pause, PATIENCE)
        return pause

    async def _heads(self) -> dict[tuple[str, str], float]:
        """The targets of all that is outstanding and of a kind we have, and when the first of each is due."""
        return {
            (kind, target): due
            for kind in self._kinds.by_name
            for target, due in (await outbox.list_targets(self._session, kind)).items()
        }

    async def _claim(self, due: list[tuple[str, str]], room: int) -> int:
        """Claim effects for targets in turn: with more targets than room, the next claim continues behind this one."""
        worker, options = self._lease.id, self._options
        due.sort()
        first = bisect_right(due, self._cursor)
        turn = [*due[first:], *due[:first]][:room]
        self._cursor = turn[-1]
        passed = self._passed_over()
        wanted = [
            (kind, target, options.limits.get(target, options.limit), "\n".join(passed.get((kind, target), ())))
            for kind, target in turn
        ]
        share, patience = max(1, room // len(turn)), round(attempts.DEFAULT_TIMEOUT)
        claimed = await outbox.claim_effects(self._session, wanted, room, share, worker, patience)
        for effect in claimed:
            self._begin(effect)
        fruitful = {(effect.kind, effect.target) for effect in claimed}
        until = self._loop.time() + BARREN_FOR
        self._barren |= {key: until for key in turn if key in passed and key not in fruitful}
        return len(claimed)

    def _passed_over(self) -> dict[tuple[str, str], list[str]]:
        """The organisations that this worker lacks something for, by kind and target."""
        now = self._loop.time()
        self._passed = {key: until for key, until in self._passed.items() if until > now}
        found: dict[tuple[str, str], list[str]] = {}
        for kind, target, org in self._passed:
            found.setdefault((kind, target), []).append(org)
        return found

    async def _leave(self) -> None:
        """Give back what this worker lacks something for, its attempt not counted."""
        leaving = list(self._leaving)
        reasons = [(e.row, msgspec.json.encode(Failure(f.code, f.message))) for e, f in leaving]
        await outbox.leave_effects(self._session, reasons, self._lease.id)
        del self._leaving[: len(leaving)]

    async def _free_strays(self) -> None:
        """Return effects leased to us but unknown here: the answer of their claim was lost."""
        worker = self._lease.id
        leased = await outbox.list_claimed(self._session, worker)
        known = {(f.row.id, f.row.fence) for _, f in self._finished}
        known |= {(c.row.id, c.row.fence) for c in self._inflight.values()}
        strays = [key for key in leased if (key.id, key.fence) not in known]
        await outbox.return_effects(self._session, strays, worker)

    # --- delivering ------------------------------------------------------------------------------------------------

    def _begin(self, effect: ClaimedEffect) -> None:
        self._inflight[effect.row.id] = effect
        task = asyncio.create_task(self._attempt(effect), name="holdfast-effect")
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _attempt(self, effect: ClaimedEffect) -> None:
        finished: FinishedEffect | None = None
        try:
            finished = await self._deliver(effect)
        except NotBegun:
            self._strays = True  # it goes back, its attempt not counted, unless others have it by now
            self.wake()
        except asyncio.CancelledError:
            finished = attempts.interrupted(effect)
            raise
        finally:
            self._inflight.pop(effect.row.id, None)
            if finished is not None:
                self._finished.append((effect, finished))
                self._outcome.set()

    async def _deliver(self, effect: ClaimedEffect) -> FinishedEffect | None:
        try:
            asked = attempts.read_payload(effect)
        except msgspec.MsgspecError as unreadable:
            return attempts.failed(effect, EffectFailed("EFFECT_UNREADABLE", str(unreadable), final=True))
        if effect.attempts > effect.max_attempts:
            return attempts.worn_out(effect, asked.retry)
        try:
            result = await self._call(self._kinds.by_name[effect.kind], effect, asked)
            return attempts.delivered(effect, result)
        except EffectFailed as failure:
            if failure.elsewhere:
                self._leave_to_others(effect, failure)
                return None
            return attempts.failed(effect, failure, asked.retry)
        except PayloadError as unfit:  # it was delivered: another attempt would only repeat it
            return attempts.failed(effect, EffectFailed(unfit.code, unfit.message, final=True), asked.retry)
        except asyncio.CancelledError:
            raise
        except Exception as failure:
            story = describe(failure)
            return attempts.failed(effect, EffectFailed(story.code, story.message, evidence=story.detail), asked.retry)

    def _leave_to_others(self, effect: ClaimedEffect, failure: EffectFailed) -> None:
        key = effect.kind, effect.target, effect.org
        if key not in self._passed:
            log.warning(
                "Effect %s (%s to %s) is left to a worker that has what it takes: %s %s",
                UUID(bytes=effect.row.id), effect.kind, effect.target, failure.code, failure.message,
            )  # fmt: skip
        self._passed[key] = self._loop.time() + LEFT_FOR
        self._leaving.append((effect, failure))
        self.wake()

    async def _call(self, kind: Kind, effect: ClaimedEffect, asked: Asked) -> Delivered:
        clock = asyncio.timeout(asked.timeout)
        try:
            async with clock:
                delivery = self._delivery(effect, asked)
                delivery.check()
                return await kind.deliver(delivery)
        except TimeoutError:
            if not clock.expired():
                raise
            raise EffectFailed("EFFECT_TIMEOUT", f"The delivery took longer than {asked.timeout:g} s.") from None

    def _delivery(self, effect: ClaimedEffect, asked: Asked) -> Delivery:
        row = effect.row
        id, instance = str(UUID(bytes=row.id)), str(UUID(bytes=row.instance))
        return Delivery(
            id=id,
            instance=instance,
            org=effect.org,
            token=effect.token,
            kind=effect.kind,
            target=effect.target,
            key=effect.key,
            attempt=effect.attempts,
            config=asked.config,
            data=asked.data,
            created_at=row.created_at,
            timeout=asked.timeout,
            trace=effect.trace,
            is_lost=lambda: effect.worker != self._lease.id or not self._lease.is_fresh,
        )

    # --- outcomes --------------------------------------------------------------------------------------------------

    async def _store_outcomes(self) -> None:
        """Store finished outcomes, many in one commit. An outcome sent twice counts once: its lease is gone then."""
        while True:
            await self._outcome.wait()
            self._outcome.clear()
            while self._finished:
                self._committing = True
                batch = self._finished[:BATCH]
                try:
                    await self._store(batch)
                    del self._finished[: len(batch)]
                except Exception as failure:  # the outcomes are still here, and the leases are still ours
                    report(log, "Outcomes of effects could not be stored yet: %s", failure)
                    await asyncio.sleep(PATIENCE)
                finally:
                    self._committing = False
            self.wake()

    async def _store(self, batch: list[tuple[ClaimedEffect, FinishedEffect]]) -> None:
        try:
            await self._store_together(batch)
        except DatabaseError as error:
            if not error.sqlstate.startswith(("22", "23", "54", "P0", "HF002")):
                raise
            for effect, finished in batch:
                await self._store_alone(effect, finished)

    async def _store_together(self, batch: list[tuple[ClaimedEffect, FinishedEffect]]) -> None:
        if self._outcomes is None or self._outcomes.broken:
            self._outcomes = await reopened(self._outcomes, self._dsn)
        counted = await outbox.finish_effects(self._outcomes, [finished for _, finished in batch])
        self.stored += len(counted)
        self.rejected += len(batch) - len(counted)
        self._tell(batch, counted)
        self._on_receipts()

    def _tell(self, batch: list[tuple[ClaimedEffect, FinishedEffect]], counted: list[CountedOutcome]) -> None:
        """Log and count failures. One in here must not have stored outcomes sent again."""
        found = {(one.id, one.fence): one for one in counted}
        try:
            for effect, finished in batch:
                stored = found.get((finished.row.id, finished.row.fence))
                if stored is None:
                    self._incidents.delivery_came_late(effect)
                elif finished.status != "completed":
                    self._incidents.delivery_failed(effect, finished, stored)
        except Exception:
            log.exception("Incidents of deliveries could not be logged")

    async def _store_alone(self, effect: ClaimedEffect, finished: FinishedEffect) -> None:
        """Store one outcome by itself, so that evidence the database refuses does not keep the others from being
        stored.
        """
        try:
            await self._store_together([(effect, finished)])
        except DatabaseError as error:
            log.error("The evidence of effect %s cannot be stored: %s", UUID(bytes=finished.row.id), error)
            failure = msgspec.json.encode(Failure("RESULT_REFUSED", "The database refused the answer."))
            bare = FinishedEffect(finished.row, finished.worker, "dead_letter", 0, None, failure)
            await self._store_together([(effect, bare)])
