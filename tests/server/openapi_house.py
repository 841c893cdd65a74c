"""The application that Schemathesis calls: a real engine with a worker, and orders of every condition to be found.

What cases do to orders cannot be undone (they cancel, decide, discard), so new ones come in all the time: `known` holds
ids of recent ones, which the cases are given.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from api_flows import machine
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from holdfast import Context, DoNotRetry, Engine, Machine
from holdfast.doors.steps.load import load_steps
from holdfast.errors import Unauthenticated
from holdfast.server.access.identity import DEVELOPMENT, Identity
from holdfast.server.app import create_app
from holdfast.server.settings import ServerSettings

TENANT = "acme"
TESS = "tess"
TOKEN = "a-token-that-only-this-test-knows"
STEPS = Path(__file__).with_name("office.yaml")
RECENT = 24  # orders that cases may hit
EVERY = 10  # requests, until another order comes in

# A person decides, a step is done that may fail, and the world is told, which always fails.
ORDER: dict[str, Any] = {
    "name": "order",
    "entry": "ask",
    "policy": {"data": "context", "on_error": "dlq"},
    "nodes": [
        {"id": "ask", "kind": "human", "roles": ["clerk"], "form": {"properties": {"notes": {"type": "string"}}}},
        {"id": "do", "kind": "task", "handler": "do"},
        {"id": "tell", "kind": "effect", "handler": "tell", "retry": {"calls": 1}},
        {"id": "end", "kind": "end"},
        {"id": "no", "kind": "end"},
    ],
    "edges": [
        {"id": "yes", "source": "ask", "target": "do", "on": "confirmed"},
        {"id": "not", "source": "ask", "target": "no", "on": "rejected"},
        {"id": "done", "source": "do", "target": "tell"},
        {"id": "told", "source": "tell", "target": "end"},
    ],
}


async def authenticate(request: Request) -> Identity:
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        raise Unauthenticated("The token is not known.")
    return Identity(TENANT, TESS, roles=("clerk", "approver"), capabilities=frozenset({"*"}), method=DEVELOPMENT)


class House:
    """An ASGI application; its lifespan opens the engine and lets the first orders in."""

    def __init__(self, dsn: str) -> None:
        self._engine = Engine(dsn)
        self._office = self._engine.for_org(TENANT)
        settings = ServerSettings(rate=0, request_patience=0.05, stream_life=0.01, metrics="authenticated")
        self._app = create_app(self._engine, settings, authenticate=authenticate)
        self._requests = 0
        self._orders = 0
        self._is_renewing = False
        self.known: dict[str, deque[str]] = {
            name: deque(maxlen=RECENT) for name in ("instance_id", "task_id", "letter_id", "effect_id")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        self._requests += 1
        if self._requests % EVERY == 0 and not self._is_renewing:
            self._is_renewing = True
            await self._take_order()
            self._is_renewing = False
        await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            await receive()
            await stack.enter_async_context(self._engine)
            await self._prepare()
            await stack.enter_async_context(self._engine.worker())
            await asyncio.gather(*(self._take_order() for _ in range(RECENT)))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _prepare(self) -> None:
        await self._office.publish(ORDER, by=TESS)
        for workflow in load_steps(STEPS.read_text()).require_sound():
            await self._office.publish(workflow, by=TESS)
        await self._office.import_machine(Machine.load(machine("order")), by=TESS)
        await self._office.register_consumer("prod", "order", owner=TESS)
        self._engine.register("do", _do)
        self._engine.register_effect("tell", _tell)
        for name in ("process", "notify", "book", "fail", "slow"):
            self._engine.register(name, _do)

    async def _take_order(self) -> None:
        """In turn: one to decide, one of a screen, one that is claimed, one that fails, one that tells nobody."""
        self._orders += 1
        turn = self._orders % 5
        flow = "orders.approval" if turn == 1 else "order"
        given = {"order_id": f"o-{self._orders}", "fails": turn == 3}
        order = await self._office.start(flow, given, key=f"order-{self._orders}", by="olga", business_key="b-1")
        await self._office.settle(order.id, 30)
        [task] = await self._office.tasks(order.id)
        if turn == 2:
            await self._office.claim(task.id, by=TESS)
        elif turn >= 3:
            await self._office.decide(task.id, by="carl", decision="confirmed")
            await self._office.settle(order.id, 30)
        told = await self._office.trigger("prod", "order", f"o-{self._orders % RECENT}", "approved", by="olga")
        self.known["instance_id"] += [order.id, told.instance]
        self.known["task_id"].append(task.id)
        newest = {one.source: one.id for one in reversed(await self._office.dead_letters(limit=20))}
        self.known["letter_id"].extend(newest.values())  # one of a step, one of an effect
        self.known["effect_id"].extend(one.id for one in await self._office.effects(order.id))


async def _do(ctx: Context, data: Any) -> dict[str, Any]:
    if isinstance(data, dict) and data.get("fails"):
        raise DoNotRetry("it is down")
    return {"done": True}


async def _tell(ctx: Any, data: Any) -> None:
    raise DoNotRetry("nobody listens")
