"""A transaction pooler on loopback: a client has a server connection from its first message to the end of its
transaction, and the next transaction gets another one, the one that was idle longest.

It speaks as much of the protocol as is needed to be as unforgiving as the real thing: what a client leaves on a server
connection, a prepared statement or a setting, is there for somebody else and missing for itself. It has a thread and a
loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_PROTOCOL: Final = 196608
_CANCEL: Final = 80877102
_ENCRYPTION: Final = (80877103, 80877104)
_ANSWERED: Final = b"QSF"  # each is answered with one ReadyForQuery

_Key = tuple[int, bytes]


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Kind and whole text of the next message."""
    head = await reader.readexactly(5)
    (size,) = struct.unpack("!i", head[1:])
    return head[:1], head + await reader.readexactly(size - 4)


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _first(options: dict[str, str]) -> bytes:
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in options.items())
    body = struct.pack("!i", _PROTOCOL) + pairs + b"\0"
    return struct.pack("!i", len(body) + 4) + body


class Server:
    """One connection to PostgreSQL, lent to one client at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client: Client | None = None
        self.greeting = b""
        self.key = b""
        self.expected = 0  # answers that are still to come
        self.unfinished = False  # messages were sent that no Sync has closed yet
        self.transactions = 0

    async def log_in(self, options: dict[str, str]) -> None:
        self.writer.write(_first(options))
        while True:
            kind, text = await _message(self.reader)
            if kind == b"E":
                raise ConnectionError(text.decode(errors="replace"))
            if kind == b"S":
                self.greeting += text
            elif kind == b"K":
                self.key = text[5:]
            elif kind == b"Z":
                return


class Client:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.key: _Key = (int.from_bytes(os.urandom(3), "big") | 1 << 30, os.urandom(4))
        self.server: Server | None = None


class Pool:
    """Server connections of one login to one database."""

    def __init__(self, place: str, options: dict[str, str], size: int) -> None:
        self._place = place
        self._options = options
        self._room = asyncio.Semaphore(size)
        self._idle: deque[Server] = deque()
        self._size = size
        self._greeting = b""
        self.servers: set[Server] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def greeting(self) -> bytes:
        if not self._greeting:
            self.give(await self.take())
        return self._greeting

    async def take(self) -> Server:
        """A new connection while there is room, so that as many as possible are shared; else the longest idle."""
        await self._room.acquire()
        try:
            if len(self.servers) < self._size or not self._idle:
                return await self._connect()
            return self._idle.popleft()
        except BaseException:
            self._room.release()
            raise

    def give(self, server: Server) -> None:
        server.client = None
        if server in self.servers:
            self._idle.append(server)
        self._room.release()

    def drop(self, server: Server) -> None:
        self.servers.discard(server)
        server.writer.close()
        with contextlib.suppress(ValueError):
            self._idle.remove(server)
        if server.client is not None:
            server.client.server = None
            server.client.writer.close()
            server.client = None
            self._room.release()

    async def cancel(self, server: Server) -> None:
        _, writer = await asyncio.open_unix_connection(self._place)
        writer.write(struct.pack("!ii", 16, _CANCEL) + server.key)
        await writer.drain()
        writer.close()

    async def close(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for server in self.servers:
            server.writer.close()
            with contextlib.suppress(OSError):
                await server.writer.wait_closed()

    async def _connect(self) -> Server:
        server = Server(*await asyncio.open_unix_connection(self._place))
        try:
            await server.log_in(self._options)
        except BaseException:
            server.writer.close()
            raise
        self._greeting = server.greeting
        self.servers.add(server)
        pump = asyncio.create_task(self._pump(server))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return server

    async def _pump(self, server: Server) -> None:
        """Answers go to whoever has the connection; at the end of a transaction nobody has."""
        try:
            while True:
                kind, text = await _message(server.reader)
                client = server.client
                if client is not None:
                    client.writer.write(text)
                    await client.writer.drain()
                if kind == b"Z":
                    server.expected -= 1
                    if text[5:] == b"I" and not server.expected and not server.unfinished and server.client:
                        server.transactions += 1
                        server.client.server = None
                        self.give(server)
        except (asyncio.IncompleteReadError, OSError):
            self.drop(server)


class Pooler:
    def __init__(self, place: str, size: int) -> None:
        self._place = place
        self._size = size
        self._pools: dict[tuple[str, str], Pool] = {}
        self._clients: dict[_Key, tuple[Client, Pool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="pooler")

    @property
    def transactions(self) -> list[int]:
        """How many each server connection has served."""
        return [server.transactions for pool in list(self._pools.values()) for server in list(pool.servers)]

    def open(self) -> None:
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        listener = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools.values():
            await pool.close()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            options = await self._greet(reader, writer)
            if options is not None:
                await self._attend(reader, writer, options)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the client left, or PostgreSQL is away: either way this connection is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, str] | None:
        while True:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            rest = await reader.readexactly(size - 8)
            if code in _ENCRYPTION:
                writer.write(b"N")
            elif code == _CANCEL:
                client, pool = self._clients[struct.unpack("!i", rest[:4])[0], rest[4:]]
                if client.server is not None:
                    await pool.cancel(client.server)
                return None
            else:
                words = rest.decode().split("\0")
                return dict(zip(words[::2], words[1::2], strict=False))

    async def _attend(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, options: dict[str, str]
    ) -> None:
        login = {"user": options["user"], "database": options["database"]}
        pool = self._pools.get((login["user"], login["database"]))
        if pool is None:
            pool = self._pools[login["user"], login["database"]] = Pool(self._place, login, self._size)
        client = Client(writer)
        self._clients[client.key] = client, pool
        key = _packed(b"K", struct.pack("!i", client.key[0]) + client.key[1])
        writer.write(_packed(b"R", b"\0\0\0\0") + await pool.greeting() + key + _packed(b"Z", b"I"))
        try:
            await self._relay(reader, client, pool)
        finally:
            del self._clients[client.key]
            if client.server is not None:  # it left in the middle: nobody may inherit its transaction
                pool.drop(client.server)

    async def _relay(self, reader: asyncio.StreamReader, client: Client, pool: Pool) -> None:
        while True:
            kind, text = await _message(reader)
            if kind == b"X":
                return
            if client.server is None:
                server = await pool.take()
                client.server, server.client = server, client
            server = client.server
            server.expected += kind in _ANSWERED
            server.unfinished = kind not in _ANSWERED
            server.writer.write(text)
            await server.writer.drain()


@contextmanager
def pooling_proxy(dsn: str, size: int) -> Iterator[tuple[str, Pooler]]:
    """The address that leads through a pool of that many connections per login and database."""
    options = conninfo_to_dict(dsn)
    pooler = Pooler(f"{options['host']}/.s.PGSQL.{options.get('port', 5432)}", size)
    pooler.open()
    try:
        yield make_conninfo(dsn, host="127.0.0.1", port=pooler.port, sslmode="disable", gssencmode="disable"), pooler
    finally:
        pooler.close()
