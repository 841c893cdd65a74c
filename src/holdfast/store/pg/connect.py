"""Opening connections: on the host that takes writes, with what a pooler in between allows, and patiently.

A transaction pooler lends a server connection for one transaction at a time, so nothing may be left on it: no prepared
statement, no setting, no LISTEN. It is recognised by the process id it reports at login: a server reports its own, a
pooler cannot, because it does not know yet who will serve.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import StoreError
from holdfast.store import embedded
from holdfast.store.pg.silence import cut_after
from holdfast.store.pg.statements import SQL

# Without these a server that vanished without a word is waited for as long as the operating system likes.
PATIENCE: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
ANSWER_SECONDS: Final = 10.0  # for the first answer: the peer may be a proxy without a server behind it
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0


class Address(str):
    """DSN and two facts beside it: whether a pooler is in between, and the address that can LISTEN.

    An embedded server is known by its directory, so that this process can start it again after a crash.
    """

    __slots__ = ("direct", "directory", "pooled")

    pooled: bool | None  # None: find out
    direct: str
    directory: Path | None

    def __new__(
        cls, dsn: str, *, direct: str = "", pooled: bool | None = None, directory: Path | None = None
    ) -> Address:
        self = super().__new__(cls, dsn)
        self.direct = direct
        self.pooled = pooled
        self.directory = directory
        return self


def listening_address(dsn: str) -> str:
    return (isinstance(dsn, Address) and dsn.direct) or dsn


class Dialled(NamedTuple):
    connection: psycopg.AsyncConnection[Any]
    relayed: bool  # by a pooler


async def dial(dsn: str) -> Dialled:
    """A connection that takes writes, or a StoreError that says why there is none."""
    try:
        return await _dial(dsn)
    except StoreError as failure:
        if not await asyncio.to_thread(_revived, dsn, failure):
            raise
    return await _dial(dsn)


def dial_blocking(dsn: str) -> psycopg.Connection[Any]:
    """The same for code with a thread of its own."""
    try:
        return _dial_blocking(dsn)
    except StoreError as failure:
        if not _revived(dsn, failure):
            raise
    return _dial_blocking(dsn)


def _revived(dsn: str, failure: StoreError) -> bool:
    directory = dsn.directory if isinstance(dsn, Address) else None
    return directory is not None and failure.code == "STORE_UNREACHABLE" and embedded.revive(directory)


async def _dial(dsn: str) -> Dialled:
    try:
        connection = await psycopg.AsyncConnection.connect(_completed(dsn), autocommit=True, prepare_threshold=None)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                cursor = await connection.execute(SQL.read_backend.sql)
            return Dialled(connection, _is_relayed(connection, await cursor.fetchone()))
        except BaseException:
            await connection.close()
            raise
    except TimeoutError:
        raise no_connection(psycopg.OperationalError("it takes connections and does not answer")) from None
    except psycopg.ProgrammingError:
        raise unreadable() from None
    except psycopg.Error as failure:
        raise no_connection(failure) from None


def _dial_blocking(dsn: str) -> psycopg.Connection[Any]:
    try:
        connection = psycopg.connect(_completed(dsn), autocommit=True, prepare_threshold=None)
        try:
            with cut_after(connection, ANSWER_SECONDS):
                _is_relayed(connection, connection.execute(SQL.read_backend.sql).fetchone())
        except BaseException:
            connection.close()
            raise
    except psycopg.ProgrammingError:
        raise unreadable() from None
    except psycopg.Error as failure:
        raise no_connection(failure) from None
    return connection


def is_pooled(dsn: str, relayed: bool) -> bool:
    """Pooling as configured with the address; otherwise as found while connecting."""
    said = dsn.pooled if isinstance(dsn, Address) else None
    return relayed if said is None else said


def pauses(longest: float = LONGEST_PAUSE) -> Iterator[float]:
    """Longer and longer waits between tries, drawn at random so that a fleet does not come back in step."""
    limit = min(FIRST_PAUSE, longest)
    while True:
        yield random.uniform(limit / 2, limit)  # noqa: S311 - nothing to guess here
        limit = min(limit * 2, longest)


def no_connection(failure: psycopg.Error) -> StoreError:
    if asks_for_writes(failure):
        return read_only()
    reason = " ".join(str(failure).split()) or type(failure).__name__
    return StoreError(
        f"No connection to PostgreSQL: {reason}",
        code="STORE_UNREACHABLE",
        hint="Check the DSN, and that the server is up and accepts connections.",
    )


def asks_for_writes(failure: psycopg.Error) -> bool:
    """libpq found a server where the DSN asks for one that takes writes."""
    return "session is read-only" in str(failure)


def complete(options: dict[str, Any]) -> None:
    """Decide what a DSN leaves open. Of several hosts the one that takes writes is meant."""
    for name, value in PATIENCE.items():
        options.setdefault(name, value)
    if "," in str(options.get("host", "")) + str(options.get("hostaddr", "")):
        options.setdefault("target_session_attrs", "read-write")


def read_address(dsn: str) -> dict[str, Any]:
    """Parse a DSN and fill in the defaults it leaves open."""
    try:
        options = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise unreadable() from None
    if not all(port.isdecimal() or not port for port in str(options.get("port", "")).split(",")):
        raise unreadable() from None
    complete(options)
    return options


def unreadable() -> StoreError:
    """Error for a DSN that cannot be parsed, without the driver's message: that quotes the text, password included."""
    return StoreError(
        "The database address cannot be read.",
        code="DSN_INVALID",
        hint="Write it as postgresql://user:password@host:port/database.",
    )


def _completed(dsn: str) -> str:
    return make_conninfo("", **read_address(dsn))


def _is_relayed(connection: psycopg.BaseConnection[Any], answer: tuple[Any, ...] | None) -> bool:
    assert answer is not None
    pid, refuses_writes = answer
    if refuses_writes:
        raise read_only()
    return pid != connection.info.backend_pid


def read_only() -> StoreError:
    return StoreError(
        "This PostgreSQL takes no writes: it is a standby, or its transactions are read-only.",
        code="STORE_READ_ONLY",
        hint="Name the primary, or all hosts: postgresql://user@one,two/database?target_session_attrs=read-write.",
    )
