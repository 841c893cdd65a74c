"""Who may see what: one rule for every route that answers with data of an instance, and tenants are worlds apart."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from api_flows import Service, clerk, decide, get, operator, post, publish_flows, register_handlers, start
from http_server import Served

from holdfast import Engine

pytestmark = pytest.mark.anyio

LOOKS = ("", "/steps", "/events", "/timeline", "/effects")
CHANGES: dict[str, Any] = {
    "signals": {"event": "opened"},
    "cancel": {},
    "abort": {},
    "pause": {},
    "resume": None,
    "rerun": {"from_step": "rest"},
    "requeue": {},
}


@pytest.fixture
def service(engine: Engine) -> Service:
    return register_handlers(engine)


@pytest.fixture
async def flows(server: Served, service: Service) -> Served:
    for org in ("acme", "other"):
        await publish_flows(server.engine, org)
    return server


async def _secret(flows: Served) -> str:
    client = await flows.person("sara", "secrets:see")
    id = (await start(client, "secret"))["id"]
    await flows.engine.drain()
    return id


async def test_a_flow_with_capabilities_is_seen_by_those_who_have_to_do_with_it(flows: Served) -> None:
    id = await _secret(flows)
    people = {
        "the starter": await flows.person("sara"),
        "one with its capability": await flows.person("vera", "secrets:see"),
        "one with a wildcard": await flows.person("vera", "secrets:*"),
        "one with a capability of the step": await flows.person("vera", "secrets:act"),
        "one with the role of its open task": await flows.person("vera", roles=["keeper"]),
        "an operator": await operator(flows),
    }
    for who, client in people.items():
        for path in LOOKS:
            answer = await client.get(f"/api/v1/instances/{id}{path}")
            assert answer.status_code == 200, (who, path, answer.text)
        assert [one["id"] for one in (await get(client, "instances"))["items"]] == [id], who


async def test_a_step_is_seen_by_those_with_one_of_its_capabilities(flows: Served) -> None:
    id = await _secret(flows)
    [task] = (await get(await operator(flows), "tasks", instance=id))["items"]
    seeing = {
        "one with a wildcard": await flows.person("vera", "secrets:*"),
        "one with its capability": await flows.person("vera", "secrets:act"),
        "an operator": await operator(flows),
    }
    for who, client in seeing.items():
        assert await _told_of(client, id, "rest"), who
        assert [one["id"] for one in (await get(client, "tasks", instance=id))["items"]] == [task["id"]], who
        assert (await get(client, f"tasks/{task['id']}"))["id"] == task["id"], who
    keeper = await flows.person("vera", roles=["keeper"])  # is asked, whatever they may see beside that
    assert (await get(keeper, f"tasks/{task['id']}"))["id"] == task["id"]
    assert not await _told_of(keeper, id, "rest")
    hidden_from = {
        "the starter": await flows.person("sara"),
        "one with a capability of the flow": await flows.person("vera", "secrets:see"),
    }
    for who, client in hidden_from.items():
        assert not await _told_of(client, id, "rest"), who
        for path in ("tasks", f"tasks?instance={id}", "tasks?role=keeper", "tasks?mine=true"):
            assert (await get(client, path))["items"] == [], (who, path)
        for path in ("", "/events"):
            assert await _same_as_unknown(client, "get", f"tasks/{task['id']}{path}", task["id"]), who


async def test_the_stream_leaves_out_the_same_steps(flows: Served) -> None:
    id = await _secret(flows)
    keeper = await flows.person("kim", "secrets:act", roles=["keeper"])
    await decide(keeper, id, "opened")
    told = {
        who: (await client.get(f"/api/v1/instances/{id}/stream")).text
        for who, client in (("kim", keeper), ("vera", await flows.person("vera", "secrets:see")))
    }
    assert '"node":"rest"' in told["kim"]
    assert '"node":"rest"' not in told["vera"]
    assert '"node":"end"' in told["vera"] or "instance_completed" in told["vera"]


async def _told_of(client: Any, id: str, step: str) -> bool:
    """Whether an instance's trail says anything about one of its steps; all of its parts must agree."""
    found = [
        any(one["name"] == step for one in (await get(client, f"instances/{id}/steps"))["items"]),
        any(one["node"] == step for one in (await get(client, f"instances/{id}/events"))["items"]),
        any(one["name"] == step for one in (await get(client, f"instances/{id}/timeline"))["entries"]),
    ]
    assert len(set(found)) == 1, found
    return found[0]


