"""One connection as a pipeline of prepared statements, straight on libpq: an eighth of the cost of driver cursors.

`run` sends any number of queries in one flush and gives back a result per query; the first error is raised after all of
them have been read, so the connection is always in step. A statement is prepared when it is first needed, right before
it in the same flush. A Parse behind an error in a pipeline is skipped, so only an answered Parse counts as prepared.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from typing import Any, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult

from holdfast.errors import StoreError
from holdfast.store.pg.connect import dial, is_pooled, no_connection
from holdfast.store.pg.lent import BlockingLentConnection, LentConnection
from holdfast.store.pg.statements import SQL, TEXTS, Query, is_of_a_month

_BINARY: Final = pq.Format.BINARY
_FORMATS: Final = [[_BINARY] * n for n in range(64)]

BEGIN: Final = Query(b"begin", [])
COMMIT: Final = Query(b"commit", [])
ROLLBACK: Final = Query(b"rollback", [])
RESET: Final = Query(b"reset", [])
SET_CONSTRAINTS: Final = Query(b"set_constraints", [])
_CONTROL: Final = {
    b"begin": b"begin",
    b"commit": b"commit",
    b"rollback": b"rollback",
    b"reset": b"reset all",
    b"set_constraints": b"set constraints all immediate",
}
TEXTS.update(_CONTROL)
_AT_FIRST: Final = (*_CONTROL, SQL.find_definition.name)  # whether the schema is there and may be used shows at once
_READ_ONLY: Final = "25006"
_NOT_OVER: Final = "25P02"  # whatever is sent while a transaction that failed has not been ended
_ROOM: Final = 2**20  # bytes
SILENCE = 30.0  # seconds without a byte after which a connection counts as lost; no wait of ours is nearly as long
_ALREADY_PREPARED: Final = "42P05"
_UNFIT: Final = ("42", "3F")  # names that are not there, or that the login may not use


class DatabaseError(Exception):
    """A statement failed; `sqlstate` says in which way."""

    def __init__(self, sqlstate: str, message: str, statement: str) -> None:
        super().__init__(f"{sqlstate} in {statement}: {message}")
        self.sqlstate = sqlstate
        self.statement = statement
        self.text = message


class Disconnected(Exception):
    """Loss of the connection. Whether a COMMIT under way took effect must be read, never assumed."""


Answer = list[PGresult] | DatabaseError  # of a transaction
_Sent = TypeVar("_Sent")
_Answered = TypeVar("_Answered")


class Session:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._heard = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._socket: int | None = None
        self._lock = asyncio.Lock()
        self._out_of_step = False
        self._known: set[bytes] = set()  # statements prepared on this connection
        self.is_settled = False  # what pins.py sets for a transaction is set for all of them

    @classmethod
    async def open(cls, dsn: str) -> Session:
        connection, relayed = await dial(dsn)
        self = _suited(dsn, relayed)(connection)
        self._pg.nonblocking = 1
        self._enter()
        try:
            await self._prepare()
        except BaseException:
            await self.close()
            raise
        return self

    @classmethod
    async def open_settled(cls, dsn: str) -> Session:
        """Open a session for transactions that begin as store/pg/transaction.py says, and for no others."""
        self = await cls.open(dsn)
        try:
            _widen(self._pg.socket)
            await self._settle()
        except BaseException:
            await self.close()
            raise
        return self

    async def _settle(self) -> None:
        try:
            await self._exchange([SQL.settle_session.one()])
        except psycopg.OperationalError as failure:
            raise no_connection(failure) from None
        self.is_settled = True

    async def _prepare(self) -> None:
        for name in _AT_FIRST:
            self._pg.send_prepare(name, TEXTS[name])
        try:
            await self._collect(_AT_FIRST)
        except psycopg.OperationalError as failure:
            raise no_connection(failure) from None
        except DatabaseError as failure:
            raise _unfit(failure) from None
        self._known.update(_AT_FIRST)

    def _enter(self) -> None:
        self._pg.enter_pipeline_mode()
        self._socket = self._pg.socket
        self._loop.add_reader(self._socket, self._ready)

    def _leave(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket = None

    def _ready(self) -> None:
        if self._waiting is None:
            self._hear_unasked()
        elif not self._waiting.done():
            self._waiting.set_result(None)

    def _hear_unasked(self) -> None:
        """A notice, or the end of the connection: left unread, it would keep the loop busy until the next query."""
        try:
            self._pg.consume_input()
        except psycopg.OperationalError:
            self._give_up()

    def _give_up(self) -> None:
        """Retire this session for good.

        The loop has to forget the socket now: libpq may have closed it already, and the next socket opened gets its
        number.
        """
        self._out_of_step = True
        self._leave()

    async def run(self, queries: Sequence[Query]) -> list[PGresult]:
        """One flush: a result per query, or the first error once everything has been read."""
        return await self._attended(self._exchange, queries)

    async def _attended(self, exchange: Callable[[_Sent], Awaitable[_Answered]], sent: _Sent) -> _Answered:
        async with self._lock:
            if self._out_of_step:
                raise Disconnected("this connection was given up")
            try:
                return await exchange(sent)
            except psycopg.OperationalError as failure:
                self._give_up()
                raise Disconnected(str(failure)) from None
            except DatabaseError as error:
                if error.sqlstate != _READ_ONLY:
                    raise
                self._give_up()  # it was a primary once; where the new one is, a new connection finds out
                raise Disconnected(str(error)) from None
            except asyncio.CancelledError:
                self._give_up()
                raise

    async def once(self, *queries: Query) -> list[PGresult]:
        """A transaction of its own in one flush."""
        [answer] = await self.each([queries])
        if isinstance(answer, DatabaseError):
            raise answer
        return answer

    async def each(self, transactions: Sequence[Sequence[Query]]) -> list[Answer]:
        """Transactions of their own, all in one flush: what each was answered, or why it was refused."""
        return await self._attended(self._exchange_each, [[BEGIN, *queries, COMMIT] for queries in transactions])

    @asynccontextmanager
    async def lend(self, *, blocking: bool) -> AsyncGenerator[LentConnection | BlockingLentConnection]:
        """Lend the connection to a user's function, in the transaction it is in; other requests wait until it is
        back.
        """
        async with self._lock:
            self._leave()
            self._pg.exit_pipeline_mode()
            lent = BlockingLentConnection(self._pg) if blocking else LentConnection(self._pg)
            try:
                yield lent
            finally:
                lent.end()
                if self._is_quiet:
                    self._enter()
                else:
                    self._out_of_step = True

    @property
    def _is_quiet(self) -> bool:
        """Check that no query is under way, so that the next answer belongs to the next query."""
        pg = self._pg
        return (
            pg.status == pq.ConnStatus.OK
            and pg.pipeline_status == pq.PipelineStatus.OFF
            and pg.transaction_status != pq.TransactionStatus.ACTIVE
        )

    @property
    def is_in_transaction(self) -> bool:
        return self._pg.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    @property
    def is_in_failed_transaction(self) -> bool:
        return self._pg.transaction_status == pq.TransactionStatus.INERROR

    async def _exchange(self, queries: Sequence[Query]) -> list[PGresult]:
        if not self._knows(queries):
            return await self._exchange_new(queries)
        return await self._collect(self._send(queries))

    async def _exchange_each(self, flights: Sequence[Sequence[Query]]) -> list[Answer]:
        answers: list[Answer] = []
        while len(answers) < len(flights):
            answers += await self._exchange_some(flights[len(answers) :])
            if self.is_in_transaction:  # one that was refused
                await self._exchange([ROLLBACK])
        return answers

    async def _exchange_some(self, flights: Sequence[Sequence[Query]]) -> list[Answer]:
        """Send flights up to the first one with an unknown statement, and return their answers.

        A flight behind a refused one found an open transaction and did nothing: it is sent again.
        """
        known = list(takewhile(self._knows, flights))
        if not known:
            return [await self._exchange_one(flights[0])]
        names = list[list[bytes]]()
        for flight in known:
            names.append(self._send(flight))
            self._pg.pipeline_sync()
        results: list[list[PGresult]] = [[] for _ in known]
        errors = await self._read(names, results)
        answers: list[Answer] = []
        for error, answered in zip(errors, results, strict=True):
            if error is not None and error.sqlstate == _NOT_OVER:
                break
            answers.append(answered[1:-1] if error is None else _not_read_only(error))
        return answers

    async def _exchange_one(self, flight: Sequence[Query]) -> Answer:
        try:
            return (await self._exchange(flight))[1:-1]
        except DatabaseError as error:
            return _not_read_only(error)
        except StoreError:
            await self._exchange([ROLLBACK])
            raise

    def _knows(self, queries: Sequence[Query]) -> bool:
        return self._known.issuperset([query.name for query in queries])

    def _send(self, queries: Sequence[Query]) -> list[bytes]:
        """Send known statements; return their names in order of the answers to come."""
        send = self._pg.send_query_prepared
        for name, parameters in queries:
            send(name, parameters, _FORMATS[len(parameters)], _BINARY)
        return [query.name for query in queries]

    async def _exchange_new(self, queries: Sequence[Query]) -> list[PGresult]:
        """Send statements of which some are new to this connection, each with its Parse before it."""
        names: list[bytes] = []
        parsed: dict[int, bytes] = {}  # places among the results
        for name, parameters in queries:
            if name not in self._known and name not in parsed.values():
                self._pg.send_prepare(name, TEXTS[name])
                parsed[len(names)] = name
                names.append(name)
            self._pg.send_query_prepared(name, parameters, _FORMATS[len(parameters)], _BINARY)
            names.append(name)
        results: list[PGresult] = []
        try:
            await self._collect(names, results)
        except DatabaseError as failure:
            is_parsing = any(results[place].status == pq.ExecStatus.FATAL_ERROR for place in parsed)
            if is_parsing and failure.sqlstate.startswith(_UNFIT) and not is_of_a_month(failure.statement):
                raise _unfit(failure) from None
            raise
        finally:
            answered = [place for place in parsed if place < len(results)]
            self._known.update(parsed[p] for p in answered if results[p].status == pq.ExecStatus.COMMAND_OK)
        return [result for place, result in enumerate(results) if place not in parsed]

    async def _collect(self, names: Sequence[bytes], into: list[PGresult] | None = None) -> list[PGresult]:
        """End the flush and read a result per name."""
        self._pg.pipeline_sync()
        results: list[PGresult] = [] if into is None else into
        [error] = await self._read([names], [results])
        if error is not None:
            raise error
        return results

    async def _read(
        self, flights: Sequence[Sequence[bytes]], into: Sequence[list[PGresult]]
    ) -> list[DatabaseError | None]:
        """Read the results of each flight, Sync by Sync; return the first error of each."""
        pg = self._pg
        writing = pg.flush() != 0
        if writing:  # more than the socket takes: read while writing, or both sides would wait
            self._loop.add_writer(pg.socket, self._ready)
        errors: list[DatabaseError | None] = [None] * len(flights)
        place, names, results = 0, flights[0], into[0]
        self._heard = self._loop.time()
        if self._watch is None:  # one outlives many exchanges: setting and cancelling one each would cost every commit
            self._watch = self._loop.call_later(SILENCE, self._listen)
        try:
            while True:
                while not pg.is_busy():
                    result = pg.get_result()
                    if result is None:
                        continue
                    if result.status == pq.ExecStatus.PIPELINE_SYNC:
                        place += 1
                        if place == len(flights):
                            return errors
                        names, results = flights[place], into[place]
                        continue
                    if len(results) == len(names):  # instead of the end of the flush: the connection is being closed
                        raise psycopg.OperationalError(result.get_error_message())
                    if result.status == pq.ExecStatus.FATAL_ERROR and errors[place] is None:
                        errors[place] = _error(result, names[len(results)])
                    results.append(result)
                self._waiting = self._loop.create_future()
                await self._waiting
                self._heard = self._loop.time()
                pg.consume_input()
                if writing and pg.flush() == 0:
                    self._loop.remove_writer(pg.socket)
                    writing = False
        finally:
            self._waiting = None
            if writing and self._socket is not None:
                self._loop.remove_writer(self._socket)

    def _listen(self) -> None:
        """Fail the wait when no byte has come for too long: the peer is gone, although the operating system knows
        nothing of it.
        """
        waiting, left = self._waiting, self._heard + SILENCE - self._loop.time()
        self._watch = None
        if waiting is None:
            return
        if left > 0:
            self._watch = self._loop.call_later(max(left, 0.1), self._listen)
        elif not waiting.done():
            waiting.set_exception(psycopg.OperationalError(f"no answer for {SILENCE:.0f} seconds"))

    @property
    def broken(self) -> bool:
        return self._out_of_step or self._pg.status != pq.ConnStatus.OK

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._leave()
        await self._connection.close()


class PooledSession(Session):
    """Session behind a transaction pooler: every flush may meet another server, so each statement carries its text.

    The server plans it each time; the cost is in docs/poolers.md.
    """

    async def _prepare(self) -> None:
        """Prepare no statement: the next flush may meet another server."""

    async def _settle(self) -> None:
        """Make no settings, for the same reason."""

    def _knows(self, queries: Sequence[Query]) -> bool:
        return True

    def _send(self, queries: Sequence[Query]) -> list[bytes]:
        send = self._pg.send_query_params
        for name, parameters in queries:
            send(TEXTS[name], parameters, None, _FORMATS[len(parameters)], _BINARY)
        return [query.name for query in queries]


def _widen(descriptor: int) -> None:
    """Widen the send buffer for a large batch.

    Bytes that a socket does not take at once wait for a turn of the loop, and the server waits with them. A local
    socket takes a fifth of a megabyte by default, and more up to the system's limit (on Linux twice
    `net.core.wmem_max`). Others widen by themselves.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as duplicate:
        present = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        if duplicate.family == socket.AF_UNIX and present < _ROOM:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)


