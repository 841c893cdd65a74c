"""Measurements run in processes of their own: a task goes in as JSON, the figures come back as a JSON line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = (sys.executable, "-m", "benchmarks.ours")
SAGAS = (sys.executable, "-m", "benchmarks.sagas")
PRIORITIES = (sys.executable, "-m", "benchmarks.priorities")
MACHINES = (sys.executable, "-m", "benchmarks.machines.ours")
MACHINE_CLAIMS = (sys.executable, "-m", "benchmarks.machines.claims")
CEILING = (sys.executable, "-m", "benchmarks.ceiling")


class ChildFailed(Exception):
    """A measuring process died or did not finish in time."""


def measure(command: tuple[str, ...], task: dict[str, Any], *, timeout: float = 300) -> dict[str, Any]:
    """Run one measurement to its end and answer with the last JSON line it printed."""
    with begin(command, task) as child:
        child.close_input()
        return child.finish(timeout)


@contextmanager
def begin(command: tuple[str, ...], task: dict[str, Any], *, tree: Path = ROOT) -> Generator[Child]:
    child = Child(command, task, tree)
    try:
        yield child
    finally:
        child.end()


class Child:
    """A measuring process that can be told when to begin and when to stop."""

    def __init__(self, command: tuple[str, ...], task: dict[str, Any], tree: Path = ROOT) -> None:
        self._label = f"{Path(command[-1]).stem} {task.get('mode', '')}"
        self._process = subprocess.Popen(
            [*command, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tree,
        )
        self._errors: list[str] = []
        # A full stderr pipe would stop the child in the middle of its measurement.
        self._reader = threading.Thread(target=self._collect_errors, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def hear(self, timeout: float = 60) -> dict[str, Any]:
        """The next JSON line; text that is not JSON is somebody's logging and is passed over."""
        assert self._process.stdout is not None
        with self._killed_after(timeout):
            for line in self._process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        raise self._failure(f"no answer within {timeout:.0f} s, or an early end")

    def finish(self, timeout: float = 300) -> dict[str, Any]:
        answer = self.hear(timeout)
        with self._killed_after(60):
            code = self._process.wait()
        if code:
            raise self._failure(f"exit code {code}")
        return answer

    @contextmanager
    def _killed_after(self, seconds: float) -> Generator[None]:
        watchdog = threading.Timer(seconds, self._process.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                stream.close()

    def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.rstrip())
            del self._errors[:-30]

    def _failure(self, what: str) -> ChildFailed:
        self._process.wait()
        self._reader.join(timeout=5)
        return ChildFailed("\n".join([f"{self._label}: {what}", *self._errors]))
