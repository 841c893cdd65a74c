"""/api/v1/definitions: publish, list, look at."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_flows import DECISION, REVIEW_YAML, clerk, get, operator, post
from http_server import Served

from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Graph
from holdfast.runtime import publishing
from holdfast.server.http.pages import Listing

pytestmark = pytest.mark.anyio

YAML = {"content-type": "application/yaml"}


async def test_a_yaml_file_is_published_and_found_again(server: Served) -> None:
    client = await operator(server)
    answer = await client.post("/api/v1/definitions", content=REVIEW_YAML, headers=YAML)
    assert answer.status_code == 200, answer.text
    [published] = answer.json()["published"]
    assert published["name"] == "orders.review"
    assert published["new"] is True

    again = await client.post("/api/v1/definitions", content=REVIEW_YAML, headers=YAML)
    assert again.json()["published"] == [{**published, "new": False}]

    [listed] = (await get(client, "definitions"))["items"]
    assert (listed["name"], listed["version"], listed["shared"]) == ("orders.review", 1, False)
    assert listed["created_by"] == "olga"
    assert (await get(client, "definitions/orders.review/versions"))["items"] == [listed]
    document = await get(client, "definitions/orders.review")
    assert document == await get(client, "definitions/orders.review/versions/1")
    assert "orders.review" in document["source"]["yaml"]
    graph = await get(client, "definitions/orders.review/versions/1/graph")
    assert {node["id"] for node in graph["graph"]["nodes"]} == {"review", "approved", "refused"}
    drawing = await client.get("/api/v1/definitions/orders.review/versions/1/mermaid")
    assert drawing.headers["content-type"].startswith("text/plain")
    assert drawing.text.startswith("flowchart TD")


async def test_a_graph_is_published_as_json(server: Served) -> None:
    client = await operator(server)
    published = await post(client, "definitions", body=DECISION)
    assert [one["name"] for one in published["published"]] == ["decision"]
    graph = await get(client, "definitions/decision/versions/1/graph")
    again = await post(client, "definitions?dry_run=true", body=graph["graph"])
    told = {"name": "decision", "version": 1, "hash": graph["hash"], "new": False, "unknown_flows": []}
    assert again["published"][0] == told


async def test_a_dry_run_publishes_nothing(server: Served) -> None:
    client = await operator(server)
    answer = await client.post("/api/v1/definitions?dry_run=true", content=REVIEW_YAML, headers=YAML)
    assert answer.json()["dry_run"] is True
    assert answer.json()["published"][0]["new"] is True
    assert (await get(client, "definitions"))["items"] == []


async def test_every_problem_of_a_file_is_told_with_its_place(server: Served) -> None:
    client = await operator(server)
    broken = REVIEW_YAML.replace("type: approval", "typ: approval").replace("to: refused", "to: nowhere")
    answer = await client.post("/api/v1/definitions?file=orders.yaml", content=broken, headers=YAML)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"].startswith("STEPS_")
    assert len(problem["errors"]) >= 2
    for error in problem["errors"]:
        assert error["file"] == "orders.yaml"
        assert error["line"] >= 1
        assert error["column"] >= 1
        assert error["code"]
        assert error["message"]
    assert (await get(client, "definitions"))["items"] == []


async def test_problems_of_a_graph_are_told_with_their_place(server: Served) -> None:
    client = await operator(server)
    edges = [*DECISION["edges"], {"id": "lost", "source": "do", "target": "nowhere"}]
    problem = await post(client, "definitions", 422, {**DECISION, "edges": edges})
    assert problem["code"] == "DEFINITION_INVALID"
    assert ("UNKNOWN_TARGET", "edges.lost") in {
        (e["code"], e["place"].rpartition(".target")[0] or e["place"]) for e in problem["errors"]
    }


async def test_other_content_under_the_same_version_is_refused_and_nothing_is_stored(server: Served) -> None:
    client = await operator(server)
    await client.post("/api/v1/definitions", content=REVIEW_YAML, headers=YAML)
    other = REVIEW_YAML.replace("maxLength: 20", "maxLength: 30")
    new = REVIEW_YAML.replace("orders.review", "orders.before").partition("workflows:\n")[2]
    both = f"workflows:\n{new}{other.partition('workflows:')[2][1:]}"
    answer = await client.post("/api/v1/definitions", content=both, headers=YAML)
    assert (answer.status_code, answer.json()["code"]) == (409, "VERSION_TAKEN")
    assert [one["name"] for one in (await get(client, "definitions"))["items"]] == ["orders.review"]


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (b"\xff\xfe", "application/yaml", 422),
        (b"", "application/yaml", 422),
        (b"", "application/json", 422),
        (b"[1]", "application/json", 422),
        (b'{"name": NaN}', "application/json", 422),
        (b'{"name": "a", "name": "b"}', "application/json", 422),
        (b"a: &a [*a, *a]", "text/yaml", 422),
        (b"!!python/object/apply:os.system [ls]", "text/yaml", 422),
        (b"x", "text/plain", 415),
    ],
)
async def test_what_is_no_definition_is_refused(server: Served, content: bytes, media: str, status: int) -> None:
    client = await operator(server)
    answer = await client.post("/api/v1/definitions", content=content, headers={"content-type": media})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"]


async def test_publishing_needs_its_scope(server: Served) -> None:
    client = await clerk(server)
    problem = await post(client, "definitions", 403, DECISION)
    assert problem["code"] == "SCOPE_MISSING"


async def test_versions_of_another_tenant_do_not_exist(server: Served) -> None:
    mine, theirs = await operator(server), await operator(server, tenant="other")
    await post(mine, "definitions", body=DECISION)
    for path in ("", "/versions", "/versions/1", "/versions/1/graph", "/versions/1/mermaid"):
        problem = await get(theirs, f"definitions/decision{path}", 404)
        unknown = await get(theirs, f"definitions/unknown{path}", 404)
        assert problem["code"] == unknown["code"] == "FLOW_UNKNOWN"
    assert (await get(theirs, "definitions"))["items"] == []
    await post(theirs, "definitions", body={**DECISION, "policy": {"data": "context"}})  # the same name, of their own


async def test_lists_have_pages(server: Served) -> None:
    client = await operator(server)
    for version in (1, 2, 3):
        await post(client, "definitions", body={**DECISION, "version": version})
        await post(client, "definitions", body={**DECISION, "name": f"other-{version}"})
    assert await _all(client, "definitions", 3) == ["decision 3", "other-1 1", "other-2 1", "other-3 1"]
    assert await _all(client, "definitions/decision/versions", 2) == ["decision 3", "decision 2", "decision 1"]


@pytest.mark.parametrize("how", ["definitions", "definitions?dry_run=true"])
async def test_nobody_waits_for_a_definition_to_be_compiled(
    server: Served, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A large one takes seconds."""
    compiled: list[str] = []

    def off_the_loop(graph: Graph) -> Any:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        compiled.append(graph.name)
        return compile_graph(graph)

    client = await operator(server)
    monkeypatch.setattr(publishing, "compile_graph", off_the_loop)
    await post(client, how, body=DECISION)
    answer = await client.post(f"/api/v1/{how}", content=REVIEW_YAML, headers=YAML)
    assert answer.is_success, answer.text
    assert set(compiled) == {"decision", "orders.review"}


