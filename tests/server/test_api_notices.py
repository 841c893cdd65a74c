"""/api/v1/notices: what the engine has to say to operators, as a list and as a stream."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from api_flows import get, operator, publish_flows, start
from http_server import Served

from holdfast.core.model.timestamps import from_datetime
from holdfast.store.notices import first_id

pytestmark = pytest.mark.anyio


@pytest.fixture
async def office(server: Served) -> Served:
    await publish_flows(server.engine)
    return server


async def tell(
    served: Served, message: str, code: str = "MONITOR_ERROR", instance: str | None = None, **about: Any
) -> None:
    about = about if instance is None else {**about, "instance": UUID(instance).bytes}
    served.engine.board.tell_error(code, message, org=about.pop("org", "acme"), **about)
    await served.engine.board.told()


async def messages(client: Any, **filters: Any) -> list[str]:
    return [one["message"] for one in (await get(client, "notices", **filters))["items"]]


async def test_a_list_is_newest_first_in_pages_and_filtered(office: Served) -> None:
    client = await operator(office)
    for n in range(3):
        await tell(office, f"n{n}", consumer=f"c{n}")
    await tell(office, "t", "TRIGGER_ERROR")
    page = await get(client, "notices", limit=3)
    assert [one["message"] for one in page["items"]] == ["t", "n2", "n1"]
    assert await messages(client, limit=3, cursor=page["next"]) == ["n0"]
    assert await messages(client, code="TRIGGER_ERROR") == ["t"]
    assert await messages(client, consumer="c1") == ["n1"]
    assert await messages(client, kind="warn") == []
    assert await messages(client, since=(datetime.now(UTC) + timedelta(hours=1)).isoformat()) == []
    assert page["items"][1] == {
        "id": page["items"][1]["id"], "code": "MONITOR_ERROR", "kind": "error", "message": "n2", "instance_id": None,
        "consumer": "c2", "detail": {}, "created_at": page["items"][1]["created_at"],
    }  # fmt: skip
    assert (await get(client, "notices", 422, kind="loud"))["code"] == "REQUEST_INVALID"
    assert (await get(client, "notices", 422, cursor=page["next"], kind="warn"))["code"] == "CURSOR_INVALID"


async def test_everybody_sees_those_about_what_they_may_see(office: Served) -> None:
    sam = await office.person("sam", "secrets:see")
    vera = await office.person("vera")
    id = (await start(sam, "secret"))["id"]
    await tell(office, "about it", instance=id)
    await tell(office, "about nothing")
    assert await messages(sam) == ["about it"]
    assert await messages(sam, instance=id) == ["about it"]
    assert await messages(vera) == []
    assert await messages(vera, instance=id) == []
    assert await messages(await operator(office)) == ["about nothing", "about it"]
    assert await messages(await operator(office, tenant="other")) == []


async def follow(client: Any, told: list[dict[str, Any]], number: int, after: str | None, **query: Any) -> None:
    headers = {} if after is None else {"last-event-id": after}
    async with client.stream("GET", "/api/v1/notices/stream", headers=headers, params=query) as answer:
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
                if len(told) == number:
                    return


async def test_a_stream_tells_of_notices_as_they_come(office: Served) -> None:
    client, told = await operator(office), list[dict[str, Any]]()
    before = str(UUID(bytes=first_id(from_datetime(datetime.now(UTC) - timedelta(hours=1)))))
    following = asyncio.create_task(follow(client, told, 2, before, code="MONITOR_ERROR"))
    await tell(office, "one", consumer="a")
    await tell(office, "other", "TRIGGER_ERROR")
    await tell(office, "foreign", consumer="c", org="other")
    await tell(office, "two", consumer="b")
    await asyncio.wait_for(following, 30)
    assert [event["data"]["message"] for event in told] == ["one", "two"]
    assert [event["event"] for event in told] == ["MONITOR_ERROR"] * 2
    assert told[0]["id"] == told[0]["data"]["id"]


async def test_a_stream_shows_nothing_of_what_one_may_not_see(office: Served) -> None:
    sam = await office.person("sam", "secrets:see")
    id = (await start(sam, "secret"))["id"]
    before = str(UUID(bytes=first_id(from_datetime(datetime.now(UTC) - timedelta(hours=1)))))
    await tell(office, "nothing")
    await tell(office, "about it", instance=id)
    told: list[dict[str, Any]] = []
    await asyncio.wait_for(follow(sam, told, 1, before), 30)
    assert [event["data"]["message"] for event in told] == ["about it"]
