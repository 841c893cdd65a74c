"""Lists of instances by what is known of them, newest first, at a cost that does not depend on how many there are.

The most telling of the wishes picks an index; what else is wished for is looked up in the next few hundred instances
along it. So a page may hold less than was asked for although there are more: its end says where to go on.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import Refused
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL, Query
from holdfast.store.whereabouts import Whereabouts, whereabouts_of

WINDOW: Final = 500  # instances that are looked at to find those that fit
WINDOWS: Final = 4
MOST_VALUE: Final = 500  # bytes of JSON; longer ones are stored, but nothing is found by them


class Wanted(msgspec.Struct, frozen=True):
    statuses: tuple[str, ...] = ()  # any of them; none: all
    flow: str | None = None
    starter: str | None = None
    business_key: str | None = None
    attributes: dict[str, Any] = {}  # all of them

    @property
    def is_selective(self) -> bool:
        """There is more to it than an index of flows."""
        return bool(self.starter or self.business_key or self.attributes or len(self.statuses) > 1)


async def list_window(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int
) -> tuple[list[Whereabouts], bytes | None]:
    """A page and where the next one begins; None when there is none."""
    found: list[Whereabouts] = []
    for _ in range(WINDOWS):
        some, after = await _look(session, org, wanted, after, limit - len(found))
        found += some
        if after is None or len(found) == limit:
            break
    return found, after


async def _look(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int
) -> tuple[list[Whereabouts], bytes | None]:
    query, window = _query(org, wanted, after, limit)
    results = await session.once(SQL.use_tenant.one(org), query)
    seen = rows(results[1])
    fitting = [row for row in seen if row[1] is not None]
    page = [whereabouts_of(row[1:]) for row in fitting[:limit]]
    if len(fitting) > limit:
        return page, fitting[limit - 1][0]
    return page, seen[-1][0] if len(seen) == window else None


def _query(org: str, wanted: Wanted, after: bytes | None, limit: int) -> tuple[Query, int]:
    attributes = {name: check_value(name, value) for name, value in wanted.attributes.items()}
    known = msgspec.json.encode(wanted.attributes) if attributes else None
    window = limit + 1 if _is_simple(wanted) else max(limit + 1, WINDOW)
    told = (org, after, wanted.flow, wanted.starter, wanted.business_key, known, window, limit + 1)
    if wanted.business_key is not None:
        return SQL.list_window_by_business_key.arrays([wanted.statuses], *told), window
    if attributes:
        name, value = next(iter(attributes.items()))
        return SQL.list_window_by_attribute.arrays([wanted.statuses], *told, name, value), window
    if wanted.starter is not None:
        return SQL.list_window_by_starter.arrays([wanted.statuses], *told), window
    if wanted.statuses and "completed" not in wanted.statuses:
        return SQL.list_window_by_status.arrays([wanted.statuses], *told), window
    status = wanted.statuses[0] if wanted.statuses else None
    return SQL.list_whereabouts.one(org, wanted.flow, after, limit + 1, status), limit + 1


def _is_simple(wanted: Wanted) -> bool:
    """Whatever the index brings fits."""
    wishes = [wanted.statuses, wanted.flow, wanted.starter, wanted.business_key, *wanted.attributes]
    return sum(1 for wish in wishes if wish) == 1


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
