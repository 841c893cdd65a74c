"""A door to PostgreSQL on loopback that can lose what passes through it: a COMMIT, or only the answer to one."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# A pipeline binds the prepared statement `commit` to the unnamed portal; the server says when it is through.
COMMIT_ASKED = re.compile(rb"B....\x00commit\x00", re.DOTALL)
READY = b"Z\x00\x00\x00\x05"


class Door:
    def __init__(self, socket: str, lose: Literal["commit", "answer"], which: set[int]) -> None:
        self._socket = socket
        self._lose = lose
        self._which = which  # by number, counted over all connections
        self.commits = 0
        self.lost = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        inner, outer = await asyncio.open_unix_connection(self._socket)
        doomed = asyncio.Event()
        ways = [
            asyncio.create_task(self._ask(reader, outer, doomed)),
            asyncio.create_task(self._answer(inner, writer, doomed)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the door closes; the listener would report it as an error
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (outer, writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()
            self._tasks.discard(task)

    async def _ask(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, doomed: asyncio.Event) -> None:
        while data := await reader.read(1 << 20):
            for _ in COMMIT_ASKED.findall(data):
                self.commits += 1
                if self.commits in self._which:
                    self.lost += 1
                    if self._lose == "commit":
                        return
                    doomed.set()
            server.write(data)
            await server.drain()

    async def _answer(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event) -> None:
        while data := await server.read(1 << 20):
            if doomed.is_set():
                if READY in data:
                    return
                continue  # the client never learns how far the server got
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def lossy_door(
    dsn: str, lose: Literal["commit", "answer"], which: set[int]
) -> AsyncIterator[tuple[Door, str]]:
    """The door, and the address that leads through it."""
    options = conninfo_to_dict(dsn)
    door = Door(f"{options['host']}/.s.PGSQL.{options.get('port', 5432)}", lose, which)
    listener = await asyncio.start_server(door.enter, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield door, make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
    finally:
        listener.close()
        await door.close()
        await listener.wait_closed()
