"""Follow notices as they are committed, without missing one.

The id of a notice has the moment of its commit, but commits become visible in another order: one that took its moment
early may be seen late. So a follower reads the last seconds behind its place again, for as long as something can still
appear there, and drops what it has read already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.model.timestamps import seconds
from holdfast.store.notices import Notice, WantedNotices, first_id, follow_notices, moment_of, read_now
from holdfast.store.pg.session import Session
from holdfast.store.reads.steps import LATE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

PAGE: Final = 1000
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
_WINDOW: Final = seconds(LATE_SECONDS)


class Follower:
    """A reader of one organisation's notices, with its place among them.

    It begins now, or with `after` at a notice. A notice of the last seconds before `after` may come again: it is not
    known which of them the reader of `after` could see.
    """

    def __init__(self, session: Callable[[], Session], org: str, after: bytes | None = None) -> None:
        self._session = session
        self._org = org
        self._last = after
        self._known: set[bytes] = set() if after is None else {after}
        self._settled_at = 0.0  # the time of the loop from which nothing appears behind the place any more

    async def look(self) -> list[Notice]:
        """Read the notices committed since the last look, in the order of their ids."""
        loop = asyncio.get_running_loop()
        begin: bytes | None = None
        if self._last is None:
            self._last = begin = first_id(await read_now(self._session()))
            self._settled_at = loop.time() + LATE_SECONDS
        elif not self._settled_at:
            self._settled_at = loop.time() + LATE_SECONDS
        is_settled = loop.time() > self._settled_at
        place = self._last if is_settled else first_id(moment_of(self._last) - _WINDOW)
        found: list[Notice] = []
        while True:
            page = await follow_notices(self._session(), self._org, place, PAGE)
            for notice in page:
                id = UUID(notice.id).bytes
                if id not in self._known:
                    self._known.add(id)
                    if begin is None or id >= begin:
                        found.append(notice)
            if page:
                place = UUID(page[-1].id).bytes
            if len(page) < PAGE:
                break
        if found or place > self._last:
            self._last = max(self._last, place)
            self._settled_at = loop.time() + LATE_SECONDS
            oldest = first_id(moment_of(self._last) - _WINDOW)
            self._known = {id for id in self._known if id >= oldest}
        return found


class News:
    """Waiters for the next hint that there may be notices."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> None:
        for event in self._waiting:
            event.set()

    @contextmanager
    def heard(self) -> Generator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)


async def follow(
    follower: Follower, news: News, wanted: WantedNotices, life: float | None = None
) -> AsyncGenerator[Notice]:
    """Yield notices as they appear: at once after a hint, by looks with growing pauses otherwise."""
    loop = asyncio.get_running_loop()
    until = None if life is None else loop.time() + life
    pause = FIRST_PAUSE
    with news.heard() as event:
        while True:
            event.clear()  # before the look: a hint that comes meanwhile counts
            found = await follower.look()
            for notice in found:
                if wanted.fits(notice):
                    yield notice
            pause = FIRST_PAUSE if found else min(pause * 1.5, LONGEST_PAUSE)
            left = pause if until is None else min(pause, until - loop.time())
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await event.wait()
