"""Deadline for slow checks: they run in helper processes, which can be killed.

A thread cannot be stopped, and a check holds on to the interpreter. So a check that is not known to be quick runs in a
helper process, kept warm, that ends itself at its deadline. There are few helpers: callers with slow checks wait for
each other, and no other caller waits for them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.errors import InputInvalid, Unavailable
from holdfast.runtime.schemas import helper
from holdfast.runtime.schemas.helper import LENGTH

HELPERS: Final = 2
CHECK_SECONDS: Final = 1.0  # of the processor's time, for one check
WAIT_SECONDS: Final = 10.0  # for a helper that is free, from the moment that one is wanted


class _Helper:
    def __init__(self) -> None:
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ.get("PATH", "")}
        self._process = subprocess.Popen(  # noqa: S603  # our own file, with our own interpreter
            [sys.executable, str(Path(helper.__file__)), str(CHECK_SECONDS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, schema: bytes, value: bytes) -> Any:
        """The misfits; None when the helper has ended before it knew."""
        give, take = self._process.stdin, self._process.stdout
        assert give is not None
        assert take is not None
        try:
            give.write(b"".join((LENGTH.pack(len(schema)), schema, LENGTH.pack(len(value)), value)))
            give.flush()
        except BrokenPipeError:
            return None
        head = take.read(LENGTH.size)
        answer = take.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
        return msgspec.json.decode(answer) if answer else None

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()


class Helpers:
    def __init__(self) -> None:
        self._free: list[_Helper] = []
        self._slots = threading.BoundedSemaphore(HELPERS)

    def misfits(self, schema: bytes, value: bytes, since: float | None = None) -> list[tuple[list[Any], str]]:
        """Check a value in a helper; `since`, of the monotonic clock, is the beginning of the caller's wait."""
        left = WAIT_SECONDS - (0 if since is None else time.monotonic() - since)
        if left <= 0 or not self._slots.acquire(timeout=left):
            raise Unavailable(
                "Every helper that checks large data is taken.", code="SCHEMA_CHECK_BUSY", hint="Try again later."
            )
        try:
            return self._asked(schema, value)
        finally:
            self._slots.release()

    def _asked(self, schema: bytes, value: bytes) -> list[tuple[list[Any], str]]:
        helper = self._free.pop() if self._free else _Helper()
        answer = None
        try:
            answer = helper.ask(schema, value)
        finally:
            if answer is None:
                helper.end()
            else:
                self._free.append(helper)
        if answer is None:
            raise InputInvalid(
                f"The data cannot be held against its schema within {CHECK_SECONDS:g} s of work.",
                code="SCHEMA_TOO_COSTLY",
                hint="Send less, or publish a simpler schema: fewer alternatives, references and patterns.",
            )
        return answer

    def close(self) -> None:
        while self._free:
            self._free.pop().end()


@cache
def helpers() -> Helpers:
    found = Helpers()
    atexit.register(found.close)
    return found


@cache
def threads() -> ThreadPoolExecutor:
    """Threads that wait for helpers, in a pool of their own, so that they take no place of other work."""
    return ThreadPoolExecutor(HELPERS, thread_name_prefix="holdfast-schemas")
