"""/api/v1/machines: import, look, try, trigger, backfill."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import httpx2
import psycopg
import pytest
from api_flows import get, operator, post
from http_server import Served
from psycopg.types.json import Jsonb

from holdfast import Machine

pytestmark = pytest.mark.anyio

BLUEPRINT: dict[str, Any] = {
    "name": "order",
    "environment": "prod",
    "version": 1,
    "states": [
        {"name": "New", "is_initial": True}, {"name": "Paid", "category": "open"}, {"name": "Done", "is_final": True}
    ],
    "events": [{"code": 1, "name": "Pay"}, {"code": 2, "name": "Finish"}, {"code": 3, "name": "Remind"}],
    "transitions": [
        {"from": "New", "event": 1, "to": "Paid", "when": "input.amount > 0"},
        {"from": "Paid", "event": 3, "to": "Paid"},
        {"from": "Paid", "event": 2, "to": "Done", "guard": "orders:finish"},
    ],
}  # fmt: skip
POLICY: dict[str, Any] = {
    "policy_name": "p",
    "for": {"definition": "order"},
    "rules": [{"state": "Paid", "via": 1, "emit": [{"event": "MAIL.THANK"}]}],
}
ORDERS = "machines/prod/order"
TRIGGERS = f"{ORDERS}/triggers"
PAY: dict[str, Any] = {"external_ref": "O-1", "event": "Pay", "payload": {"amount": 5}}


def changed(**keys: Any) -> dict[str, Any]:
    return {**deepcopy(BLUEPRINT), **keys}


@pytest.fixture
async def olga(server: Served) -> httpx2.AsyncClient:
    client = await operator(server)
    await post(client, "machines", 200, {"blueprint": BLUEPRINT, "policy": POLICY})
    await post(client, "consumers", 200, {"environment": "prod", "name": "billing"})
    return client


# --- import and look ------------------------------------------------------------------------------------------------


async def test_an_import_is_dry_first_and_then_counts_once(server: Served) -> None:
    client = await operator(server)
    told = await post(client, "machines?dry_run=true", 200, {"blueprint": BLUEPRINT})
    assert (told["dry_run"], told["published"]["new"], told["published"]["version"]) == (True, True, 1)
    assert (await get(client, "machines"))["items"] == []
    for is_new in (True, False):
        told = await post(client, "machines", 200, {"blueprint": BLUEPRINT})
        assert (told["published"]["name"], told["published"]["version"]) == ("prod.order", 1)
        assert (told["published"]["new"], told["warnings"]) == (is_new, [])
    again = await post(client, "machines?dry_run=true", 200, {"blueprint": BLUEPRINT, "policy": POLICY})
    assert (again["published"]["version"], again["published"]["new"]) == (2, True)


async def test_a_policy_alone_is_for_the_newest_blueprint(server: Served) -> None:
    client = await operator(server)
    assert (await post(client, "machines", 404, {"policy": POLICY}))["code"] == "FLOW_UNKNOWN"
    for environment in ("prod", "test"):
        await post(client, "machines", 200, {"blueprint": changed(environment=environment)})
    assert (await post(client, "machines", 422, {"policy": POLICY}))["code"] == "ENVIRONMENT_AMBIGUOUS"
    told = await post(client, "machines?environment=test", 200, {"policy": POLICY})
    assert (told["published"]["name"], told["published"]["version"]) == ("test.order", 2)
    for body in ({"policy": POLICY, "environment": "test"}, {"policy": "/etc/passwd"}, {"policy": None}):
        assert (await post(client, "machines", 422, body))["code"] == "MACHINE_TYPE_WRONG"


async def test_every_finding_is_told_with_code_file_place_and_hint(server: Served) -> None:
    wrong = changed(
        states=[{"name": "New"}, {"name": "Done", "is_final": True}], events=[{"code": 1, "name": "Pay"}] * 2
    )
    client = await operator(server)
    refused = await post(client, "machines?file=order.json", 422, {"blueprint": wrong, "policy": {"rules": [{}]}})
    assert refused["code"] == refused["errors"][0]["code"]
    found = {one["code"]: one for one in refused["errors"]}
    assert {"MACHINE_INITIAL_MISSING", "MACHINE_DUPLICATE_EVENT_CODE", "MACHINE_KEY_MISSING"} <= found.keys()
    for one in refused["errors"]:
        assert one["file"] == "order.json"
        assert one["place"], one
        assert one["hint"], one
        assert one["line"] >= 1
    assert (await get(client, "machines"))["items"] == []


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[]", b"{}", b'"x"', b'{"blueprint": 7}', b'{"blueprint": {"name": "a"}}']
)
async def test_what_is_no_machine_is_refused(server: Served, body: bytes) -> None:
    client = await operator(server)
    answer = await client.post("/api/v1/machines", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text


async def test_a_blueprint_keeps_its_content_under_its_version(olga: httpx2.AsyncClient) -> None:
    other = changed(states=[*BLUEPRINT["states"][:2], {"name": "Over", "is_final": True}])
    other["transitions"] = [*BLUEPRINT["transitions"][:2], {"from": "Paid", "event": 2, "to": "Over"}]
    for way in ("machines", "machines?dry_run=true"):
        assert (await post(olga, way, 409, {"blueprint": other}))["code"] == "BLUEPRINT_VERSION_TAKEN"
    await post(olga, "machines", 200, {"blueprint": {**other, "version": 2}})
    assert (await post(olga, "machines", 409, {"blueprint": BLUEPRINT}))["code"] == "BLUEPRINT_OUTDATED"


async def test_machines_are_listed_in_pages_by_environment(olga: httpx2.AsyncClient) -> None:
    for environment, name in (("prod", "a"), ("prod", "z"), ("production", "a"), ("test", "order")):
        await post(olga, "machines", 200, {"blueprint": changed(environment=environment, name=name)})
    await post(olga, "definitions", 200, {"name": "prod.flow", "entry": "e", "nodes": [{"id": "e", "kind": "end"}]})
    names: list[str] = []
    cursor = None
    while cursor is not None or not names:
        page = await get(olga, "machines", **({} if cursor is None else {"cursor": cursor}), limit=2)
        names += [one["name"] for one in page["items"]]
        cursor = page["next"]
    assert names == ["prod.a", "prod.order", "prod.z", "production.a", "test.order"]
    found = (await get(olga, "machines", environment="prod"))["items"]
    assert [(one["environment"], one["definition"]) for one in found] == [
        ("prod", "a"),
        ("prod", "order"),
        ("prod", "z"),
    ]
    assert (await get(olga, "machines", 422, environment="a.b"))["code"] == "REQUEST_INVALID"


async def test_a_machine_is_described_with_all_of_its_versions(olga: httpx2.AsyncClient) -> None:
    await post(olga, "machines", 200, {"blueprint": BLUEPRINT})
    document = await get(olga, ORDERS)
    assert [one["version"] for one in document["versions"]] == [2, 1]
    assert (document["version"], document["policy"], document["blueprint"]) == (2, None, BLUEPRINT)
    first = await get(olga, ORDERS, version=1)
    assert (first["version"], first["blueprint_version"], first["policy"]) == (1, 1, POLICY)
    assert {s["name"]: (s["category"], s["is_initial"], s["is_final"]) for s in first["states"]} == {
        "New": (None, True, False), "Paid": ("open", False, False), "Done": (None, False, True),
    }  # fmt: skip
    assert first["events"] == BLUEPRINT["events"]
    chart = await olga.get(f"/api/v1/{ORDERS}/chart", params={"version": 1})
    assert chart.headers["content-type"] == "text/plain; charset=utf-8"
    assert chart.text.startswith("stateDiagram-v2")
    assert (await get(olga, ORDERS, 404, version=7))["code"] == "VERSION_UNKNOWN"
    assert (await get(olga, "machines/test/order", 404))["code"] == "FLOW_UNKNOWN"
    assert (await get(olga, f"{ORDERS}/chart", 422, versio=1))["code"] == "REQUEST_INVALID"


async def test_a_flow_that_is_no_machine_is_none(olga: httpx2.AsyncClient) -> None:
    flow = {"name": "prod.flow", "entry": "e", "nodes": [{"id": "e", "kind": "end"}]}
    await post(olga, "definitions", 200, flow)
    path = "machines/prod/flow"
    assert (await get(olga, path, 422))["code"] == "NOT_A_MACHINE"
    assert (await post(olga, f"{path}/triggers", 422, PAY))["code"] == "NOT_A_MACHINE"


# --- simulation -----------------------------------------------------------------------------------------------------


async def test_events_are_tried_without_a_trace(olga: httpx2.AsyncClient) -> None:
    wish = {
        "events": [{"event": 1, "payload": {"amount": 0}}, {"event": "Pay", "payload": {"amount": 1}}, 2, "Remind"],
        "capabilities": ["orders:finish"],
    }
    told = await post(olga, f"{ORDERS}/simulate", 200, wish)
    assert (told["initial"], told["state"], told["states"]) == ("New", "Done", ["New", "Paid", "Done"])
    assert told["is_over"] is True
    assert [entry["reason"] for entry in told["entries"]] == ["condition", None, None, "terminal"]
    assert [hook["code"] for hook in told["entries"][1]["rule"]["hooks"]] == ["MAIL.THANK"]
    assert (await get(olga, "instances"))["items"] == []
    refused = await post(olga, f"{ORDERS}/simulate", 404, {"events": ["Pray"]})
    assert refused["code"] == "MACHINE_EVENT_UNKNOWN"
    assert (await post(olga, f"{ORDERS}/simulate", 422, {"events": [None]}))["code"] == "REQUEST_INVALID"


async def test_a_simulation_answers_no_more_than_a_page(olga: httpx2.AsyncClient) -> None:
    large = {
        **POLICY,
        "params": [{"code": "TERMS", "data": {"text": "x" * 500_000}}],
        "rules": [{"state": "Paid", "params": ["TERMS"]}],
    }
    await post(olga, "machines", 200, {"policy": large})
    events = [{"event": 1, "payload": {"amount": 1}}, *["Remind"] * 20]
    refused = await post(olga, f"{ORDERS}/simulate", 422, {"events": events})
    assert (refused["code"], refused["detail"][:28]) == ("SIMULATION_TOO_LARGE", "The answers to 17 of 21 even")
    assert len((await post(olga, f"{ORDERS}/simulate", 200, {"events": events[:16]}))["entries"]) == 16


async def test_nobody_waits_for_a_machine_to_be_read(olga: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes seconds."""
    read: list[str] = []
    parse = Machine.parse

    def off_the_loop(*args: Any, **options: Any) -> Machine:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        read.append("read")
        return parse(*args, **options)

    monkeypatch.setattr(Machine, "parse", off_the_loop)
    await post(olga, "machines", 200, {"blueprint": BLUEPRINT, "policy": POLICY})
    await post(olga, "machines?dry_run=true", 200, {"policy": POLICY})
    await post(olga, f"{ORDERS}/simulate", 200, {"events": []})
    assert (await olga.get(f"/api/v1/{ORDERS}/chart")).is_success
    assert len(read) == 4


