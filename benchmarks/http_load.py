"""Callers of an HTTP server in a process of their own: connections that stay open, one request after the other on each.

It speaks just enough HTTP, because on a small machine every microsecond spent here is one that the server lacks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from holdfast import run

WARM_UP = 100
ORDER = {"order_id": "ord-123", "customer_email": "bob@example.com", "amount": 120}
DECISION = {"event": "approved", "input": {"notes": "Looks good"}}


class Unexpected(Exception):
    """An answer that no measurement may count."""


class Connection(asyncio.Protocol):
    """One request under way at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        lowered = bytes(self._received[:head]).lower()
        begin = lowered.find(b"content-length:")
        end = lowered.find(b"\r\n", begin)
        length = int(lowered[begin + 15 : end if end >= 0 else head])
        if len(self._received) >= head + 4 + length and self._answer is not None:
            self._answer.set_result(bytes(self._received))
            self._received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unexpected(f"the server closed the connection: {exc}"))

    async def ask(self, request: bytes, wanted: int) -> bytes:
        """The body of the answer, which must have that status."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await self._answer
        if int(answer[9:12]) != wanted:
            raise Unexpected(answer.decode(errors="replace"))
        return answer[answer.find(b"\r\n\r\n") + 4 :]

    def close(self) -> None:
        self._answer = None
        self._transport.close()


def written(method: str, target: str, body: Any = None, key: str | None = None) -> bytes:
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Accept: application/json"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    if key is not None:
        lines.append(f"X-API-Key: {key}")
    return "\r\n".join([*lines, "", ""]).encode() + payload


class Watch:
    """How long each request of one kind took."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}

    async def time(self, kind: str, answer: Awaitable[bytes]) -> bytes:
        begin = time.perf_counter()
        body = await answer
        self.took.setdefault(kind, []).append(time.perf_counter() - begin)
        return body


Turn = Callable[[Connection, Watch], Awaitable[None]]


def bare(task: dict[str, Any]) -> Turn:
    """Two inserts with the bodies that the other contestant gets."""
    first, second = (written("POST", "/orders", body) for body in (ORDER, DECISION))

    async def turn(connection: Connection, watch: Watch) -> None:
        await watch.time("insert", connection.ask(first, 201))
        await watch.time("insert", connection.ask(second, 201))

    return turn


def approval(task: dict[str, Any]) -> Turn:
    """One orders, another approves."""
    keys = task["keys"]
    start = written("POST", f"/ui/workflows/{task['workflow']}/start", ORDER, keys["alice"])
    decide = written("POST", "/ui/workflows/ID/advance", DECISION, keys["bob"])

    async def turn(connection: Connection, watch: Watch) -> None:
        started = json.loads(await watch.time("start", connection.ask(start, 201)))
        request = decide.replace(b"ID", started["id"].encode(), 1)
        ended = json.loads(await watch.time("advance", connection.ask(request, 200)))
        if ended["status"] != "completed":
            raise Unexpected(ended)

    return turn


def starts(task: dict[str, Any]) -> Turn:
    """Started, and left to whoever approves."""
    start = written("POST", f"/ui/workflows/{task['workflow']}/start", ORDER, task["keys"]["alice"])

    async def turn(connection: Connection, watch: Watch) -> None:
        await watch.time("start", connection.ask(start, 201))

    return turn


def looks(task: dict[str, Any]) -> Turn:
    """Pages of lists, one kind after the other; each must be full."""
    requests = {name: written("GET", target, key=task["keys"]["bob"]) for name, target in task["targets"].items()}

    async def turn(connection: Connection, watch: Watch) -> None:
        for name, request in requests.items():
            page = json.loads(await watch.time(name, connection.ask(request, 200)))
            if not page["items"]:
                raise Unexpected(f"{name}: an empty page")

    return turn


MODES = {mode.__name__: mode for mode in (bare, approval, starts, looks)}


async def drive(connections: list[Connection], turn: Turn, turns: int, seconds: float) -> tuple[float, Watch]:
    """As many turns as wanted, or as the time allows, shared by all connections."""
    left, watch = iter(range(turns)), Watch()
    begin = time.perf_counter()

    async def one(connection: Connection) -> None:
        for _ in left:
            await turn(connection, watch)
            if time.perf_counter() - begin > seconds:
                return

    await asyncio.gather(*(one(connection) for connection in connections))
    return time.perf_counter() - begin, watch


async def main() -> None:
    task = json.loads(sys.argv[1])
    address, turn = urlsplit(task["url"]), MODES[task["mode"]](task)
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(Connection, address.hostname, address.port) for _ in range(task["connections"])
    ]
    connections = [connection for _, connection in opened]
    await drive(connections, turn, min(WARM_UP, task["turns"]), task["seconds"])
    print(json.dumps({"warm": True}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    took, watch = await drive(connections, turn, task["turns"], task["seconds"])
    for connection in connections:
        connection.close()
    print(json.dumps({"seconds": took, "took": watch.took, "cpu": time.process_time()}), flush=True)


if __name__ == "__main__":
    run(main())
