"""Patience of a caller: `Prefer: respond-async`, `Prefer: wait=5` (RFC 7240) or `?wait=5`.

Waiting changes only the time of the answer, never its effect: the steps of an instance run in any case.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from fastapi import Header, Query, Request

from holdfast.server.settings import ServerSettings

LONGEST: Final = 60
_WAIT: Final = re.compile(r"wait\s*=\s*\"?(\d{1,4})\"?")

Wait = Annotated[
    int | None,
    Query(
        alias="wait",
        ge=0,
        le=LONGEST,
        description="Seconds to wait for automatic steps, at most what the server allows; 0 answers at once with 202.",
    ),
]
Prefer = Annotated[
    str | None,
    Header(alias="Prefer", description="`respond-async`, or `wait=SECONDS`.", examples=["respond-async"]),
]


class Patience(msgspec.Struct, frozen=True):
    """Seconds to wait for an instance to come to rest, and what of the caller's preferences that honours."""

    seconds: float
    applied: str | None = None


def patience_of(request: Request, wait: int | None, prefer: str | None) -> Patience:
    """Combine `wait: Wait = None, prefer: Prefer = None` of a route."""
    settings: ServerSettings = request.app.state.settings
    most = settings.request_patience
    if wait is not None:
        return Patience(min(most, wait))
    wishes = [wish.strip().lower() for wish in (prefer or "").split(",")]
    if "respond-async" in wishes:
        return Patience(0.0, "respond-async")
    waits = [int(found[1]) for wish in wishes if (found := _WAIT.fullmatch(wish))]
    if waits and waits[0] <= most:
        return Patience(float(waits[0]), f"wait={waits[0]}")
    return Patience(most)
