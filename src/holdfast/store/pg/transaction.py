"""Opening of a worker's transaction: its role, a limit to every wait, settings that leave hot statements one plan.

A lane does this thousands of times a second, so on a connection of its own the settings are made once. Behind a pooler
the next transaction may meet another server, and every one of them carries all it needs.
"""

from __future__ import annotations

from typing import Final

from psycopg.pq.abc import PGresult

from holdfast.store.pg.session import Session
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

PIN: Final = SQL.pin_transaction.one()
_IMPATIENT: Final = SQL.pin_impatiently.one()
_SETTLED: Final = SQL.pin_settled.one("2s")
_SETTLED_IMPATIENT: Final = SQL.pin_settled.one("100ms")


def pin(session: Session) -> Query:
    return _SETTLED if session.is_settled else PIN


def pin_impatiently(session: Session) -> Query:
    """Open a commit that took no locks beforehand: limit its lock waits to a short time, and read the clock."""
    return _SETTLED_IMPATIENT if session.is_settled else _IMPATIENT


def clock_of(result: PGresult) -> int:
    """The time that `pin_impatiently` read."""
    return read_int(result.get_value(0, result.nfields - 1) or b"")
