"""One rule says who may see an instance, whichever front door they come through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from api_flows import decide, get, operator, post, start
from http_server import Served

from holdfast import Engine

pytestmark = pytest.mark.anyio

# A keeper opens, a guard closes; nobody needs a capability for either, but one to see it all.
VAULT: dict[str, Any] = {
    "name": "vault",
    "entry": "open",
    "kind": "steps",
    "policy": {"data": "context", "capabilities": ["vault:see"]},
    "nodes": [
        {"id": "open", "kind": "human", "roles": ["keeper"]},
        {"id": "close", "kind": "human", "roles": ["guard"], "capabilities": ["vault:close"]},
        {"id": "end", "kind": "terminal"},
    ],
    "edges": [
        {"id": "opened", "source": "open", "target": "close", "on": "opened"},
        {"id": "closed", "source": "close", "target": "end", "on": "closed"},
    ],
}
DOORS = ("/ui/workflows", "/api/v1/instances")

Person = Callable[[Served], Awaitable[httpx2.AsyncClient]]


def _somebody(name: str, *capabilities: str, **more: Any) -> Person:
    return lambda served: served.person(name, *capabilities, **more)


# Once the keeper kim has opened it, in partition north: who sees it?
PEOPLE: dict[str, tuple[Person, bool]] = {
    "the starter": (_somebody("sam"), True),
    "a capability of the flow": (_somebody("vera", "vault:see"), True),
    "a wildcard": (_somebody("vera", "vault:*"), True),
    "everything": (_somebody("vera", "*"), True),
    "a capability of the open step": (_somebody("vera", "vault:close"), True),
    "the role of the open step": (_somebody("vera", roles=["guard"]), True),
    "whoever decided": (_somebody("kim", roles=["keeper"]), True),
    "an operator": (operator, True),
    "an operator of another partition": (lambda served: operator(served, partition="south"), True),
    "the same partition": (_somebody("vera", "vault:see", partition="north"), True),
    "another partition": (_somebody("vera", "*", partition="south"), False),
    "the starter from another partition": (_somebody("sam", partition="south"), False),
    "the role, of another partition": (_somebody("vera", roles=["guard"], partition="south"), False),
    "the role of a step that is over": (_somebody("vera", roles=["keeper"]), False),
    "another capability": (_somebody("vera", "vault:other"), False),
    "nobody": (_somebody("vera"), False),
}


@pytest.fixture
async def opened(server: Served) -> tuple[Served, str]:
    await server.engine.for_org("acme").publish(VAULT)
    sam = await server.person("sam", "vault:see", partition="north")
    id = (await start(sam, "vault"))["id"]
    await server.engine.drain()
    await decide(await server.person("kim", roles=["keeper"]), id, "opened")
    return server, id


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("who", PEOPLE)
async def test_both_doors_show_the_same_to_the_same_people(opened: tuple[Served, str], who: str, door: str) -> None:
    served, id = opened
    make, may_see = PEOPLE[who]
    client = await make(served)
    answer = await client.get(f"{door}/{id}")
    assert answer.status_code == (200 if may_see else 404), answer.text
    listed = [one["id"] for one in (await client.get(door)).json()["items"]]
    assert listed == ([id] if may_see else [])


@pytest.mark.parametrize("who", [who for who, (_, may_see) in PEOPLE.items() if not may_see])
@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("advance", {"event": "closed"}),
        ("advance", {"event": "unheard"}),
        ("cancel", {}),
    ],
)
async def test_whoever_may_not_see_it_learns_nothing_by_trying(
    opened: tuple[Served, str], who: str, verb: str, body: Any
) -> None:
    """Neither where it stands, nor what they lack, nor that it is over."""
    served, id = opened
    client, engine = await PEOPLE[who][0](served), served.engine.for_org("acme")
    running = await client.post(f"/ui/workflows/{id}/{verb}", json=body)
    assert (await engine.get(id)).status == "running"
    await engine.abort(id)
    over = await client.post(f"/ui/workflows/{id}/{verb}", json=body)
    for answer in (running, over):
        assert (answer.status_code, answer.json()["code"]) == (404, "INSTANCE_UNKNOWN"), answer.text


async def test_whoever_may_see_it_is_told_why_not(opened: tuple[Served, str]) -> None:
    served, id = opened
    client = await served.person("vera", "vault:see")
    for event, status, code in (("closed", 403, "CAPABILITY_MISSING"), ("unheard", 403, "CAPABILITY_MISSING")):
        answer = await client.post(f"/ui/workflows/{id}/advance", json={"event": event})
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.json()["facts"] == {"missing": ["vault:close"]}


async def test_tasks_of_another_partition_are_in_no_inbox(opened: tuple[Served, str]) -> None:
    served, id = opened
    [task] = (await get(await operator(served), "tasks", instance=id))["items"][1:]
    for partition, expected in (("north", [task["id"]]), ("", [task["id"]]), ("south", [])):
        guard = await served.person("gus", "vault:close", roles=["guard"], partition=partition)
        for query in ({"mine": "true"}, {"role": "guard"}):
            assert [one["id"] for one in (await get(guard, "tasks", **query))["items"]] == expected, partition
    south = await served.person("gus", "vault:close", roles=["guard"], partition="south")
    for verb, body in (("claim", None), ("decide", {"decision": "closed"})):
        assert (await post(south, f"tasks/{task['id']}/{verb}", 404, body))["code"] == "TASK_UNKNOWN"


async def test_a_key_of_a_start_opens_no_other_partition(opened: tuple[Served, str]) -> None:
    served, _ = opened
    north = await served.person("sam", "vault:see", partition="north")
    south = await served.person("sam", "vault:see", partition="south")
    for number, (path, body) in enumerate(
        (("/ui/workflows/vault/start", {}), ("/api/v1/instances", {"flow": "vault"}))
    ):
        key = {"Idempotency-Key": f"vault-{number}"}
        async with served.engine.worker():
            assert (await north.post(path, json=body, headers=key)).status_code == 201
            answer = await south.post(path, json=body, headers=key)
        assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_a_page_costs_the_same_however_many_rows_are_in_doubt(
    opened: tuple[Served, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, _ = opened
    sam = await served.person("sam", "vault:see", partition="north")
    counted: list[str] = []
    for name in ("get", "tasks", "tasks_about", "instances_by_id", "descriptor", "task"):
        monkeypatch.setattr(Engine, name, _counting(getattr(Engine, name), name, counted))
    people = {
        "with everything": await served.person("vera", "*"),
        "with a wildcard": await served.person("vera", "vault:*"),
        "who is only asked": await served.person("vera", roles=["guard", "keeper"]),
        "in a partition": await served.person("vera", roles=["guard", "keeper"], partition="north"),
    }
    costs: list[dict[tuple[str, str], list[str]]] = []
    for _ in range(2):
        cost: dict[tuple[str, str], list[str]] = {}
        for who, client in people.items():
            for path in ("/ui/workflows", "/api/v1/instances", "/api/v1/tasks"):
                counted.clear()
                assert (await client.get(path)).json()["items"], (who, path)
                cost[who, path] = list(counted)
        costs.append(cost)
        for _ in range(5):
            await start(sam, "vault")
        await served.engine.drain()
    assert costs[0] == costs[1]


def _counting(verb: Callable[..., Awaitable[Any]], name: str, counted: list[str]) -> Callable[..., Awaitable[Any]]:
    async def call(*arguments: Any, **named: Any) -> Any:
        counted.append(name)
        return await verb(*arguments, **named)

    return call
