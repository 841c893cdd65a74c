"""Turnstile of rate limits: draws turns from the database, many at once; callers that come meanwhile share the next
draw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.errors import StoreError
from holdfast.store.pg.reconnecting import StandingSession
from holdfast.store.queue.rate_limits import Bucket, Turns, take_turns

AHEAD: Final = 30.0  # seconds the waiting are spread over; a longer wait draws again
AWAY_PAUSE: Final = 0.25
_GOLDEN: Final = 0.6180339887
_PASSES: Final = ("40", "55", "57", "53", "08", "25")


class _Ask(NamedTuple):
    bucket: Bucket
    answer: asyncio.Future[float]


class Turnstile:
    """One per engine, with a connection of its own that is opened when a limit is met for the first time."""

    def __init__(self, dsn: Callable[[], str]) -> None:
        self._dsn = dsn
        self._session: StandingSession | None = None
        self._asks: list[_Ask] = []
        self._asking: asyncio.Task[None] | None = None
        self._spread = 0.0

    async def turn(self, bucket: Bucket) -> float:
        """Seconds to wait for a turn under this limit; 0: it has been taken."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._asks.append(_Ask(bucket, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="holdfast-turnstile")
        return await answer

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask_all(self) -> None:
        try:
            while self._asks:
                asks, self._asks = self._asks, []
                await self._ask(asks)
        finally:
            self._asking = None

    async def _ask(self, asks: list[_Ask]) -> None:
        wanted: dict[Bucket, list[asyncio.Future[float]]] = {}
        for bucket, answer in asks:
            if not answer.done():  # its handler may have been stopped meanwhile
                wanted.setdefault(bucket, []).append(answer)
        try:
            turns = await self._take({bucket: len(answers) for bucket, answers in wanted.items()})
        except BaseException as failure:
            for answers in wanted.values():
                _fail(answers, failure)
            raise
        for bucket, answers in wanted.items():
            self._share_out(bucket, turns[bucket.org, bucket.key], answers)

    async def _take(self, wanted: dict[Bucket, int]) -> dict[tuple[str, str], Turns]:
        """Draw turns; while the database is away, wait for it instead of failing steps."""
        while True:
            try:
                if self._session is None:
                    self._session = await StandingSession.open(self._dsn())
                return await take_turns(self._session, wanted, AHEAD)
            except StoreError as failure:
                if failure.code == "STORE_REFUSED" and not str(failure.detail["sqlstate"]).startswith(_PASSES):
                    raise
                await asyncio.sleep(AWAY_PAUSE)

    def _share_out(self, bucket: Bucket, turns: Turns, answers: list[asyncio.Future[float]]) -> None:
        left = len(answers) - turns.granted
        for n, answer in enumerate(answers):
            behind = len(answers) - 1 - n
            seconds = 0.0 if n < turns.granted else self._near(turns.last - min(behind, left) / bucket.rate)
            if not answer.done():
                answer.set_result(seconds)

    def _near(self, seconds: float) -> float:
        """Limit a wait that is too long to plan: some of the turns ahead may be free by then, and would be lost."""
        if seconds <= AHEAD:
            return max(seconds, 0.001)
        self._spread = (self._spread + _GOLDEN) % 1.0
        return AHEAD * (0.5 + 0.5 * self._spread)


def _fail(answers: list[asyncio.Future[float]], failure: BaseException) -> None:
    for answer in answers:
        if not answer.done():
            if isinstance(failure, asyncio.CancelledError):
                answer.cancel()
            else:
                answer.set_exception(failure)
