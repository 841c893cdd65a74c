"""What tests of the running engine share: conditions to wait for, worker processes, and a record of every call.

Run as a script it is such a worker process: `python running.py <dsn> <options as JSON>`. Its handlers write each call
into the table `public.calls` before they do anything else, so what happened can be read after any kind of death.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Context, Engine, Flow, RateLimit, Retry

PATIENCE = 30.0


async def until(condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The first true answer of a condition that may be async."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout} s: {condition}"
        await asyncio.sleep(0.01)


def fast_place() -> str | None:
    """Where servers that live for one test have their files: in memory, if there is room."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30 else None


STEPS = ("one", "two", "three")


def journey(retries: int = 1) -> Any:
    flow = Flow("journey")
    for name in STEPS:
        flow = flow.step(name, "step", retry=Retry(attempts=retries))
    return flow.build()


def counting(engine: Engine) -> Counter[tuple[str, str]]:
    """How often the step of each instance was called."""
    calls: Counter[tuple[str, str]] = Counter()

    @engine.handler("step")
    async def step(ctx: Context, data: Any) -> Any:
        calls[ctx.instance, ctx.step] += 1
        await asyncio.sleep(0.001)
        return data

    return calls


class Evidence:
    """Calls, as handlers recorded them, and plain questions to the database of a test."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute(
            "create table if not exists public.calls (instance text, step text, attempt int, pid int, worked bool,"
            " at timestamptz default clock_timestamp())"
        )
        self.connection.execute("create table if not exists public.gate (name text)")

    def ask(self, question: str, *values: Any) -> Any:
        row = self.connection.execute(question, values).fetchone()
        return None if row is None else row[0]

    def rows(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(question, values).fetchall()

    def calls(self, step: str = "%") -> int:
        return self.ask("select count(*) from public.calls where step like %s", step)

    def open_gate(self, name: str = "gate") -> None:
        self.connection.execute("insert into public.gate values (%s)", (name,))

    def close(self) -> None:
        self.connection.close()


class Recorder:
    """Handlers that record: `note` answers at once, `hold` waits for the gate, `never` waits for ever."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def _do(self, statement: str, *values: Any) -> Any:
        async with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
            return await self._connection.execute(statement, values)

    async def note(self, ctx: Context, data: Any) -> Any:
        values = ctx.instance, ctx.step, ctx.attempt, os.getpid()
        await self._do("insert into public.calls values (%s, %s, %s, %s, true)", *values)
        return data

    async def hold(self, ctx: Context, data: Any) -> int:
        await self.note(ctx, data)
        while not await (await self._do("select 1 from public.gate")).fetchone():
            await asyncio.sleep(0.02)
        return os.getpid()

    async def never(self, ctx: Context, data: Any) -> None:
        await self.note(ctx, data)
        await asyncio.Event().wait()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def register(self, engine: Engine, names: list[str]) -> None:
        """`a=note` offers `note` under the name a."""
        for name in names:
            alias, _, kind = name.partition("=")
            engine.register(alias, getattr(self, kind or alias))


@contextmanager
def worker_process(
    dsn: str, handlers: list[str], limits: list[dict[str, Any]] | None = None, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own, once it is ready; whatever it is doing then, it is gone at the end."""
    wanted = json.dumps({"handlers": handlers, "options": options, "limits": limits or []})
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), dsn, wanted], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


async def _serve(dsn: str, handlers: list[str], options: dict[str, Any], limits: list[dict[str, Any]]) -> None:
    recorder, stopped = Recorder(dsn), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Engine(dsn) as engine:
        recorder.register(engine, handlers)
        engine.use(*(RateLimit(**limit) for limit in limits))
        async with engine.worker(**options):
            print("ready", flush=True)
            await stopped.wait()
    await recorder.close()


if __name__ == "__main__":
    wishes = json.loads(sys.argv[2])
    asyncio.run(_serve(sys.argv[1], wishes["handlers"], wishes["options"], wishes["limits"]))
