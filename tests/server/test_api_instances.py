"""/api/v1/instances: find, start, look at, signal, and what instances leave behind."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from api_flows import clerk, decide, get, operator, post, publish_flows, register_handlers, start
from http_server import Served

from holdfast import Flow
from holdfast.server.http.pages import Listing

pytestmark = pytest.mark.anyio


@pytest.fixture
async def flows(server: Served) -> Served:
    await publish_flows(server.engine)
    register_handlers(server.engine)
    return server


async def test_an_instance_is_started_and_looked_at(flows: Served) -> None:
    client = await clerk(flows)
    answer = await client.post("/api/v1/instances", json={"flow": "decision", "input": {"a": 1}, "business_key": "o-1"})
    assert answer.status_code == 201
    started = answer.json()
    assert answer.headers["location"] == f"/api/v1/instances/{started['id']}"
    assert (started["created_by"], started["org"], started["business_key"]) == ("carla", "acme", "o-1")
    await flows.engine.drain()

    answer = await client.get(answer.headers["location"])
    found = answer.json()
    assert (found["status"], found["data"]) == ("running", {"a": 1})
    assert answer.headers["etag"] == f'"{found["version"]}"'
    known = await client.get(f"/api/v1/instances/{found['id']}", headers={"if-none-match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


async def test_the_same_key_is_the_same_instance(flows: Served) -> None:
    client, other = await clerk(flows), await clerk(flows, "dora")
    wish = {"flow": "decision", "input": {"a": 1}}
    first = await post(client, "instances", 201, wish, idempotency_key="k-1")
    again = await post(client, "instances", 201, wish, idempotency_key="k-1")
    assert again["id"] == first["id"]
    changed = await post(client, "instances", 409, {**wish, "input": {"a": 2}}, idempotency_key="k-1")
    assert changed["code"] == "IDEMPOTENCY_KEY_REUSED"
    theirs = await post(other, "instances", 409, wish, idempotency_key="k-1")
    assert theirs["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert [one["id"] for one in (await get(client, "instances", key="k-1"))["items"]] == [first["id"]]


async def test_a_start_is_refused_with_its_reason(flows: Served) -> None:
    client = await clerk(flows)
    assert (await post(client, "instances", 404, {"flow": "unknown"}))["code"] == "FLOW_UNKNOWN"
    assert (await post(client, "instances", 404, {"flow": "decision", "version": 9}))["code"] == "VERSION_UNKNOWN"
    assert (await post(client, "instances", 403, {"flow": "secret"}))["code"] == "CAPABILITY_MISSING"
    for body in ({}, {"flow": ""}, {"flow": "decision", "flaw": 1}, {"flow": "decision", "version": "1"}, [1], None):
        problem = await post(client, "instances", 422, body)
        assert problem["code"] == "REQUEST_INVALID"
        assert problem["errors"][0]["place"].startswith("body")


async def test_what_the_caller_calls_the_whole_is_kept(flows: Served) -> None:
    client = await clerk(flows)
    for headers, expected in (
        ({"X_Correlation_Id": "order-17", "X_Request_Id": "r-1"}, "order-17"),
        ({"X_Correlation_Id": "no word", "X_Request_Id": "r-2"}, "r-2"),
        ({"X_Request_Id": "r-3"}, "r-3"),
    ):
        started = await post(client, "instances", 201, {"flow": "decision"}, **headers)
        assert started["attributes"]["correlation_id"] == expected


async def test_a_signal_moves_the_instance_and_a_repeat_counts_once(flows: Served) -> None:
    client = await clerk(flows)
    id = (await start(client, "parcel"))["id"]
    await flows.engine.drain()
    problem = await post(client, f"instances/{id}/signals", 422, {"event": "unheard"})
    assert problem["code"] == "EVENT_NOT_EXPECTED"
    wish = {"event": "arrived", "payload": {"notes": "fine"}}
    first = await post(client, f"instances/{id}/signals", 200, wish, idempotency_key="s-1")
    again = await post(client, f"instances/{id}/signals", 200, wish, idempotency_key="s-1")
    assert again["version"] == first["version"]
    await flows.engine.drain()
    assert (await get(client, f"instances/{id}"))["data"] == {"notes": "fine"}
    events = (await get(client, f"instances/{id}/events"))["items"]
    assert [e["actor"] for e in events if e["type"] == "event_received"] == ["carla"]


async def test_a_signal_sent_right_after_the_start_is_kept_for_its_step(flows: Served) -> None:
    """The step before the wait has not begun when the signal comes; one that no step takes is refused all the same."""
    client = await clerk(flows)
    await flows.engine.for_org("acme").publish(Flow("order").step("pack", "pack").wait_event("paid").build())
    id = (await start(client, "order"))["id"]
    problem = await post(client, f"instances/{id}/signals", 422, {"event": "paid", "early": False})
    assert problem["code"] == "EVENT_NOT_EXPECTED"
    kept = await post(client, f"instances/{id}/signals", 200, {"event": "paid", "payload": {"by": "card"}})
    assert kept["status"] == "running"
    problem = await post(client, f"instances/{id}/signals", 422, {"event": "piad"})
    assert problem["code"] == "EVENT_NOT_EXPECTED"
    flows.engine.register("pack", lambda ctx, data: data)
    await flows.engine.drain()
    ended = await get(client, f"instances/{id}")
    assert (ended["status"], ended["data"]) == ("completed", {"by": "card"})
    assert (await post(client, f"instances/{id}/signals", 409, {"event": "paid"}))["code"] == "INSTANCE_OVER"


async def test_a_signal_for_a_suspended_instance_is_kept_for_its_resume(flows: Served) -> None:
    client = await clerk(flows)
    id = (await start(client, "parcel"))["id"]
    await flows.engine.drain()
    await flows.engine.for_org("acme").suspend(id)
    assert (await post(client, f"instances/{id}/signals", 200, {"event": "arrived"}))["status"] == "suspended"
    await flows.engine.for_org("acme").resume(id)
    await flows.engine.drain()
    steps = (await get(client, f"instances/{id}/steps"))["items"]
    assert (steps[0]["name"], steps[0]["outcome"]) == ("travel", "arrived")


async def test_a_signal_names_the_version_it_is_meant_for(flows: Served) -> None:
    client = await clerk(flows)
    id = (await start(client, "parcel"))["id"]
    await flows.engine.drain()
    tag = (await client.get(f"/api/v1/instances/{id}")).headers["etag"]
    wish = {"event": "arrived"}
    problem = await post(client, f"instances/{id}/signals", 412, wish, if_match='"99"')
    assert problem["code"] == "PRECONDITION_FAILED"
    assert (await post(client, f"instances/{id}/signals", 200, wish, if_match=tag))["version"] > 1


async def test_a_number_is_what_it_is_however_it_is_written(flows: Served) -> None:
    client = await clerk(flows)
    written = b'{"flow": "decision", "version": 1.0, "attributes": {"n": 1.0, "is": true, "none": null, "word": "1.0"}}'
    made = await client.post("/api/v1/instances", content=written, headers={"Content-Type": "application/json"})
    assert made.status_code == 201, made.text
    stored = made.json()["attributes"]
    assert [repr(stored[name]) for name in ("n", "is", "none", "word")] == ["1", "True", "None", "'1.0'"]
    for unfit in (b'{"n": 1.5}', b'{"n": [1]}'):
        wish = b'{"flow": "decision", "attributes": %b}' % unfit
        refused = await client.post("/api/v1/instances", content=wish, headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.json()["code"]) == (422, "REQUEST_INVALID"), unfit


async def test_a_list_is_filtered_and_paged(flows: Served) -> None:
    carla, dora = await clerk(flows), await clerk(flows, "dora")
    ids = [(await start(carla, business_key=f"b-{n % 2}", attributes={"n": n % 2}))["id"] for n in range(5)]
    await flows.engine.drain()
    theirs = (await start(dora, attributes={"n": 1, "word": "1"}))["id"]
    newest_first = [theirs, *reversed(ids)]
    assert await _ids(carla) == newest_first
    assert await _ids(carla, limit=2) == newest_first
    assert await _ids(carla, business_key="b-1") == [ids[3], ids[1]]
    assert await _ids(carla, flow="decision", limit=4) == newest_first
    assert await _ids(carla, flow="secret") == []
    assert await _ids(carla, status="pending") == [theirs]
    assert await _ids(carla, subject="dora") == [theirs]
    assert await _ids(carla, subject="carla", limit=2) == newest_first[1:]
    assert await _ids(carla, attribute="n=1") == [theirs, ids[3], ids[1]]
    assert await _ids(carla, attribute=["n=1", 'word="1"']) == [theirs]
    assert await _ids(carla, attribute="word=1") == []
    assert await _ids(carla, since="2020-01-01T00:00:00Z") == newest_first
    assert await _ids(carla, since="2120-01-01T00:00:00+01:00") == []
    assert await _ids(carla, until="2020-01-01T00:00:00Z") == []
    acme = flows.engine.for_org("acme")
    await acme.suspend(ids[0], by="ann", reason="audit")
    await acme.force_fail(ids[1], by="ann")
    assert await _ids(carla, with_reason="audit") == [ids[0]]
    assert await _ids(carla, error="FORCED") == [ids[1]]
    assert await _ids(carla, status="failed", ended_since="2020-01-01T00:00:00Z") == [ids[1]]
    assert await _ids(carla, status="failed", ended_until="2020-01-01T00:00:00Z") == []
    [token] = (await acme.runtime(ids[2])).resume_pointer
    assert await _ids(carla, step=token["node"], status="running") == [ids[4], ids[3], ids[2]]


async def test_filters_that_mean_nothing_are_refused(flows: Served) -> None:
    client = await clerk(flows)
    for query in (
        {"status": "active"},
        {"limit": 0},
        {"limit": 201},
        {"limit": "many"},
        {"since": "yesterday"},
        {"since": "2026-01-01"},
        {"since": "1700000000"},
        {"ended_since": "today"},
        {"step": "a\0b"},
        {"ended_since": "2026-01-01T00:00:00Z"},
        {"attribute": "no-sign"},
        {"attribute": ["a=1", "a=2"]},
        {"cursor": "%"},
        {"cursor": "AAAA"},
        {"flow": ""},
        {"flow": "a\0b"},
    ):
        problem = await get(client, "instances", 422, **query)
        assert problem["code"] in ("REQUEST_INVALID", "CURSOR_INVALID", "FILTER_INVALID", "SEARCH_TOO_WIDE"), query


async def test_a_cursor_belongs_to_one_list_of_one_tenant(flows: Served) -> None:
    await publish_flows(flows.engine, "other")
    mine, theirs = await clerk(flows), await clerk(flows, tenant="other")
    for _ in range(2):
        await start(mine)
        await start(theirs)
    cursor = (await get(mine, "instances", limit=1))["next"]
    assert (await get(mine, "instances", limit=1, cursor=cursor))["items"]
    for client, path, query in (
        (theirs, "instances", {}),
        (mine, "instances", {"flow": "decision"}),
        (mine, "tasks", {}),
    ):
        assert (await get(client, path, 422, cursor=cursor, **query))["code"] == "CURSOR_INVALID"


@pytest.mark.parametrize("position", ["x", "[1]", "[1,2,99999]", f"[{2**60},1,1]", f"[1,{2**70},1]", "[1,2,3,4]"])
async def test_a_cursor_of_ones_own_making_is_refused(flows: Served, position: str) -> None:
    client = await clerk(flows)
    id = (await start(client))["id"]
    for part in ("steps", "events", "effects"):
        forged = Listing("acme", {"effects": "effects of one"}.get(part, part), instance=id).cursor(position)
        problem = await get(client, f"instances/{id}/{part}", 422, cursor=forged)
        assert problem["code"] == "CURSOR_INVALID", part


async def test_steps_events_and_the_timeline_tell_what_happened(flows: Served) -> None:
    client = await clerk(flows)
    id = (await start(client, input={"a": 1}))["id"]
    await flows.engine.drain()
    await decide(client, id)
    await flows.engine.drain()
    steps = await _all(client, f"instances/{id}/steps", 1)
    assert [step["name"] for step in steps] == ["ask", "do", "end"]
    assert steps[1]["output"] == {"done": True}
    assert [(step["failed"], step["undo"]) for step in steps] == [(False, None)] * 3
    events = await _all(client, f"instances/{id}/events", 2)
    assert events == (await get(client, f"instances/{id}/events", limit=200))["items"]
    assert events[0]["type"] == "instance_started"
    assert sorted((e["version"], e["ordinal"]) for e in events) == [(e["version"], e["ordinal"]) for e in events]
    timeline = await get(client, f"instances/{id}/timeline")
    assert timeline["truncated"] is False
    assert [e["name"] for e in timeline["entries"] if e["kind"] == "step"] == ["ask", "do", "end"]
    assert [e["name"] for e in timeline["entries"] if e["kind"] == "task"] == ["ask"]
    assert timeline["instance"]["status"] == "completed"
    assert await get(client, f"instances/{id}/effects") == {"items": [], "next": None}


async def test_what_does_not_exist_is_not_found(flows: Served) -> None:
    client = await operator(flows)
    for path in ("", "/steps", "/events", "/timeline", "/effects"):
        assert (await get(client, f"instances/{uuid4()}{path}", 404))["code"] == "INSTANCE_UNKNOWN"
    assert (await get(client, "instances/17", 422))["code"] == "REQUEST_INVALID"


async def _ids(client: Any, **query: Any) -> list[str]:
    return [one["id"] for one in await _all(client, "instances", query.pop("limit", 50), **query)]


async def _all(client: Any, path: str, limit: int, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await get(client, path, limit=limit, **query, **cursor)
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}
