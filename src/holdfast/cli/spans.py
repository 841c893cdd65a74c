"""Time for people: how long something took, and since when somebody wants to know."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.errors import Refused

_AGO: Final = re.compile(r"(\d+)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def spoken(span: timedelta) -> str:
    """`12 ms`, `3.2 s`, `4m 12s`, `3h 05m`, `2d 4h`."""
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours < 1:
        return f"{minutes}m {int(seconds % 60):02}s"
    return f"{hours}h {minutes % 60:02}m" if hours < 24 else f"{hours // 24}d {hours % 24}h"


def shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def take_since(text: str | None) -> datetime | None:
    """`90m`, `3d`, or a date or time as ISO 8601 writes it, in UTC if it names no other zone."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise Refused(
            f"{text!r} is no moment.",
            code="SINCE_INVALID",
            hint="Write how long ago, such as 90m, 6h or 3d, or a time such as 2026-01-31T08:00.",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
