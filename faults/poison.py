"""Handlers that answer, raise and do what no handler should: the corpus of S16. `register` adds them to a worker."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable
from typing import Any

from faults.worker import Hands
from holdfast import Context, Engine


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even its text can be had")


class Stubborn(BaseException):
    """Not an Exception: `except Exception` does not catch it."""


class Rogue:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("hands off")


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _raise(failure: BaseException) -> Any:
    raise failure


ANSWERS: dict[str, Callable[[], Any]] = {
    "nul": lambda: {"text": "a\0b"},
    "nul in a key": lambda: {"a\0b": 1},
    "lone surrogate": lambda: {"text": "\ud800"},
    "not a number": lambda: {"n": math.nan},
    "infinity": lambda: {"n": -math.inf},
    "1e400": lambda: {"n": float("1e400")},
    "2**63": lambda: {"n": 2**63},
    "5,000 digits": lambda: {"n": 10**4999},
    "nested 65": lambda: _nested(65),
    "nested 100,000": lambda: _nested(100_000),
    "a circle": _circle,
    "3 MB of text": lambda: "x" * 3_000_000,
    "10 MB of text": lambda: {"text": "\u20ac" * 3_500_000},
    "600,000 items": lambda: [0.5] * 600_000,
    "integer keys": lambda: {1: 2},
    "a tuple as a key": lambda: {(1, 2): 3},
    "bytes": lambda: {"b": b"\xff\xfe"},
    "a set of objects": lambda: {object()},
    "an object": object,
    "a rogue": Rogue,
    "a class": lambda: Rogue,
    "a coroutine never awaited": lambda: asyncio.sleep,
    "a generator": lambda: (n for n in range(3)),
    "a file": lambda: open("/dev/null"),  # noqa: SIM115  closed when it is refused and forgotten
}
RAISES: dict[str, Callable[[], Any]] = {
    "nul in the message": lambda: _raise(RuntimeError("a\0b")),
    "surrogate in the message": lambda: _raise(RuntimeError("\ud800\udfff")),
    "a megabyte in the message": lambda: _raise(RuntimeError("x" * 1_000_000)),
    "an unprintable error": lambda: _raise(Unprintable()),
    "a stubborn error": lambda: _raise(Stubborn("not an Exception")),
    "a group of errors": lambda: _raise(BaseExceptionGroup("many", [Stubborn("a"), ValueError("b")])),
    "SystemExit": lambda: _raise(SystemExit(3)),
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "StopIteration": lambda: _raise(StopIteration(1)),
    "RecursionError": lambda: _recurse(0),
    "MemoryError": lambda: _raise(MemoryError()),
    "TimeoutError": lambda: _raise(TimeoutError()),
}
CORPUS = {**ANSWERS, **RAISES}


def _recurse(n: int) -> int:
    return _recurse(n + 1) + 1


def register(engine: Engine, hands: Hands) -> None:
    async def poison(ctx: Context, data: Any) -> Any:
        return CORPUS[data["poison"]]()

    def poison_in_thread(ctx: Context, data: Any) -> Any:
        return CORPUS[data["poison"]]()

    async def suicide(ctx: Context, data: Any) -> Any:
        """The witness hears of the call, nobody hears of its end."""
        await hands.witness(ctx, data)
        os.kill(os.getpid(), signal.SIGKILL)

    for handler in (poison, poison_in_thread, suicide):
        engine.register(handler.__name__, handler)