async def test_pages_hold_what_is_shared_behind_what_is_the_tenants_own(server: Served) -> None:
    shared, client = server.engine.for_org("_system"), await operator(server)
    for version in (1, 2, 3, 4):
        await shared.publish({**DECISION, "version": version})
    await shared.publish({**DECISION, "name": "before"})
    for version in (2, 3):
        await post(client, "definitions", body={**DECISION, "version": version, "policy": {"data": "context"}})
    expected = ["decision 3", "decision 2", "decision 4", "decision 3", "decision 2", "decision 1"]
    for limit in (1, 2, 6):
        assert await _all(client, "definitions", limit) == ["before 1", "decision 3"]
        assert await _all(client, "definitions/decision/versions", limit) == expected
    told = (await get(client, "definitions/decision/versions"))["items"]
    assert [one["shared"] for one in told] == [False] * 2 + [True] * 4


@pytest.mark.parametrize(
    "position",
    [
        "x",
        "2",
        '{"shared":false,"version":99999999999,"kind":"saga"}',
        '{"shared":false,"version":1,"kind":"\\u0000"}',
    ],
)
async def test_a_cursor_of_ones_own_making_is_refused(server: Served, position: str) -> None:
    client = await operator(server)
    await post(client, "definitions", body=DECISION)
    forged = Listing("acme", "versions", name="decision").cursor(position)
    assert (await get(client, "definitions/decision/versions", 422, cursor=forged))["code"] == "CURSOR_INVALID"


async def _all(client: Any, path: str, limit: int) -> list[str]:
    found, cursor = [], {}
    while True:
        page = await get(client, path, limit=limit, **cursor)
        found += [f"{one['name']} {one['version']}" for one in page["items"]]
        if page["next"] is None:
            return found
        assert len(page["items"]) == limit
        cursor = {"cursor": page["next"]}