def _suited(dsn: str, relayed: bool) -> type[Session]:
    return PooledSession if is_pooled(dsn, relayed) else Session


def _unfit(failure: DatabaseError) -> StoreError:
    """The error for a statement that cannot be prepared here."""
    if failure.sqlstate == _ALREADY_PREPARED:
        return StoreError(
            "Somebody else's prepared statements are on this connection: a pooler shares it.",
            code="STORE_POOLED",
            hint="Set HOLDFAST_POOLED=1, or pass pooled=True to the engine.",
        )
    return StoreError(
        f"The statement {failure.statement} does not fit the schema: {failure.text}",
        code="SCHEMA_MISMATCH",
        hint="Run `holdfast db migrate` and check that the login may use the schema.",
    )


def _not_read_only(error: DatabaseError) -> DatabaseError:
    if error.sqlstate == _READ_ONLY:
        raise error
    return error


def _error(result: PGresult, name: bytes) -> DatabaseError:
    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b"XX000"
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"unknown"
    return DatabaseError(state.decode(), message.decode(errors="replace"), name.decode())


def rows(result: PGresult) -> list[list[Any]]:
    """All values of a result as raw binary, None for null."""
    get, columns = result.get_value, range(result.nfields)
    return [[get(r, c) for c in columns] for r in range(result.ntuples)]
