"""/api/v1/instances/…/stream: the audit trail as it grows."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from api_flows import clerk, decide, get, publish_flows, register_handlers, start
from http_server import Served

from holdfast import Engine, Flow
from holdfast.server.http.sse import follow
from holdfast.store.reads.steps import place_of

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


NOTE = """
    insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
    select i.id, i.bucket, holdfast.clock(), i.version, 1001, i.org_id, 'effect_delivered', 'system', '{}'
    from holdfast.instances i where i.id = %s
"""


async def test_a_line_written_behind_the_place_a_stream_has_come_to_is_sent(server: Served, holdfast_dsn: str) -> None:
    """A delivery notes the version it read, and commits after the next one has been committed and sent."""
    engine: Engine = server.engine.for_org("acme")
    await engine.publish(
        Flow("waits").wait_event("one", "go").wait_event("two", "go").wait_event("three", "go").build()
    )
    id = UUID((await engine.start("waits", {})).id)
    await server.engine.drain(timeout=30)
    stream = follow(engine, id, None, 30.0)
    sent = [await anext(stream) for _ in await engine.events(id)]
    with psycopg.connect(holdfast_dsn) as slow:
        slow.execute(NOTE, (id,))
        await engine.signal(str(id), "go")
        first = [await anext(stream) for _ in range(len(await engine.events(id)) - len(sent))]
        assert place_of(first[0])[1] > place_of(sent[-1])[1]
        slow.commit()
    late = await asyncio.wait_for(anext(stream), 30)
    assert (late.type, late.version) == ("effect_delivered", sent[-1].version)
    await engine.signal(str(id), "go")
    second = [await anext(stream) for _ in range(len(await engine.events(id)) - len(sent) - len(first) - 1)]
    assert "effect_delivered" not in {event.type for event in second}, "known by now"
    again = follow(engine, id, place_of(first[-1]), 30.0)
    assert await anext(again) == late, "who comes back may lack it"
    assert [await anext(again) for _ in second] == second
    await stream.aclose()
    await again.aclose()


async def test_what_ends_while_a_stream_reads_is_sent(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance ends between the page that the stream reads and the next look at its status."""
    engine: Engine = server.engine.for_org("acme")
    await engine.publish(Flow("waits").wait_event("one", "go").build())
    id = UUID((await engine.start("waits", {})).id)
    await server.engine.drain(timeout=30)
    read, pages = engine.events, 0

    async def events(*args: Any, **options: Any) -> Any:
        nonlocal pages
        found, pages = await read(*args, **options), pages + 1
        if pages == 1:
            await engine.signal(str(id), "go")
            await server.engine.drain(timeout=30)
        return found

    monkeypatch.setattr(engine, "events", events)
    async with asyncio.timeout(30):
        told = [event async for event in follow(engine, id, None, 30.0)]
    assert told == await read(str(id))
    assert told[-1].type == "instance_completed"
