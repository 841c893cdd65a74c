"""Guard around notified code: its exceptions go no further."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def guarded(report: Callable[[], None]) -> Generator[None]:
    """Report an exception of the block and swallow it, a panic or a CancelledError of its own included. A cancel of the
    surrounding task is not the block's own, and passes.
    """
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
