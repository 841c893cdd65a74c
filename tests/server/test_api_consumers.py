"""/api/v1/consumers: register, take facts, answer them; whose consumer is whose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from api_flows import get, operator, post
from http_server import Served, served

from holdfast import Engine, Machine
from running import until

pytestmark = pytest.mark.anyio

BLUEPRINT: dict[str, Any] = {
    "name": "order",
    "environment": "prod",
    "version": 1,
    "states": [{"name": "New", "is_initial": True}, {"name": "Paid"}, {"name": "Done", "is_final": True}],
    "events": [{"code": 1, "name": "Pay"}, {"code": 2, "name": "Finish"}, {"code": 3, "name": "Remind"}],
    "transitions": [
        {"from": "New", "event": 1, "to": "Paid"},
        {"from": "Paid", "event": 3, "to": "Paid"},
        {"from": "Paid", "event": 2, "to": "Done", "guard": "orders:finish"},
    ],
}
GATE: dict[str, Any] = {
    "for": {"definition": "order"},
    "rules": [
        {"state": "Paid", "complete": {"success": 2, "failure": 3}, "emit": [{"event": "CHECK.CREDIT", "order": 1}]}
    ],
}
PROD = {"environment": "prod"}
BILLING = "consumers/billing"
SINCE = {"since": "2026-01-01T00:00:00Z"}


@pytest.fixture
async def office(server: Served) -> tuple[Served, httpx2.AsyncClient]:
    """A machine of acme, and the service whose consumer is billing."""
    await server.engine.for_org("acme").import_machine(Machine.load(BLUEPRINT))
    bill = await service(server)
    await post(bill, "consumers", 200, {**PROD, "name": "billing"})
    await post(bill, f"{BILLING}/receive", 200, PROD)
    return server, bill


async def service(server: Served, name: str = "bill", *capabilities: str, **more: Any) -> httpx2.AsyncClient:
    return await server.person(name, *capabilities, roles=["consumer"], **more)


async def pay(engine: Engine, ref: str = "O-1", org: str = "acme") -> None:
    assert (await engine.for_org(org).trigger("prod", "order", ref, "Pay", {"amount": 5})).applied


async def taken(client: httpx2.AsyncClient, **wish: Any) -> list[dict[str, Any]]:
    return (await post(client, f"{BILLING}/receive", 200, {**PROD, **wish}))["events"]


async def acked(client: httpx2.AsyncClient, ack: str, outcome: str, status: int = 200, **more: Any) -> Any:
    return await post(client, f"{BILLING}/acks", status, {**PROD, "ack": ack, "outcome": outcome, **more})


async def first_delivery(client: httpx2.AsyncClient) -> dict[str, Any]:
    return (await get(client, f"{BILLING}/deliveries", **PROD))["items"][0]


# --- registration ---------------------------------------------------------------------------------------------------


async def test_a_consumer_has_the_settings_it_was_registered_with(server: Served) -> None:
    bill = await service(server)
    wish = {
        **PROD, "name": "billing", "definitions": ["order"], "states": ["Done"], "events": ["Pay"], "hooks": ["A"],
        "transitions": True, "takes_hooks": False, "since": "2026-05-01T09:30:00Z", "ttl": 5, "max_attempts": 2,
        "in_flight": 7, "critical": False,
    }  # fmt: skip
    told = await post(bill, "consumers", 200, wish)
    renamed = {"transitions": "takes_transitions"}
    assert {name: told[renamed.get(name, name)] for name in wish} == wish
    assert (told["owner"], told["way"], told["target"]) == ("bill", "pull", None)
    again = await post(bill, "consumers", 200, {**wish, "ttl": 9, "since": "now"})
    assert (again["id"], again["ttl"], again["since"]) == (told["id"], 9, told["since"])
    pushed = await post(
        bill, "consumers", 200, {**PROD, "name": "p", "way": "push", "target": {"url": "https://a.example"}}
    )
    assert (pushed["way"], pushed["target"]) == ("push", {"url": "https://a.example"})


@pytest.mark.parametrize(
    ("wish", "code"),
    [({"name": "a/b"}, "REQUEST_INVALID"), ({"environment": "a.b"}, "REQUEST_INVALID"),
     ({"name": ""}, "REQUEST_INVALID"),
     ({"way": "here"}, "REQUEST_INVALID"), ({"ttl": 0}, "REQUEST_INVALID"), ({"since": "later"}, "REQUEST_INVALID"),
     ({"owner": "eve"}, "REQUEST_INVALID"), ({"in_flight": 0}, "REQUEST_INVALID"), ({"critical": 1}, "REQUEST_INVALID"),
     ({"way": "push"}, "CONSUMER_TARGET"), ({"target": {"url": "https://a.example"}}, "CONSUMER_TARGET"),
     ({"name": "ü" * 150}, "TEXT_INVALID")],
)  # fmt: skip
async def test_wrong_wishes_are_refused(server: Served, wish: dict[str, Any], code: str) -> None:
    bill = await service(server)
    assert (await post(bill, "consumers", 422, {**PROD, "name": "billing", **wish}))["code"] == code
    assert (await get(bill, "consumers"))["items"] == []


async def test_consumers_come_in_pages_by_environment_and_name(server: Served) -> None:
    bill = await service(server)
    for environment, name in (("prod", "b"), ("prod", "a"), ("test", "a")):
        await post(bill, "consumers", 200, {"environment": environment, "name": name})
    page = await get(bill, "consumers", limit=2)
    rest = await get(bill, "consumers", limit=2, cursor=page["next"])
    found = [(one["environment"], one["name"]) for one in (*page["items"], *rest["items"])]
    assert (found, rest["next"]) == ([("prod", "a"), ("prod", "b"), ("test", "a")], None)
    assert [one["environment"] for one in (await get(bill, "consumers", environment="test"))["items"]] == ["test"]


# --- facts and answers ----------------------------------------------------------------------------------------------


async def test_5_6_a_poll_takes_facts_and_is_a_beat(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    before = (await get(bill, BILLING, **PROD))["beat_at"]
    await pay(served.engine)
    [event] = await taken(bill, most=5)
    assert (event["attempt"], event["max_attempts"]) == (1, 10)
    assert event["body"].items() >= {
        "external_ref": "O-1", "kind": "transition", "from": "New", "to": "Paid", "event": "Pay", "code": 1,
        "lifecycle": 1, "payload": {"amount": 5}, "environment": "prod", "definition": "order",
    }.items()  # fmt: skip
    assert await taken(bill) == []
    state = await get(bill, BILLING, **PROD)
    assert (state["open"], state["beat_at"] > before, state["down_since"]) == (1, True, None)
    beaten = await bill.post(f"/api/v1/{BILLING}/beat", json=PROD)
    assert (beaten.status_code, beaten.content) == (204, b"")
    assert (await get(bill, BILLING, **PROD))["beat_at"] > state["beat_at"]


async def test_a_poll_that_waits_hears_of_another_engines_commit_at_once(
    office: tuple[Served, httpx2.AsyncClient],
) -> None:
    served, bill = office
    async with Engine(served.engine.dsn, org="acme") as other:
        polling = asyncio.create_task(taken(bill, wait=60))
        await until(lambda: served.app.state.streams._open.total() == 1)
        began = asyncio.get_running_loop().time()
        await pay(other)
        [event] = await polling
    assert event["body"]["external_ref"] == "O-1"
    assert asyncio.get_running_loop().time() - began < served.engine.consumer_options.scan
    assert served.app.state.streams._open.total() == 0


async def test_a_poll_ends_with_its_caller_and_claims_nothing_more(
    office: tuple[Served, httpx2.AsyncClient],
) -> None:
    served, bill = office
    polling = asyncio.create_task(taken(bill, wait=60))
    await until(lambda: served.app.state.streams._open.total() == 1)
    polling.cancel()
    await until(lambda: served.app.state.streams._open.total() == 0)
    await pay(served.engine)
    assert (await first_delivery(bill))["attempts"] == 0


async def test_only_so_many_polls_wait_for_one_caller(engine: Engine) -> None:
    async with served(engine, most_streams_each=1) as server:
        bill = await service(server)
        await post(bill, "consumers", 200, {**PROD, "name": "billing"})
        polling = asyncio.create_task(taken(bill, wait=60))
        await until(lambda: server.app.state.streams._open.total() == 1)
        assert (await post(bill, f"{BILLING}/receive", 429, {**PROD, "wait": 1}))["code"] == "STREAMS_EXHAUSTED"
        assert await taken(bill) == []
        polling.cancel()
        await until(lambda: server.app.state.streams._open.total() == 0)


async def test_4_each_outcome_is_stored(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    for ref in ("O-1", "O-2", "O-3"):
        await pay(served.engine, ref)
    acks = {one["body"]["external_ref"]: one["ack"] for one in await taken(bill)}
    assert await acked(bill, acks["O-1"], "delivered") == {"answer": None}
    assert (await first_delivery(bill))["status"] == "delivered"
    at = datetime.now(UTC) + timedelta(hours=1)
    await acked(bill, acks["O-2"], "retry", at=at.isoformat(), message="closed")
    for _ in range(2):
        assert await acked(bill, acks["O-1"], "processed") == {"answer": None}
    await acked(bill, acks["O-3"], "failed", message="no money")
    left = {one["external_ref"]: one for one in (await get(bill, f"{BILLING}/deliveries", **PROD))["items"]}
    assert {ref: (one["status"], one["message"]) for ref, one in left.items()} == {
        "O-2": ("pending", "closed"), "O-3": ("failed", "no money"),
    }  # fmt: skip
    assert datetime.fromisoformat(left["O-2"]["next_due_at"]) == at
    [suspended] = (await get(bill, "instances", status="suspended"))["items"]
    assert suspended["business_key"] == "O-3"


async def test_the_next_event_comes_with_an_acknowledgement(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    await pay(served.engine)
    [event] = await taken(bill)
    then = {"event": 2, "payload": {"n": 1}}
    assert (await acked(bill, event["ack"], "processed", 403, then=then))["code"] == "GUARD_REFUSED"
    for grant in ("orders:*", "orders:finish"):  # the second one repeats it
        told = await acked(await service(served, "bill", grant), event["ack"], "processed", then=then)
        assert (told["answer"]["applied"], told["answer"]["to_state"]) == (True, "Done")
    [last] = await taken(bill)
    assert (last["body"]["actor"], last["body"]["payload"]) == ("bill", {"n": 1})


async def test_a_gate_is_answered_with_a_verdict(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    await served.engine.for_org("acme").import_machine(policy=GATE)
    await pay(served.engine)
    for event in await taken(bill):
        await acked(bill, event["ack"], "processed", verdict="failure" if event["body"]["kind"] == "hook" else None)
    [complete] = await taken(bill)
    assert (complete["body"]["kind"], complete["body"]["send"]) == ("complete", "Remind")


@pytest.mark.parametrize(
    ("wish", "status", "code"),
    [({"ack": "nonsense"}, 404, "ACK_UNKNOWN"), ({"ack": "a b"}, 422, "REQUEST_INVALID"),
     ({"outcome": "done"}, 422, "REQUEST_INVALID"), ({"delay": 5}, 422, "ANSWER_INVALID"),
     ({"outcome": "delivered", "then": {"event": 1}}, 422, "ANSWER_INVALID"),
     ({"outcome": "delivered", "delay": 1}, 422, "ANSWER_INVALID"),
     ({"outcome": "failed", "verdict": "failure"}, 422, "ANSWER_INVALID"),
     ({"outcome": "retry", "delay": 1, "at": "2026-05-01T09:30:00Z"}, 422, "MOMENT_INVALID"),
     ({"outcome": "retry", "at": "2999-05-01T09:30:00Z"}, 422, "MOMENT_INVALID"),
     ({"then": {"event": "Pray"}}, 422, "EVENT_UNKNOWN"), ({"environment": "test"}, 404, "CONSUMER_UNKNOWN")],
)  # fmt: skip
async def test_a_wrong_answer_changes_nothing(
    office: tuple[Served, httpx2.AsyncClient], wish: dict[str, Any], status: int, code: str
) -> None:
    served, bill = office
    await pay(served.engine)
    [event] = await taken(bill)
    body = {**PROD, "ack": event["ack"], "outcome": "processed", **wish}
    assert (await post(bill, f"{BILLING}/acks", status, body))["code"] == code
    assert (await first_delivery(bill))["status"] == "pending"


# --- stream ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def streaming(client: httpx2.AsyncClient, told: list[dict[str, Any]]) -> AsyncIterator[None]:
    async def follow() -> None:
        async with client.stream("GET", f"/api/v1/{BILLING}/stream", params=PROD) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            event: dict[str, Any] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name in ("id", "event", "data"):
                    event[name] = json.loads(value) if name == "data" else value
                elif not line and event:
                    told.append(event)
                    event = {}

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


async def test_a_stream_tells_facts_as_they_become_due(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    told: list[dict[str, Any]] = []
    async with streaming(bill, told):
        await pay(served.engine)
        await until(lambda: len(told) == 1)
        assert (told[0]["event"], told[0]["id"]) == ("transition", told[0]["data"]["ack"])
        await served.engine.for_org("acme").trigger("prod", "order", "O-1", "Remind")
        await acked(bill, told[0]["id"], "processed")
        await until(lambda: len(told) == 2)
    assert [one["data"]["body"]["lifecycle"] for one in told] == [1, 2]
    assert [one["data"]["attempt"] for one in told] == [1, 1]


async def test_a_stream_keeps_to_what_the_consumer_has_room_for(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    await post(bill, "consumers", 200, {**PROD, "name": "billing", "in_flight": 2})
    for n in range(4):
        await pay(served.engine, f"O-{n}")
    told: list[dict[str, Any]] = []
    async with streaming(bill, told):
        for n in range(2, 5):
            await until(lambda n=n: len(told) == n)
            open = (await get(bill, f"{BILLING}/deliveries", **PROD))["items"]
            assert sum(one["attempts"] for one in open) == 2
            await acked(bill, told[n - 2]["id"], "processed")
    assert len({one["id"] for one in told}) == 4


async def test_a_stream_of_nothing_is_refused(office: tuple[Served, httpx2.AsyncClient]) -> None:
    _, bill = office
    await post(bill, "consumers", 200, {**PROD, "name": "p", "way": "push", "target": {"url": "https://a.example"}})
    assert (await get(bill, "consumers/p/stream", 422, **PROD))["code"] == "CONSUMER_WAY"
    assert (await get(bill, "consumers/q/stream", 404, **PROD))["code"] == "CONSUMER_UNKNOWN"
    assert (await get(bill, f"{BILLING}/stream", 422))["code"] == "REQUEST_INVALID"


# --- deliveries, replay, removal ------------------------------------------------------------------------------------


async def test_deliveries_of_an_instance_and_of_a_consumer(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    for event in ("Pay", "Remind", "Remind"):
        done = await served.engine.for_org("acme").trigger("prod", "order", "O-1", event)
    path = f"instances/{done.instance}/deliveries"
    page = await get(bill, path, limit=2)
    rest = await get(bill, path, limit=2, cursor=page["next"])
    assert [one["event"] for one in (*page["items"], *rest["items"])] == ["Pay", "Remind", "Remind"]
    assert (await get(bill, path, 422, cursor=page["next"], closed="true"))["code"] == "CURSOR_INVALID"
    [event] = await taken(bill)
    await acked(bill, event["ack"], "processed")
    assert [one["event"] for one in (await get(bill, path))["items"]] == ["Remind", "Remind"]
    every = (await get(bill, path, closed="true"))["items"]
    assert [one["status"] for one in every] == ["processed", "pending", "pending"]
    assert (every[0]["consumer"], every[0]["environment"]) == ("billing", "prod")
    page = await get(bill, f"{BILLING}/deliveries", limit=1, **PROD)
    rest = await get(bill, f"{BILLING}/deliveries", limit=1, cursor=page["next"], **PROD)
    assert [one["event"] for one in (*page["items"], *rest["items"])] == ["Remind", "Remind"]


async def test_facts_are_given_again_and_a_removal_ends_them(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    await pay(served.engine)
    [first] = await taken(bill)
    await acked(bill, first["ack"], "processed")
    assert (await post(bill, f"{BILLING}/replay", 200, {**PROD, **SINCE, "dry_run": True}))["dry_run"] is True
    assert await taken(bill) == []
    assert (await post(bill, f"{BILLING}/replay", 200, {**PROD, **SINCE}))["consumer"] == "billing"
    assert (await post(bill, f"{BILLING}/replay", 409, {**PROD, **SINCE}))["code"] == "CONSUMER_FILLING"
    [again] = await taken(bill)
    assert again == {**first, "attempt": again["attempt"], "max_attempts": again["max_attempts"]}
    assert (await bill.post(f"/api/v1/{BILLING}/remove", json=PROD)).status_code == 204
    assert (await post(bill, f"{BILLING}/remove", 404, PROD))["code"] == "CONSUMER_UNKNOWN"
    assert (await get(bill, "consumers"))["items"] == []


# --- who may --------------------------------------------------------------------------------------------------------

USES: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", f"{BILLING}?environment=prod", None),
    "deliveries": ("GET", f"{BILLING}/deliveries?environment=prod", None),
    "beat": ("POST", f"{BILLING}/beat", PROD),
    "receive": ("POST", f"{BILLING}/receive", PROD),
    "stream": ("GET", f"{BILLING}/stream?environment=prod", None),
    "ack": ("POST", f"{BILLING}/acks", {**PROD, "ack": "x" * 59, "outcome": "processed"}),
    "replay": ("POST", f"{BILLING}/replay", {**PROD, **SINCE}),
    "remove": ("POST", f"{BILLING}/remove", PROD),
}


async def test_a_consumer_is_there_for_its_owner_and_for_operators(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, _ = office
    await pay(served.engine)
    strangers = {
        "of the tenant": await service(served, "eve"),
        "of another tenant": await service(served, "bill", tenant="globex"),
        "of a partition": await service(served, "bill", partition="north"),
        "who operates another tenant": await operator(served, tenant="globex"),
    }
    for who, stranger in strangers.items():
        assert (await get(stranger, "consumers", limit=200))["items"] == [] or who == "of a partition"
        for use, (method, path, body) in USES.items():
            answer = await stranger.request(method, f"/api/v1/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "CONSUMER_UNKNOWN"), (who, use)
            nowhere = await stranger.request(method, f"/api/v1/{path.replace('billing', 'nothing')}", json=body)
            assert nowhere.status_code == 404
    olga = await operator(served)
    assert [one["owner"] for one in (await get(olga, "consumers"))["items"]] == ["bill"]
    for use, (method, path, body) in USES.items():
        if use != "stream":
            answer = await olga.request(method, f"/api/v1/{path}", json=body)
            assert answer.status_code in (200, 204) or answer.json()["code"] == "ACK_UNKNOWN", (use, answer.text)


async def test_a_name_that_is_taken_is_the_owners(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, bill = office
    wish = {**PROD, "name": "billing", "ttl": 60}
    eve, olga = await service(served, "eve"), await operator(served)
    assert (await post(eve, "consumers", 409, wish))["code"] == "CONSUMER_TAKEN"
    assert (await get(bill, BILLING, **PROD))["ttl"] == 30
    assert (await post(olga, "consumers", 200, wish))["owner"] == "bill"
    await served.engine.for_org("acme").register_consumer("prod", "own")
    assert (await post(eve, "consumers", 409, {**PROD, "name": "own"}))["code"] == "CONSUMER_TAKEN"
    await bill.post(f"/api/v1/{BILLING}/remove", json=PROD)
    assert (await post(eve, "consumers", 200, wish))["owner"] == "eve"
    north = await service(served, "nora", partition="north")
    assert (await post(north, "consumers", 403, {**PROD, "name": "n"}))["code"] == "PARTITION_FORBIDDEN"


async def test_facts_need_the_scope_consume(office: tuple[Served, httpx2.AsyncClient]) -> None:
    served, _ = office
    sam = await served.person("sam")
    assert (await post(sam, "consumers", 403, {**PROD, "name": "sams"}))["code"] == "SCOPE_MISSING"
    for use, (method, path, body) in USES.items():
        answer = await sam.request(method, f"/api/v1/{path}", json=body)
        expected = (404, "CONSUMER_UNKNOWN") if use in ("get", "deliveries") else (403, "SCOPE_MISSING")
        assert (answer.status_code, answer.json()["code"]) == expected, use


async def test_an_answer_to_a_fact_of_another_tenant_is_one_to_nothing(
    office: tuple[Served, httpx2.AsyncClient],
) -> None:
    served, bill = office
    globex = served.engine.for_org("globex")
    await globex.import_machine(Machine.load(BLUEPRINT))
    other = await service(served, "bill", tenant="globex")
    await post(other, "consumers", 200, {**PROD, "name": "billing"})
    await taken(other)
    await pay(served.engine, org="globex")
    [foreign] = await taken(other)
    for outcome in ("delivered", "processed", "failed", "retry"):
        told = await acked(bill, foreign["ack"], outcome, 404)
        assert told["code"] == "ACK_UNKNOWN", outcome
    then = {"event": "Remind"}
    wild = await service(served, "bill", "*")
    assert (await acked(wild, foreign["ack"], "processed", 404, then=then))["code"] == "ACK_UNKNOWN"
    assert (await first_delivery(other))["status"] == "pending"
