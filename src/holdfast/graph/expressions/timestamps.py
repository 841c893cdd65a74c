"""Moments as expressions see them: ISO-8601 text; without an offset it is UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def read_moment(value: object) -> datetime | None:
    if type(value) is not str:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