# --- triggers -------------------------------------------------------------------------------------------------------


async def test_3_1_a_trigger_answers_what_it_did(server: Served, olga: httpx2.AsyncClient) -> None:
    sam = await server.person("sam", "orders:finish")
    paid = await post(sam, TRIGGERS, 200, {**PAY, "occurred_at": "2026-05-01T09:30:00Z"})
    assert paid == {
        "applied": True, "reason": None, "from_state": "New", "to_state": "Paid", "event": "Pay", "lifecycle": 1,
        "instance": paid["instance"],
    }  # fmt: skip
    entry = (await get(sam, f"instances/{paid['instance']}/lifecycle"))["entries"][1]
    assert (entry["actor"], entry["payload"], entry["occurred_at"][:10]) == ("sam", {"amount": 5}, "2026-05-01")
    again = await post(sam, TRIGGERS, 200, {**PAY, "event": 1})
    assert (again["applied"], again["reason"], again["instance"]) == (False, "not_applicable", paid["instance"])
    late = await post(sam, TRIGGERS, 200, {**PAY, "event": 3, "expected": 0})
    assert (late["applied"], late["reason"]) == (False, "overtaken")
    done = await post(sam, TRIGGERS, 200, {"external_ref": "O-1", "event": "Finish", "expected": 1})
    assert (done["to_state"], done["lifecycle"]) == ("Done", 2)


