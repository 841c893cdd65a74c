"""/api/v1/rule-tables: publish decision tables and look at them."""

from __future__ import annotations

from typing import Any

import pytest
from api_flows import get, operator, post
from http_server import Served

from holdfast import DecisionTable
from holdfast.doors.envelope.decision_tables.building import table_data

pytestmark = pytest.mark.anyio


def limits(version: int = 1, *, name: str = "limits", bound: int = 50000) -> dict[str, Any]:
    table = DecisionTable(name, version).column("total", "money").row({"signatures": 0}, {"total": {"below": bound}})
    return table_data(table.row({"signatures": 2}).build())


async def test_a_table_is_published_and_read(server: Served) -> None:
    client = await operator(server)
    done = await post(client, "rule-tables", 200, {"table": limits(), "reason": "audit"})
    assert (done["name"], done["version"], done["new"]) == ("limits", 1, True)
    assert not (await post(client, "rule-tables", 200, {"table": limits()}))["new"]
    await post(client, "rule-tables", 200, {"table": limits(2, bound=7)})
    first, newest = await get(client, "rule-tables/limits", version=1), await get(client, "rule-tables/limits")
    assert (first["table"], newest["table"]) == (limits(), limits(2, bound=7))
    assert (first["hash"], first["reason"], newest["reason"]) == (done["hash"], "audit", None)
    assert first["created_by"]


async def test_a_version_with_other_content_is_a_conflict(server: Served) -> None:
    client = await operator(server)
    await post(client, "rule-tables", 200, {"table": limits()})
    refused = await client.post("/api/v1/rule-tables", json={"table": limits(bound=7)})
    assert (refused.status_code, refused.json()["code"]) == (409, "VERSION_TAKEN")
    assert (await get(client, "rule-tables/limits"))["table"] == limits()


async def test_everything_that_is_wrong_is_told_at_once(server: Served) -> None:
    client = await operator(server)
    wrong = limits() | {"hit": "last", "colour": "red"}
    refused = await client.post("/api/v1/rule-tables", json={"table": wrong})
    assert refused.status_code == 422
    assert {one["code"] for one in refused.json()["errors"]} == {"TABLE_VALUE_INVALID", "TABLE_KEY_UNKNOWN"}
    for path in ("rule-tables/limits", "rule-tables/limits?version=3"):
        missing = await client.get(f"/api/v1/{path}")
        assert (missing.status_code, missing.json()["code"]) == (404, "TABLE_UNKNOWN")


async def test_pages_follow_one_another(server: Served) -> None:
    client = await operator(server)
    for name in ("b", "c", "a"):
        await post(client, "rule-tables", 200, {"table": limits(name=name)})
    page = await get(client, "rule-tables", limit=2)
    rest = await get(client, "rule-tables", limit=2, cursor=page["next"])
    assert [one["name"] for one in page["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next"] is None
