"""Receiving: a long poll for facts, in any process. Each poll is a beat of its consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final

from holdfast.errors import NotFound, Refused
from holdfast.runtime.consumers.answers import PROCESSED, Answers
from holdfast.runtime.consumers.events import ConsumerEvent, PresentEntry
from holdfast.runtime.consumers.filling import fill_one
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.runtime.machines.following import News
from holdfast.store import consumers, deliveries
from holdfast.store.consumers import KnownConsumer
from holdfast.store.deliveries import DeliveryKey, Wanted
from holdfast.store.pg.listen import listen
from holdfast.store.pg.session import Session

MOST: Final = 1000  # facts of one poll
LONGEST_WAIT: Final = 300.0  # seconds
BEATS: Final = 3  # within the ttl of a consumer
SHORTEST: Final = 0.01


class Ears:
    """Hear hints in a process without a worker; the first poll that waits opens them."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._task: asyncio.Task[None] | None = None

    def open(self, dsn: str) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(listen(dsn, self._news.wake, lambda _: None), name="holdfast-ears")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None


class Receiver:
    def __init__(
        self,
        session: Callable[[], Session],
        answers: Answers,
        options: ConsumerOptions,
        news: News,
        hear: Callable[[], None],
        present: PresentEntry,
    ) -> None:
        self._session = session
        self._answers = answers
        self._options = options
        self._news = news
        self._hear = hear
        self._present = present

    async def receive(self, org: str, environment: str, name: str, most: int, wait: float) -> list[ConsumerEvent]:
        """Take due facts of a consumer; without any, wait for some."""
        loop = asyncio.get_running_loop()
        known = await self._find(org, environment, name)
        until, beaten = loop.time() + wait, loop.time()
        await consumers.beat(self._session(), [known.id])
        if wait > 0:
            self._hear()
        with self._news.heard() as event:
            while True:
                event.clear()  # before the look: a hint that comes meanwhile counts
                if known.is_held:
                    await fill_one(self._session(), self._answers, known.id)
                found = await self._take(known, most)
                left = until - loop.time()
                if found or left <= 0:
                    return found
                due = await deliveries.read_next_due(self._session(), [known.id])
                pause = min([left, self._options.scan, known.ttl / BEATS, *(max(s, SHORTEST) for s in due.values())])
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await event.wait()
                if loop.time() >= beaten + known.ttl / BEATS:
                    beaten = loop.time()
                    known = await self._find(org, environment, name)
                    await consumers.beat(self._session(), [known.id])

    async def follow(
        self, org: str, environment: str, name: str, most: int, life: float | None
    ) -> AsyncGenerator[ConsumerEvent]:
        """Yield facts as they become due, for ever or for `life` seconds.

        As many as the consumer's `in_flight` are without an answer at a time.
        """
        loop = asyncio.get_running_loop()
        until = None if life is None else loop.time() + life
        sent: set[DeliveryKey] = set()
        while True:
            known = await self._find(org, environment, name)
            wait = known.ttl if until is None else min(known.ttl, until - loop.time())
            if wait <= 0:
                return
            if len(sent) >= known.in_flight:
                sent = await self._in_hand(known, sent, wait)
                continue
            room = min(most, known.in_flight - len(sent))
            for event in await self.receive(org, environment, name, room, min(wait, LONGEST_WAIT)):
                sent.add(event.key)
                yield event

    async def _in_hand(self, known: KnownConsumer, sent: set[DeliveryKey], wait: float) -> set[DeliveryKey]:
        """Find those that still have no answer. If that is all of them, wait for one first."""
        await consumers.beat(self._session(), [known.id])
        self._hear()
        with self._news.heard() as event:
            event.clear()
            left = await deliveries.list_in_hand(self._session(), list(sent), self._answers.delivered)
            if len(left) == len(sent):
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(wait, self._options.scan, known.ttl / BEATS)):
                        await event.wait()
        return left

    async def _find(self, org: str, environment: str, name: str) -> KnownConsumer:
        [known] = await consumers.find(self._session(), org, [(environment, name)])
        if known is None or known.is_removed:
            raise unknown_consumer(environment, name)
        check_pulls(known)
        return known

    async def _take(self, known: KnownConsumer, most: int) -> list[ConsumerEvent]:
        wanted = Wanted(known.id, min(most, known.in_flight), self._answers.pending)
        claimed = await deliveries.claim_deliveries(self._session(), [wanted], most, self._answers.delivered)
        events = list[ConsumerEvent]()
        for one in claimed:
            if one.over is not None:
                await self._answers.try_close(one.key, one.over)
                continue
            events.append(ConsumerEvent(one, known.environment, known.name, self._present))
            if not one.needs_ack:
                await self._answers.try_close(one.key, PROCESSED, known.name)
        return events


def check_pulls(known: KnownConsumer) -> None:
    if known.way != "pull":
        raise Refused(
            f"The consumer {known.name!r} does not pull its facts: its way is {known.way}.",
            code="CONSUMER_WAY",
            hint="Register it with the way pull.",
        )


def unknown_consumer(environment: str, name: str) -> NotFound:
    return NotFound(
        f"There is no consumer {name!r} in {environment!r}.", code="CONSUMER_UNKNOWN", hint="Register it first."
    )
