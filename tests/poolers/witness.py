"""Worker processes whose handlers write each call into a file: it outlives every worker and every database.

Run as a script it is such a process: `python witness.py <file> <arguments of the engine and of the worker as JSON>`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Context, Engine


class Witness:
    """`step` answers at once, `hold` when the gate is open."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._gate = record.with_suffix(".open")

    def register(self, engine: Engine) -> None:
        engine.register("step", self.step)
        engine.register("hold", self.hold)

    async def step(self, ctx: Context, data: Any) -> Any:
        with self._record.open("ab", buffering=0) as file:  # one write, appended as a whole
            file.write(f"{ctx.instance} {ctx.step} {ctx.attempt} {os.getpid()}\n".encode())
        await asyncio.sleep(0.005)
        return data

    async def hold(self, ctx: Context, data: Any) -> Any:
        await self.step(ctx, data)
        while not self._gate.exists():
            await asyncio.sleep(0.02)
        return data

    def open_gate(self) -> None:
        self._gate.touch()

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """How often each step of each instance was called."""
        if not self._record.exists():
            return Counter()
        words = (line.split() for line in self._record.read_text().splitlines())
        return Counter((instance, step) for instance, step, *_ in words)


@contextmanager
def witnessed_worker(record: Path, engine: dict[str, Any], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own, once it is ready; gone at the end, whatever it does then."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), str(record), json.dumps([engine, options])],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve(record: Path, engine_options: dict[str, Any], options: dict[str, Any]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Engine(**engine_options) as engine:
        Witness(record).register(engine)
        async with engine.worker(**options):
            print("ready", flush=True)
            await stopped.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), *json.loads(sys.argv[2])))