async def test_4_4_a_request_id_counts_once_whichever_way_it_comes(olga: httpx2.AsyncClient) -> None:
    first = await post(olga, TRIGGERS, 200, {**PAY, "request_id": "r/1"})
    assert await post(olga, TRIGGERS, 200, PAY, idempotency_key="r/1") == first
    both = await asyncio.gather(*(post(olga, TRIGGERS, 200, {**PAY, "request_id": "r/1"}) for _ in range(4)))
    assert both == [first] * 4
    other = await post(olga, TRIGGERS, 409, {**PAY, "event": "Remind", "request_id": "r/1"})
    assert other["code"] == "SIGNAL_ID_REUSED"
    refused = await post(olga, TRIGGERS, 200, {**PAY, "request_id": "r2"})
    assert (refused["applied"], await post(olga, TRIGGERS, 200, PAY, idempotency_key="r2")) == (False, refused)
    assert await get(olga, f"{TRIGGERS}/r/1", external_ref="O-1") == first
    assert await get(olga, f"{TRIGGERS}/r2", external_ref="O-1") == refused
    assert (await get(olga, f"{TRIGGERS}/r3", 404, external_ref="O-1"))["code"] == "TRIGGER_UNKNOWN"
    assert (await get(olga, f"{TRIGGERS}/r2", 404, external_ref="O-2"))["code"] == "TRIGGER_UNKNOWN"
    assert (await get(olga, f"{TRIGGERS}/r2", 422))["code"] == "REQUEST_INVALID"
    twice = await post(olga, TRIGGERS, 422, {**PAY, "request_id": "r1"}, idempotency_key="r2")
    assert twice["code"] == "REQUEST_ID_AMBIGUOUS"


