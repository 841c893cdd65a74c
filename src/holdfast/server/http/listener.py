"""An application on a socket for as long as a block lasts; which signal ends the block is for others to say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, cast

import uvicorn

from holdfast.errors import HoldfastError
from holdfast.server.http.connections import Connections, GuardedProtocol
from holdfast.server.settings import ServerSettings

BACKLOG: Final = 2048
LOOK_AGAIN: Final = 0.005


@asynccontextmanager
async def listening(
    app: Any, host: str, port: int, *, grace: float = 10.0, connections: Connections | None = None
) -> AsyncGenerator[str]:
    """The address of an application that is being served; at the end open requests have `grace` seconds to finish.

    `connections` has the limits and the figures, by default those of the application.
    """
    guard = connections or getattr(getattr(app, "state", None), "connections", None) or Connections(ServerSettings())
    with _bound(host, port) as taken:
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False, proxy_headers=False,
            backlog=BACKLOG, timeout_graceful_shutdown=max(1, round(grace)), ws="none",
            http=cast("Any", partial(GuardedProtocol, guard)),
            timeout_keep_alive=cast("Any", guard.settings.idle_timeout),  # passed on to the loop as it is
        )  # fmt: skip
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        while not (server.started or serving.done()):
            await asyncio.sleep(LOOK_AGAIN)
        sweeping = asyncio.create_task(guard.sweep())
        try:
            yield _address(host, taken.getsockname()[1])
        finally:
            server.should_exit = True
            await serving
            sweeping.cancel()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the owner of the process: a worker beside the server has to stop as well."""
        yield


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as failure:
        raise HoldfastError(
            f"The address {_address(host, port)} cannot be listened on: {failure.strerror or failure}.",
            code="ADDRESS_UNAVAILABLE",
            hint="Another process may have it; choose another with --port, 0 for any that is free.",
        ) from None
    # Connections inherit it. asyncio sets it only where a socket names its protocol, and without it the second half of
    # an answer waits until the client has acknowledged the first, which takes 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
