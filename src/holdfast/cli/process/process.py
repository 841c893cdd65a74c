"""One worker process: from opening the application to an orderly shutdown.

The first SIGTERM or SIGINT lets it drain: results of running handlers still commit, steps not yet begun go back to the
queue. The second ends it at once; other workers take over its work when its lease has run out, like after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import AsyncExitStack
from typing import Any, Final

from holdfast.cli.process import application as application
from holdfast.cli.render.output import show_json
from holdfast.logs import logger
from holdfast.runtime.process import loop
from holdfast.runtime.process.collector import calm_collector
from holdfast.runtime.telemetry.scrape import exposed

READY: Final = b"+"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_HANDLER_THREADS: Final = "holdfast-handler"
_PATIENCE: Final = 0.5
Address = tuple[str, int]  # host and port

log = logger("holdfast.worker")


def run(
    target: str,
    options: dict[str, Any],
    lifeline: int | None = None,
    *,
    metrics: Address | None = None,
    json: bool = False,
) -> None:
    """Run a worker until a signal or the end of its supervisor, which closes the socket `lifeline`."""
    if lifeline is None:
        loop.run(_serve(target, options, None, metrics, json=json))
    else:
        with socket.socket(fileno=lifeline) as supervisor:
            loop.run(_serve(target, options, supervisor, metrics, json=json))
    leave_stuck_threads()


async def _serve(
    target: str, options: dict[str, Any], lifeline: socket.socket | None, metrics: Address | None, *, json: bool
) -> None:
    leave = asyncio.Event()
    here = asyncio.get_running_loop()
    for number in _SIGNALS:
        here.add_signal_handler(number, _on_signal, number, leave)
    if lifeline is not None:
        here.add_reader(lifeline, _on_orphaned, lifeline, leave)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(application.opened(target))
        scraped_at = None if metrics is None else await stack.enter_async_context(exposed(engine, *metrics))
        worker = await stack.enter_async_context(engine.worker(**options))
        calm_collector()
        log.info("Worker %d is ready and serves %s", os.getpid(), ", ".join(worker.queues))
        if scraped_at is not None:
            log.info("Worker %d has its metrics at %s", os.getpid(), scraped_at)
        if json:
            show_json({"pid": os.getpid(), "queues": [*worker.queues], "metrics": scraped_at}, flush=True)
        if lifeline is not None:
            lifeline.send(READY)
        await leave.wait()
        log.info("Worker %d is leaving: no new steps, running handlers finish", os.getpid())
    log.info("Worker %d has left", os.getpid())


def _on_signal(number: int, leave: asyncio.Event) -> None:
    if leave.is_set():
        log.warning("Worker %d ends at once", os.getpid())
        _end(128 + number)
    leave.set()


def _on_orphaned(lifeline: socket.socket, leave: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(lifeline)
    log.warning("The supervisor is gone")
    leave.set()


def leave_stuck_threads() -> None:
    """End the process although a blocking handler outlived its grace time: its result would be refused anyway."""
    deadline = time.monotonic() + _PATIENCE
    stuck = [thread for thread in threading.enumerate() if thread.name.startswith(_HANDLER_THREADS)]
    for thread in stuck:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in stuck):
        log.warning("Worker %d leaves behind handlers that did not finish in time; they will be run again", os.getpid())
        _end(0)


def _end(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
