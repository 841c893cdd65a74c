"""Connections that keep the server waiting are ended, whatever they say meanwhile; those that are served are not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.errors import HoldfastError
from holdfast.server.http.connections import Connections
from holdfast.server.http.listener import listening
from holdfast.server.http.peers import Proxies
from holdfast.server.routes.metrics import ConnectionsCollector
from holdfast.server.settings import ServerSettings

SHORT = {"header_timeout": 0.2, "body_timeout": 0.2, "idle_timeout": 0.2, "write_timeout": 0.2}
LONG = {"header_timeout": 60.0, "body_timeout": 60.0, "idle_timeout": 60.0, "write_timeout": 60.0}
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE = 20.0  # far more than any limit here: only a connection that is never closed takes as long


async def app(scope: Any, receive: Any, send: Any) -> None:
    """`/` reads the body and answers; `/stream` sends three times with pauses; `/big` sends more than buffers hold."""
    if scope["path"] == "/early":
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})
        return
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        for _ in range(3):
            await asyncio.sleep(0.3)  # longer than every limit: what a stream does between two events
            await send({"type": "http.response.body", "body": b"event\n", "more_body": True})
    if scope["path"] == "/big":
        for _ in range(400):
            await send({"type": "http.response.body", "body": bytes(64 * 1024), "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answered(self) -> bytes:
        """All that comes until the server closes."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def drip(self, data: bytes) -> None:
        """Send byte after byte, each well within the limit, until the server has closed."""
        async with asyncio.timeout(PATIENCE):
            for one in itertools.cycle(data):
                try:
                    self.writer.write(bytes([one]))
                    await self.writer.drain()
                    await asyncio.wait_for(self.reader.read(), 0.02)
                except TimeoutError:
                    continue
                except OSError:
                    return
                return


@asynccontextmanager
async def guarded(**settings: Any) -> AsyncIterator[tuple[Connections, Any]]:
    connections = Connections(ServerSettings(**{**LONG, "proxies": (), **settings}))
    peers: list[Peer] = []
    async with listening(app, "127.0.0.1", 0, grace=1, connections=connections) as url:

        async def connect(said: bytes = b"") -> Peer:
            peers.append(Peer(*await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))))
            peers[-1].writer.write(said)
            await peers[-1].writer.drain()
            return peers[-1]

        try:
            yield connections, connect
        finally:
            for peer in peers:
                peer.writer.transport.abort()


def short(phase: str) -> dict[str, float]:
    return {f"{phase}_timeout": SHORT[f"{phase}_timeout"]}


HALF_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"
SILENT = {
    "nothing": (b"", "header", b""),
    "half a header": (b"GET / HTTP/1.1\r\nHos", "header", b"408"),
    "half a line": (b"GE", "header", b"408"),
    "half a body": (HALF_BODY, "body", b"408"),
    "no body": (HALF_BODY[:-5], "body", b"408"),
    "half the chunks": (CHUNKED, "body", b"408"),
    "half a body after its answer": (HALF_BODY.replace(b"POST /", b"POST /early"), "body", b"401"),
    "nothing after an answer": (GET, "idle", b"200"),
    "half a header after an answer": (GET + b"GET / HT", "idle", b"200"),
    "half a body after an answer": (GET + HALF_BODY, "body", b"200"),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("said", "phase", "answer"), SILENT.values(), ids=SILENT)
async def test_a_connection_that_falls_silent_is_closed(said: bytes, phase: str, answer: bytes) -> None:
    async with guarded(**short(phase)) as (connections, connect):
        peer = await connect(said)
        told = await peer.answered()
    assert answer in told
    assert bool(told) == bool(answer)
    assert connections.timed_out[phase] == 1
    assert not connections.open


