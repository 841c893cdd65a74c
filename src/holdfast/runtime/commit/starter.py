"""Starts that only store: a pending instance and its `started` signal, many callers to a commit.

The first caller opens a batch; callers that come while it is written join the next one. Keys are sorted, so two
processes with the same keys wait for each other in one order; a key that is taken is compared by input and answered
with the instance that holds it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

import msgspec

from holdfast.core.model.ids import bucket_of
from holdfast.errors import Conflict, HoldfastError, StoreError
from holdfast.runtime.catalog import Definition
from holdfast.store.pg.reconnecting import REFUSED_HINT
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Disconnected, Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import pin
from holdfast.store.pg.wire import read_int

SESSIONS = 2
MOST = 1000  # concurrent starts that share a commit
PART = 250  # of a start_many
TRIES = 5
_NOISE = 9  # random bytes in an id
ENOUGH_FOR_TWO = 16  # starts that are worth two commits, one made while the other is written

_REFUSALS_OF_DATA = ("22", "23", "54", "P0", "HF")

T = TypeVar("T")


class Start(msgspec.Struct, gc=False):
    id: bytes
    org: str
    definition: Definition
    input: bytes
    key: str | None
    business_key: str | None
    attributes: bytes | None
    created_by: str | None
    trace: str | None
    found: bytes | None = None  # the instance that was there already: an earlier start's, or this one's own, stored
    # by a try whose answer was lost

    @property
    def is_new(self) -> bool:
        """True for an instance this call created: no worker has seen it yet."""
        return self.found is None

    @property
    def instance(self) -> bytes:
        return self.found or self.id


def new_id(org: str, key: str | None, business_key: str | None) -> bytes:
    """UUIDv7 with the bucket in its last byte: from the idempotency key (it must be unique within one bucket), else
    from the business key, else random."""
    anchor, noise = key or business_key, os.urandom(_NOISE + 1)
    return _head(_moment(), noise) + (noise[_NOISE:] if anchor is None else bytes((bucket_of(org, anchor),)))


def new_ids(org: str, keys: Sequence[str | None]) -> Iterator[bytes]:
    """An id per key, ascending: they are listed in the order they were given, and indexes grow at their end."""
    moment, noise, buckets = _moment(), os.urandom(_NOISE * len(keys)), os.urandom(len(keys))
    heads = sorted([_head(moment, noise[at : at + _NOISE]) for at in range(0, len(noise), _NOISE)])
    for number, (head, key) in enumerate(zip(heads, keys, strict=True)):
        yield head + (bytes((bucket_of(org, key),)) if key else buckets[number : number + 1])


def _moment() -> bytes:
    return int(time.time() * 1000).to_bytes(6, "big")


def _head(moment: bytes, noise: bytes) -> bytes:
    """All of an id but its bucket."""
    return b"%b%c%b%c%b" % (moment, 0x70 | noise[0] & 0x0F, noise[1:2], 0x80 | noise[2] & 0x3F, noise[3:_NOISE])


Caller: TypeAlias = "tuple[Start, asyncio.Future[None]]"
Failures: TypeAlias = dict[bytes, Exception]  # by the ids of the starts


class Starter:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free: list[Session] = []
        self._writing = 0  # starts in commits under way
        self._waiting: list[Caller] = []
        self._available = asyncio.Semaphore(SESSIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, start: Start) -> None:
        """Store one; concurrent calls share a commit."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((start, done))
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._write_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await done

    async def start_many(self, starts: Iterable[Start], show: Callable[[Start], T]) -> list[tuple[Start, T]]:
        """Store many, a few hundred to a commit: while the database writes one part, that part is shown to the caller
        and the next one is made."""
        stored: list[tuple[Start, T]] = []
        writes: list[asyncio.Task[None]] = []
        for part in _parts(starts):
            writes.append(asyncio.create_task(self._write_whole(part)))
            await asyncio.sleep(0)  # off it goes, before this thread is busy again
            stored += [(start, show(start)) for start in part]
        for result in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        return stored

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._free:
            await session.close()

    async def _write_waiting(self) -> None:
        async with self._available:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            if self._waiting:
                task = asyncio.create_task(self._write_waiting())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            self._writing += len(batch)
            try:
                failures = await self._write_apart([start for start, _ in batch])
            finally:
                self._writing -= len(batch)
            first = self._let_go_first(batch)
            _answer(batch[:first], failures)
            await asyncio.sleep(0)  # they call, and join who waits for this session
        await asyncio.sleep(0)  # what they brought is sent
        _answer(batch[first:], failures)

    def _let_go_first(self, batch: list[Caller]) -> int:
        """Callers that start again and again would do so all at once and then all wait. As many are let go first as
        fill the next commit up to half of all that are on their way: from then on one half is written while the other
        half makes its next starts."""
        everybody = len(batch) + len(self._waiting) + self._writing
        if everybody < ENOUGH_FOR_TWO:
            return len(batch)
        return min(max(everybody // 2 - len(self._waiting), 0), len(batch))

    async def _write_apart(self, starts: Sequence[Start]) -> Failures:
        """Write the starts, by halves after a refusal: one caller's bad start must not fail the others that share its
        commit.

        A failure that is not about data would fail every one of them, each after its own patience, so it answers all at
        once.
        """
        try:
            return await self._write(starts)
        except Exception as failure:
            if len(starts) == 1 or not _is_about_data(failure):
                return {start.id: failure for start in starts}
        half = len(starts) // 2
        return await self._write_apart(starts[:half]) | await self._write_apart(starts[half:])

    async def _write_whole(self, starts: Sequence[Start]) -> None:
        async with self._available:
            await self._write(starts, whole=True)

    async def _write(self, starts: Sequence[Start], *, whole: bool = False) -> Failures:
        """Store them in one commit, without those whose keys say something else; `whole`: all of them or none."""
        for attempt in range(TRIES):
            for start in starts:
                start.found = None  # an earlier try was rolled back, or its answer was lost
            session = self._free.pop() if self._free else await Session.open_settled(self._dsn)
            try:
                failures = await self._insert(session, starts, whole, is_first=not attempt)
            except DatabaseError as error:
                await self._give_back(session)
                if error.sqlstate[:2] in ("40", "55") and attempt + 1 < TRIES:
                    continue
                raise StoreError(
                    f"The start was refused: {error.text}",
                    code="STORE_REFUSED",
                    hint=REFUSED_HINT,
                    sqlstate=error.sqlstate,
                ) from None
            except HoldfastError:
                await self._give_back(session)
                raise
            except Disconnected:
                await session.close()
            else:
                self._free.append(session)
                return failures
        raise StoreError(
            "The connection was lost while starting.",
            code="STORE_UNREACHABLE",
            hint="Check that the server is up, and start it again; with the same key it starts once.",
        )

    async def _give_back(self, session: Session) -> None:
        """Return a session after a refusal; one that lost its connection has rolled back by itself."""
        try:
            await session.run([ROLLBACK])
        except Disconnected:
            await session.close()
        else:
            self._free.append(session)

    async def _insert(self, session: Session, starts: Sequence[Start], whole: bool, *, is_first: bool) -> Failures:
        """Insert the starts. Ids were made before the first try, so a repeat after a lost answer finds its own rows."""
        if all(s.key is None for s in starts):  # no keys to collide, so no order to keep
            if is_first:
                insert = SQL.start_fresh_instances.rows([_fresh_row(s) for s in starts])
                await session.run([BEGIN, pin(session), insert, COMMIT])
                return {}
            insert = SQL.start_instances.rows([_instance_row(s) for s in starts], None)
            results = await session.run([BEGIN, pin(session), insert, COMMIT])
            _mark_known(starts, rows(results[2]))
            return {}
        ordered = sorted(starts, key=lambda s: (s.org, s.definition.name, s.key or "", s.id))
        insert = SQL.start_instances.rows([_instance_row(s) for s in ordered], None)
        results = await session.run([BEGIN, pin(session), insert])
        _mark_known(ordered, rows(results[2]))
        taken = [s for s in ordered if s.found is not None and s.key is not None]
        failures = await self._compare(session, taken) if taken else {}
        if failures and whole:
            raise next(iter(failures.values()))
        await session.run([COMMIT])
        return failures

    async def _compare(self, session: Session, taken: list[Start]) -> Failures:
        """Read the holders of taken keys, and refuse the starts whose input differs."""
        wanted = [
            (s.org, s.definition.name, s.key or "", s.id[15], s.input, ordinal) for ordinal, s in enumerate(taken)
        ]
        [result] = await session.run([SQL.find_started.rows(wanted)])
        if result.ntuples < len(taken):
            raise DatabaseError("40001", "an instance that held a key vanished meanwhile", "find_started")
        failures: Failures = {}
        for ordinal, id, same in rows(result):
            start = taken[read_int(ordinal)]
            start.found = id
            if same != b"\1":
                failures[start.id] = Conflict(
                    f"The key {start.key!r} was already used for {start.definition.name!r} with another input.",
                    code="IDEMPOTENCY_KEY_REUSED",
                    hint="Use a new key for a new start.",
                )
        return failures


def _mark_known(starts: Sequence[Start], inserted: Sequence[Sequence[bytes]]) -> None:
    """Mark the starts that were not inserted: their row was there before, unless the key belongs to another
    instance.
    """
    new = {row[0] for row in inserted}
    for start in starts:
        if start.id not in new:
            start.found = start.id


def _is_about_data(failure: Exception) -> bool:
    """Check whether the database refused the data of one start, and not a thing they all share."""
    return isinstance(failure, StoreError) and str(failure.detail.get("sqlstate", "")).startswith(_REFUSALS_OF_DATA)


def _answer(batch: list[Caller], failures: Failures) -> None:
    for start, done in batch:
        if done.done():
            continue
        failure = failures.get(start.id)
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)


def _parts(starts: Iterable[Start]) -> Iterator[list[Start]]:
    left = iter(starts)
    while part := list(islice(left, PART)):
        yield part


def _fresh_row(s: Start) -> tuple[object, ...]:
    definition = s.definition
    return (
        s.id, s.id[15], s.org, definition.id, definition.name, definition.version, s.input, s.business_key,
        s.attributes, s.created_by, s.trace,
    )  # fmt: skip


def _instance_row(s: Start) -> tuple[object, ...]:
    definition = s.definition
    return (
        s.id, s.id[15], s.org, definition.id, definition.name, definition.version, s.input, s.key, s.business_key,
        s.attributes, None, None, s.created_by, s.trace,
    )  # fmt: skip
