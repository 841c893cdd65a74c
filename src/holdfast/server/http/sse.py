"""Live updates as server-sent events: the events of an instance, as they are committed.

A change made in this process is noticed at once, a change made elsewhere by polling with growing pauses; no connection
of the database is held in between. The id of an event is its place in the trail, so a client that returns with
Last-Event-ID misses nothing. Lines beside the decisions can be written behind a place that was sent already, so a
stream rereads the last seconds; a client that returns may get those again. A stream ends with its instance, or after a
while: a client that then returns is authenticated anew.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Hashable
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from holdfast.core.model.status import TERMINAL
from holdfast.runtime.engine import Engine
from holdfast.server.access.identity import Identity
from holdfast.server.http.refusals import RateLimited
from holdfast.server.settings import ServerSettings
from holdfast.store.reads.instances import Event
from holdfast.store.reads.steps import LATE_SECONDS, Place, place_of

MEDIA_TYPE: Final = "text/event-stream"
PAGE: Final = 200
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
SEND_SECONDS: Final = 30.0  # a caller who takes nothing for so long is gone


class Streams:
    """Open streams, counted in all and by caller."""

    def __init__(self, settings: ServerSettings) -> None:
        self._most = settings.most_streams
        self._most_each = settings.most_streams_each
        self._open: Counter[Hashable] = Counter()

    def take(self, who: Hashable) -> None:
        if self._open.total() >= self._most or self._open[who] >= self._most_each:
            raise RateLimited(
                "Too many event streams are open.",
                code="STREAMS_EXHAUSTED",
                hint="Close some, or ask for changes with If-None-Match now and then.",
                retry_after=5,
            )
        self._open[who] += 1

    def give_back(self, who: Hashable) -> None:
        self._open[who] -= 1
        if not self._open[who]:
            del self._open[who]


class EventStream(EventSourceResponse):
    """Response that holds its place among the open streams for exactly as long as it is being sent."""

    media_type = MEDIA_TYPE

    def __init__(self, request: Request, identity: Identity, content: AsyncGenerator[dict[str, Any]]) -> None:
        self._streams: Streams = request.app.state.streams
        settings: ServerSettings = request.app.state.settings
        self._who = (identity.tenant, identity.subject)
        self._streams.take(self._who)
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  # its annotations leave dicts open
            content, ping=settings.stream_heartbeat, send_timeout=SEND_SECONDS, sep="\n"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.give_back(self._who)


def event_id(event: Event) -> str:
    return "-".join(map(str, place_of(event)))


def last_place(request: Request) -> Place | None:
    """The place where the caller's last stream ended; an id that is none of ours means the beginning."""
    parts = request.headers.get("last-event-id", "").split("-")
    if len(parts) != 3 or not all(part.isdigit() and len(part) <= 18 for part in parts):
        return None
    moment, version, ordinal = map(int, parts)
    return moment, version, ordinal


class Watch:
    """Wait for a change of an instance: immediate for changes made here, by growing pauses for others."""

    def __init__(self, news: asyncio.Event, life: float) -> None:
        self._news = news
        self._until = asyncio.get_running_loop().time() + life
        self._pause = FIRST_PAUSE

    async def rest(self, *, has_changed: bool) -> bool:
        """True when it is time to look again, False when the time of the stream is up."""
        self._pause = FIRST_PAUSE if has_changed else min(self._pause * 1.5, LONGEST_PAUSE)
        left = self._until - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(min(self._pause, left)):
                await self._news.wait()
        self._news.clear()
        return True


@contextmanager
def watching(engine: Engine, instance_id: UUID, life: float) -> Generator[Watch]:
    with engine.committer.snapshots.watch(instance_id.bytes) as news:
        yield Watch(news, life)


class Latecomers:
    """Lines that were written behind the place a stream has come to: looked for until the place is old enough."""

    def __init__(self, engine: Engine, instance_id: UUID, after: Place | None) -> None:
        self.after = after
        self._engine = engine
        self._instance = instance_id
        self._known: set[Place] = set()
        self._until = asyncio.get_running_loop().time() + LATE_SECONDS

    async def read(self) -> list[Event]:
        if self.after is None or asyncio.get_running_loop().time() > self._until:
            return []
        found = await self._engine.events(self._instance, after=self.after, late=True)
        news = [event for event in found if place_of(event) not in self._known]
        self._known = {place_of(event) for event in found}
        return news

    def sent(self, events: list[Event]) -> None:
        if events:
            self.after = place_of(events[-1])
            self._known.update(place_of(event) for event in events)
            self._until = asyncio.get_running_loop().time() + LATE_SECONDS


async def follow(engine: Engine, instance_id: UUID, after: Place | None, life: float) -> AsyncGenerator[Event]:
    """Follow the trail of an instance from that place on, until the instance ends or the time is over."""
    late = Latecomers(engine, instance_id, after)
    with watching(engine, instance_id, life) as watch:
        while True:
            is_over = (await engine.get(instance_id)).status in TERMINAL  # before the trail: what ends it is in there
            for event in await late.read():
                yield event
            found = await engine.events(instance_id, after=late.after, limit=PAGE)
            for event in found:
                yield event
            late.sent(found)
            if len(found) < PAGE and (is_over or not await watch.rest(has_changed=bool(found))):
                return
