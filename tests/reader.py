"""A reader at two terminals, who types what a page says and compares what is shown with what the page shows."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

ROOT = Path(__file__).parent.parent
DONE = "-- that was all --"
# What differs from run to run: ids, moments, durations.
VARYING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\b(\d+m )?[\d.]+ ?m?s\b"
)


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]


def of(language: str, found: list[Block]) -> list[str]:
    return [block.text for block in found if block.language == language]


def settled(text: str) -> str:
    return VARYING.sub("…", text)


def has(answer: Any, part: Any) -> bool:
    """A page shows a part of a JSON document."""
    if isinstance(part, dict):
        return isinstance(answer, dict) and all(name in answer and has(answer[name], part[name]) for name in part)
    return answer == part


def surroundings(**chosen: str) -> dict[str, str]:
    """Those of a reader who has just installed Holdfast. The port is free for sure, as 8080 may be somebody's."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOLDFAST_PORT": str(port),
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "PYTHONWARNINGS": "error",
        "PIP_NO_INDEX": "1",  # it is installed already, and tests leave the network alone
        **chosen,
    }


class Terminal:
    """A shell that lives as long as its reader; it goes on after a refusal."""

    def __init__(self, keys: TextIO, screen: TextIO) -> None:
        self._keys = keys
        self._screen = screen

    def types(self, commands: str) -> str:
        """What is shown until the last of them is through."""
        self._keys.write(f"{commands}\necho; echo '{DONE}'\n")
        self._keys.flush()
        shown: list[str] = []
        for line in self._screen:
            if line.strip() == DONE:
                break
            shown.append(line)
        return "".join(shown).removesuffix("\n")


@contextmanager
def first_terminal(cwd: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    process = subprocess.Popen(
        ["bash"],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        yield Terminal(process.stdin, process.stdout)


@contextmanager
def second_terminal(command: str, cwd: Path, environment: dict[str, str]) -> Iterator[None]:
    """The command from the moment it says that it is up; left with Ctrl-C."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            assert any(line.startswith("in another shell") for line in process.stdout)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
    assert process.returncode == 0
