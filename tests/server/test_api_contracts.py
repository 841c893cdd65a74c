"""/api/v1/contracts: publish, look, draft, check, publish a patch, restore, archive, rebase, diff, simulate."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import msgspec
import pytest
from api_flows import get, operator, post
from http_server import Served

from holdfast import Contract, Fill, Patch
from holdfast.core.model.program import Program
from holdfast.doors.envelope.written import contract_data, patch_data
from holdfast.graph.difference.model import Difference
from holdfast.runtime.envelopes import world
from holdfast.runtime.envelopes.simulated import Simulation
from holdfast.server import simulations
from holdfast.views.page import POLICY

pytestmark = pytest.mark.anyio


def contract(version: int = 1, approvals: int = 0) -> dict[str, Any]:
    states = Contract("invoice", version).state("draft").state("sent").state("paid", ends=True)
    gates = states.verb("send", "draft", "sent").gate("pay", "sent", "paid", approvals=approvals)
    return contract_data(gates.gate("back", "sent", "draft").slot("review", "sent", "pay").build())


def patch(role: str = "finance") -> dict[str, Any]:
    steps = Fill().approval("check", role=role).edge("in", "check").edge("check", "out", on="approved")
    return patch_data(Patch("invoice", envelope=1).slot("review", steps).build())


async def test_a_contract_is_published_and_read(server: Served) -> None:
    client = await operator(server)
    done = await post(client, "contracts", 200, {"contract": contract(), "reason": "first"})
    assert (done["type"], done["version"], done["new"], done["default"]) == ("invoice", 1, True, 1)
    assert not (await post(client, "contracts", 200, {"contract": contract()}))["new"]
    found = await get(client, "contracts/invoice")
    assert found["contract"] == contract()
    assert found == await get(client, "contracts/invoice/versions/1")
    assert [one["type"] for one in (await get(client, "contracts"))["items"]] == ["invoice"]
    assert [one["version"] for one in (await get(client, "contracts/invoice/versions"))["items"]] == [1]
    envelope = await get(client, "contracts/invoice/versions/1/envelope")
    assert envelope["graph"]["kind"] == "envelope"
    assert envelope["hash"] == done["hash"]
    for path in ("contracts/invoice/versions/1/mermaid", "contracts/invoice/mermaid"):
        drawing = await client.get(f"/api/v1/{path}")
        assert drawing.text.startswith("flowchart TD")
        assert "sys:gate:pay" in drawing.text
    graph = await get(client, "contracts/invoice/graph")
    assert graph["is_default"]
    assert graph["graph"]["kind"] == "effective"


async def test_everything_that_is_wrong_is_told_at_once(server: Served) -> None:
    client = await operator(server)
    wrong = contract() | {"states": [{"name": "draft"}, {"name": "draft"}], "colour": "red"}
    refused = await client.post("/api/v1/contracts", json={"contract": wrong})
    assert refused.status_code == 422
    assert len(refused.json()["errors"]) > 1
    assert (await client.get("/api/v1/contracts/invoice")).status_code == 404


async def test_a_draft_is_guarded_by_its_tag(server: Served) -> None:
    client = await operator(server)
    await post(client, "contracts", 200, {"contract": contract()})
    draft = "/api/v1/contracts/invoice/draft"
    saved = await client.put(draft, json={"patch": patch(), "reason": "try"})
    assert saved.status_code == 200
    assert saved.headers["etag"] == f'"{saved.json()["etag"]}"'
    again = await client.put(draft, json={"patch": patch("board")}, headers={"If-Match": saved.headers["etag"]})
    assert again.status_code == 200
    stale = {"If-Match": saved.headers["etag"]}
    for refused in (
        await client.put(draft, json={"patch": patch()}, headers=stale),
        await client.delete(draft, headers=stale),
        await client.post(f"{draft}/publish", json={}, headers=stale),
    ):
        assert (refused.status_code, refused.json()["code"]) == (412, "DRAFT_CHANGED")
    seen = await client.get(draft)
    assert seen.json()["patch"] == patch("board")
    assert seen.headers["etag"] == again.headers["etag"]
    assert (await client.delete(draft, headers={"If-Match": seen.headers["etag"]})).status_code == 204
    assert (await client.get(draft)).status_code == 404
    other = await client.put("/api/v1/contracts/order/draft", json={"patch": patch()})
    assert other.json()["code"] == "CONTRACT_AMBIGUOUS"


async def test_a_patch_from_draft_to_archive(server: Served) -> None:
    client = await operator(server)
    await post(client, "contracts", 200, {"contract": contract()})
    await client.put("/api/v1/contracts/invoice/draft", json={"patch": patch()})
    wrong = patch() | {"slots": {"nowhere": patch()["slots"]["review"]}}
    [found] = (await post(client, "contracts/invoice/draft/check", 200, {"patch": wrong}))["findings"]
    assert (found["code"], found["place"]) == ("SLOT_UNKNOWN", "slots.nowhere")
    assert (await post(client, "contracts/invoice/draft/check", 200, {}))["findings"] == []
    first = await post(client, "contracts/invoice/draft/publish", 200, {"reason": "agreed"})
    graph = await get(client, "contracts/invoice/graph")
    assert (graph["version"], graph["hash"], graph["is_default"]) == (first["version"], first["graph_hash"], False)
    second = await post(client, f"contracts/invoice/patches/{first['version']}/restore", 200, {})
    gone = await post(client, f"contracts/invoice/patches/{second['version']}/archive", 200, {"reason": "wrong"})
    assert gone["status"] == "archived"
    listed = (await get(client, "contracts/invoice/patches"))["items"]
    assert [(one["version"], one["status"]) for one in listed] == [
        (second["version"], "archived"),
        (first["version"], "published"),
    ]
    read = await get(client, f"contracts/invoice/patches/{first['version']}")
    assert read["patch"]["slots"] == patch()["slots"]
    events = (await get(client, "contracts/invoice/events"))["items"]
    assert [one["action"] for one in events][:3] == ["patch_archived", "patch_restored", "patch_published"]
    assert events[0]["reason"] == "wrong"
    assert events[0]["by"]


async def test_a_patch_moves_to_a_newer_contract(server: Served) -> None:
    client = await operator(server)
    await post(client, "contracts", 200, {"contract": contract()})
    await client.put("/api/v1/contracts/invoice/draft", json={"patch": patch()})
    await post(client, "contracts/invoice/draft/publish", 200, {})
    await post(client, "contracts", 200, {"contract": contract(2, approvals=1)})
    [dry] = (await post(client, "contracts/invoice/rebase", 200, {"dry_run": True}))["patches"]
    assert dry["status"] == "fits"
    assert dry["published"] is None
    [done] = (await post(client, "contracts/invoice/rebase", 200, {"to_version": 2}))["patches"]
    assert done["status"] == "published"
    await post(client, "contracts", 200, {"contract": contract(3, approvals=2)})
    [misfit] = (await post(client, "contracts/invoice/rebase", 200, {}))["patches"]
    assert misfit["status"] == "misfit"
    assert misfit["findings"][0]["code"] == "GATE_UNDERAPPROVED"


async def test_pages_follow_one_another(server: Served) -> None:
    client = await operator(server)
    for version in (1, 2, 3):
        await post(client, "contracts", 200, {"contract": contract(version)})
    for path in ("contracts/invoice/versions", "contracts/invoice/events"):
        page = await get(client, path, limit=2)
        rest = await get(client, path, limit=2, cursor=page["next"])
        assert [one["version"] for one in page["items"] + rest["items"]] == [3, 2, 1]
        assert rest["next"] is None


# --- two graphs, and a document in one of them ----------------------------------------------------------------------

DIFF = "/api/v1/contracts/invoice/diff"
SIMULATE = "contracts/invoice/simulate"
PAID = [{"do": "verb", "verb": "send"}, {"do": "decide", "node": "check", "by": "eva"}]


async def with_draft(server: Served) -> httpx2.AsyncClient:
    """A contract, a patch of version 2 in force, and a draft that asks the board instead."""
    client = await operator(server)
    await post(client, "contracts", 200, {"contract": contract()})
    await client.put("/api/v1/contracts/invoice/draft", json={"patch": patch()})
    assert (await post(client, "contracts/invoice/draft/publish", 200, {}))["version"] == 2
    await client.put("/api/v1/contracts/invoice/draft", json={"patch": patch("board")})
    return client


async def test_graphs_are_compared_with_the_contract_and_the_draft(server: Served) -> None:
    client = await with_draft(server)
    found = (await client.get(DIFF, params={"from": "envelope", "to": "2"})).json()
    assert (found["before"].get("patch"), found["after"]["patch"]) == (None, 2)
    [slot] = found["slots"]
    assert (slot["name"], slot["before"], slot["after"]) == ("review", "empty", "filled")
    told = msgspec.convert((await client.get(DIFF, params={"from": "2", "to": "draft"})).json(), Difference)
    assert (told.before.patch, told.after.patch) == (2, 3)
    [part] = told.parts
    assert (part.change, part.id) == ("changed", "usr:review:check")
    [field] = part.fields
    assert (field.aspect, field.before, field.after) == ("approvers", ["finance"], ["board"])
    same = (await client.get(DIFF, params={"from": "2", "to": "2"})).json()
    assert same["before"] == same["after"]
    assert msgspec.convert(same, Difference).is_empty


async def test_a_difference_is_text_or_a_page_as_well(server: Served) -> None:
    client = await with_draft(server)
    sides = {"from": "2", "to": "draft"}
    text = await client.get(DIFF, params=sides, headers={"Accept": "text/plain"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text.splitlines()[0] == "invoice: patch 2 of envelope 1 → draft for envelope 1"
    assert "approvers  role finance → board" in text.text
    page = await client.get(DIFF, params=sides, headers={"Accept": "text/html"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == f"{POLICY}; sandbox"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.text.count("<svg") == 2
    assert {text.headers["vary"], page.headers["vary"]} == {"Accept"}
    assert (await client.get(DIFF, params=sides, headers={"Accept": "image/png"})).status_code == 406


async def test_a_side_that_is_not_there_is_refused(server: Served) -> None:
    client = await with_draft(server)
    for sides, status, code in (
        ({"from": "envelope", "to": "9"}, 404, "EFFECTIVE_UNKNOWN"),
        ({"from": "9", "to": "2"}, 404, "EFFECTIVE_UNKNOWN"),
        ({"from": "draft", "to": "2"}, 422, "REQUEST_INVALID"),
        ({"from": "envelope", "to": "envelope"}, 422, "REQUEST_INVALID"),
        ({"from": "envelope"}, 422, "REQUEST_INVALID"),
    ):
        refused = await client.get(DIFF, params=sides)
        assert (refused.status_code, refused.json()["code"]) == (status, code), sides
    wrong = patch() | {"slots": {"nowhere": patch()["slots"]["review"]}}
    await client.put("/api/v1/contracts/invoice/draft", json={"patch": wrong})
    refused = await client.get(DIFF, params={"from": "2", "to": "draft"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "SLOT_UNKNOWN")
    await client.delete("/api/v1/contracts/invoice/draft")
    assert (await client.get(DIFF, params={"from": "2", "to": "draft"})).json()["code"] == "DRAFT_UNKNOWN"


async def test_a_document_is_sent_through_each_graph(server: Served) -> None:
    client = await with_draft(server)
    wish = {"document": {}, "script": PAID, "now": "2026-05-04T09:00:00Z"}
    told = {
        version: await post(client, SIMULATE, 200, wish | {"version": version}) for version in (None, 1, 2, "draft")
    }
    assert told[None] == told[2]
    done = {version: msgspec.convert(one, Simulation) for version, one in told.items()}
    assert {one.state for one in done.values()} == {"paid"}
    assert [[question.roles for question in done[version].questions] for version in (1, 2, "draft")] == [
        [],
        [("finance",)],
        [("board",)],
    ]
    assert [one.code for one in done[1].answers] == [None, "TASK_UNKNOWN"]
    assert done[2].questions[0].by == "eva"
    assert (await get(client, "instances"))["items"] == []
    assert (await post(client, SIMULATE, 404, wish | {"version": 9}))["code"] == "EFFECTIVE_UNKNOWN"
    for wrong in ({"version": "envelope"}, {"script": [{"do": "sing"}]}, {"script": [{"do": "wait", "seconds": -1}]}):
        assert (await post(client, SIMULATE, 422, wish | wrong))["code"] == "REQUEST_INVALID", wrong


async def test_a_simulation_stays_within_its_limits(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the calendar, of a script, and of an answer."""
    client = await with_draft(server)
    years = [{"do": "wait", "seconds": 3e9}, {"do": "verb", "verb": "send"}]
    assert (await post(client, SIMULATE, 422, {"document": {}, "script": years * 100}))["code"] == "INPUT_INVALID"
    too_many = await post(client, SIMULATE, 422, {"document": {}, "script": [{"do": "wait", "seconds": 1}] * 1001})
    assert too_many["code"] == "REQUEST_INVALID"
    monkeypatch.setattr(simulations, "MOST_BYTES", 1000)
    assert (await post(client, SIMULATE, 422, {"document": {}, "script": PAID}))["code"] == "SIMULATION_TOO_LARGE"


async def test_nobody_waits_for_a_simulation(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await with_draft(server)
    linked: list[Program] = []
    link = world.link

    def off_the_loop(*args: Any) -> Program:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        linked.append(link(*args))
        return linked[-1]

    monkeypatch.setattr(world, "link", off_the_loop)
    await post(client, SIMULATE, 200, {"document": {}})
    assert len(linked) == 1


async def test_graphs_of_another_tenant_are_not_there(server: Served) -> None:
    await with_draft(server)
    globex = await operator(server, tenant="globex")
    refused = await globex.get(DIFF, params={"from": "envelope", "to": "2"})
    assert (refused.status_code, refused.json()["code"]) == (404, "CONTRACT_UNKNOWN")
    assert (await post(globex, SIMULATE, 404, {"document": {}}))["code"] == "CONTRACT_UNKNOWN"
