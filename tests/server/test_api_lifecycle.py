"""/api/v1/instances/…/lifecycle and …/activities: where a machine has been, and what was done there."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from api_flows import get, operator, post, start
from http_server import Served

pytestmark = pytest.mark.anyio

CASE: dict[str, Any] = {
    "name": "case",
    "entry": "open",
    "policy": {"data": "context"},
    "config": {"codes": {"check": 7}},
    "nodes": [
        {"id": "open", "kind": "state"},
        {"id": "secret", "kind": "state", "capabilities": ["case:see"]},
        {"id": "closed", "kind": "end"},
    ],
    "edges": [
        {"id": "a", "source": "open", "target": "secret", "on": "check"},
        {"id": "b", "source": "secret", "target": "closed", "on": "close"},
    ],
}


@pytest.fixture
async def case(server: Served) -> tuple[Served, str]:
    await server.engine.for_org("acme").publish(CASE)
    id = (await start(await server.person("sam"), "case"))["id"]
    await server.engine.drain()
    return server, id


async def moved(served: Served, id: str, event: str) -> None:
    await served.engine.for_org("acme").signal(id, event, {"said": event}, by="olga", capabilities=("case:see",))
    await served.engine.drain()


async def test_the_document_and_what_is_done_in_its_entries(case: tuple[Served, str]) -> None:
    served, id = case
    olga = await operator(served)
    written = await post(olga, f"instances/{id}/activities", 200, {"name": "Check", "status": "Open", "data": [1]})
    assert (written["entry"], written["actor"], written["status"], written["frozen"]) == (0, "olga", "Open", False)
    await moved(served, id, "check")
    await post(olga, f"instances/{id}/activities", 200, {"name": "Call", "status": "Done", "entry": "none"})
    document = await get(olga, f"instances/{id}/lifecycle")
    assert (document["instance"]["current_state"], document["instance"]["last_event"]) == ("secret", "check")
    assert [(e["from_state"], e["to_state"], e["event"], e["event_code"],
    e["payload"]) for e in document["entries"]] == [
        (None, "open", None, None, None), ("open", "secret", "check", 7, {"said": "check"})
    ]  # fmt: skip
    assert document["entries"][0]["activities"] == [written]
    assert [each["name"] for each in document["other_activities"]] == ["Call"]
    last = await get(olga, f"instances/{id}/lifecycle", last=1)
    assert (len(last["entries"]), last["truncated"]) == (1, True)


async def test_a_document_that_is_known_is_not_sent_again(case: tuple[Served, str]) -> None:
    served, id = case
    olga = await operator(served)
    first = await olga.get(f"/api/v1/instances/{id}/lifecycle")
    again = await olga.get(f"/api/v1/instances/{id}/lifecycle", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await post(olga, f"instances/{id}/activities", 200, {"name": "Check", "status": "Open"})
    changed = await olga.get(f"/api/v1/instances/{id}/lifecycle", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/html", "text/html; charset=utf-8"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html; charset=utf-8"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("application/json;q=0, */*", "text/html; charset=utf-8"),
    ],
)
async def test_browsers_get_a_page(case: tuple[Served, str], accept: str | None, expected: str) -> None:
    served, id = case
    olga = await operator(served)
    answer = await olga.get(f"/api/v1/instances/{id}/lifecycle", headers={} if accept is None else {"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, expected)
    assert answer.headers["vary"] == "Accept"
    if expected.startswith("text/html"):
        assert answer.text.startswith("<!DOCTYPE html>")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    refused = await olga.get(f"/api/v1/instances/{id}/lifecycle", headers={"Accept": "image/png"})
    assert refused.status_code == 406


async def test_states_one_may_not_see_are_left_out(case: tuple[Served, str]) -> None:
    served, id = case
    olga, sam, vera = await operator(served), await served.person("sam"), await served.person("vera", "case:see")
    await moved(served, id, "check")
    await post(olga, f"instances/{id}/activities", 200, {"name": "Check", "status": "Open"})
    for client, states in ((olga, ["open", "secret"]), (vera, ["open", "secret"])):
        assert [e["to_state"] for e in (await get(client, f"instances/{id}/lifecycle"))["entries"]] == states
    document = await get(sam, f"instances/{id}/lifecycle")
    assert [e["to_state"] for e in document["entries"]] == ["open"]
    assert (document["instance"]["current_state"], document["instance"]["last_event"]) == (None, None)
    assert (await get(sam, f"instances/{id}/activities"))["items"] == []
    assert len((await get(vera, f"instances/{id}/activities"))["items"]) == 1
    await moved(served, id, "close")
    last = (await get(sam, f"instances/{id}/lifecycle"))["entries"][-1]
    assert (last["to_state"], last["from_state"], last["event"], last["payload"]) == ("closed", None, None, None)


async def test_a_frozen_activity_is_changed_by_nobody(case: tuple[Served, str]) -> None:
    served, id = case
    olga, sam = await operator(served), await served.person("sam")
    body = {"name": "Check", "status": "Open"}
    written = await post(sam, f"instances/{id}/activities", 200, body)
    path = f"instances/{id}/activities/{written['id']}"
    assert (await post(sam, f"{path}/freeze", 403))["code"] == "SCOPE_MISSING"
    for _ in range(2):
        assert (await post(olga, f"{path}/freeze", 200))["frozen"]
    assert (await post(sam, f"instances/{id}/activities", 409, body))["code"] == "ACTIVITY_FROZEN"
    assert not (await post(olga, f"{path}/unfreeze", 200))["frozen"]
    assert (await post(sam, f"instances/{id}/activities", 200, body))["id"] == written["id"]
    nowhere = f"instances/{id}/activities/{uuid4()}"
    for verb in ("freeze", "unfreeze"):
        assert (await post(olga, f"{nowhere}/{verb}", 404))["code"] == "ACTIVITY_UNKNOWN"


async def test_activities_come_in_pages(case: tuple[Served, str]) -> None:
    served, id = case
    sam = await served.person("sam")
    for n in range(3):
        await post(sam, f"instances/{id}/activities", 200, {"name": f"n{n}", "status": "Open", "entry": 0})
    page = await get(sam, f"instances/{id}/activities", limit=2)
    rest = await get(sam, f"instances/{id}/activities", limit=2, cursor=page["next"])
    assert [each["name"] for each in (*page["items"], *rest["items"])] == ["n0", "n1", "n2"]
    assert rest["next"] is None


@pytest.mark.parametrize(
    "body",
    [{}, {"name": "", "status": "x"}, {"name": "x", "status": "x", "entry": -1}, {"name": "x", "status": "x",
    "entry": "1"},
     {"name": "x", "status": "x", "by": "ben"}, {"name": "x" * 201, "status": "x"}],
)  # fmt: skip
async def test_wrong_wishes_are_refused(case: tuple[Served, str], body: dict[str, Any]) -> None:
    served, id = case
    await post(await served.person("sam"), f"instances/{id}/activities", 422, body)


async def test_an_entry_that_is_not_there(case: tuple[Served, str]) -> None:
    served, id = case
    body = {"name": "x", "status": "x", "entry": 3}
    assert (await post(await served.person("sam"), f"instances/{id}/activities", 404, body))["code"] == "ENTRY_UNKNOWN"
