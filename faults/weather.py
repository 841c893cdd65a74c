"""A bad network on loopback: what goes between client and PostgreSQL passes slowly, narrowly, not at all, or half.

It has a thread and a loop of its own, so that neither side can slow it down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from faults.proxy import detour, socket_of

Kind = Literal["fair", "slow", "narrow", "mute", "torn"]
LATENCY: Final = 0.2  # seconds
NARROW: Final = 10_240  # bytes a second, on each connection
TORN: Final = 0.02  # of all messages: half of it arrives, then the connection is gone
SIP: Final = 1024


class Weather:
    """`kind` may change at any time; what is under way then still has the old one."""

    def __init__(self, server: str, luck: random.Random) -> None:
        self.kind: Kind = "fair"
        self.torn = 0
        self.passed = 0  # bytes
        self.port = 0
        self._server = server
        self._luck = luck
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="weather")

    def open(self) -> None:
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        listening = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        listening.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        ends = [writer]
        try:
            answers, server = await asyncio.open_unix_connection(self._server)
            ends.append(server)
            asking, answering = (asyncio.create_task(self._pump(*way)) for way in ((reader, server), (answers, writer)))
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
            for way in (asking, answering):
                way.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
        except OSError:
            pass  # the server is away, and so is the client now
        finally:
            self._connections.discard(task)
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.passed += len(data)
                while self.kind == "mute":
                    await asyncio.sleep(0.05)
                if self.kind == "torn" and self._luck.random() < TORN:
                    self.torn += 1
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    return
                if self.kind == "narrow":
                    await self._sip(writer, data)
                    continue
                if self.kind == "slow":
                    await asyncio.sleep(LATENCY)
                writer.write(data)
                await writer.drain()

    async def _sip(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for first in range(0, len(data), SIP):
            await asyncio.sleep(SIP / NARROW)
            writer.write(data[first : first + SIP])
            await writer.drain()


@contextmanager
def weather(dsn: str, luck: random.Random) -> Iterator[tuple[Weather, str]]:
    """The weather, and the address that leads through it."""
    found = Weather(socket_of(dsn), luck)
    found.open()
    try:
        yield found, detour(dsn, found.port)
    finally:
        found.close()
