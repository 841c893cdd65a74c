"""A server with a worker in a process of its own, to be killed: `python server_process.py <dsn>` prints its address.

Its system steps record each call before they do anything; `process` then waits for the gate.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

sys.path.insert(0, str(Path(__file__).parent.parent))

from http_server import authenticate, listening

from holdfast import Engine
from holdfast.server.app import create_app
from holdfast.server.settings import ServerSettings
from running import Recorder


@contextmanager
def server_process(dsn: str) -> Iterator[tuple[Popen[str], str]]:
    process = Popen([sys.executable, __file__, dsn], stdout=PIPE, text=True, cwd=Path(__file__).parent)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


async def main(dsn: str) -> None:
    recorder = Recorder(dsn)
    async with Engine(dsn) as engine:
        recorder.register(engine, ["process=hold", "notify=note"])
        app = create_app(engine, ServerSettings(rate=0), authenticate=authenticate)
        async with engine.worker(lease=2.0), listening(app) as url:
            print(url, flush=True)
            while os.getppid() != 1:  # until it is killed, or its test is
                await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