async def test_refusals_of_a_trigger_have_their_codes(server: Served) -> None:
    client = await operator(server)
    assert (await post(client, TRIGGERS, 404, PAY))["code"] == "FLOW_UNKNOWN"
    await post(client, "machines", 200, {"blueprint": BLUEPRINT})
    assert (await post(client, TRIGGERS, 422, PAY))["code"] == "CONSUMER_MISSING"
    assert (await get(client, "instances"))["items"] == []
    await post(client, "consumers", 200, {"environment": "prod", "name": "billing"})
    assert (await post(client, TRIGGERS, 422, {**PAY, "event": "Pray"}))["code"] == "EVENT_UNKNOWN"
    assert (await post(client, TRIGGERS, 404, {**PAY, "version": 7}))["code"] == "VERSION_UNKNOWN"
    for wrong in (
        {"external_ref": ""},
        {"event": 1.5},
        {"event": None},
        {"expected": -1},
        {"by": "eve"},
        {"occurred_at": 5},
    ):
        assert (await post(client, TRIGGERS, 422, {**PAY, **wrong}))["code"] == "REQUEST_INVALID", wrong


@pytest.mark.parametrize("grant", ["orders:finish", "orders:*", "*"])
async def test_guards_read_the_capabilities_of_the_caller(server: Served, olga: httpx2.AsyncClient, grant: str) -> None:
    finish = {"external_ref": "O-1", "event": "Finish"}
    await post(olga, TRIGGERS, 200, PAY)
    refused = await post(await server.person("sam", "orders:read"), TRIGGERS, 403, finish)
    assert refused["code"] == "GUARD_REFUSED"
    assert (await post(await server.person("sam", grant), TRIGGERS, 200, finish))["applied"] is True


async def test_an_instance_is_read_by_its_reference(server: Served, olga: httpx2.AsyncClient) -> None:
    told = await post(olga, TRIGGERS, 200, PAY)
    sam = await server.person("sam")
    found = await sam.get(f"/api/v1/{ORDERS}/instance", params={"external_ref": "O-1"})
    body = found.json()
    assert (body["id"], body["state"], body["last_event"], body["lifecycle"]) == (told["instance"], "Paid", "Pay", 1)
    assert (body["open_acks"], body["blocked_by"], body["external_ref"], body["status"]) == (2, [], "O-1", "running")
    known = {"If-None-Match": found.headers["etag"]}
    same = await sam.get(f"/api/v1/{ORDERS}/instance", params={"external_ref": "O-1"}, headers=known)
    assert (same.status_code, same.content) == (304, b"")
    await post(sam, TRIGGERS, 200, {**PAY, "event": "Remind"})
    after = await sam.get(f"/api/v1/{ORDERS}/instance", params={"external_ref": "O-1"}, headers=known)
    assert (after.status_code, after.json()["lifecycle"]) == (200, 2)
    assert (await get(sam, f"{ORDERS}/instance", 404, external_ref="O-2"))["code"] == "INSTANCE_UNKNOWN"


