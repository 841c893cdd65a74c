"""An office: workflows of the text on a running server, a worker beside it, and people of two companies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from http_server import Served, served

from holdfast import Context, Engine
from holdfast.doors.steps.load import load_steps

FILE = Path(__file__).with_name("office.yaml")
EXECUTE = "orders:approve:execute"
ORDER = {"order_id": "ord-123", "customer_email": "bob@example.com"}


class Office:
    """One for all tests of a module; each test has companies of its own."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.engine = server.engine
        self._tests = 0
        self.renew()
        for name in ("process", "notify", "book", "fail", "slow"):
            self.engine.register(name, getattr(self, name))

    def renew(self) -> None:
        self._tests += 1
        self.calls: list[tuple[str, Any]] = []
        self.failing: set[str] = set()
        self.gate = asyncio.Event()

    def company(self, name: str) -> str:
        return f"{name}-{self._tests}"

    @asynccontextmanager
    async def strict(self, **settings: Any) -> AsyncIterator[Office]:
        """The same office, served with other settings."""
        before = self.server
        async with served(self.engine, **{"request_patience": 20.0, **settings}) as self.server:
            yield self
        self.server = before

    async def process(self, ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
        self._called("process", data)
        return {"confirmed_at": "2026-01-15T10:45:00Z", "internal": "not for the state"}

    async def notify(self, ctx: Context, data: dict[str, Any]) -> None:
        self._called("notify", data)

    async def book(self, ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
        self._called("book", data)
        return {"booked": True}

    async def fail(self, ctx: Context, data: dict[str, Any]) -> None:
        self.calls.append(("fail", data))
        if "fail" not in self.failing:
            raise ValueError("the service is down")

    async def slow(self, ctx: Context, data: dict[str, Any]) -> None:
        await self.gate.wait()

    def _called(self, name: str, data: Any) -> None:
        self.calls.append((name, data))
        if name in self.failing:
            raise ValueError(f"{name} failed")

    async def person(
        self, name: str, *capabilities: str, tenant: str = "acme", roles: Iterable[str] = ()
    ) -> httpx2.AsyncClient:
        return await self.server.person(name, *capabilities, tenant=self.company(tenant), roles=roles)

    async def alice(self) -> httpx2.AsyncClient:
        """She orders."""
        return await self.person("alice", EXECUTE)

    async def bob(self) -> httpx2.AsyncClient:
        """He approves."""
        return await self.person("bob", EXECUTE, "orders:reject", roles=["approver"])


@asynccontextmanager
async def open_office(engine: Engine) -> AsyncIterator[Office]:
    for workflow in load_steps(FILE.read_text()).require_sound():
        await engine.for_org("_system").publish(workflow)
    async with served(engine, request_patience=20.0) as server:
        office = Office(server)
        async with engine.worker():
            yield office


def told(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def start(client: httpx2.AsyncClient, workflow: str = "orders.approval", **input: Any) -> dict[str, Any]:
    answer = await client.post(f"/ui/workflows/{workflow}/start", json=input or ORDER)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def send(client: httpx2.AsyncClient, id: str, event: str, **input: Any) -> httpx2.Response:
    return await client.post(f"/ui/workflows/{id}/advance", json={"event": event, "input": input})
