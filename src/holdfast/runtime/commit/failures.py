"""Failures of commits: retried, taken apart, or buried, by their class.

A guard that did not hold (HF001, a unique key) means that another writer was faster: read again and decide again.
Trouble that passes (serialisation, locks, resources) retries the batch whole. Data that the database refuses, or that
our own code chokes on, is poison: the batch is taken apart by halves (`runtime/commit/bisect.py`), and the culprit's
attempt and error are committed on their own. Any failure about the schema or privileges is systemic, and so is poison
in every instance: no item is blamed, an alarm is raised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

import msgspec

from holdfast.core.model.decision import Notice
from holdfast.core.model.signals import Failure, Started, WorkDone, WorkFailed
from holdfast.errors import HoldfastError, StoreError
from holdfast.logs import logger
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.bisect import MAX_ALONE, Isolation, Tried
from holdfast.runtime.commit.classify import Suspicion, kind_of, way_of
from holdfast.runtime.commit.instance_cache import Snapshots
from holdfast.runtime.commit.items import Item
from holdfast.runtime.commit.options import Counters, Options
from holdfast.runtime.commit.port import Port
from holdfast.runtime.telemetry.incidents import Incidents
from holdfast.store.commit.deliveries import notice_row
from holdfast.store.commit.locks import SIGNALS_PER_INSTANCE
from holdfast.store.pg.reconnecting import REFUSED_HINT
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Disconnected, Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

log = logger("holdfast.commit")

MAX_ATTEMPTS = 5
MAX_TRIES = 3
PAUSE = 0.01
SYSTEMIC_PAUSE = 1.0

_EXHAUSTED = "53"  # disk, memory, connections


class Lanes(Protocol):
    """The committer as its failures see it: the buffer items return to, and a commit in a transaction of its own."""

    worker: bytes | None
    options: Options
    counters: Counters
    incidents: Incidents
    snapshots: Snapshots
    buffer: deque[Item]
    port: Port

    async def attempt(
        self, session: Session, items: list[Item], claim: int, ids: set[bytes], signals: int = SIGNALS_PER_INSTANCE
    ) -> Plan: ...
    def release(self, ids: set[bytes]) -> None: ...
    def wake(self) -> None: ...


class Mishaps:
    def __init__(self, committer: Lanes) -> None:
        self._committer = committer
        self._refused_claims = 0
        self.results = Suspicion()
        self.signals = Suspicion()

    async def after_failure(
        self, session: Session, items: list[Item], failure: Exception, claim: int, ids: set[bytes]
    ) -> None:
        """The batch rolled back as a whole; every item finds its way from here."""
        committer = self._committer
        kind = kind_of(failure)
        if kind == "defect":
            log.error("A batch cannot be committed", exc_info=failure)
            for item in items:  # outside of a transaction: before or after the COMMIT is unknown
                item.unsure = item.unsure or not session.is_in_transaction
        await session.run([ROLLBACK])
        committer.snapshots.forget(ids)
        committer.counters.retried += 1
        if kind == "systemic":
            await self.hold(items, failure)
            return
        if kind == "passing":
            await self.pause(failure)
            for item in items:
                item.tries += 1  # the next try takes its locks first
            self.again(items)
            return
        items = await self.without_lost_results(session, items)
        if kind == "race" and all(i.tries < MAX_TRIES for i in items) and self._refused_claims < MAX_TRIES:
            self._refused_claims += bool(claim)
            for item in items:
                item.tries += 1
                item.unsure = item.unsure or item.fresh is not None  # a start may be stored already
            self.again(items)
            return
        await Isolation(self, session).take_apart(items)
        if claim:
            self._refused_claims = 0
            await self._search_queue(session, claim)

    async def hold(self, items: list[Item], failure: Exception) -> None:
        """Handle a systemic failure: fail waiting callers, keep results until an operator has repaired the cause."""
        log.critical("The database refuses our statements, nothing is dropped: %s", failure)
        self.give_up([i for i in items if i.answer is not None], _as_typed(failure))
        await asyncio.sleep(SYSTEMIC_PAUSE)
        self.again([i for i in items if i.answer is None])

    async def pause(self, failure: Exception) -> None:
        """Wait before a retry, with an alarm if the database has run out of a resource: a full disk needs an
        operator.
        """
        if isinstance(failure, DatabaseError) and failure.sqlstate.startswith(_EXHAUSTED):
            log.critical("The database has run out of something, nothing is dropped: %s", failure)
            await asyncio.sleep(SYSTEMIC_PAUSE)
        else:
            await asyncio.sleep(PAUSE)

    def again(self, items: list[Item]) -> None:
        self._committer.buffer.extendleft(reversed(items))
        self._committer.wake()

    async def try_alone(
        self, session: Session, items: list[Item], claim: int = 0, signals: int = SIGNALS_PER_INSTANCE
    ) -> Tried:
        committer, claimed = self._committer, set[bytes]()
        try:
            plan = await committer.attempt(session, items, claim, claimed, signals)
        except Disconnected:
            raise
        except Exception as failure:
            await session.run([ROLLBACK])
            committer.snapshots.forget(claimed.union(item.instance for item in items))
            return Tried(failure, claimed)
        finally:
            committer.release(claimed)
        return Tried(None, claimed, has_result(items, plan))

    def relieve(self, items: list[Item], plan: Plan) -> None:
        """Clear the suspicions about signals, or results, when the commit stored one of them."""
        if plan.consumed:
            self.signals.clear()
        if has_result(items, plan):
            self.results.clear()

    async def without_lost_results(self, session: Session, items: list[Item]) -> list[Item]:
        """Drop results whose lease has passed to another worker: their commit is refused for ever."""
        committer = self._committer
        wanted = [
            (item.instance, item.instance[15], item.signal.path, item.signal.fence)
            for item in items
            if isinstance(item.signal, WorkDone | WorkFailed)
        ]
        if not wanted:
            return items
        answers = await session.run([BEGIN, PIN, SQL.find_lost_work.rows(wanted, committer.worker), COMMIT])
        lost = {(instance, path.decode(), read_int(fence)) for instance, path, fence in rows(answers[2])}
        kept: list[Item] = []
        for item in items:
            signal = item.signal
            if isinstance(signal, WorkDone | WorkFailed) and (item.instance, signal.path, signal.fence) in lost:
                committer.counters.rejected += 1
                committer.incidents.came_late(item, committer.snapshots.cache.get(item.instance))
                committer.port.dropped(item)
            else:
                kept.append(item)
        return kept

    # --- who is to blame -------------------------------------------------------------------------------------------

    async def judge(self, session: Session, refused: list[tuple[Item, Exception]], *, stored: bool) -> None:
        """Refused alone, each of them: blamed one by one, or kept when it cannot be their fault."""
        for item, failure in refused:
            if not stored:
                self.results.add(item.instance, way_of(failure))
        if stored or not self.results.is_systemic:
            for item, failure in refused:
                await self.blame(session, item, failure)
            return
        log.critical("Result after result is refused in the same way, nothing is dropped: %s", refused[-1][1])
        await asyncio.sleep(SYSTEMIC_PAUSE)
        self._committer.buffer.extend(item for item, _ in refused)  # behind those that have not been tried
        self._committer.wake()

    async def blame(self, session: Session, item: Item, failure: Exception) -> None:
        """Charge the culprit: a result fails its step, a failure that cannot be stored parks it, a caller gets the
        error.
        """
        log.error("Instance %s cannot be committed: %r", item.instance.hex(), failure)
        signal, kind = item.signal, kind_of(failure)
        if kind == "race" and isinstance(signal, WorkDone | WorkFailed):
            # Alone and under its locks no other writer can be faster: the stored rows do not fit together.
            await self._bury_work(session, item, signal, _as_exhausted(failure))
        elif isinstance(signal, WorkDone) and not isinstance(failure, HoldfastError):
            self.again([_as_failure(item, failure)])
        elif isinstance(signal, WorkDone | WorkFailed):
            await self._bury_work(session, item, signal, _as_typed(failure))
        else:
            self.give_up([item], _as_typed(failure))

    def give_up(self, items: list[Item], error: HoldfastError) -> None:
        for item in items:
            if item.answer is not None and not item.answer.done():
                item.answer.set_exception(error)
            elif item.answer is None and not isinstance(item.signal, Started):
                log.error("Dropped %s of %s: %s", type(item.signal).__name__, item.instance.hex(), error)
                self._committer.port.dropped(item)

    # --- signals out of the queue ----------------------------------------------------------------------------------

    async def _search_queue(self, session: Session, claim: int) -> None:
        """Search the queue for the poison: claim fewer and fewer signals until one fails alone, then count it against
        that one.
        """
        size, stored = max(1, claim // 2), False
        for _ in range(self._committer.options.batch):
            tried = await self.try_alone(session, [], size, SIGNALS_PER_INSTANCE if size > 1 else 1)
            failure = tried.failure
            if failure is None and not tried.claimed:
                return
            if failure is None:
                stored = True
            elif kind_of(failure) == "systemic":
                await self.hold([], failure)
                return
            elif kind_of(failure) == "passing":
                await self.pause(failure)
                return
            elif size > 1:
                size //= 2
            else:
                for instance in tried.claimed:
                    await self._count_oldest(session, instance, failure, stored=stored)
                return

    def burials(self, plan: Plan) -> list[Query]:
        """Signals that can never be applied go to the dead letters with the commit."""
        if not plan.buried:
            return []
        letters = [letter(q.instance, q.id, reason, e.message, tried=1) for q, reason, e in plan.buried]
        return [SQL.bury_signals.rows(letters, self._committer.worker), *_notices(plan)]

    async def after_broken(self, session: Session, items: list[Item], plan: Plan) -> None:
        """Settle undecidable items: bury for a lasting error, count for a passing one, answer the caller."""
        undecided: list[tuple[Item, Exception]] = []
        for item, failure in plan.broken:
            if item.queued is None:
                undecided.append((item, failure))
            elif isinstance(failure, HoldfastError):
                await self._bury_signal(session, item.instance, item.queued.id, failure.code, failure.message, tried=1)
            else:
                await self._count(session, item.instance, item.queued.id, failure, stored=bool(plan.consumed))
        for item, failure in undecided:
            if isinstance(failure, HoldfastError):  # about this instance, and no sign of anything else
                await self.blame(session, item, failure)
        defects = [(item, failure) for item, failure in undecided if not isinstance(failure, HoldfastError)]
        if defects:
            await self.judge(session, defects, stored=has_result(items, plan))

    async def _count_oldest(self, session: Session, instance: bytes, failure: Exception, *, stored: bool) -> None:
        """The one that was tried: alone, and in the order of the queue."""
        answers = await self._alone(session, SQL.read_signals.rows([(instance, instance[15])], 1))
        for row in answers or []:
            await self._count(session, row[0], row[1], failure, stored=stored)

    async def _count(
        self, session: Session, instance: bytes, signal: bytes, failure: Exception, *, stored: bool
    ) -> None:
        """Count the attempt: the signal moves behind the others, or is buried when out of attempts. While all signals
        fail alike, none is counted.
        """
        text = _told(failure).replace("\x00", "")[:2000]
        if not stored:
            self.signals.add(instance, way_of(failure))
        row = instance, instance[15], signal, text, 0 if self.signals.is_systemic else 1
        counted = await self._alone(session, SQL.count_attempts.rows([row])) or []
        if self.signals.is_systemic:
            log.critical("Signal after signal is refused in the same way, nothing is dropped: %s", text)
            await asyncio.sleep(SYSTEMIC_PAUSE)
        elif any(read_int(attempts) >= MAX_ATTEMPTS for _, _, attempts in counted):
            await self._bury_signal(session, instance, signal, "ATTEMPTS_EXHAUSTED", text, tried=0)

    async def _bury_signal(
        self, session: Session, instance: bytes, signal: bytes, code: str, message: str, *, tried: int
    ) -> None:
        row = letter(instance, signal, code, message, tried=tried)
        buried = await self._alone(session, SQL.bury_signals.rows([row], self._committer.worker))
        self._committer.incidents.signals_buried(instance, buried or [], f"{code}: {message}")

    # --- results ---------------------------------------------------------------------------------------------------

    async def _bury_work(
        self, session: Session, item: Item, signal: WorkDone | WorkFailed, failure: HoldfastError
    ) -> None:
        """Take the step out of its queue as a dead letter, with the handler's result if the database accepts it."""
        error = msgspec.json.encode({"code": failure.code, "message": failure.message[:2000]})
        for result in [signal.raw, None] if isinstance(signal, WorkDone) else [None]:
            row = (item.instance, item.instance[15], signal.path, signal.fence, failure.code, error, result)
            buried = await self._alone(session, SQL.bury_work.rows([row], self._committer.worker))
            if buried is not None:
                told = f"{failure.code}: {failure.message}"
                self._committer.incidents.steps_buried(item.instance, buried, told)
                self._committer.counters.rejected += 1
                self._committer.port.dropped(item)
                return
        await asyncio.sleep(SYSTEMIC_PAUSE)  # its step is still leased to us: forgotten, it would stand there for ever
        self.again([item])

    async def _alone(self, session: Session, query: Query) -> list[list[Any]] | None:
        """Run a query in a transaction of its own, apart from the answered commit; None when it is refused."""
        try:
            answers = await session.run([BEGIN, PIN, query, COMMIT])
        except DatabaseError as error:
            await session.run([ROLLBACK])
            log.error("A mishap could not be recorded: %s", error)
            return None
        return rows(answers[2])