async def test_an_instance_of_another_partition_is_none(server: Served, olga: httpx2.AsyncClient) -> None:
    acme = server.engine.for_org("acme")
    hidden = await acme.trigger("prod", "order", "O-9", "Finish")  # not applicable: the instance stays where it began
    with psycopg.connect(server.engine.dsn, autocommit=True) as db:
        db.execute("set session_replication_role = replica")  # no verb gives a machine a partition
        db.execute("update holdfast.instances set attributes = %s", [Jsonb({"partition_id": "north"})])
    south, north = await server.person("sam", partition="south"), await server.person("sam", partition="north")
    for client, expected in ((south, 404), (north, 200)):
        await get(client, f"{ORDERS}/instance", expected, external_ref="O-9")
    refused = await post(south, TRIGGERS, 404, {**PAY, "external_ref": "O-9", "request_id": "r"})
    assert (refused["code"], str(hidden.instance) in str(refused)) == ("INSTANCE_UNKNOWN", False)
    await post(north, TRIGGERS, 200, {**PAY, "external_ref": "O-9", "request_id": "r"})
    assert (await get(south, f"{TRIGGERS}/r", 404, external_ref="O-9"))["code"] == "TRIGGER_UNKNOWN"


# --- backfill -------------------------------------------------------------------------------------------------------


async def test_a_past_is_given_once_and_whole(server: Served, olga: httpx2.AsyncClient) -> None:
    past = {
        "external_ref": "O-3",
        "events": [
            {"event": 1, "occurred_at": "2026-01-01T00:00:00Z", "payload": {"amount": 1}, "by": "ann"},
            {"event": "Finish", "occurred_at": "2026-01-02T00:00:00Z"},
        ],
    }
    for _ in range(2):
        told = await post(olga, f"{ORDERS}/backfill", 200, past)
        assert (told["applied"], told["to_state"], told["lifecycle"]) == (True, "Done", 2)
    entries = (await get(olga, f"instances/{told['instance']}/lifecycle"))["entries"]
    assert [(entry["actor"], entry["occurred_at"][:10]) for entry in entries[1:]] == [
        ("ann", "2026-01-01"),
        ("olga", "2026-01-02"),
    ]
    assert (await get(olga, f"instances/{told['instance']}/deliveries", closed="true"))["items"] == []
    late = [dict(past["events"][0], payload={"amount": 2})]
    assert (await post(olga, f"{ORDERS}/backfill", 409, {**past, "events": late}))["code"] == "SIGNAL_ID_REUSED"
    wrong = {"external_ref": "O-4", "events": [past["events"][1]]}
    assert (await post(olga, f"{ORDERS}/backfill", 422, wrong))["code"] == "BACKFILL_NOT_APPLICABLE"
    turned = {"external_ref": "O-4", "events": past["events"][::-1]}
    assert (await post(olga, f"{ORDERS}/backfill", 422, turned))["code"] == "BACKFILL_INVALID"
    assert (await post(await server.person("sam"), f"{ORDERS}/backfill", 403, past))["code"] == "SCOPE_MISSING"


# --- who may --------------------------------------------------------------------------------------------------------


async def test_other_tenants_know_nothing_of_it(server: Served, olga: httpx2.AsyncClient) -> None:
    await post(olga, TRIGGERS, 200, {**PAY, "request_id": "r"})
    globex = await operator(server, tenant="globex")
    assert (await get(globex, "machines"))["items"] == []
    past = {"external_ref": "O-1", "events": [{"event": 1, "occurred_at": "2026-01-01T00:00:00Z"}]}
    for method, path, body in (
        ("GET", ORDERS, None), ("GET", f"{ORDERS}/chart", None), ("POST", f"{ORDERS}/simulate", {"events": []}),
        ("POST", TRIGGERS, PAY), ("GET", f"{ORDERS}/instance?external_ref=O-1", None),
        ("POST", f"{ORDERS}/backfill", past), ("POST", "machines", {"policy": POLICY}),
    ):  # fmt: skip
        answer = await globex.request(method, f"/api/v1/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "FLOW_UNKNOWN"), path
    assert (await get(globex, f"{TRIGGERS}/r", 404, external_ref="O-1"))["code"] == "TRIGGER_UNKNOWN"


async def test_an_import_needs_its_scope(server: Served) -> None:
    assert (await post(await server.person("sam"), "machines", 403, {"blueprint": BLUEPRINT}))[
        "code"
    ] == "SCOPE_MISSING"
