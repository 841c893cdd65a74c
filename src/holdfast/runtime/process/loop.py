"""The event loop of processes that are the engine's own: uvloop where it is installed, else that of asyncio.

A step waits for several turns of the loop, so what a turn costs shows where one flow runs alone. A library does not
choose the loop of its host: in a program of yours it is `holdfast.run(main())` that asks for this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run like `asyncio.run`, on the fastest loop that is installed (`pip install holdfast[fast]`)."""
    with asyncio.Runner(loop_factory=_fastest()) as runner:
        return runner.run(main)


def _fastest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop
