"""A page ends where its bytes do, and nothing is missed: every list of the API, walked with the smallest of pages."""

from __future__ import annotations

from typing import Any

import pytest
from api_flows import get, operator, post, publish_flows, register_handlers, start
from http_server import Served

from holdfast.server.http import pages

pytestmark = pytest.mark.anyio

STARTS = 3


def test_a_page_ends_before_its_bytes_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_BYTES", 100)
    items = ["x" * 40] * 5
    assert pages.shown_of(items, 3) == (items[:2], "x" * 40)
    assert pages.shown_of(items[:2], 2) == (items[:2], None)
    assert pages.shown_of(["x" * 500, "y"], 5) == (["x" * 500], "x" * 500), "the first one is always there"
    assert pages.shown_of([], 5) == ([], None)
    assert pages.cut(items, "end", str.upper) == (items[:2], "X" * 40)
    assert pages.cut(items[:2], "end", str.upper) == (items[:2], "end")


async def test_every_list_gives_everything_however_small_its_pages(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish_flows(server.engine)
    register_handlers(server.engine)
    client = await operator(server)
    started = [(await start(client, input={"n": n, "text": "x" * 5_000}))["id"] for n in range(STARTS)]
    await server.engine.drain()
    await post(client, "consumers", body={"environment": "prod", "name": "decision"})
    lists = _lists(server, started[0])
    whole = {path: (await get(client, path, **filters))["items"] for path, filters in lists.items()}
    several = {path for path, items in whole.items() if len(items) > 1}
    assert several >= {"instances", "tasks", "definitions", f"instances/{started[0]}/events"}
    monkeypatch.setattr(pages, "MOST_BYTES", 1)
    for path, filters in lists.items():
        found: list[Any] = []
        page: dict[str, Any] = {"next": None}
        while True:
            page = await get(client, path, **filters, **({"cursor": page["next"]} if page["next"] else {}))
            assert len(page["items"]) <= 1, path
            found += page["items"]
            if page["next"] is None:
                break
        assert found == whole[path], path


def _lists(server: Served, instance: str) -> dict[str, dict[str, str]]:
    """Every route with a cursor, but the summaries of `/ui`, which carry no payload."""
    routes = {
        path: route["get"]
        for path, route in server.app.openapi()["paths"].items()
        if path.startswith("/api/v1/") and "get" in route
    }
    with_cursor = {
        path for path, route in routes.items() if any(one["name"] == "cursor" for one in route.get("parameters", ()))
    }
    found = {path.removeprefix("/api/v1/") for path in with_cursor}
    assert {"instances", "tasks", "effects", "dead-letters", "definitions"} <= found, found
    known = {"{instance_id}": instance, "{name}": "decision"}
    filled = {path: path for path in found if "{task_id}" not in path}
    for name, value in known.items():
        filled = {path: text.replace(name, value) for path, text in filled.items()}
    needed = {"tasks": {"role": "clerk"}, "consumers/decision/deliveries": {"environment": "prod"}}
    return {text: needed.get(text, {}) for text in filled.values()}
