"""Failures of calls as data fit to be stored: bounded, without characters the database refuses."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import linecache
import os
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import dropwhile
from pathlib import Path
from types import FrameType
from typing import Final

from holdfast.core.model.signals import Failure, WorkFailed
from holdfast.errors import PayloadError
from holdfast.runtime.worker.context import Job
from holdfast.runtime.worker.handlers import DoNotRetry

MOST_NAME = 200
MOST_MESSAGE = 4000
MOST_TRACE = 8000
MOST_FRAMES = 6
_OURS: Final = (f"{Path(__file__).parents[1]}{os.sep}", concurrent.futures.thread.__file__)


class StepTimeout(TimeoutError):
    """The call took longer than its step allows."""

    code = "STEP_TIMEOUT"


@asynccontextmanager
async def time_limit(job: Job) -> AsyncGenerator[None]:
    """The limit of one attempt; a TimeoutError that the handler itself raises stays its own."""
    clock = asyncio.timeout(job.place.node.timeout)
    try:
        async with clock:
            yield
    except TimeoutError:
        if not clock.expired():
            raise
        raise _over_time(job) from None


def ending(job: Job, failure: BaseException) -> BaseException | None:
    """The cause of a call's end, as seen from inside its time limit; None: the call was stopped.

    A CancelledError alone says little: it stops a handler, carries its time limit and a worker's exit, and the handler
    itself may raise it.
    """
    if not isinstance(failure, asyncio.CancelledError):
        return failure
    task = asyncio.current_task()
    if task is not None and task.cancelling() > job.interrupted:
        return None if job.place.node.timeout is None else _over_time(job)
    return None if job.told else failure


def _over_time(job: Job) -> StepTimeout:
    return StepTimeout(f"{job.place.id!r} took longer than {job.place.node.timeout:g} s.")


def failed(job: Job, failure: BaseException) -> WorkFailed:
    retryable = not isinstance(failure, DoNotRetry | PayloadError)
    return WorkFailed(job.path, job.step, job.fence, describe(failure), job.calls, retryable, job.input)


def describe(failure: BaseException) -> Failure:
    """Describe any exception as a failure, even one that raises when it is printed."""
    try:
        code = None if isinstance(failure, SystemExit) else getattr(failure, "code", None)  # that is one for the shell
        message = str(failure) or repr(failure)
    except Exception as broken:
        code, message = None, f"The exception cannot be shown: {type(broken).__name__}."
    name = code if isinstance(code, str) and code else type(failure).__name__
    if isinstance(failure, StepTimeout):
        return Failure(name, _clean(message, MOST_MESSAGE))
    trace = "".join(_lines(failure)[-2 * MOST_FRAMES :])
    return Failure(
        _clean(name, MOST_NAME), _clean(message, MOST_MESSAGE), {"traceback": _clean(trace[-MOST_TRACE:], MOST_TRACE)}
    )


def _lines(failure: BaseException) -> list[str]:
    """The traceback as Python prints it, without marks below the lines: for these, Python compiles every line anew."""
    told: list[BaseException] = []
    link: BaseException | None = failure
    while link is not None and link not in told:
        told.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    lines: list[str] = []
    for link in reversed(told):
        if lines:
            lines.append("\nand then:\n\n")
        lines += [*_frames(link), f"{type(link).__name__}: {_words(link)}\n"]
    return lines


def _frames(failure: BaseException) -> list[str]:
    """The frames from the handler on, without those of the engine, unless there are no others."""
    called = list(traceback.walk_tb(failure.__traceback__))
    inside = list(dropwhile(_is_ours, called))
    frames = (inside or called)[-MOST_FRAMES:]
    return [
        f'  File "{frame.f_code.co_filename}", line {number}, in {frame.f_code.co_name}\n'
        f"    {linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()}\n"
        for frame, number in frames
    ]


def _is_ours(frame: tuple[FrameType, int]) -> bool:
    return frame[0].f_code.co_filename.startswith(_OURS)


def _words(failure: BaseException) -> str:
    try:
        return str(failure)
    except Exception:
        return "it cannot be shown"


def _clean(text: str, limit: int) -> str:
    return text[:limit].replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
