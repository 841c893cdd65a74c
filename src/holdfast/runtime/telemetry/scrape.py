"""`/metrics` of a worker: one page over plain HTTP, in the event loop that it tells about.

A blocked loop answers no scrape, and that is the truth about it. A connection has a few seconds and a few kilobytes,
and ends with its answer. There is no sign-in, so the address is loopback unless the options name another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError
from holdfast.runtime.telemetry.metrics import MetricsCollector

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

SECONDS: Final = 5.0  # for the request, and for the answer to be taken
HEAD: Final = 8192  # bytes of a request
AT_ONCE: Final = 16  # connections


@contextlib.asynccontextmanager
async def exposed(engine: Engine, host: str, port: int) -> AsyncGenerator[str]:
    """The address at which a scraper finds the metrics of this process, for as long as the block lasts."""
    page = _Page(engine)
    try:
        server = await asyncio.start_server(page.answer, host, port, limit=HEAD)
    except OSError as failure:
        raise HoldfastError(
            f"Metrics cannot be served at {host} port {port}: {failure.strerror}.",
            code="METRICS_ADDRESS_TAKEN",
            hint="Choose another --metrics-port; several processes take as many, one after another.",
        ) from None
    async with server:
        name, number, *_ = server.sockets[0].getsockname()
        yield f"http://{f'[{name}]' if ':' in name else name}:{number}/metrics"


class _Page:
    def __init__(self, engine: Engine) -> None:
        from prometheus_client import CollectorRegistry

        self._engine = engine
        self._registry = CollectorRegistry()
        self._registry.register(MetricsCollector(engine))
        self._open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= AT_ONCE:
                async with asyncio.timeout(SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer_to(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    async def _answer_to(self, head: bytes) -> bytes:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        method, _, rest = head.partition(b" ")
        if rest.partition(b" ")[0].partition(b"?")[0] != b"/metrics":
            return _answer("404 Not Found", "text/plain; charset=utf-8", b"The metrics are at /metrics.\n")
        if method != b"GET":
            return _answer("405 Method Not Allowed", "text/plain; charset=utf-8", b"Ask with GET.\n")
        await self._engine.look_at_backlog()
        return _answer("200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry))


def _answer(status: str, type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("ascii") + body
