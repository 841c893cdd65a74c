"""Migration of a database to the schema of this code: numbered files, each applied once, in its own transaction.

Many processes may start at once: the advisory lock lives as long as one file's transaction, and the process that gets
it reads the applied numbers again. A database that is up to date costs one SELECT.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo

from holdfast.errors import StoreError
from holdfast.store.pg.connect import asks_for_writes, read_address, read_only, unreadable

Connection = psycopg.Connection[tuple[Any, ...]]

FILES = resources.files("holdfast.store") / "migrations"
OLDEST_SERVER = 150000


class Migration(NamedTuple):
    number: int
    name: str
    text: bytes
    checksum: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All migration files of this release, in order."""
    files = [file for file in FILES.iterdir() if file.name.endswith(".sql")]
    return tuple(_migration(file.name, file.read_bytes()) for file in sorted(files, key=lambda file: file.name))


def migrate(dsn: str) -> list[int]:
    """Apply the missing migrations; return the numbers applied by this call."""
    with _connect(dsn) as connection:
        if _applied(connection) == latest():
            return []
        try:
            return [file.number for file in migrations() if _apply(connection, file)]
        except errors.InsufficientPrivilege as refusal:
            raise _privileges_missing(connection, refusal) from None


def current(dsn: str) -> int:
    """The number of the newest migration in this database; 0 when it has none."""
    with _connect(dsn) as connection:
        return _applied(connection)


def latest() -> int:
    """The number of the newest migration this code knows."""
    return migrations()[-1].number


def _migration(file_name: str, raw: bytes) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    text = raw.replace(b"\r\n", b"\n")
    return Migration(int(number), name, text, hashlib.sha256(text).hexdigest())


@cache
def _statement(name: str) -> bytes:
    return (FILES / "runner" / f"{name}.sql").read_bytes()


def _connect(dsn: str) -> Connection:
    options = read_address(dsn)
    try:
        connection = psycopg.connect(make_conninfo("", **options), autocommit=True, prepare_threshold=None)
    except psycopg.ProgrammingError:
        raise unreadable() from None
    except psycopg.OperationalError as failure:
        raise (read_only() if asks_for_writes(failure) else _unreachable(options, failure)) from None
    try:
        check_server(connection.info.server_version)
    except StoreError:
        connection.close()
        raise
    return connection


def _unreachable(options: dict[str, Any], failure: psycopg.OperationalError) -> StoreError:
    reason = str(failure).strip()
    if password := str(options.get("password") or ""):
        reason = reason.replace(password, "***")
    place = {name: options[name] for name in ("host", "port", "dbname", "user") if options.get(name)}
    return StoreError(
        f"PostgreSQL does not answer: {reason}",
        code="STORE_UNREACHABLE",
        hint="Check that the server runs and that host, port, database, user and password are right.",
        **place,
    )


def check_server(version: int) -> None:
    """Refuse a server, by its number as libpq reports it, that is older than what the schema needs."""
    if version < OLDEST_SERVER:
        raise StoreError(
            f"The server is PostgreSQL {version // 10000}; Holdfast needs 15 or newer.",
            code="POSTGRES_TOO_OLD",
            hint="Upgrade the server or point Holdfast at another one.",
        )


def _applied(connection: Connection) -> int:
    try:
        rows = connection.execute(_statement("read_versions")).fetchall()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    except errors.InsufficientPrivilege as refusal:
        raise _privileges_missing(connection, refusal) from None
    return _verify(rows)


def _verify(rows: list[tuple[Any, ...]]) -> int:
    known = {file.number: file for file in migrations()}
    for number, name, checksum in rows:
        if number not in known:
            raise StoreError(
                f"The database has migration {number} ({name}); this release knows only up to {latest()}.",
                code="SCHEMA_TOO_NEW",
                hint="Upgrade Holdfast to the release that made this schema, or newer.",
            )
        if known[number].checksum != checksum:
            raise StoreError(
                f"Migration {number} ({name}) was applied in another form than the one in this release.",
                code="SCHEMA_CHANGED",
                hint="Use an unmodified release; applied migrations never change.",
            )
    return max((row[0] for row in rows), default=0)


def _apply(connection: Connection, file: Migration) -> bool:
    with connection.transaction():
        connection.execute(_statement("lock_migrations"))
        found = connection.execute(_statement("find_versions")).fetchone()
        if found and found[0] and _applied(connection) >= file.number:
            return False
        connection.execute(file.text)
        connection.execute(
            _statement("record_version"), {"number": file.number, "name": file.name, "checksum": file.checksum}
        )
    return True


def _privileges_missing(connection: Connection, refusal: psycopg.Error) -> StoreError:
    remedies = [row[0] for row in connection.execute(_statement("list_missing_privileges"))]
    return StoreError(
        f"The login may not use or change the schema: {refusal.diag.message_primary}.",
        code="PRIVILEGES_MISSING",
        hint="Let an administrator run: " + " ".join(remedies or ["GRANT holdfast_worker TO the login;"]),
        remedies=remedies,
    )
