"""The real command as a process of its own, watched through what it prints."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.005)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        check=False,
        cwd=HERE,
        env=surroundings(environment),
        capture_output=True,
        text=True,
        timeout=120,
    )


class Shown:
    """A command on a terminal of its own, and all it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._text = b""

    @property
    def text(self) -> bytes:
        with contextlib.suppress(OSError):  # nothing more at the moment, or ever
            while found := os.read(self._terminal, 65_536):
                self._text += found
        return self._text


@contextmanager
def on_terminal(dsn: str, *arguments: str) -> Iterator[Shown]:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    around = surroundings({"HOLDFAST_DSN": dsn, "TERM": "xterm", "COLUMNS": "100", "LINES": "60"})
    del around["NO_COLOR"]
    command = [sys.executable, "-m", "holdfast.cli", *arguments]
    process = subprocess.Popen(command, cwd=HERE, env=around, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield Shown(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


class Worker:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def ready(self) -> list[int]:
        """Process ids, in the order they became ready."""
        return [int(pid) for pid in re.findall(r"Worker (\d+) is ready", self.log)]

    def says(self, text: str, times: int = 1) -> None:
        def heard() -> bool:
            assert self.process.poll() is None or self.log.count(text) >= times, self.log
            return self.log.count(text) >= times

        until(heard, f"{text!r} in:\n{self.log}")

    def tell(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        return self.process.wait(timeout=60)


@contextmanager
def running(log: Path, *arguments: str, **environment: str) -> Iterator[Worker]:
    """`holdfast worker` with these arguments; killed at the end should it still be there."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "worker", *arguments],
            cwd=HERE,
            env=surroundings(environment),
            stdout=output,
            stderr=output,
        )
    worker = Worker(process, log)
    try:
        yield worker
    finally:
        if process.poll() is None:
            process.kill()  # its processes notice and leave by themselves
            process.wait()


def surroundings(more: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "PYTHONWARNINGS": "error", "NO_COLOR": "1", **more}
