"""A database clock that tests can move: `await advance(engine, days=3)`.

Due times, deadlines and timers read `holdfast.clock()`; a test database has a version of it that adds a stored shift.
Leases read the real clock and never notice. The shift lives in a schema of its own that no migration makes, so an
installation that was not prepared by `install` cannot be moved at all.
"""

from __future__ import annotations

import asyncio
import inspect
from datetime import datetime, timedelta
from typing import Protocol

import psycopg

from holdfast.errors import HoldfastError, Refused
from holdfast.store.admin.schema import migrate
from holdfast.testing import sql


class HasDatabase(Protocol):
    """An engine, as far as the clock is concerned; if it has a `wake()`, that is called after each move."""

    @property
    def dsn(self) -> str: ...


def install(dsn: str) -> None:
    """Bring a test database to the current schema and make its clock movable; done again, it changes nothing."""
    migrate(dsn)
    with psycopg.connect(dsn) as connection:
        if _holds(connection, "has_clock"):
            return
        if _holds(connection, "has_instances"):
            raise Refused(
                "This database has instances; its clock is not made movable.",
                code="TEST_CLOCK_REFUSED",
                hint="Use a database of its own for tests: the fixture holdfast_dsn gives one per test.",
            )
        connection.execute(sql.text("install_clock"))


async def advance(
    target: HasDatabase | str, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> datetime:
    """Move the clock of a test database forward and let the engine look again; answers the new time."""
    by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    now = await asyncio.to_thread(shift, target if isinstance(target, str) else target.dsn, by)
    wake = getattr(target, "wake", None)
    if wake is not None:
        woken = wake()
        if inspect.isawaitable(woken):
            await woken
    return now


def shift(dsn: str, by: timedelta) -> datetime:
    """The same for code that has no event loop and no engine to wake."""
    if by < timedelta():
        raise Refused("The clock only moves forward.", code="CLOCK_BACKWARDS", hint="Advance by a positive time.")
    with psycopg.connect(dsn, autocommit=True) as connection:
        if not _holds(connection, "has_clock"):
            raise HoldfastError(
                "The clock of this database cannot be moved.",
                code="TEST_CLOCK_MISSING",
                hint="Use the fixture holdfast_dsn, or call holdfast.testing.install on an empty test database.",
            )
        connection.execute(sql.text("advance_clock"), {"by": by})
        row = connection.execute(sql.text("read_clock")).fetchone()
        assert row is not None
        return row[0]


def _holds(connection: psycopg.Connection[tuple[bool]], question: str) -> bool:
    row = connection.execute(sql.text(question)).fetchone()
    return row is not None and row[0]
