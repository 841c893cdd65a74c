"""References to instances: which instance an external reference means, remembered while it is open.

Ids never change, so a memory of one is never wrong; it may only be about an instance that is over by now, and the
answer to a trigger tells so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 50_000

Ref = tuple[str, str, str]  # organisation, flow, external reference


class Refs:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ids: OrderedDict[Ref, bytes] = OrderedDict()
        self._making: dict[Ref, bytes] = {}

    def get(self, ref: Ref) -> bytes | None:
        return self._ids.get(ref)

    def remember(self, ref: Ref, id: bytes) -> None:
        self._ids[ref] = id
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)

    def making(self, ref: Ref, id: bytes) -> bytes:
        """The id of an instance that is being made: callers that come meanwhile mean the same one."""
        return self._making.setdefault(ref, id)

    def made(self, ref: Ref) -> None:
        self._making.pop(ref, None)

    def forget(self, ref: Ref) -> None:
        self._ids.pop(ref, None)
