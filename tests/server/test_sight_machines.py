"""Sight at machines: who may not see an instance learns nothing of it by its reference, whatever version is the newest.

A graph of the kind machine may name capabilities, which an imported one cannot: for its instances, and for states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from api_flows import get, operator, post
from http_server import Served
from test_sight_doors import KINDS

from holdfast import Engine
from holdfast.store.consumers import KnownConsumer

pytestmark = pytest.mark.anyio

SECRET: dict[str, Any] = {
    "name": "prod.case",
    "kind": "machine",
    "entry": "open",
    "policy": {
        "data": "context", "on_error": "suspend", "on_cancel": "stop", "early": False, "capabilities": ["case:see"],
    },
    "config": {
        "environment": "prod", "definition": "case", "blueprint": 1, "codes": {"check": 7, "close": 8, "reopen": 9},
    },
    "nodes": [
        {"id": "open", "kind": "state"},
        {"id": "checked", "kind": "state", "capabilities": ["case:check"]},
        {"id": "closed", "kind": "terminal"},
    ],
    "edges": [
        {"id": "a", "source": "open", "target": "checked", "on": "check"},
        {"id": "b", "source": "checked", "target": "closed", "on": "close"},
        {"id": "c", "source": "checked", "target": "open", "on": "reopen"},
    ],
}  # fmt: skip
OPEN: dict[str, Any] = {**SECRET, "version": 2, "policy": {**SECRET["policy"], "capabilities": []}}
CASE = "machines/prod/case"
CHECK = {"external_ref": "C-1", "event": "check", "request_id": "r-1"}

# By operation: what is asked of the instance C-1, or of the consumer billing.
ABOUT_INSTANCES: dict[str, dict[str, Any]] = {
    "trigger_machine": {"external_ref": "C-1", "event": "close"},
    "get_trigger_answer": {},
    "get_machine_instance": {},
    "backfill_machine": {"external_ref": "C-1", "events": [{"event": 7, "occurred_at": "2026-01-01T00:00:00Z"}]},
}
ABOUT_CONSUMERS: dict[str, dict[str, Any]] = {
    "get_consumer": {},
    "list_consumer_deliveries": {},
    "beat_consumer": {},
    "remove_consumer": {},
    "replay_consumer": {"since": "2026-01-01T00:00:00Z"},
    "receive_facts": {},
    "stream_facts": {},
    "acknowledge_fact": {"ack": "A", "outcome": "processed"},
}
ABOUT_DEFINITIONS = {"get_machine", "get_machine_chart", "simulate_machine"}


def doors(app: Any, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Operation, method and path of the routes about one thing below a prefix."""
    for route in app.routes:
        if route.path.startswith(prefix) and route.param_convertors and not KINDS.keys() & route.param_convertors:
            [method] = route.methods - {"HEAD"}
            yield route.operation_id, method, route.path


@pytest.fixture
async def case(server: Served, engine: Engine) -> Served:
    acme = engine.for_org("acme")
    await acme.publish(SECRET)
    await acme.register_consumer("prod", "billing")
    sara = await server.person("sara", "case:see", "case:check")
    told = await post(sara, f"{CASE}/triggers", 200, CHECK)
    assert (told["applied"], told["to_state"]) == (True, "checked")
    return server


async def test_instances_of_an_older_version_are_as_secret_as_they_began(case: Served) -> None:
    await case.engine.for_org("acme").publish(OPEN)
    vera = await case.person("vera")
    for event in ("close", "reopen", "check"):
        refused = await post(vera, f"{CASE}/triggers", 404, {"external_ref": "C-1", "event": event})
        assert refused["code"] == "INSTANCE_UNKNOWN"
    assert (await get(vera, f"{CASE}/instance", 404, external_ref="C-1"))["code"] == "INSTANCE_UNKNOWN"
    assert (await get(vera, f"{CASE}/triggers/r-1", 404, external_ref="C-1"))["code"] == "TRIGGER_UNKNOWN"
    olga = await operator(case)
    assert (await get(olga, f"{CASE}/instance", external_ref="C-1"))["state"] == "checked"


