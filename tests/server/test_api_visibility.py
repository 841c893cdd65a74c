"""Who may see what: one rule for every route that answers with data of an instance, and tenants are worlds apart."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from api_flows import Service, clerk, get, operator, post, publish_flows, register_handlers, start
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
        [task] = (await get(client, "tasks", instance=id))["items"]
        assert (await get(client, f"tasks/{task['id']}"))["id"] == task["id"], who


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
    seeing = await flows.person("vera", "secrets:see")
    problem = await post(seeing, f"instances/{id}/signals", 403, {"event": "opened"})
    assert problem["code"] == "CAPABILITY_MISSING"
    beside = await flows.person("vera", "secrets:act")  # sees it for the sake of the step, could not have started it
    assert (await post(beside, f"instances/{id}/cancel", 403))["code"] == "CAPABILITY_MISSING"
    acting = await flows.person("anna", "secrets:*")
    assert (await post(acting, f"instances/{id}/signals", 200, {"event": "opened"}))["status"] == "completed"


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
    await post(carla, f"instances/{id}/signals", 200, {"event": "confirmed"})
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
