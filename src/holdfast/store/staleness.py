"""The look for stale instances, and the notices it writes."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

PAGE: Final = 200


class Looked(NamedTuple):
    """One look: the instances looked at, and the notices written about stale ones."""

    instances: int
    notices: int


async def check_stale(session: Session, limit: int = PAGE) -> Looked:
    """Look at the instances whose look is due; the same statement writes notices and the next look."""
    results = await session.once(PIN, SQL.check_stale.one(limit))
    [(looked, written, _, _)] = rows(results[1])
    return Looked(read_int(looked), read_int(written))
