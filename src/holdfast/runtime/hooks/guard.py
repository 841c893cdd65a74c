"""The guard around code that is merely told: whatever it raises is its own trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def guarded(report: Callable[[], None]) -> Generator[None]:
    """What is raised inside is reported and goes no further, a panic or a CancelledError of its own included. What ends
    the task around it is not its own."""
    interrupts = _interrupts()
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError:
        if _interrupts() > interrupts:
            raise
        report()
    except BaseException:
        report()


def _interrupts() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
