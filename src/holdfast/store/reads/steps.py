"""History of an instance, page by page: some instances run for years, and no reader needs all of it at once."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from holdfast.core.model.timestamps import from_datetime, seconds
from holdfast.errors import Refused
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.reads.instances import Event, Step, event_of, step_of

MOST: Final = 1000
LATE_SECONDS: Final = 10  # within which a line beside the decisions is seen after its date

Moment = Annotated[int, msgspec.Meta(ge=-(2**57), le=2**57)]  # four thousand years before and after the first instance
Version = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
Ordinal = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
Place = tuple[Moment, Version, Ordinal]
BEGINNING: Final[Place] = (-(2**57), -1, -1)  # moment, version and ordinal within it


def place_of(found: Step | Event) -> Place:
    version, ordinal = found.opened if isinstance(found, Step) else (found.version, found.ordinal)
    return from_datetime(found.created_at), version, ordinal


def check_page(limit: int, what: str) -> int:
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise Refused(f"A page holds 1 to {MOST} {what}.", code="LIMIT_INVALID")
    return limit


async def page_steps(session: Session, org: str, id: bytes, after: Place, limit: int) -> list[Step]:
    return [step_of(row) for row in await _read(session, org, SQL.page_steps.one(id, id[15], org, *after, limit))]


async def page_events(session: Session, org: str, id: bytes, after: Place, limit: int) -> list[Event]:
    return [event_of(row) for row in await _read(session, org, SQL.page_events.one(id, id[15], org, *after, limit))]


async def late_events(session: Session, org: str, id: bytes, behind: Place) -> list[Event]:
    """Read the lines beside decisions, of the last seconds before a place, that a reader up to that place may lack."""
    since = behind[0] - seconds(LATE_SECONDS)
    query = SQL.list_late_events.one(id, id[15], org, *behind, since, MOST)
    return [event_of(row) for row in await _read(session, org, query)]


async def _read(session: Session, org: str, query: Query) -> list[list[bytes]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])
