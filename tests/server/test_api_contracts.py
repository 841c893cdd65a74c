"""/api/v1/contracts: publish, look, draft, check, publish a patch, restore, archive, rebase."""

from __future__ import annotations

from typing import Any

import pytest
from api_flows import get, operator, post
from http_server import Served

from holdfast import Contract, Fill, Patch
from holdfast.doors.envelope.written import contract_data, patch_data

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
