"""Time as the kernel sees it: an integer of microseconds since 2000-01-01 UTC, PostgreSQL's own epoch.

The database reads its clock once per commit and every timestamp of that commit is this number, so nothing in the
kernel ever asks what time it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
UNIX_OFFSET_MS: Final = 946_684_800_000  # milliseconds between 1970-01-01 and 2000-01-01
_MICROSECOND: Final = timedelta(microseconds=1)


def from_datetime(value: datetime) -> int:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MICROSECOND


def to_datetime(moment: int) -> datetime:
    return EPOCH + timedelta(microseconds=moment)


def to_iso(moment: int) -> str:
    return to_datetime(moment).isoformat(timespec="microseconds")


def from_json(value: Any) -> int | None:
    """An ISO-8601 text as a moment; anything else is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = from_datetime(datetime.fromisoformat(value))
        to_datetime(moment)  # an offset can push the first or the last day of the calendar over its edge
    except (ValueError, OverflowError):
        return None
    return moment


def seconds(amount: float) -> int:
    return round(amount * 1_000_000)