async def test_answers_leave_out_states_one_may_not_see(case: Served) -> None:
    vera, sara = await case.person("vera", "case:see"), await case.person("sara", "case:see", "case:check")
    assert (await get(vera, f"{CASE}/instance", external_ref="C-1"))["state"] is None
    assert (await get(sara, f"{CASE}/triggers/r-1", external_ref="C-1"))["to_state"] == "checked"
    told = await get(vera, f"{CASE}/triggers/r-1", external_ref="C-1")
    assert (told["from_state"], told["to_state"], told["event"]) == ("open", None, "check")
    again = await post(vera, f"{CASE}/triggers", 200, CHECK)
    assert (again["from_state"], again["to_state"]) == ("open", None)
    unfit = await post(vera, f"{CASE}/triggers", 200, {**CHECK, "request_id": "r-2"})
    assert (unfit["applied"], unfit["from_state"], unfit["to_state"]) == (False, None, None)


async def test_every_door_to_an_instance_is_shut(case: Served) -> None:
    tried = list(doors(case.app, "/api/v1/machines/"))
    assert {operation for operation, *_ in tried} == ABOUT_INSTANCES.keys() | ABOUT_DEFINITIONS
    strangers = {
        "of the same company": await case.person("vera", "case:other"),
        "with a wildcard": await case.person("vera", "orders:*"),
        "with a key": await case.client({**dict((await case.person("vera")).headers), "Idempotency-Key": "r-1"}),
    }
    before = await case.engine.for_org("acme").machine("prod", "case", "C-1")
    for who, client in strangers.items():
        for operation, method, path in tried:
            if operation in ABOUT_DEFINITIONS:
                continue
            body = ABOUT_INSTANCES[operation] or None
            query = {} if body else {"external_ref": "C-1"}
            place = path.replace("{request_id:path}", "r-1").format(environment="prod", name="case")
            answer = await client.request(method, place, json=body, params=query)
            expected = {"get_trigger_answer": (404, "TRIGGER_UNKNOWN"), "backfill_machine": (403, "SCOPE_MISSING")}
            found = answer.status_code, answer.json()["code"]
            assert found == expected.get(operation, (404, "INSTANCE_UNKNOWN")), (who, operation)
    assert await case.engine.for_org("acme").machine("prod", "case", "C-1") == before


async def test_every_door_to_a_consumer_is_shut(case: Served) -> None:
    tried = list(doors(case.app, "/api/v1/consumers/"))
    assert {operation for operation, *_ in tried} == ABOUT_CONSUMERS.keys()
    strangers = {
        "of the same company": await case.person("eve", "case:see", "case:check", roles=["consumer"]),
        "of another company": await operator(case, tenant="globex"),
    }
    before = await known(case)
    for who, client in strangers.items():
        for operation, method, path in tried:
            for name in ("billing", "nothing"):
                body = None if method == "GET" else {"environment": "prod", **ABOUT_CONSUMERS[operation]}
                query = {"environment": "prod"} if method == "GET" else {}
                answer = await client.request(method, path.format(name=name), json=body, params=query)
                assert (answer.status_code, answer.json()["code"]) == (404, "CONSUMER_UNKNOWN"), (who, operation, name)
    assert await known(case) == before


async def known(case: Served) -> KnownConsumer:
    return await case.engine.for_org("acme").known_consumer("prod", "billing")


async def test_notices_that_name_a_state_are_for_those_who_see_it(case: Served) -> None:
    acme = case.engine.for_org("acme")
    id = UUID((await acme.machine("prod", "case", "C-1")).id).bytes
    for n, detail in enumerate(({"state": "checked"}, {"state_name": "checked"}, {"state": "open"}, {})):
        case.engine.board.tell_error(f"TOLD_{n}", "told", org="acme", instance=id, detail=detail)
    await case.engine.board.told()
    told: dict[str, set[str]] = {}
    for name, words in {"vera": ["case:see"], "sara": ["case:see", "case:check"], "eve": []}.items():
        client = await case.person(name, *words)
        told[name] = {one["code"] for one in (await get(client, "notices"))["items"]}
    assert told == {"vera": {"TOLD_2", "TOLD_3"}, "sara": {f"TOLD_{n}" for n in range(4)}, "eve": set()}


async def test_there_is_no_route_about_something_that_is_not_tried(case: Served) -> None:
    """Definitions are the tenant's; whatever else a path names has its door in this file or in that of sight."""
    machines = "/api/v1/machines/", "/api/v1/consumers/"
    definitions = "/api/v1/definitions/", "/api/v1/contracts/", "/api/v1/rule-tables/"
    prefixes = *machines, *definitions, "/ui/workflows/{workflow_id}/start"
    others = [
        route.path
        for route in case.app.routes
        if getattr(route, "param_convertors", None) and not KINDS.keys() & route.param_convertors
    ]
    assert [path for path in others if not path.startswith(prefixes)] == []
