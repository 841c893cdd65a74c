"""Connections of the user's own: psycopg, SQLAlchemy and Django, recognised without importing the latter two.

Each can run one statement and answer one value. The statements lie in `sql/caller`, one file per verb with `$n::type`
parameters like all others; the placeholder is rewritten to the library's own. A connection with blocking calls may be
bound to its thread (Django's is): a caller that drives the loop from another thread says in `RUN_THERE` how to get
there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache
from importlib import import_module, resources
from typing import Any, Final, TypeGuard

import msgspec
import psycopg
from psycopg.rows import scalar_row

from holdfast.errors import HoldfastError

Elsewhere = Callable[[Callable[[], Any]], Awaitable[Any]]
Wake = Callable[[], None]
RUN_THERE: Final[ContextVar[Elsewhere | None]] = ContextVar("run_there", default=None)

_PARAMETER: Final = re.compile(r"\$(\d+)::([a-z0-9]+)")


class Origin(msgspec.Struct, frozen=True):
    """The database's own error, from inside the wrapper of any library."""

    sqlstate: str
    message: str
    hint: str
    context: str


async def fetch_value(conn: Any, verb: str, arguments: tuple[Any, ...], wake: Wake | None = None) -> Any:
    """Run one statement on the connection; the first column of its first row, None without rows.

    With `wake`, a connection that tells when its transaction is committed calls it then, and no NOTIFY is sent inside:
    all committers would queue for that one's lock.
    """
    if _is_async(conn):
        async with psycopg.AsyncCursor(conn, row_factory=scalar_row) as cursor:
            await cursor.execute(_for_drivers(verb), _named(arguments))
            return await cursor.fetchone()
    if _comes_from(conn, "sqlalchemy.ext.asyncio") and hasattr(conn, "execute"):
        return (await conn.execute(_for_sqlalchemy(verb), _named(arguments))).scalar()
    there = RUN_THERE.get()
    if there is None:
        return _fetch_blocking(conn, verb, arguments, wake)
    return await there(lambda: _fetch_blocking(conn, verb, arguments, wake))


def _fetch_blocking(conn: Any, verb: str, arguments: tuple[Any, ...], wake: Wake | None) -> Any:
    if _is_blocking(conn):
        with psycopg.Cursor(conn, row_factory=scalar_row) as cursor:
            return cursor.execute(_for_drivers(verb), _named(arguments)).fetchone()
    if _comes_from(conn, "sqlalchemy") and hasattr(conn, "execute"):
        return conn.execute(_for_sqlalchemy(verb), _named(arguments)).scalar()
    if _comes_from(conn, "django") and hasattr(conn, "cursor"):
        return _fetch_by_django(conn, verb, arguments, wake)
    raise HoldfastError(
        f"A {type(conn).__module__}.{type(conn).__qualname__} cannot be used as the caller's connection.",
        code="CONNECTION_UNSUPPORTED",
        hint="Pass a connection of psycopg 3, a connection or session of SQLAlchemy, or django.db.connection.",
    )


def _fetch_by_django(conn: Any, verb: str, arguments: tuple[Any, ...], wake: Wake | None) -> Any:
    """Run a verb, with the wake-up as an on-commit hook in an atomic block.

    Only an atomic block has such a hook. It is dropped with the savepoint it was set in, as is the setting.
    """
    is_told = wake is not None and conn.in_atomic_block
    statement = (_for_drivers_quietly if is_told else _for_drivers)(verb)
    with conn.cursor() as cursor:
        cursor.execute(statement.decode(), _named(arguments))
        row = cursor.fetchone()
    if is_told:
        conn.on_commit(wake)
    return None if row is None else row[0]


async def place_of(conn: Any) -> tuple[str, str]:
    """Database and host of the connection, as far as its library tells; nothing is asked of the server."""
    there = RUN_THERE.get()
    if there is None or _is_async(conn) or _comes_from(conn, "sqlalchemy.ext.asyncio"):
        return _place(conn)
    return await there(lambda: _place(conn))


def _place(conn: Any) -> tuple[str, str]:
    if _comes_from(conn, "sqlalchemy"):
        conn = getattr(conn, "sync_session", None) or getattr(conn, "sync_connection", None) or conn
        conn = (conn.connection() if hasattr(conn, "get_bind") else conn).connection.driver_connection
    elif _comes_from(conn, "django"):
        conn = conn.connection
    known = getattr(conn, "info", None)
    return getattr(known, "dbname", ""), getattr(known, "host", "")


def _is_async(conn: Any) -> TypeGuard[psycopg.AsyncConnection[Any]]:
    return isinstance(conn, psycopg.AsyncConnection)


def _is_blocking(conn: Any) -> TypeGuard[psycopg.Connection[Any]]:
    return isinstance(conn, psycopg.Connection)


def _comes_from(conn: Any, package: str) -> bool:
    """Check the class by name, subclasses included; reading attributes of a proxy would already open a connection."""
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(conn).__mro__)


def _named(arguments: tuple[Any, ...]) -> dict[str, Any]:
    return {f"p{number}": value for number, value in enumerate(arguments, start=1)}


@cache
def _for_drivers(verb: str) -> bytes:
    return _written(verb, "cast(%(p{})s as {})").encode()


@cache
def _for_drivers_quietly(verb: str) -> bytes:
    """The statement, with NOTIFY muted until the end of the transaction: a wake-up is due then already."""
    return b"%b from (%b offset 0) quiet" % (_for_drivers(verb), _written("mute_wake_ups", "").encode())


@cache
def _for_sqlalchemy(verb: str) -> Any:
    """The statement as SQLAlchemy's text. A connection of SQLAlchemy is at hand here, so the library is loaded."""
    return import_module("sqlalchemy").text(_written(verb, "cast(:p{} as {})"))


def _written(verb: str, parameter: str) -> str:
    source = resources.files("holdfast.store").joinpath("sql", "caller", f"{verb}.sql").read_text(encoding="utf-8")
    _, _, statement = source.partition("\n")
    return _PARAMETER.sub(lambda found: parameter.format(*found.groups()), statement).strip()


def origin_of(error: BaseException) -> Origin | None:
    """SQLAlchemy keeps the driver's error in `orig`, Django chains it."""
    for candidate in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(candidate, "sqlstate", None) or getattr(candidate, "pgcode", None)
        if isinstance(state, str):
            return _origin(state, candidate)
    return None


def _origin(state: str, error: Any) -> Origin:
    diagnosis = getattr(error, "diag", None)
    return Origin(
        state,
        getattr(diagnosis, "message_primary", None) or str(error),
        getattr(diagnosis, "message_hint", None) or "",
        getattr(diagnosis, "context", None) or "",
    )
