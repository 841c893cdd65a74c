"""A page ends where its bytes do, and nothing is missed: every list of the API, walked with the smallest of pages."""

from __future__ import annotations

from typing import Any

import pytest
from api_flows import get, operator, post, publish_flows, register_handlers, start
from http_server import Served

from holdfast import Contract, Machine
from holdfast.doors.envelope.written import contract_data
from holdfast.server.http import pages

pytestmark = pytest.mark.anyio

STARTS = 3
PAIR: dict[str, Any] = {
    "name": "pair",
    "version": 1,
    "environment": "prod",
    "states": [{"name": "New", "is_initial": True}, {"name": "Done", "is_final": True}],
    "events": [{"code": 1, "name": "Go"}],
    "transitions": [{"from": "New", "event": 1, "to": "Done"}],
}


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
    await _tell(server, started[0])
    for version in (1, 2):
        contract = Contract("invoice", version).state("draft").state("paid", ends=True).verb("pay", "draft", "paid")
        await post(client, "contracts", body={"contract": contract_data(contract.build())})
    lists = _lists(server, started[0])
    whole = {path: _lasting((await get(client, path, **filters))["items"]) for path, filters in lists.items()}
    several = {path for path, items in whole.items() if len(items) > 1}
    of_one = {f"instances/{started[0]}/{what}" for what in ("events", "activities")} | {
        "contracts/invoice/versions",
        "contracts/invoice/events",
    }
    told = {"machines", "consumers", "consumers/decision/deliveries", "notices"}
    assert several >= {"instances", "tasks", "definitions", *of_one, *told}
    monkeypatch.setattr(pages, "MOST_BYTES", 1)
    for path, filters in lists.items():
        found: list[Any] = []
        page: dict[str, Any] = {"next": None}
        while True:
            page = await get(client, path, **filters, **({"cursor": page["next"]} if page["next"] else {}))
            assert len(page["items"]) <= 1, path
            found += _lasting(page["items"])
            if page["next"] is None:
                break
        assert found == whole[path], path


def _lasting(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without how long a consumer has been behind."""
    return [{name: value for name, value in item.items() if name != "behind"} for item in items]


async def _tell(server: Served, instance: str) -> None:
    """Two machines and two consumers with two facts each, two notices, two activities."""
    acme, client = server.engine.for_org("acme"), await operator(server)
    for name in ("pair", "twin"):
        await acme.import_machine(Machine.load({**PAIR, "name": name}))
    for name in ("decision", "other"):
        await acme.register_consumer("prod", name)
    for ref in ("P-1", "P-2"):
        await acme.trigger("prod", "pair", ref, "Go")
    for n in range(2):
        await post(client, f"instances/{instance}/activities", 200, {"name": f"n{n}", "status": "s", "entry": "none"})
        server.engine.board.tell_error(f"TOLD_{n}", "told", org="acme")
    await server.engine.board.told()


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
    known = {"{instance_id}": instance, "{name}": "decision", "{type}": "invoice"}
    filled = {path: path for path in found if "{task_id}" not in path}
    for name, value in known.items():
        filled = {path: text.replace(name, value) for path, text in filled.items()}
    filters = {"tasks": {"role": "clerk"}, "consumers/decision/deliveries": {"environment": "prod"}}
    return {text: filters.get(text, {}) for text in filled.values()}
