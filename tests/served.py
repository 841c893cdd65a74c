"""A real server for callers that block: on a loopback port, in a thread, with a worker beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from holdfast import Engine
from holdfast.server.app import create_app
from holdfast.server.auth.chain import open_chain
from holdfast.server.auth.settings import AuthSettings
from holdfast.server.http.listener import listening
from holdfast.server.settings import ServerSettings


@contextmanager
def served(dsn: str, prepare: Callable[[Engine], None], *, development: bool = True, rate: float = 0) -> Iterator[str]:
    """The address of a server whose engine `prepare` gave handlers."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    serve = _serve(dsn, prepare, development, rate, ready)
    thread = threading.Thread(target=lambda: asyncio.run(serve), daemon=True)
    thread.start()
    url, loop, leave = ready.result(60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(60)


async def _serve(
    dsn: str, prepare: Callable[[Engine], None], development: bool, rate: float, ready: Future[Any]
) -> None:
    leave = asyncio.Event()
    try:
        async with Engine(dsn) as engine:
            prepare(engine)
            auth, settings = AuthSettings(development=development), ServerSettings(rate=rate, burst=1)
            async with (
                open_chain(auth, dsn, listen_host="127.0.0.1", org=engine.org) as chain,
                engine.worker(),
                listening(create_app(engine, settings, authenticate=chain), "127.0.0.1", 0) as url,
            ):
                ready.set_result((url, asyncio.get_running_loop(), leave))
                await leave.wait()
    except BaseException as failure:
        if not ready.done():
            ready.set_exception(failure)
        raise