async def test_for_everybody_else_it_does_not_exist(flows: Served) -> None:
    id = await _secret(flows)
    [task] = (await get(await operator(flows), "tasks", instance=id))["items"]
    stranger = await flows.person("vera", "secrets:other", roles=["clerk"])
    for path in LOOKS:
        assert await _same_as_unknown(stranger, "get", f"instances/{id}{path}", id)
    for verb in ("signals", "cancel"):
        assert await _same_as_unknown(stranger, "post", f"instances/{id}/{verb}", id, CHANGES[verb])
    for verb, body in (("claim", None), ("release", None), ("delegate", {"to": "x"}), ("decide", {"decision": "x"})):
        assert await _same_as_unknown(stranger, "post", f"tasks/{task['id']}/{verb}", task["id"], body)
    for path in (f"tasks/{task['id']}", f"tasks/{task['id']}/events"):
        assert await _same_as_unknown(stranger, "get", path, task["id"])
    for path in ("instances", "tasks", "tasks?mine=true", "tasks?role=keeper"):
        assert (await get(stranger, path))["items"] == []
    assert (await get(stranger, "tasks", 404, instance=id))["code"] == "INSTANCE_UNKNOWN"


async def test_seeing_is_not_acting(flows: Served) -> None:
    id = await _secret(flows)
    [task] = (await get(await operator(flows), "tasks", instance=id))["items"]
    path, wish = f"tasks/{task['id']}/decide", {"decision": "opened"}
    beside = await flows.person("vera", "secrets:act")  # sees it for the sake of the step, could not have started it
    assert (await post(beside, f"instances/{id}/cancel", 403))["code"] == "CAPABILITY_MISSING"
    assert (await post(beside, path, 403, wish))["code"] == "TASK_ROLE_MISSING"
    asked = await flows.person("kim", roles=["keeper"])
    assert (await post(asked, path, 403, wish))["code"] == "CAPABILITY_MISSING"
    acting = await flows.person("anna", "secrets:*", roles=["keeper"])
    assert (await post(acting, f"instances/{id}/signals", 409, {"event": "opened"}))["code"] == "DECISION_NEEDED"
    await post(acting, path, 200, wish)
    assert (await get(acting, f"instances/{id}"))["status"] == "completed"


async def test_another_tenant_cannot_tell_it_from_nothing(flows: Served) -> None:
    mine = await clerk(flows)
    id = (await start(mine))["id"]
    await flows.engine.drain()
    [task] = (await get(mine, "tasks"))["items"]
    theirs = await flows.person("carla", "*", tenant="other", roles=["admin", "clerk", "keeper"])
    for path in LOOKS:
        assert await _same_as_unknown(theirs, "get", f"instances/{id}{path}", id)
    for verb, body in CHANGES.items():
        assert await _same_as_unknown(theirs, "post", f"instances/{id}/{verb}", id, body)
    for verb, body in (
        ("claim", None), ("release", None), ("assign", {"to": "x"}), ("delegate", {"to": "x"}),
        ("decide", {"decision": "confirmed"}),
    ):  # fmt: skip
        assert await _same_as_unknown(theirs, "post", f"tasks/{task['id']}/{verb}", task["id"], body)
    for path in ("instances", "tasks", "tasks?mine=true", "tasks?assignee=carla", "dead-letters"):
        assert (await get(theirs, path))["items"] == []
    assert (await get(theirs, "statistics"))["items"] == []
    assert (await get(mine, f"instances/{id}"))["status"] == "running"


async def test_where_an_error_arose_is_for_operators(flows: Served, service: Service) -> None:
    service.is_up = False
    carla, olga = await clerk(flows), await operator(flows)
    id = (await start(carla))["id"]
    await flows.engine.drain()
    await decide(carla, id)
    await flows.engine.drain()
    for path in LOOKS:
        assert "traceback" not in (await carla.get(f"/api/v1/instances/{id}{path}")).text
    assert "traceback" in (await olga.get(f"/api/v1/instances/{id}/steps")).text
    assert (await get(carla, f"instances/{id}"))["error"]["message"] == "it is down"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "dead-letters"),
        ("get", "dead-letters/{id}"),
        ("post", "dead-letters/requeue"),
        ("post", "dead-letters/{id}/requeue"),
        ("post", "dead-letters/{id}/discard"),
        ("get", "workers"),
        ("post", "effects/{id}/replay"),
        ("post", "instances/{id}/abort"),
        ("post", "instances/{id}/pause"),
        ("post", "instances/{id}/resume"),
        ("post", "instances/{id}/requeue"),
    ],
)
async def test_operating_needs_its_scope(server: Served, method: str, path: str) -> None:
    answer = await (await clerk(server)).request(method, f"/api/v1/{path.format(id=uuid4())}")
    assert (answer.status_code, answer.json()["code"]) == (403, "SCOPE_MISSING")


async def _same_as_unknown(client: Any, method: str, path: str, id: str, body: Any = None) -> bool:
    """The answer about something that is there differs from the one about nothing in the ids alone."""
    nothing = str(uuid4())
    wanted = await client.request(method, f"/api/v1/{path}", json=body)
    unknown = await client.request(method, f"/api/v1/{path.replace(id, nothing)}", json=body)
    assert wanted.status_code == 404, (path, wanted.text)
    known, other = wanted.json(), unknown.json()
    known.pop("request_id")
    other.pop("request_id")
    return {name: str(value).replace(id, nothing) for name, value in known.items()} == {
        name: str(value) for name, value in other.items()
    }
