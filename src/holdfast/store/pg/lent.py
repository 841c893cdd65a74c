"""Lent connection: the session's connection in a user's function, for one call and inside our transaction.

The function gets a psycopg connection that shares the session's libpq connection: asynchronous for `async def`,
blocking for plain functions. It can run any statement but those that would end the transaction or change the role
in it; blocks of `conn.transaction()` are savepoints. The text of a statement is read to refuse early and clearly.
A statement that slips through (by a cursor class of one's own) is found by the transaction's mark, before the commit
writes anything. After the call the object is dead.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn

import psycopg
from psycopg.pq.abc import PGconn

from holdfast.errors import Refused

_QUIET: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$", re.DOTALL
)
_CONTROL: Final = re.compile(
    r"\s*(commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!\s+(work\s+|transaction\s+)?to\b)"
    r"|(set|reset)\s+((session|local)\s+)?(role|authorization|session\s+authorization)|reset\s+all|discard)\b",
    re.IGNORECASE,
)


def refuse_control(query: Any, conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Raise if one of the statements would end the transaction or change the role."""
    if isinstance(query, bytes):
        text = query.decode(errors="replace")
    else:
        text = query.as_string(conn) if hasattr(query, "as_string") else str(query)
    for statement in _QUIET.sub(" ", text).split(";"):
        if found := _CONTROL.match(statement):
            _refuse(" ".join(found[0].split()).upper())


def _refuse(what: str) -> NoReturn:
    raise Refused(
        f"{what} is not for a call: its transaction belongs to the step.",
        code="CALL_TRANSACTION_CONTROL",
        hint="Return to commit, raise to roll back; `conn.transaction()` gives a savepoint.",
    )


class _Lent:
    """Common part of both kinds of lent connection: a life that ends with the call."""

    pgconn: PGconn
    is_over = False

    def end(self) -> None:
        """Close this object for further use, and cancel a statement that still runs."""
        self.is_over = True
        if self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):
                self.pgconn.get_cancel().cancel()

    def check(self) -> None:
        if self.is_over:
            raise Refused(
                "The connection was lent for one call, and that call is over.",
                code="CALL_OVER",
                hint="Use `ctx.conn` only inside the function it was given to.",
            )

    def __del__(self) -> None:
        """The session closes the connection below, so there is nothing to warn of."""


class LentConnection(_Lent, psycopg.AsyncConnection[Any]):
    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn)
        self.prepare_threshold = None  # names of prepared statements would meet those of the next call
        self.cursor_factory = _Cursor

    async def wait(self, *args: Any, **options: Any) -> Any:
        self.check()
        return await super().wait(*args, **options)

    async def commit(self) -> None:
        _refuse("COMMIT")

    async def rollback(self) -> None:
        _refuse("ROLLBACK")

    async def close(self) -> None:
        _refuse("Closing the connection")


class _Cursor(psycopg.AsyncCursor[Any]):
    async def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        refuse_control(query, self.connection)
        return await super().execute(query, *args, **options)

    async def executemany(self, query: Any, *args: Any, **options: Any) -> None:
        refuse_control(query, self.connection)
        await super().executemany(query, *args, **options)

    def stream(self, query: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        refuse_control(query, self.connection)
        return super().stream(query, *args, **options)


class BlockingLentConnection(_Lent, psycopg.Connection[Any]):
    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn)
        self.prepare_threshold = None
        self.cursor_factory = _BlockingCursor

    def wait(self, *args: Any, **options: Any) -> Any:
        self.check()
        return super().wait(*args, **options)

    def commit(self) -> None:
        _refuse("COMMIT")

    def rollback(self) -> None:
        _refuse("ROLLBACK")

    def close(self) -> None:
        _refuse("Closing the connection")


class _BlockingCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        refuse_control(query, self.connection)
        return super().execute(query, *args, **options)

    def executemany(self, query: Any, *args: Any, **options: Any) -> None:
        refuse_control(query, self.connection)
        super().executemany(query, *args, **options)

    def stream(self, query: Any, *args: Any, **options: Any) -> Iterator[Any]:
        refuse_control(query, self.connection)
        return super().stream(query, *args, **options)
