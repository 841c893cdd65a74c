"""Operator's connection: blocking, with short transactions and a limit to every wait.

It serves work far from the hot path: upkeep, examinations, repairs. Its statements lie in folders below `sql/` and are
not prepared by the sessions of the engine. Each transaction takes the role it needs and no more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from holdfast.errors import StoreError
from holdfast.store.pg.connect import dial_blocking
from holdfast.store.pg.silence import cut_after

WORKER: Final = "holdfast_worker"
MAINTENANCE: Final = "holdfast_maintenance"
MARGIN = 5.0  # seconds: the server's own limit comes first, and tells more

Row = tuple[Any, ...]


@cache
def statement(folder: str, name: str) -> bytes:
    return resources.files("holdfast.store").joinpath("sql", "admin", folder, f"{name}.sql").read_bytes()


class NotPermitted(Exception):
    """Missing privilege of the login."""


class Desk:
    def __init__(self, dsn: str, *, patience: float = 60.0) -> None:
        self._dsn = dsn
        self._patience = patience
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self, role: str | None = None) -> Generator[Errand]:
        """Open a transaction: commit at the end, roll back on any error, raise NotPermitted where a privilege is
        missing.
        """
        with self._attended() as connection, connection.transaction():
            errand = Errand(connection)
            errand.run("repair", "limit_transaction", str(int(self._patience * 1000)))
            if role is not None:
                errand.run("repair", "use_role", role)
            yield errand

    def alone(self, folder: str, name: str) -> None:
        """Run a statement that PostgreSQL refuses inside a transaction."""
        with self._attended() as connection:
            connection.execute(statement(folder, name))

    @contextmanager
    def _attended(self) -> Generator[psycopg.Connection[Any]]:
        if self._connection is None or self._connection.closed:
            self._connection = dial_blocking(self._dsn)
        try:
            with cut_after(self._connection, self._patience + MARGIN):
                yield self._connection
        except psycopg.errors.InsufficientPrivilege as refusal:
            raise NotPermitted(refusal.diag.message_primary or "the login may not") from None
        except psycopg.OperationalError as failure:
            if not self._connection.closed:
                raise
            self._connection = None
            raise StoreError(
                f"The connection to PostgreSQL was lost: {str(failure).strip()}",
                code="STORE_UNREACHABLE",
                hint="Check that the server is up, and try again.",
            ) from None


class Errand:
    """An open transaction, with the one way to run statements in it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def run(self, folder: str, name: str, *values: Any) -> list[Row]:
        with psycopg.RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement(folder, name), _plain(values))
            return cursor.fetchall() if cursor.description else []

    def one(self, folder: str, name: str, *values: Any) -> Row:
        return self.run(folder, name, *values)[0]


def _plain(values: Sequence[Any]) -> list[Any]:
    """Ids travel as UUIDs, JSON as text: the casts of the statement say what they are."""
    return [UUID(bytes=value) if isinstance(value, bytes) else value for value in values]
