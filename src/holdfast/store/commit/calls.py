"""The transaction of a call: one instance locked, a user's function in the middle, the engine's writes at the end.

The function acts as the login itself, not as the worker's role: its tables are the application's. Limits on statements,
locks and idleness bound how long it can hold the instance. Deferred constraints are checked before the engine's writes,
so a constraint that the function violated fails the function and not the commit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import msgspec
import psycopg

from holdfast.errors import Refused
from holdfast.store.commit.locks import CLOCK, Locked, load_instance
from holdfast.store.pg.lent import BlockingLentConnection, LentConnection
from holdfast.store.pg.session import BEGIN, COMMIT, RESET, SET_CONSTRAINTS, DatabaseError, Disconnected, Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

WORKER = SQL.use_worker.one()


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call, in seconds, and of the sessions for calls; a shorter `timeout` of the node applies too."""

    statement: float = 30.0
    lock: float = 5.0
    idle: float = 60.0  # without a statement, after which the server ends the session and frees the instance
    sessions: int = 4


class CallTransaction:
    def __init__(self, session: Session, limits: CallLimits) -> None:
        self.session = session
        self._limits = limits
        self._mark = uuid4().hex

    async def begin(self, instance: bytes) -> Locked | None:
        """Begin the transaction and lock the instance; None if another transaction holds its lock.

        Settings that the last function left in the session are reset first.
        """
        lock = SQL.lock_instances.rows([(instance, instance[15], -1)])
        results = await self.session.run([BEGIN, RESET, WORKER, lock, CLOCK])
        found = [load_instance(row) for row in rows(results[3])]
        now = read_int(results[4].get_value(0, 0) or b"")
        return Locked(max(now, found[0].updated), {found[0].id: found[0]}, {}, [], 0) if found else None

    async def begin_alone(self) -> None:
        """Begin the transaction without any instance."""
        await self.session.run([BEGIN, RESET, WORKER])

    @asynccontextmanager
    async def lend(
        self, org: str, timeout: float | None, *, blocking: bool
    ) -> AsyncGenerator[LentConnection | BlockingLentConnection]:
        limits = self._limits
        statement = limits.statement if timeout is None else min(timeout, limits.statement)
        times = [_milliseconds(t) for t in (statement, min(limits.lock, statement), limits.idle)]
        await self.session.run([SQL.lend_transaction.one(org, self._mark, *times)])
        async with self.session.lend(blocking=blocking) as conn:
            yield conn
        self._check_open()

    def _check_open(self) -> None:
        if self.session.broken:
            raise Disconnected("The connection was lost while the call ran.")
        if self.session.is_in_failed_transaction:
            raise Refused(
                "A statement of the call failed and the function went on as if it had not.",
                code="CALL_TRANSACTION_FAILED",
                hint="Let the error through, or put the statement into `conn.transaction()`, a savepoint.",
            )
        if not self.session.is_in_transaction:
            raise _left()

    async def settle(self) -> None:
        """Check deferred constraints after the function, take the transaction back and reset the session's settings."""
        try:
            results = await self.session.run([SET_CONSTRAINTS, SQL.retake_transaction.one(self._mark), RESET, PIN])
        except DatabaseError as error:
            raise psycopg.errors.lookup(error.sqlstate)(error.text) from None
        if results[1].get_value(0, 0) != b"\1":
            raise _left()

    async def commit(self, writes: Sequence[Query]) -> None:
        await self.session.run([*writes, COMMIT])


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _left() -> Refused:
    return Refused(
        "The call ended the transaction it was lent: nothing of the step was stored with it.",
        code="CALL_LEFT_TRANSACTION",
        hint="Return to commit, raise to roll back.",
    )
