"""/api/v1/instances/…/stream: the audit trail as it grows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from api_flows import clerk, decide, get, publish_flows, register_handlers, start
from http_server import Served

pytestmark = pytest.mark.anyio


async def _follow(client: Any, id: str, told: list[dict[str, Any]], after: str | None = None) -> None:
    headers = {} if after is None else {"last-event-id": after}
    async with client.stream("GET", f"/api/v1/instances/{id}/stream", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, Any] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name in ("id", "event", "data"):
                event[name] = json.loads(value) if name == "data" else value
            elif not line and event:
                told.append(event)
                event = {}


async def test_a_stream_tells_what_happens_until_the_end(server: Served) -> None:
    await publish_flows(server.engine)
    register_handlers(server.engine)
    client = await clerk(server)
    async with server.engine.worker():
        id = (await start(client))["id"]
        told: list[dict[str, Any]] = []
        following = asyncio.create_task(_follow(client, id, told))
        await server.engine.for_org("acme").settle(id)
        await decide(client, id)
        await asyncio.wait_for(following, 30)
    trail = (await get(client, f"instances/{id}/events", limit=200))["items"]
    assert [event["data"] for event in told] == trail
    assert [event["event"] for event in told] == [event["type"] for event in trail]

    rest: list[dict[str, Any]] = []
    await _follow(client, id, rest, told[2]["id"])
    assert rest == told[3:]


async def test_a_stream_of_another_tenant_does_not_exist(server: Served) -> None:
    await publish_flows(server.engine)
    mine, theirs = await clerk(server), await clerk(server, tenant="other")
    id = (await start(mine))["id"]
    assert (await get(theirs, f"instances/{id}/stream", 404))["code"] == "INSTANCE_UNKNOWN"
