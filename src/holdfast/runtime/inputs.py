"""What compensations that wait for their turn are to be called with, kept in memory by the process that planned them.

The row of a compensation is written long before it runs. Without this, every one of them would go through the queue,
because only a claim brings what a step is called with. Whatever is missing here goes that way.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.decision import Decision
from holdfast.core.ids import COMPENSATE

MOST: Final = 20_000  # rows
LARGEST: Final = 4_096  # bytes of one input


class Inputs:
    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def keep(self, decision: Decision) -> None:
        for step in decision.opened:
            if step.kind == COMPENSATE and step.input is not None and len(step.input) <= LARGEST:
                self._kept[step.id] = step.input
                if len(self._kept) > MOST:
                    del self._kept[next(iter(self._kept))]

    def fill(self, decision: Decision) -> None:
        """Dispatches that do not say what to call with, where we know it."""
        for index, dispatch in enumerate(decision.dispatches):
            if dispatch.input is None and (known := self._kept.get(dispatch.step)) is not None:
                decision.dispatches[index] = msgspec.structs.replace(dispatch, input=known)

    def forget(self, decision: Decision) -> None:
        for step in decision.closed:
            self._kept.pop(step.id, None)