def has_result(items: list[Item], plan: Plan) -> bool:
    """Check whether the commit stored a handler's result; a stored failure says nothing about results."""
    return any(type(item.signal) is WorkDone and item.instance in plan.entries for item in items)


def letter(instance: bytes, signal: bytes, code: str, message: str, *, tried: int) -> tuple[Any, ...]:
    error = msgspec.json.encode({"code": code, "message": message})
    return instance, instance[15], signal, code, error, tried


def _told(failure: Exception) -> str:
    return str(failure) if isinstance(failure, DatabaseError | HoldfastError) else repr(failure)


def _notices(plan: Plan) -> list[Query]:
    """Tell operators of triggers that have no waiting caller and could not be decided."""
    failed = [(q, plan.locked.instances[q.instance], e) for q, _, e in plan.buried if q.kind == "triggered"]
    told = [
        (instance.org, Notice("TRIGGER_ERROR", "error", e.message, detail={"code": e.code, "signal": q.id.hex()}), q)
        for q, instance, e in failed
    ]
    rows = [notice_row(q.id, org, q.instance, plan.locked.date_of(q.instance), notice) for org, notice, q in told]
    return [SQL.insert_notices.rows(rows, plan.locked.now)] if rows else []


def _as_typed(failure: Exception) -> HoldfastError:
    if isinstance(failure, HoldfastError):
        return failure
    if isinstance(failure, DatabaseError):
        told = f"The database refused to store it: {failure.text}"
        return StoreError(told, code="STORE_REFUSED", hint=REFUSED_HINT, sqlstate=failure.sqlstate)
    return HoldfastError(f"The decision failed: {failure!r}", code="DECISION_FAILED")


def _as_failure(item: Item, failure: Exception) -> Item:
    """Turn a result that cannot be stored or decided upon into a failure of its step, by the rules for failed steps."""
    done = item.signal
    assert isinstance(done, WorkDone)
    if isinstance(failure, DatabaseError):
        told = Failure("RESULT_REFUSED", f"The database refused the result: {failure.text}")
    else:
        told = Failure("DECISION_FAILED", f"Nothing can be decided on the result: {failure!r}"[:2000])
    return Item(item.instance, WorkFailed(done.path, done.step, done.fence, told, 1, False, item.input))


def _as_exhausted(failure: Exception) -> HoldfastError:
    return HoldfastError(f"The database refused it {MAX_ALONE} times: {failure}", code="ATTEMPTS_EXHAUSTED")
