"""Cron expressions and time zones of a definition: read them, and find the next match.

Five fields, or six with seconds first. Times are local times: a match in an hour that summer time leaves out fires at
the end of that hour, and one in an hour that comes twice fires once, unless the hour itself is a wildcard.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

LONGEST_TEXT: Final = 200
LOOKS: Final = 10_000  # matches of one repeated hour that may lie before `after`
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)


def read_zone(name: str | None) -> ZoneInfo | None:
    """Read the zone of that name, UTC without a name; None when there is no such zone."""
    try:
        return ZoneInfo("UTC" if name is None else name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def cron_problem(text: str) -> str | None:
    """Describe the mistake in a cron expression; None when it has none."""
    if len(text) > LONGEST_TEXT:
        return f"it has {len(text)} characters"
    try:
        next(CronSim(text, _SOME_DAY))
    except CronSimError as error:
        return str(error)
    except StopIteration:
        return "it never matches"
    return None


def next_match(text: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Find the first match after the given time, in UTC; None when there is none."""
    try:
        matches = CronSim(text, after.astimezone(zone))
    except CronSimError:
        return None
    # In an hour that comes twice the library may begin with matches of the first pass, which are over.
    moments = (match.astimezone(UTC) for match in islice(matches, LOOKS))
    return next((moment for moment in moments if moment > after), None)
