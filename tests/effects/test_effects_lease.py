"""The lease is asked for immediately before anything leaves the process, whatever a delivery has waited for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from effect_flows import flow, options
from effect_servers import Receiver

from holdfast import Engine
from holdfast.runtime.effects.options import EffectOptions, Smtp
from holdfast.runtime.worker.worker import Worker
from running import Evidence, until

pytestmark = pytest.mark.anyio

LONG = 60.0  # seconds of a lease that nothing renews while a test looks
REPLIES = {"DATA": b"354 go on\r\n", "QUIT": b"221 bye\r\n"}
EFFECTS = "select status, attempts from holdfast.effects where effect_type = %s"


@contextlib.contextmanager
def lost(worker: Worker) -> Iterator[None]:
    """As if the process had been frozen for longer than its lease."""
    worker.lease.trusted_until = 0.0
    yield
    worker.lease.trusted_until = time.monotonic() + LONG
    worker.wake()


class Talk:
    """A mail server that keeps its greeting back, and notes what it is told."""

    def __init__(self) -> None:
        self.called, self.go, self.lines = threading.Event(), threading.Event(), list[str]()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.called.set()
            self.go.wait(30)
            with client, client.makefile("r") as told, contextlib.suppress(OSError):
                client.sendall(b"220 here\r\n")
                is_text = False
                for line in map(str.strip, told):
                    self.lines.append(line)
                    if not is_text or line == ".":
                        client.sendall(REPLIES.get(line.upper(), b"250 fine\r\n"))
                        is_text = line.upper() == "DATA"

    def close(self) -> None:
        self.go.set()
        self._listening.close()
        self._thread.join(5)


async def test_a_function_that_waited_for_a_thread_is_not_called(engine: Engine, evidence: Evidence) -> None:
    """More deliveries than threads: the last one is under way, and its function waits."""
    busy, go, delivered = threading.Semaphore(0), threading.Event(), list[int]()

    def block(ctx: Any, data: Any) -> None:
        busy.release()
        go.wait(30)

    def tell(ctx: Any, data: Any) -> None:
        delivered.append(ctx.attempt)

    engine.register_effect("block", block)
    engine.register_effect("tell", tell)
    engine.effect_options = EffectOptions(concurrency=65, limit=100)
    await engine.publish(flow("block", name="blocks"))
    await engine.publish(flow("tell"))
    try:
        async with engine.worker(lease=LONG) as worker:
            await engine.start_many("blocks", [{"n": n} for n in range(64)])
            for _ in range(64):
                assert await asyncio.to_thread(busy.acquire, timeout=30)
            await engine.start("told", {})
            await until(lambda: evidence.rows(EFFECTS, "tell") == [("processing", 1)])
            assert worker.effects is not None
            await until(lambda: len(worker.effects._inflight) == 65)  # pyright: ignore
            with lost(worker):
                go.set()
                await until(lambda: evidence.rows(EFFECTS, "tell") == [("pending", 0)])
                assert delivered == []
            await until(lambda: evidence.rows(EFFECTS, "tell") == [("completed", 1)])
    finally:
        go.set()
    assert delivered == [1]


async def test_a_webhook_that_waited_for_a_name_is_not_sent(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.set()
        await go.wait()
        return [host]

    engine.effect_options = options(receiver, resolve=resolve)
    await engine.publish(flow(config={"url": receiver.url("/ok")}))
    async with engine.worker(lease=LONG) as worker:
        await engine.start("told", {})
        await asyncio.wait_for(asked.wait(), 30)
        with lost(worker):
            go.set()
            await until(lambda: evidence.rows(EFFECTS, "webhook") == [("pending", 0)])
            assert receiver.requests == []
        await until(lambda: evidence.rows(EFFECTS, "webhook") == [("completed", 1)])
    assert len(receiver.requests) == 1


async def test_a_mail_that_waited_for_its_server_is_not_sent(engine: Engine, evidence: Evidence) -> None:
    server = Talk()
    smtp = Smtp(host="127.0.0.1", port=server.port, security="plain", sender="shop@example.org")
    engine.effect_options = EffectOptions(smtp=smtp, connect_timeout=30.0, read_timeout=30.0)
    await engine.publish(flow("email", config={"to": "ann@example.org", "subject": "hi", "text": "hi"}))
    try:
        async with engine.worker(lease=LONG) as worker:
            await engine.start("told", {})
            assert await asyncio.to_thread(server.called.wait, 30)
            with lost(worker):
                server.go.set()
                await until(lambda: evidence.rows(EFFECTS, "email") == [("pending", 0)])
                assert not any(line.lower().startswith("mail from") for line in server.lines)
            await until(lambda: evidence.rows(EFFECTS, "email") == [("completed", 1)])
    finally:
        server.close()
    assert sum(line.lower().startswith("mail from") for line in server.lines) == 1
