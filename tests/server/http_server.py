"""A real server on a loopback port in the test process, and people who send it requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import uvicorn
from starlette.requests import Request

from holdfast import Engine
from holdfast.errors import Unauthenticated
from holdfast.server.access.identity import Identity
from holdfast.server.app import create_app
from holdfast.server.settings import ServerSettings
from running import until

HEADER = "x-test-identity"


async def authenticate(request: Request) -> Identity:
    """Believes whatever a test says."""
    given = request.headers.get(HEADER)
    if given is None:
        raise Unauthenticated("Nobody vouches for this request.")
    said = json.loads(given)
    return Identity(
        tenant=said["tenant"],
        subject=said["subject"],
        partition=said["partition"],
        roles=tuple(said["roles"]),
        capabilities=frozenset(said["capabilities"]),
        method="test",
    )


def vouched(
    tenant: str, subject: str, capabilities: Iterable[str] = (), roles: Iterable[str] = (), partition: str = ""
) -> dict[str, str]:
    """The header that makes a request come from somebody."""
    said = {
        "tenant": tenant,
        "subject": subject,
        "partition": partition,
        "roles": list(roles),
        "capabilities": list(capabilities),
    }
    return {HEADER: json.dumps(said)}


class Served:
    """A running server and its clients."""

    def __init__(self, url: str, engine: Engine, app: Any, stack: AsyncExitStack) -> None:
        self.url = url
        self.engine = engine
        self.app = app
        self._stack = stack

    async def client(self, headers: dict[str, str] | None = None) -> httpx2.AsyncClient:
        client = httpx2.AsyncClient(base_url=self.url, headers=headers or {}, trust_env=False, timeout=30)
        return await self._stack.enter_async_context(client)

    async def person(self, subject: str, *capabilities: str, tenant: str = "acme", **more: Any) -> httpx2.AsyncClient:
        return await self.client(vouched(tenant, subject, capabilities, **more))


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The address of an application that is being served."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="auto", timeout_graceful_shutdown=3)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        await until(lambda: server.started or serving.done())
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def served(engine: Engine, **settings: Any) -> AsyncIterator[Served]:
    app = create_app(engine, ServerSettings(**{"rate": 0, **settings}), authenticate=authenticate)
    async with AsyncExitStack() as stack, listening(app) as url:
        yield Served(url, engine, app, stack)
        await stack.aclose()
