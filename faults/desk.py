"""A server with a worker, to be killed: `python -m faults.desk <task as JSON>` says where it listens.

It is what `holdfast up` runs, with a shorter lease, and it ends with the harness.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from faults.report import ROOT
from faults.worker import Hands, Task
from holdfast import Engine
from holdfast.cli.process.serving import served
from holdfast.server.auth.settings import AuthSettings
from holdfast.server.settings import ServerSettings

WAIT = 10.0  # seconds a request waits for automatic steps


def application() -> Engine:
    task = Task(**json.loads(sys.argv[1]))
    engine = Engine(task.dsn)
    Hands(task).register(engine)
    return engine


async def serve(task: Task) -> None:
    settings = ServerSettings(port=0, rate=0, request_patience=WAIT)
    auth = AuthSettings(api_keys=False, development=True)
    async with served("faults.desk:application", settings, auth, worker=task.worker) as (_, url):
        print(json.dumps({"url": url}), flush=True)
        await asyncio.to_thread(sys.stdin.read)  # until the harness is gone
    os._exit(1)


class Desk:
    """The harness's end: one server process at a time, wherever it listens."""

    def __init__(self, task: Task, place: Path) -> None:
        self._task = task
        self._log = place / "desk.log"
        self._process: subprocess.Popen[str] | None = None
        self._is_up = asyncio.Event()
        self._url = ""

    async def url(self) -> str:
        """Where it listens, as soon as it does."""
        await self._is_up.wait()
        return self._url

    async def open(self) -> None:
        said = await asyncio.to_thread(self._start)
        if not said:
            raise RuntimeError("the server did not start")
        self._url = json.loads(said)["url"]
        self._is_up.set()

    def _start(self) -> str:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.desk", json.dumps(asdict(self._task))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
            )  # fmt: skip
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def kill(self) -> None:
        """kill -9, whatever it is doing."""
        process = self._process
        if process is None:
            return
        self._is_up.clear()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        self._process = None

    def last_words(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:]) if self._log.exists() else ""


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve(Task(**json.loads(sys.argv[1]))))
