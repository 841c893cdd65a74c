"""When a commit does not go through: what is retried, what is taken apart, what is buried.

The database's error class decides. A guard that did not hold (HF001, a unique key) means somebody was faster: read
again and decide again. Trouble that passes (serialisation, locks, resources) retries the batch whole. Data the database
refuses is poison: the batch is taken apart, every instance tried alone, and the culprit's attempt and error are
committed on their own. Anything about the schema or privileges is systemic: nothing is blamed, an alarm is raised.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.signals import Failure, Started, WorkDone, WorkFailed
from holdfast.errors import HoldfastError, StoreError
from holdfast.runtime.items import Item
from holdfast.runtime.plan import Plan
from holdfast.store.locks import PIN
from holdfast.store.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Session, rows
from holdfast.store.standing import REFUSED_HINT
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int

if TYPE_CHECKING:
    from holdfast.runtime.committer import Committer

log = logging.getLogger("holdfast.commit")

MAX_ATTEMPTS = 5
MAX_TRIES = 3
PAUSE = 0.01
SYSTEMIC_PAUSE = 1.0

_PASSES = ("40", "55", "57", "53", "08", "25")
_EXHAUSTED = "53"  # disk, memory, connections
_POISON = ("22", "54", "P0")


def _kind(error: DatabaseError) -> str:
    if error.sqlstate in ("HF001", "23505"):
        return "race"
    if error.sqlstate.startswith(_PASSES):
        return "passing"
    if error.sqlstate.startswith(_POISON) or error.sqlstate in ("HF002", "23514", "23502"):
        return "poison"
    return "systemic"


class Mishaps:
    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._refused_claims = 0

    async def after_error(self, session: Session, items: list[Item], error: DatabaseError, claim: int) -> None:
        """The batch rolled back as a whole; every item finds its way from here."""
        committer = self._committer
        committer.counters.retried += 1
        kind = _kind(error)
        if kind == "systemic":
            log.critical("The database refuses our statements, nothing is dropped: %s", error)
            self.give_up([i for i in items if i.answer is not None], _as_store_error(error))
            await asyncio.sleep(SYSTEMIC_PAUSE)
            self._again([i for i in items if i.answer is None])
            return
        if kind == "passing":
            await self._pause(error)
            for item in items:
                item.tries += 1  # the next try takes its locks first
            self._again(items)
            return
        items = await self.without_lost_results(session, items)
        if kind == "race" and all(i.tries < MAX_TRIES for i in items) and self._refused_claims < MAX_TRIES:
            self._refused_claims += bool(claim)
            for item in items:
                item.tries += 1
                item.unsure = item.unsure or item.fresh is not None  # somebody's start is there already
            self._again(items)
            return
        await self._one_by_one(session, items)
        if claim:
            self._refused_claims = 0
            await self._claimed_one_by_one(session)

    async def _pause(self, error: DatabaseError) -> None:
        """A full disk passes only when somebody is told."""
        if error.sqlstate.startswith(_EXHAUSTED):
            log.critical("The database has run out of something, nothing is dropped: %s", error)
            await asyncio.sleep(SYSTEMIC_PAUSE)
        else:
            await asyncio.sleep(PAUSE)

    def _again(self, items: list[Item]) -> None:
        self._committer.buffer.extendleft(reversed(items))
        self._committer.wake()

    async def without_lost_results(self, session: Session, items: list[Item]) -> list[Item]:
        """Drop results whose lease has passed to somebody else: their commit is refused for ever."""
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
                committer.on_dropped(item)
            else:
                kept.append(item)
        return kept

    async def _one_by_one(self, session: Session, items: list[Item]) -> None:
        """Each instance in a transaction of its own: the innocent commit, the culprit is found."""
        groups: dict[bytes, list[Item]] = {}
        for item in items:
            groups.setdefault(item.instance, []).append(item)
        for group in groups.values():
            await self._apart(session, group)

    async def _apart(self, session: Session, group: list[Item]) -> None:
        """Of several signals for one instance, too, only the culprit is to blame."""
        committer = self._committer
        try:
            await committer.attempt(session, group, 0, set())
        except DatabaseError as own:
            await session.run([ROLLBACK])
            committer.snapshots.forget({group[0].instance})
            if len(group) == 1:
                await self._culprit(session, group[0], own)
                return
            for item in group:
                await self._apart(session, [item])

    async def _claimed_one_by_one(self, session: Session) -> None:
        """The poison may lie in the queue: one signal at a time until it shows, then count it against that one."""
        committer = self._committer
        for _ in range(committer.options.batch):
            claimed: set[bytes] = set()
            try:
                await committer.attempt(session, [], 1, claimed, signals=1)
            except DatabaseError as own:
                await session.run([ROLLBACK])
                committer.snapshots.forget(claimed)
                if _kind(own) in ("poison", "race"):
                    for instance in claimed:
                        await self._count_oldest(session, instance, str(own))
                return
            finally:
                committer.release(claimed)
            if not claimed:
                return

    async def _culprit(self, session: Session, item: Item, error: DatabaseError) -> None:
        log.error("Instance %s cannot be committed: %s", item.instance.hex(), error)
        kind = _kind(error)
        item.refused_alone += kind == "race"
        if kind == "passing" or (kind == "race" and item.refused_alone < MAX_ATTEMPTS):
            item.tries = 1  # nothing is decided without locks any more
            await asyncio.sleep(PAUSE)
            self._again([item])
        elif kind == "race" and isinstance(item.signal, WorkDone | WorkFailed):
            # Alone and under its locks nobody can be faster: what is stored does not fit together.
            await self._bury_work(session, item, item.signal, _as_exhausted(error))
        elif isinstance(item.signal, WorkDone):
            self._again([_as_failure(item, error)])
        else:
            self.give_up([item], _as_store_error(error))

    def give_up(self, items: list[Item], error: HoldfastError) -> None:
        for item in items:
            if item.answer is not None and not item.answer.done():
                item.answer.set_exception(error)
            elif item.answer is None and not isinstance(item.signal, Started):
                log.error("Dropped %s of %s: %s", type(item.signal).__name__, item.instance.hex(), error)
                self._committer.on_dropped(item)

    # --- signals out of the queue ----------------------------------------------------------------------------------

    def burials(self, plan: Plan) -> list[Query]:
        """Signals that can never be applied go to the dead letters with the commit."""
        if not plan.buried:
            return []
        letters = [_letter(q.instance, q.id, reason, e.message, tried=1) for q, reason, e in plan.buried]
        return [SQL.bury_signals.rows(letters, self._committer.worker)]

    async def after_broken(self, session: Session, broken: list[tuple[Item, Exception]]) -> None:
        """Nothing could be decided: buried where that lasts, counted where it may pass, told to whoever asked."""
        for item, failure in broken:
            if item.queued is not None and isinstance(failure, HoldfastError):
                letter = _letter(item.instance, item.queued.id, failure.code, failure.message, tried=1)
                await self._alone(session, SQL.bury_signals.rows([letter], self._committer.worker))
            elif item.queued is not None:
                await self._count(session, item.instance, item.queued.id, repr(failure))
            elif isinstance(item.signal, WorkDone) and not isinstance(failure, HoldfastError):
                self._again([_as_failed_decision(item, failure)])
            elif isinstance(item.signal, WorkDone | WorkFailed):
                await self._bury_work(session, item, item.signal, failure)
            else:
                self.give_up([item], _as_typed(failure))

    async def _count_oldest(self, session: Session, instance: bytes, error: str) -> None:
        """The one that was tried: alone, and in the order of the queue."""
        answers = await self._alone(session, SQL.read_signals.rows([(instance, instance[15])], 1))
        for row in answers:
            await self._count(session, row[0], row[1], error)

    async def _count(self, session: Session, instance: bytes, signal: bytes, error: str) -> None:
        text = error.replace("\x00", "")[:2000]
        for _, _, attempts in await self._alone(
            session, SQL.count_attempts.rows([(instance, instance[15], signal, text)])
        ):
            if read_int(attempts) >= MAX_ATTEMPTS:
                letter = _letter(instance, signal, "ATTEMPTS_EXHAUSTED", text, tried=0)
                await self._alone(session, SQL.bury_signals.rows([letter], self._committer.worker))

    async def _bury_work(self, session: Session, item: Item, signal: WorkDone | WorkFailed, failure: Exception) -> None:
        """The step leaves its queue; what its handler answered is kept with the letter, if the database takes it."""
        typed = _as_typed(failure)
        log.error("Step %s of %s is a dead letter: %s", signal.step.hex(), item.instance.hex(), typed)
        error = msgspec.json.encode({"code": typed.code, "message": typed.message[:2000]})
        results = [signal.raw, None] if isinstance(signal, WorkDone) else [None]
        for result in results:
            row = (item.instance, item.instance[15], signal.path, signal.fence, typed.code, error, result)
            if await self._alone(session, SQL.bury_work.rows([row], self._committer.worker)):
                break
        self._committer.counters.rejected += 1
        self._committer.on_dropped(item)

    async def _alone(self, session: Session, query: Query) -> list[list[Any]]:
        """In a transaction of its own, apart from the commit that is already answered; nothing when it is refused."""
        try:
            answers = await session.run([BEGIN, PIN, query, COMMIT])
        except DatabaseError as error:
            await session.run([ROLLBACK])
            log.error("A mishap could not be recorded: %s", error)
            return []
        return rows(answers[2])


def _letter(instance: bytes, signal: bytes, code: str, message: str, *, tried: int) -> tuple[Any, ...]:
    error = msgspec.json.encode({"code": code, "message": message})
    return instance, instance[15], signal, code, error, tried


def _as_typed(failure: Exception) -> HoldfastError:
    if isinstance(failure, HoldfastError):
        return failure
    return HoldfastError(f"The decision failed: {failure!r}", code="DECISION_FAILED")


def _as_failed_decision(item: Item, failure: Exception) -> Item:
    """What a handler answered cannot be decided upon: its step failed, by the rules for failed steps."""
    done = item.signal
    assert isinstance(done, WorkDone)
    told = Failure("DECISION_FAILED", f"Nothing can be decided on the result: {failure!r}"[:2000])
    return Item(item.instance, WorkFailed(done.path, done.step, done.fence, told, 1, False, item.input))


def _as_failure(item: Item, error: DatabaseError) -> Item:
    """A result the database will not store is a failure of the step, not of the engine."""
    done = item.signal
    assert isinstance(done, WorkDone)
    failure = Failure("RESULT_REFUSED", f"The database refused the result: {error.text}")
    return Item(item.instance, WorkFailed(done.path, done.step, done.fence, failure, 1, False, item.input))


def _as_exhausted(error: DatabaseError) -> HoldfastError:
    return HoldfastError(f"The database refused it {MAX_ATTEMPTS} times: {error}", code="ATTEMPTS_EXHAUSTED")


def _as_store_error(error: DatabaseError) -> StoreError:
    return StoreError(
        f"The database refused to store it: {error.text}",
        code="STORE_REFUSED",
        hint=REFUSED_HINT,
        sqlstate=error.sqlstate,
    )