DRIPS = {
    "a header": (b"GET / HTTP/1.1\r\n", b"a", "header"),
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n", "header"),
    "a body": (HALF_BODY.replace(b": 10", b": 900000"), b"x", "body"),
    "chunks": (CHUNKED, b"1\r\nx\r\n", "body"),
    "a body after its answer": (
        HALF_BODY.replace(b"POST /", b"POST /early").replace(b": 10", b": 900000"), b"x", "body",
    ),
    "the next header": (GET, b"a", "header"),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize(("said", "dripped", "phase"), DRIPS.values(), ids=DRIPS)
async def test_a_byte_now_and_then_gains_nothing(said: bytes, dripped: bytes, phase: str) -> None:
    async with guarded(**short(phase)) as (connections, connect):
        peer = await connect(said)
        await peer.drip(dripped)
    assert connections.timed_out[phase] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("path", [b"/big", b"/big HTTP/1.0"])
async def test_a_peer_that_does_not_read_is_cut_off(path: bytes) -> None:
    said = b"GET " + path + (b"\r\n\r\n" if b"1.0" in path else b" HTTP/1.1\r\nHost: x\r\n\r\n")
    async with guarded(**short("write")) as (connections, connect):
        peer = await connect()
        peer.writer.transport.pause_reading()
        peer.writer.write(said)
        async with asyncio.timeout(PATIENCE):
            while not connections.timed_out["write"] or connections.open:
                await asyncio.sleep(0.01)
    assert connections.timed_out["write"] == 1


@pytest.mark.anyio
async def test_a_stream_outlives_every_limit_and_a_reader_is_not_cut_off() -> None:
    async with guarded(**SHORT) as (connections, connect):
        stream = await connect(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        big = await connect(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert len(await big.answered()) > 400 * 64 * 1024
        assert (await stream.answered()).count(b"event") == 3
    assert not any(connections.timed_out.values())


@pytest.mark.anyio
async def test_a_connection_is_kept_between_requests() -> None:
    async with guarded(header_timeout=0.2) as (connections, connect):
        peer = await connect(GET)
        for _ in range(2):
            async with asyncio.timeout(PATIENCE):
                assert b"200" in await peer.reader.readuntil(b"end")
                await asyncio.sleep(0.3)  # longer than a header may take: an idle connection has its own limit
            peer.writer.write(GET)
    assert not connections.timed_out["header"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "reason"), [({"most_connections": 2}, "total"), ({"most_connections_each": 2}, "peer")]
)
async def test_too_many_connections_are_refused_and_room_is_given_back(settings: Any, reason: str) -> None:
    async with guarded(**settings) as (connections, connect):
        first, second = await connect(GET), await connect(GET)
        for peer in (first, second):
            await peer.reader.readuntil(b"end")
        refused = await (await connect()).answered()
        assert refused.startswith(b"HTTP/1.1 503")
        assert connections.refused[reason] == 1
        first.writer.close()
        async with asyncio.timeout(PATIENCE):
            while len(connections.open) > 1:
                await asyncio.sleep(0.01)
        third = await connect(GET)
        assert b"200" in await third.reader.readuntil(b"end")


@pytest.mark.anyio
async def test_one_that_cannot_be_looked_at_is_ended_and_the_others_are_looked_at(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with guarded(header_timeout=1.0) as (connections, connect):
        broken, silent = await connect(), await connect()
        async with asyncio.timeout(PATIENCE):
            while len(connections.open) < 2:
                await asyncio.sleep(0.01)
        first = next(iter(connections.open))
        first._header_since = "not a time"  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        assert await broken.answered() == await silent.answered() == b""
        assert not connections.open
        third = await connect()
        assert await third.answered() == b""
    assert connections.timed_out["header"] == 2
    [told] = [record for record in caplog.records if "could not be looked at" in record.message]
    assert told.exc_info
    assert "127.0.0.1" in told.message


@pytest.mark.anyio
async def test_connections_of_a_proxy_count_only_in_all() -> None:
    async with guarded(most_connections_each=1, proxies=("127.0.0.0/8",)) as (connections, connect):
        for _ in range(3):
            peer = await connect(GET)
            assert b"200" in await peer.reader.readuntil(b"end")
        assert len(connections.open) == 3


@pytest.mark.anyio
async def test_figures_are_in_the_metrics() -> None:
    async with guarded(most_connections=1) as (connections, connect):
        peer = await connect(GET)
        await peer.reader.readuntil(b"end")
        await (await connect()).answered()
        registry = CollectorRegistry()
        registry.register(ConnectionsCollector(connections))
        told = generate_latest(registry).decode()
    assert "holdfast_connections_open 1.0" in told
    assert 'holdfast_connections_refused_total{reason="total"} 1.0' in told
    for reason in ("header", "body", "idle", "write"):
        assert f'holdfast_connections_timed_out_total{{reason="{reason}"}} 0.0' in told


@pytest.mark.parametrize(
    "wrong",
    [{"header_timeout": 0}, {"write_timeout": float("inf")}, {"most_connections": 0}, {"proxies": ("proxy.example",)}],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError) as refusal:
        ServerSettings(**wrong)
    assert refusal.value.code == "SETTING_INVALID"


@pytest.mark.parametrize(
    ("address", "is_proxy"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False), ("", False), ("unix", False), ("::1", True)],
)
def test_proxies_are_known_by_network(address: str, is_proxy: bool) -> None:
    assert Proxies(("10.0.0.0/8", "::1")).has(address) is is_proxy
