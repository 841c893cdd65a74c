"""The witness: a process that writes down every effect it is told of, with fsync, before it answers.

It knows nothing of the engine and shares nothing with it: `python -m faults.sink <log>` listens on loopback, prints its
port, takes one JSON object per line and answers each with a line once it is on disk. Entries that arrive together share
an fsync.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Entry:
    """One effect as the outside world saw it."""

    tenant: str
    instance: str
    step: str  # the node
    step_id: str
    attempt: int
    fence: int
    idempotency_key: str
    payload_hash: str
    result: str  # what the handler is about to answer, unique to this call
    pid: int
    t: float
    kind: str = "call"  # of a handler, or "effect": a delivery out of the outbox


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._waiting: list[tuple[bytes, asyncio.StreamWriter]] = []
        self._wake = asyncio.Event()

    def add(self, text: bytes, writer: asyncio.StreamWriter) -> None:
        self._waiting.append((text, writer))
        self._wake.set()

    async def keep(self) -> None:
        """Write, fsync, and only then answer."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            os.write(self._file, b"".join(text for text, _ in batch))
            await asyncio.to_thread(os.fsync, self._file)
            for _, writer in batch:
                if not writer.is_closing():
                    writer.write(b"kept\n")


async def serve(path: Path) -> None:
    journal = Journal(path)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while text := await reader.readline():
                if text.endswith(b"\n"):  # half a line is of a sender that died in the middle
                    entry = {**json.loads(text), "t": time.time()}
                    journal.add(json.dumps(entry).encode() + b"\n", writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))  # whoever started it is gone
    keeping = asyncio.create_task(journal.keep())
    await asyncio.wait({ended, keeping}, return_when=asyncio.FIRST_COMPLETED)
    os._exit(0)


class Teller:
    """A worker's line to the sink: many calls share it, answers come in the order of the questions."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._asked: list[asyncio.Future[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._opening = asyncio.Lock()

    async def tell(self, entry: dict[str, Any]) -> None:
        async with self._opening:
            if self._writer is None:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                self._task = asyncio.create_task(self._hear(reader))
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(kept)
        self._writer.write(json.dumps(entry).encode() + b"\n")
        await kept

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while await reader.readline():
            kept = self._asked.pop(0)
            if not kept.done():
                kept.set_result(None)


class Sink:
    """The harness's end: where to send to, and what was written."""

    def __init__(self, path: Path, port: int, pid: int) -> None:
        self.path = path
        self.port = port
        self.pid = pid

    def entries(self) -> list[Entry]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as lines:
            return [Entry(**json.loads(text)) for text in lines if text.endswith(b"\n")]


@contextmanager
def running(place: Path) -> Iterator[Sink]:
    """A sink process that writes to `place`; gone afterwards, the log stays."""
    path = place / "witness.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "faults.sink", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Sink(path, int(process.stdout.readline()), process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
