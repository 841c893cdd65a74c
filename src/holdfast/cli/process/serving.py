"""One process that serves the API, with or without a worker: from opening the engine to an orderly shutdown.

The first SIGTERM or SIGINT lets it drain: no new connections, open requests and running handlers finish. The second
ends it at once; other workers take over its work when its lease has run out, like after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.process import application as application
from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.runtime.engine import Engine

if TYPE_CHECKING:
    from holdfast.server.auth.settings import AuthSettings
    from holdfast.server.settings import ServerSettings

log = logger("holdfast.server")

_NEEDED: Final = ("fastapi", "starlette", "uvicorn", "jwt", "pydantic", "sse_starlette", "prometheus_client")


def require_api() -> None:
    """Import the server, an extra of the package; the error for a missing import names the extra to install."""
    try:
        for part in ("app", "auth.chain", "http.listener"):
            import_module(f"holdfast.server.{part}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _NEEDED:
            raise
        raise HoldfastError(
            f"The HTTP API needs {missing.name!r}, which is not installed.",
            code="API_NOT_INSTALLED",
            hint="pip install 'holdfast[api]'",
        ) from None


def leaving() -> asyncio.Event:
    """Make an event that the first SIGTERM or SIGINT sets; the second one ends the process."""
    leave = asyncio.Event()

    def told(number: int) -> None:
        if leave.is_set():
            log.warning("Process %d ends at once", os.getpid())
            logging.shutdown()
            sys.stdout.flush()
            os._exit(128 + number)
        leave.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told, number)
    return leave


@asynccontextmanager
async def served(
    target: str | None,
    settings: ServerSettings,
    auth: AuthSettings,
    *,
    worker: dict[str, Any] | None,
) -> AsyncGenerator[tuple[Engine, str]]:
    """Serve an engine, and yield it and its address. `worker`: options of a worker in this process; None: no worker."""
    from holdfast.server.app import create_app
    from holdfast.server.auth.chain import open_chain
    from holdfast.server.http.listener import listening

    for noisy in ("uvicorn", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    async with application.opened(target, needs_handlers=False) as engine, AsyncExitStack() as stack:
        chain = await stack.enter_async_context(open_chain(auth, engine.dsn, listen_host=settings.host, org=engine.org))
        if worker is not None:
            await stack.enter_async_context(engine.worker(**worker))
        app = create_app(engine, settings, authenticate=chain)
        url = await stack.enter_async_context(listening(app, settings.host, settings.port))
        yield engine, url
