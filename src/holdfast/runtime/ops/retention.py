"""Retention of ended instances. By default, none is ever removed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from holdfast.errors import Refused
from holdfast.settings import Settings

SHORTEST: Final = timedelta(hours=1)  # shorter than the longest lease would race with work under way
SHORTEST_REQUESTS: Final = timedelta(days=30)
_SPAN: Final = re.compile(r"(\d+)\s*([hdwy])")
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Minimum times to keep data; None: for ever. Unfinished instances and open dead letters are never touched."""

    steps: timedelta | None = None  # by whole months
    events: timedelta | None = None  # by whole months
    effects: timedelta | None = None  # by whole months
    acks: timedelta | None = None  # facts for consumers and their deliveries, by whole months
    notices: timedelta | None = None  # by whole months
    requests: timedelta | None = None  # ids of signals by which a carried instance recognises a repeat
    instances: timedelta | None = None  # since the end of the instance, with everything that belongs to it
    receipts: timedelta | None = None  # since the end of the instance
    dead_letters: timedelta | None = None  # since they were resolved
    statistics: timedelta | None = None  # the sums by the hour; those of all times stay

    def __post_init__(self) -> None:
        for name, span in self._spans():
            least = SHORTEST_REQUESTS if name == "requests" else SHORTEST
            if span < least:
                raise _invalid(f"{name} would be kept for {span} only; the least is {least}.")

    @classmethod
    def parse(cls, wishes: Iterable[str]) -> Retention:
        """`steps=90d instances=1y`: hours, days, weeks or years of 365 days."""
        spans: dict[str, timedelta] = {}
        for wish in (part for text in wishes for part in re.split(r"[\s,]+", text) if part):
            name, _, written = wish.partition("=")
            found = _SPAN.fullmatch(written)
            if name not in cls.__struct_fields__ or found is None:
                raise _invalid(f"{wish!r} does not say what is kept how long.")
            spans[name] = int(found[1]) * _UNITS[found[2]]
        return cls(**spans)

    @classmethod
    def from_environment(cls) -> Retention:
        return cls.parse([Settings.from_environment().retention])

    def seconds(self) -> dict[str, float]:
        """The limits that are set, in seconds."""
        return {name: span.total_seconds() for name, span in self._spans()}

    def _spans(self) -> list[tuple[str, timedelta]]:
        found = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, span) for name, span in found if span is not None]


def _invalid(problem: str) -> Refused:
    names = ", ".join(Retention.__struct_fields__)
    return Refused(
        problem, code="RETENTION_INVALID", hint=f"Write for example steps=90d or instances=1y; there are {names}."
    )
