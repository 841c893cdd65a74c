"""Short forms of durations and times, for people."""

from __future__ import annotations

from datetime import datetime, timedelta


def spoken(span: timedelta) -> str:
    """Write a duration: `12 ms`, `3.2 s`, `4m 12s`, `3h 05m`, `2d 4h`."""
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
