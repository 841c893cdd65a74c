"""Services that asked to be left alone for a while: until then their steps wait in the queue, no call counted."""

from __future__ import annotations

import time
from typing import Final

from holdfast.runtime.hooks.middleware import Middleware
from holdfast.runtime.worker.context import Context

PREFIX: Final = "openapi:"


class Holds(Middleware):
    """Pauses by organisation and document: one tenant's quota is not another's. Each process learns it for itself."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}

    def hold(self, org: str, document: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._until[org, document] = max(until, self._until.get((org, document), 0.0))

    async def admit(self, ctx: Context) -> float | None:
        if not self._until or not ctx.handler.startswith(PREFIX):
            return None
        place = ctx.org, ctx.handler[len(PREFIX) :].partition(".")[0]
        left = self._until.get(place, 0.0) - time.monotonic()
        if left > 0:
            return left
        self._until.pop(place, None)
        return None
