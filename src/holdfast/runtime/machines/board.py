"""The notices of one process: its subscribers, the errors it reports, and their counts.

A subscriber runs beside the engine: none of its exceptions, and no time it takes, harms the engine or another one. An
error on this way is logged and never becomes a notice, or one could beget the next.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.runtime.hooks.guard import guarded
from holdfast.runtime.machines.following import LONGEST_PAUSE, Follower, News
from holdfast.store.notices import KIND_OF, NewNotice, Notice, tell_notices
from holdfast.store.pg.session import DatabaseError, Disconnected, Session

log = logger("holdfast.notices")

PATIENCE: Final = 10.0  # seconds a subscriber may take for one notice
QUIET_SECONDS: Final = 60.0  # between two notices about the same error
MOST_QUIET: Final = 10_000  # errors that are remembered for that
MOST_UNWRITTEN: Final = 1000
LONGEST_MESSAGE: Final = 2000
OTHER: Final = "OTHER"

Subscriber = Callable[[Notice], Any]


class _Subscribed(NamedTuple):
    org: str
    codes: frozenset[str]  # empty: all
    function: Subscriber


class _Said(NamedTuple):
    at: float
    suppressed: int


class NoticeBoard:
    """Deliver notices to subscribers, and write those about errors of background loops."""

    def __init__(self, session: Callable[[], Session], home: str, hint: Callable[[], None]) -> None:
        self.news = News()
        self.failures = 0  # of subscribers
        self._session = session
        self._home = home
        self._hint = hint
        self._counts: Counter[str] = Counter()
        self._subscribed: list[_Subscribed] = []
        self._followers: dict[str, Follower] = {}
        self._turn = asyncio.Lock()
        self._said: OrderedDict[tuple[str, ...], _Said] = OrderedDict()
        self._unwritten: list[NewNotice] = []
        self._writer: asyncio.Task[None] | None = None

    # --- subscribers -----------------------------------------------------------------------------------------------

    def subscribe(self, org: str, codes: frozenset[str], function: Subscriber) -> None:
        self._subscribed.append(_Subscribed(org, codes, function))
        self.news.wake()

    async def serve(self) -> None:
        """Deliver notices until cancelled."""
        with self.news.heard() as event:
            while True:
                event.clear()
                try:
                    await self.deliver()
                except (Disconnected, DatabaseError, StoreError) as failure:
                    log.warning("Notices could not be read for subscribers, will retry: %s", failure)
                try:
                    async with asyncio.timeout(LONGEST_PAUSE if self._subscribed else None):
                        await event.wait()
                except TimeoutError:
                    pass

    async def deliver(self) -> None:
        """Call subscribers for every notice committed by now."""
        async with self._turn:
            for org in dict.fromkeys(each.org for each in self._subscribed):
                follower = self._followers.setdefault(org, Follower(self._session, org))
                for notice in await follower.look():
                    for each in self._subscribed:
                        if each.org == org and (not each.codes or notice.code in each.codes):
                            await self._call(each.function, notice)

    async def _call(self, function: Subscriber, notice: Notice) -> None:
        with guarded(partial(self._failed, function)):
            async with asyncio.timeout(PATIENCE):
                if inspect.iscoroutinefunction(function):
                    await function(notice)
                    return
                answer = await asyncio.to_thread(function, notice)
                if inspect.isawaitable(answer):
                    await answer

    def _failed(self, function: Subscriber) -> None:
        self.failures += 1
        log.exception("The subscriber %s of notices failed", getattr(function, "__qualname__", function))

    # --- errors ----------------------------------------------------------------------------------------------------

    def tell_error(
        self,
        code: str,
        message: str,
        *,
        org: str | None = None,
        instance: bytes | None = None,
        consumer: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a notice about an error, soon and at best effort; the same one at most once a minute.

        To be called on the loop of the engine, outside of commits. It never raises.
        """
        try:
            said = self._suppressed(code, org or self._home, consumer or "", "" if instance is None else instance.hex())
            if said is None:
                return
            about = dict(detail or {}) | ({"suppressed": said} if said else {})
            notice = NewNotice(
                org=org or self._home, code=code, message=_clean(message), instance=instance, consumer=consumer,
                detail=msgspec.json.encode(about),
            )  # fmt: skip
            if len(self._unwritten) < MOST_UNWRITTEN:
                self._unwritten.append(notice)
            if self._writer is None:
                self._writer = asyncio.create_task(self._write(), name="holdfast-notices")
        except Exception:
            log.exception("A notice about an error could not be prepared")

    def _suppressed(self, *key: str) -> int | None:
        """The number of equal errors since the last notice about one; None when it is too soon for another."""
        now = asyncio.get_running_loop().time()
        said = self._said.get(key)
        if said is not None and now - said.at < QUIET_SECONDS:
            self._said[key] = _Said(said.at, said.suppressed + 1)
            return None
        self._said[key] = _Said(now, 0)
        self._said.move_to_end(key)
        if len(self._said) > MOST_QUIET:
            self._said.popitem(last=False)
        return 0 if said is None else said.suppressed

    async def _write(self) -> None:
        try:
            while self._unwritten:
                batch, self._unwritten = self._unwritten, []
                await tell_notices(self._session(), batch)
                for notice in batch:
                    self.count(notice.code)
                self.written()
        except Exception as failure:
            log.warning("Notices about errors were lost: %s", failure)
        finally:
            self._writer = None

    # --- news and counts -------------------------------------------------------------------------------------------

    def count(self, code: str, number: int = 1) -> None:
        """Count notices that this process has written."""
        self._counts[code if code in KIND_OF else OTHER] += number

    @property
    def counts(self) -> dict[tuple[str, ...], int]:
        """Notices this process has written, by code."""
        return {(code,): number for code, number in list(self._counts.items())}

    def written(self) -> None:
        """Wake followers, here at once and elsewhere by a hint."""
        self.news.wake()
        self._hint()

    async def told(self) -> None:
        """Wait until errors are written and subscribers have been called for all notices so far."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self.deliver()

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=PATIENCE)


def _clean(message: str) -> str:
    """Cut a message to the length that is stored."""
    return message.replace("\0", "").encode("utf-8", "replace").decode()[:LONGEST_MESSAGE] or "No message."
