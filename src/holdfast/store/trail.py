"""What an instance left behind, page by page: some instances run for years, and nobody reads all of it at once."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from holdfast.core.moments import from_datetime
from holdfast.errors import Refused
from holdfast.store.reads import Event, Step, event_of, step_of
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL, Query

MOST: Final = 1000

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


async def _read(session: Session, org: str, query: Query) -> list[list[bytes]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])
