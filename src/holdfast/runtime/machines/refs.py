"""References to instances: which instance an external reference means, remembered while it is open.

Ids never change, so a memory of one is never wrong; it may only be about an instance that is over by now. A commit
refuses an item sent to such a one from memory, and the reference is looked up again. A reference that has had several
instances is looked up for every request id, because an earlier one may know it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 50_000

Ref = tuple[str, str, str]  # organisation, flow, external reference


class Refs:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ids: OrderedDict[Ref, tuple[bytes, bool]] = OrderedDict()
        self._making: dict[Ref, bytes] = {}

    def get(self, ref: Ref, *, has_request: bool) -> bytes | None:
        id, is_sole = self._ids.get(ref, (None, False))
        return id if is_sole or not has_request else None

    def remember(self, ref: Ref, id: bytes, *, is_sole: bool) -> None:
        self._ids[ref] = id, is_sole
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)

    def making(self, ref: Ref, id: bytes) -> bytes:
        """The id of an instance that is being made: callers that come meanwhile mean the same one."""
        return self._making.setdefault(ref, id)

    def made(self, ref: Ref) -> None:
        self._making.pop(ref, None)

    def forget(self, ref: Ref) -> None:
        self._ids.pop(ref, None)
