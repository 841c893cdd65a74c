"""Workflows as they change, sent to whoever watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from office import Office, send, start, told

pytestmark = pytest.mark.anyio


async def events(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """What an EventSource would hand over; a comment is a heartbeat."""
    current: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            yield {"event": "heartbeat"}
        elif line:
            name, _, value = line.partition(": ")
            current[name] = value
        elif current:
            yield {**current, "data": json.loads(current["data"])}
            current = {}


async def test_a_watcher_sees_every_step_of_it_until_its_end(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    path = f"/ui/workflows/{order['id']}/events/stream"
    async with alice.stream("GET", path) as answer, aclosing(events(answer)) as stream:
        assert answer.headers["content-type"].startswith("text/event-stream")
        first = await anext(stream)
        assert (first["event"], first["data"]["current_step"]) == ("workflow", "review")
        assert first["id"] == str(order["version"])
        deciding = asyncio.create_task(send(bob, order["id"], "approved", approval_notes="ok"))
        seen = [event["data"] async for event in stream if event["event"] == "workflow"]
        await deciding
    assert (seen[-1]["status"], seen[-1]["current_step"]) == ("completed", "approved")
    versions = [data["version"] for data in seen]
    assert versions == sorted(set(versions))
    over = await alice.get(path, headers={"last-event-id": str(versions[-1])})
    assert over.status_code == 204


async def test_whoever_comes_back_misses_nothing(office: Office) -> None:
    alice = await office.alice()
    order = await start(alice)
    path = f"/ui/workflows/{order['id']}/events/stream"
    await alice.post(f"/ui/workflows/{order['id']}/cancel")
    async with alice.stream("GET", path, headers={"last-event-id": str(order["version"])}) as answer:
        [missed] = [event async for event in events(answer)]
    assert missed["data"]["status"] == "cancelled"


async def test_a_quiet_stream_shows_that_it_lives_and_ends_after_a_while(office: Office) -> None:
    async with office.strict(stream_heartbeat=0.05, stream_life=0.5):
        alice = await office.alice()
        order = await start(alice)
        async with alice.stream("GET", f"/ui/workflows/{order['id']}/events/stream") as answer:
            kinds = [event["event"] async for event in events(answer)]
    assert kinds[0] == "workflow"
    assert "heartbeat" in kinds


async def test_open_streams_are_bounded_and_given_back(office: Office) -> None:
    async with office.strict(most_streams_each=1):
        alice, bob = await office.alice(), await office.bob()
        order = await start(alice)
        path = f"/ui/workflows/{order['id']}/events/stream"
        async with alice.stream("GET", path) as answer, aclosing(events(answer)) as stream:
            await anext(stream)
            assert told(await alice.get(path)) == (429, "STREAMS_EXHAUSTED")
            async with bob.stream("GET", path) as other:
                assert other.status_code == 200
        await alice.post(f"/ui/workflows/{order['id']}/cancel")
        assert (await alice.get(path)).status_code == 200


async def test_a_stream_is_only_for_those_who_may_see(office: Office) -> None:
    order = await start(await office.alice())
    stranger = await office.person("stranger")
    assert told(await stranger.get(f"/ui/workflows/{order['id']}/events/stream")) == (404, "INSTANCE_UNKNOWN")
    wrong = await stranger.get(f"/ui/workflows/{order['id']}/events/stream", headers={"accept": "application/json"})
    assert told(wrong) == (406, "NOT_ACCEPTABLE")
