"""Durations and times for people, short or in words."""

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


def in_words(seconds: float) -> str:
    """Write a duration in words, to the last fraction of a second: `2 days`, `1 hour 30 minutes`, `0.5 seconds`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    amounts = [(days, "day"), (hours, "hour"), (minutes, "minute"), (round(rest, 6), "second")]
    return " ".join(_counted(amount, unit) for amount, unit in amounts if amount) or "0 seconds"


def _counted(amount: float, unit: str) -> str:
    return f"{amount:.15g} {unit}{'' if amount == 1 else 's'}"
