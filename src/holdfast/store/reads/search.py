"""Searches for instances by filters, newest first, at a cost that does not depend on how many there are.

The most selective filter picks an index; the others are applied to the next few hundred instances along it. So a page
may be short although there are more: its end says where to continue. A search that no index serves is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import Refused
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.reads.instances import Instance, read_row
from holdfast.store.reads.positions import Whereabouts, whereabouts_of

WINDOW: Final = 500  # instances that are looked at to find those that fit
WINDOWS: Final = 4
MOST_VALUE: Final = 500  # bytes of JSON; longer ones are stored, but nothing is found by them
ALWAYS: Final = -(2**63)  # -infinity and infinity, as moments are sent
FOREVER: Final = 2**63 - 1
INDEXED: Final = ("running", "rolling_back", "failed", "pending", "suspended", "dlq", "cancelled", "aborted")
ENDED_BADLY: Final = frozenset({"failed", "cancelled", "aborted"})

R = TypeVar("R")


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    statuses: tuple[str, ...] = ()  # any of them; none: all
    flow: str | None = None
    starter: str | None = None
    business_key: str | None = None
    attributes: dict[str, Any] = {}  # all of them
    error: str | None = None  # the code of the last one
    reason: str | None = None
    step: str | None = None  # where it stands, or where its last error came from
    since: datetime | None = None  # when it was started, and before when
    until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None

    @property
    def is_selective(self) -> bool:
        """Check for filters beyond an index of flows."""
        return bool(
            self.starter or self.business_key or self.attributes or self.error or self.reason or self.step
            or self.ended_since or self.ended_until or len(self.statuses) > 1
            or (self.statuses and self.statuses != ("completed",) and (self.flow or self.since or self.until))
        )  # fmt: skip


async def list_window(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int
) -> tuple[list[Whereabouts], bytes | None]:
    """Read a page of instances with their positions, and the start of the next page; None when this was the last."""
    return await _walk(session, org, wanted, after, limit, whereabouts_of)


async def search_instances(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int
) -> tuple[list[Instance], bytes | None]:
    """A page and where the next one begins; None when there is none."""
    return await _walk(session, org, wanted, after, limit, lambda row: read_row(row[:-2]))


async def _walk(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int, read: Callable[[list[Any]], R]
) -> tuple[list[R], bytes | None]:
    found: list[R] = []
    for _ in range(WINDOWS):
        some, after = await _look(session, org, wanted, after, limit - len(found), read)
        found += some
        if after is None or len(found) == limit:
            break
    return found, after


async def _look(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int, read: Callable[[list[Any]], R]
) -> tuple[list[R], bytes | None]:
    query, window = _query(org, wanted, after, limit)
    results = await session.once(SQL.use_tenant.one(org), query)
    seen = rows(results[1])
    fitting = [row for row in seen if row[1] is not None]
    page = [read(row[1:]) for row in fitting[:limit]]
    if len(fitting) > limit:
        return page, fitting[limit - 1][0]
    return page, seen[-1][0] if len(seen) == window else None


def _query(org: str, wanted: Wanted, after: bytes | None, limit: int) -> tuple[Query, int]:
    attributes = {name: check_value(name, value) for name, value in wanted.attributes.items()}
    window = limit + 1 if _is_simple(wanted) else max(limit + 1, WINDOW)
    told = (org, after, msgspec.json.encode(wanted), window, limit + 1)
    if wanted.business_key is not None:
        return SQL.list_window_by_business_key.one(*told, wanted.business_key), window
    if attributes:
        return SQL.list_window_by_attribute.one(*told, *next(iter(attributes.items()))), window
    if wanted.starter is not None:
        return SQL.list_window_by_starter.one(*told, wanted.starter), window
    started = moment_or(wanted.since, ALWAYS), moment_or(wanted.until, FOREVER)
    if wanted.error is not None:
        return SQL.list_window_by_error.one(*told, wanted.error, *started), window
    ended = max(started[0], moment_or(wanted.ended_since, ALWAYS)), moment_or(wanted.ended_until, FOREVER)
    if wanted.statuses and ENDED_BADLY.issuperset(wanted.statuses) and ended != (ALWAYS, FOREVER):
        return SQL.list_window_by_end.one(*told, *ended), window  # an instance started since then ended since then, too
    statuses = wanted.statuses or (INDEXED if wanted.reason or wanted.step else ())
    if statuses and "completed" not in statuses:
        return SQL.list_window_by_status.arrays([statuses], *told), window
    if wanted.is_selective:
        return SQL.list_window_by_flow.one(*told, _the_flow(wanted), *started), window
    status = wanted.statuses[0] if wanted.statuses else None
    return SQL.list_whereabouts.one(org, wanted.flow, after, limit + 1, status, *started), limit + 1


def _the_flow(wanted: Wanted) -> str:
    if wanted.flow is None:
        raise Refused(
            "No index leads to instances that completed by what is wished for.",
            code="SEARCH_TOO_WIDE",
            hint="Name their flow, or a status other than `completed`.",
        )
    return wanted.flow


def moment_or(moment: datetime | None, otherwise: int) -> int:
    """The moment in microseconds, or the default."""
    return otherwise if moment is None else from_datetime(moment)


def _is_simple(wanted: Wanted) -> bool:
    """Check that the one filter is served by its index, so that every row found belongs to the page."""
    moments = [wanted.since, wanted.until, wanted.ended_since, wanted.ended_until]
    wishes = [
        wanted.statuses,
        wanted.flow,
        wanted.starter,
        wanted.business_key,
        wanted.error,
        wanted.reason,
        wanted.step,
    ]
    return sum(1 for wish in [*wishes, *moments, *wanted.attributes] if wish) == 1 and not (
        wanted.reason or wanted.step or any(moments)
    )


def check_value(name: str, value: Any) -> bytes:
    """The JSON of a value that instances are found by."""
    raw = msgspec.json.encode(value) if isinstance(value, str | int | float) else b""
    if not raw or len(raw) > MOST_VALUE or raw == b"null" or "\0" in name:
        raise Refused(
            f"Instances are not found by this value of {name!r}.",
            code="ATTRIBUTE_INVALID",
            hint=f"Search for a text, a number, true or false of at most {MOST_VALUE} bytes.",
        )
    return raw
