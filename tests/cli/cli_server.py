"""`holdfast server` and `holdfast up` as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_process import HERE, until


class Process:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        def heard() -> bool:
            assert self.process.poll() is None or text in self.log, self.log
            return text in self.log

        until(heard, f"{text!r} in:\n{self.log}")

    @property
    def url(self) -> str:
        self.says('"url"')
        return json.loads(next(line for line in self.log.splitlines() if line.startswith('{"url"')))["url"]

    def ends(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def running(log: Path, *arguments: str, cwd: Path = HERE, **environment: str) -> Iterator[Process]:
    """The command until the end of the block; killed then should it still be there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    surroundings = {**kept, "PYTHONWARNINGS": "error", "NO_COLOR": "1", **environment}
    with log.open("wb") as output:
        words = [sys.executable, "-m", "holdfast.cli", *arguments]
        process = subprocess.Popen(words, cwd=cwd, env=surroundings, stdout=output, stderr=output)
    try:
        yield Process(process, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
