"""Bisection of a batch that cannot be committed: by halves, in fresh transactions, until the culprit is alone.

One bad row among 256 costs some sixteen commits, and its neighbours are stored on the way.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.core.model.signals import WorkDone, WorkFailed
from holdfast.runtime.commit.classify import ENOUGH, kind_of, way_of
from holdfast.runtime.commit.items import Item
from holdfast.store.pg.session import Session

MAX_ALONE: Final = 5  # how often a guard may refuse what stands alone, before it is no race any more


class Tried(msgspec.Struct, frozen=True, gc=False):
    """Outcome of a part of a batch in a transaction of its own."""

    failure: Exception | None
    claimed: set[bytes]  # instances whose signals were taken out of the queue
    has_result: bool = False  # what a handler answered was stored


class Verdicts(Protocol):
    """The ends a part can come to: committed alone, returned to the buffer, held back, or blamed."""

    async def try_alone(self, session: Session, items: list[Item]) -> Tried: ...
    async def judge(self, session: Session, refused: list[tuple[Item, Exception]], *, stored: bool) -> None: ...
    async def blame(self, session: Session, item: Item, failure: Exception) -> None: ...
    async def hold(self, items: list[Item], failure: Exception) -> None: ...
    async def pause(self, failure: Exception) -> None: ...
    def again(self, items: list[Item]) -> None: ...


class Isolation:
    def __init__(self, mishaps: Verdicts, session: Session) -> None:
        self._mishaps = mishaps
        self._session = session
        self._parts: list[list[Item]] = []  # not tried yet, the next one last
        self._refused: list[tuple[Item, Exception]] = []
        self._stored = False

    async def take_apart(self, items: list[Item]) -> None:
        self._split(items)
        while self._parts and not self._has_seen_enough:
            part = self._parts.pop()
            tried = await self._mishaps.try_alone(self._session, part)
            self._stored = self._stored or tried.has_result
            if tried.failure is not None and not await self._goes_on_after(part, tried.failure):
                return
        self._mishaps.again(self._left())
        if self._refused:
            await self._mishaps.judge(self._session, self._refused, stored=self._stored)

    def _split(self, items: list[Item]) -> None:
        middle = len(items) // 2
        self._parts += [half for half in (items[middle:], items[:middle]) if half]

    def _left(self) -> list[Item]:
        return [item for part in reversed(self._parts) for item in part]

    async def _goes_on_after(self, part: list[Item], failure: Exception) -> bool:
        kind = kind_of(failure)
        if kind == "systemic":
            refused = [item for item, _ in self._refused]
            await self._mishaps.hold([*refused, *part, *self._left()], failure)
            return False
        if kind == "passing" or (kind == "race" and len(part) == 1 and self._may_be_faster(part[0])):
            for item in part:
                item.tries = 1  # nothing is decided without locks any more
            await self._mishaps.pause(failure)
            self._mishaps.again(part)
        elif len(part) > 1:
            self._split(part)
        elif isinstance(part[0].signal, WorkDone | WorkFailed):
            self._refused.append((part[0], failure))
        else:
            await self._mishaps.blame(self._session, part[0], failure)
        return True

    def _may_be_faster(self, item: Item) -> bool:
        """Allow another try after a race: a guard refused with no neighbour to blame is tried again, a few times."""
        item.refused_alone += 1
        return item.refused_alone < MAX_ALONE

    @property
    def _has_seen_enough(self) -> bool:
        """All alike, and nothing was stored: the rest would only say the same."""
        ways = {way_of(failure) for _, failure in self._refused}
        return not self._stored and len(ways) == 1 and len({item.instance for item, _ in self._refused}) > ENOUGH
