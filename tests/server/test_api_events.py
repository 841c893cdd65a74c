"""/api/v1/events: for whoever waits with a key, in one's own tenant."""

from __future__ import annotations

from typing import Any

import pytest
from api_flows import get, post, start
from http_server import Served

pytestmark = pytest.mark.anyio

PARCEL: dict[str, Any] = {
    "name": "parcel",
    "entry": "paid",
    "policy": {"data": "context"},
    "nodes": [
        {"id": "paid", "kind": "wait_event", "wait": {"event": "paid", "key": "input.order"}},
        {"id": "end", "kind": "end"},
    ],
    "edges": [{"id": "go", "source": "paid", "target": "end", "on": "paid"}],
}
PAID = {"event": "paid", "key": "order-17", "payload": {"amount": 5}}


@pytest.fixture
async def parcels(server: Served) -> Served:
    for org in ("acme", "globex"):
        await server.engine.for_org(org).publish(PARCEL)
    return server


async def test_an_event_reaches_every_wait_with_its_key_in_the_tenant_only(parcels: Served) -> None:
    ann, eve = await parcels.person("ann"), await parcels.person("eve", tenant="globex")
    waiting = [(await start(ann, "parcel", input={"order": "order-17"}))["id"] for _ in range(2)]
    other = (await start(ann, "parcel", input={"order": "order-18"}))["id"]
    foreign = (await start(eve, "parcel", input={"order": "order-17"}))["id"]
    await parcels.engine.drain()
    gateway = await parcels.person("gateway")
    sent = await post(gateway, "events", 202, PAID)
    assert (sent["event"], sent["key"]) == ("paid", "order-17")
    await parcels.engine.drain()
    for id in waiting:
        assert (await get(ann, f"instances/{id}"))["status"] == "completed"
        trail = (await get(ann, f"instances/{id}/events"))["items"]
        assert "gateway" in {event["actor"] for event in trail}
    assert (await get(ann, f"instances/{other}"))["status"] == "running"
    assert (await get(eve, f"instances/{foreign}"))["status"] == "running"


async def test_an_event_is_kept_for_a_wait_that_opens_later(parcels: Served) -> None:
    ann = await parcels.person("ann")
    await post(ann, "events", 202, PAID)
    id = (await start(ann, "parcel", input={"order": "order-17"}))["id"]
    await parcels.engine.drain()
    assert (await get(ann, f"instances/{id}"))["status"] == "completed"


async def test_a_repeat_with_its_key_is_the_same_event(parcels: Served) -> None:
    ann, eve = await parcels.person("ann"), await parcels.person("eve", tenant="globex")
    first = await post(ann, "events", 202, PAID, idempotency_key="p-1")
    assert await post(ann, "events", 202, PAID, idempotency_key="p-1") == first
    assert (await post(ann, "events", 409, {**PAID, "payload": 6}, idempotency_key="p-1"))["code"] == "SIGNAL_ID_REUSED"
    for elsewhere in ({**PAID, "key": "order-18"}, {**PAID, "event": "sent"}):
        assert (await post(ann, "events", 202, elsewhere, idempotency_key="p-1"))["id"] != first["id"]
    assert (await post(eve, "events", 202, PAID, idempotency_key="p-1"))["id"] != first["id"]
    assert (await post(ann, "events", 202, PAID))["id"] != first["id"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"event": "paid"}, "REQUEST_INVALID"),
        ({**PAID, "key": ""}, "REQUEST_INVALID"),
        ({**PAID, "instance": "x"}, "REQUEST_INVALID"),
        ({**PAID, "key": "ä" * 400}, "KEY_INVALID"),
        ({**PAID, "event": "ä" * 150}, "ARGUMENT_INVALID"),
    ],
)
async def test_what_is_no_event_is_refused(parcels: Served, body: dict[str, Any], code: str) -> None:
    assert (await post(await parcels.person("ann"), "events", 422, body))["code"] == code
