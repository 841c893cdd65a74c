"""/api/v1/tasks: inboxes, hands, decisions."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from api_flows import REVIEW_YAML, clerk, get, operator, post, publish_flows, register_handlers, start
from http_server import Served

from holdfast.doors.steps.load import load_steps
from holdfast.errors import Refused
from holdfast.runtime.people import inbox

pytestmark = pytest.mark.anyio

LEAVE = """
workflows:
  - id: leave.plain
    steps: &steps
      - {id: review, type: approval}
      - {id: granted, type: terminal}
      - {id: refused, type: terminal}
    transitions: &ways
      - {from: review, to: granted, event: approved}
      - {from: review, to: refused, event: rejected}
  - id: leave.trusted
    steps:
      - {id: review, type: approval, capabilities: ["leave:approve"]}
      - {id: granted, type: terminal}
      - {id: refused, type: terminal}
    transitions: *ways
  - id: leave.hidden
    capabilities: ["leave:ask"]
    steps: *steps
    transitions: *ways
"""


@pytest.fixture
async def flows(server: Served) -> Served:
    await publish_flows(server.engine)
    register_handlers(server.engine)
    return server


async def _tasks(flows: Served, client: Any, count: int = 1) -> list[dict[str, Any]]:
    for n in range(count):
        await start(client, input={"n": n})
    await flows.engine.drain()
    return (await get(client, "tasks", role="clerk"))["items"]


async def test_a_task_is_claimed_by_one_and_decided(flows: Served) -> None:
    carla, dora = await clerk(flows), await clerk(flows, "dora")
    [task] = await _tasks(flows, carla)
    assert (task["status"], task["node"], task["roles"]) == ("open", "ask", ["clerk"])
    id = task["id"]
    assert await get(dora, f"tasks/{id}") == task

    claimed = await post(carla, f"tasks/{id}/claim")
    assert (claimed["status"], claimed["assignee"]) == ("claimed", "carla")
    assert (await post(carla, f"tasks/{id}/claim"))["version"] == claimed["version"]
    assert (await post(dora, f"tasks/{id}/claim", 409))["code"] == "TASK_CLAIMED"

    wish = {"decision": "confirmed", "comment": "Fine.", "data": {"notes": "ok"}}
    decided = await post(carla, f"tasks/{id}/decide", 200, wish, idempotency_key="d-1")
    assert (decided["status"], decided["decided_by"], decided["comment"]) == ("completed", "carla", "Fine.")
    assert await post(carla, f"tasks/{id}/decide", 200, wish, idempotency_key="d-1") == decided
    await flows.engine.drain()
    assert (await get(carla, f"instances/{task['instance_id']}"))["data"]["notes"] == "ok"
    history = (await get(carla, f"tasks/{id}/events"))["items"]
    assert [(e["type"], e["actor"]) for e in history] == [
        ("created", "system"), ("claimed", "carla"), ("completed", "carla"),
    ]  # fmt: skip


async def test_the_history_of_a_task_has_pages(flows: Served) -> None:
    carla = await clerk(flows)
    [task] = await _tasks(flows, carla)
    path = f"tasks/{task['id']}"
    for verb in ("claim", "release", "claim", "release"):
        await post(carla, f"{path}/{verb}")
    page = await get(carla, f"{path}/events", limit=2)
    told, sizes = [e["type"] for e in page["items"]], [len(page["items"])]
    while page["next"] is not None:
        page = await get(carla, f"{path}/events", limit=2, cursor=page["next"])
        told += [e["type"] for e in page["items"]]
        sizes.append(len(page["items"]))
    assert (told, sizes) == (["created", "claimed", "released", "claimed", "released"], [2, 2, 1])
    office = flows.engine.for_org("acme")
    whole = await office.task_events(task["id"])
    assert [e.type for e in whole] == told
    assert await office.task_events(task["id"], after=whole[0].ordinal, limit=3) == whole[1:4]
    with pytest.raises(Refused):
        await office.task_events(task["id"], limit=0)


async def test_hands_change(flows: Served) -> None:
    carla, dora, boss = await clerk(flows), await clerk(flows, "dora"), await operator(flows)
    [task] = await _tasks(flows, carla)
    id = task["id"]
    assert (await post(carla, f"tasks/{id}/delegate", 409, {"to": "dora"}))["code"] == "TASK_NOT_HELD"
    assert (await post(boss, f"tasks/{id}/assign", 200, {"to": "carla"}))["assignee"] == "carla"
    assert (await post(carla, f"tasks/{id}/delegate", 200, {"to": "dora", "reason": "Holiday."}))["assignee"] == "dora"
    assert (await post(dora, f"tasks/{id}/release"))["assignee"] is None
    history = (await get(boss, f"tasks/{id}/events"))["items"]
    assert [e["type"] for e in history] == ["created", "assigned", "delegated", "released"]


async def test_whoever_lacks_the_role_can_neither_claim_nor_decide(flows: Served) -> None:
    carla, visitor = await clerk(flows), await flows.person("vera", roles=["visitor"])
    [task] = await _tasks(flows, carla)
    for verb, body in (("claim", None), ("decide", {"decision": "confirmed"})):
        assert (await post(visitor, f"tasks/{task['id']}/{verb}", 403, body))["code"] == "TASK_ROLE_MISSING"


async def test_whoever_may_not_decide_it_may_not_keep_it_from_others(flows: Served) -> None:
    """Their own request, or a step that asks for more than the role."""
    for workflow in load_steps(REVIEW_YAML).require_sound():
        await flows.engine.for_org("acme").publish(workflow)
    anna = await flows.person("anna", "orders:review", "orders:approve", roles=["approver"])
    await start(anna, "orders.review")
    await flows.engine.drain()
    [task] = (await get(anna, "tasks", mine="true"))["items"]
    path = f"tasks/{task['id']}/claim"
    assert (await post(anna, path, 403))["code"] == "SELF_APPROVAL"
    beside = await flows.person("ben", "orders:review", roles=["approver"])
    problem = await post(beside, path, 403)
    assert (problem["code"], problem["facts"]) == ("CAPABILITY_MISSING", {"missing": ["orders:approve"]})
    boss = await flows.person("bea", "orders:*", roles=["approver"])
    assert (await post(boss, path))["assignee"] == "bea"


async def test_a_decision_fits_the_form_and_names_the_version(flows: Served) -> None:
    carla = await clerk(flows)
    [task] = await _tasks(flows, carla)
    path = f"tasks/{task['id']}/decide"
    assert (await post(carla, path, 422, {"decision": "maybe"}))["code"] == "DECISION_NOT_OFFERED"
    problem = await post(carla, path, 422, {"decision": "confirmed", "data": {"notes": 7}})
    assert problem["errors"]
    assert (await post(carla, path, 412, {"decision": "confirmed"}, if_match='"77"'))["code"] == "PRECONDITION_FAILED"
    tag = (await carla.get(f"/api/v1/instances/{task['instance_id']}")).headers["etag"]
    assert (await post(carla, path, 200, {"decision": "confirmed"}, if_match=tag))["status"] == "completed"


async def test_the_inbox_holds_what_is_mine_and_what_i_may_take(flows: Served) -> None:
    carla, dora, vera = await clerk(flows), await clerk(flows, "dora"), await flows.person("vera", roles=["visitor"])
    tasks = await _tasks(flows, carla, 5)
    ids = [task["id"] for task in tasks]
    await post(dora, f"tasks/{ids[1]}/claim")
    await post(carla, f"tasks/{ids[2]}/claim")
    mine = [id for id in ids if id != ids[1]]
    assert await _inbox(carla) == mine
    assert await _inbox(carla, limit=2) == mine
    assert await _inbox(carla, status="claimed") == [ids[2]]
    assert await _inbox(carla, status="open") == [ids[0], ids[3], ids[4]]
    assert await _inbox(vera) == []
    assert [one["id"] for one in (await get(carla, "tasks", assignee="dora"))["items"]] == [ids[1]]
    assert [one["id"] for one in (await get(carla, "tasks", instance=tasks[3]["instance_id"]))["items"]] == [ids[3]]
    assert (await get(carla, "tasks", 422, mine="true", role="clerk"))["code"] == "FILTER_INVALID"
    assert (await get(carla, "tasks", 422, mine="yes"))["code"] == "REQUEST_INVALID"
    cursor = (await get(carla, "tasks", mine="true", limit=1))["next"]
    assert (await get(dora, "tasks", 422, mine="true", cursor=cursor))["code"] == "CURSOR_INVALID"


async def test_the_inbox_holds_what_names_nobody_and_i_may_act_on(flows: Served) -> None:
    """As the leave request of the README: neither an assignee nor a role, with and without capabilities."""
    for workflow in load_steps(LEAVE).require_sound():
        await flows.engine.for_org("acme").publish(workflow)
    ann, ben = await flows.person("ann", "leave:ask"), await flows.person("ben", "leave:*")
    eve, other = await flows.person("eve"), await flows.person("ben", "leave:*", tenant="other")
    plain, trusted, hidden = [
        [(await start(ann, flow, input={"n": n}))["id"] for n in range(count)]
        for flow, count in (("leave.plain", 3), ("leave.trusted", 4), ("leave.hidden", 2))
    ]
    await flows.engine.drain()
    assert sorted(await _instances(ben)) == sorted([*plain, *trusted, *hidden])
    assert sorted(await _instances(ben, limit=2)) == sorted([*plain, *trusted, *hidden])
    assert sorted(await _instances(eve)) == sorted(plain)  # nobody needs anything there
    assert await _instances(ann) == []  # her own, which she may not grant
    assert await _instances(other) == []
    assert await _instances(ben, status="claimed") == []
    [first, second, *_] = (await get(ben, "tasks", mine="true"))["items"]
    await post(ben, f"tasks/{first['id']}/claim")
    assert await _instances(ben, status="claimed") == [first["instance_id"]]
    assert first["instance_id"] in await _instances(ben)
    assert first["instance_id"] not in await _instances(eve)
    behind = (await get(ben, "tasks", mine="true", after=first["id"]))["items"]
    assert behind[0] == second
    assert (await get(eve, "tasks", 404, mine="true", after=uuid4()))["code"] == "TASK_UNKNOWN"
    secret = next(one["id"] for one in behind if one["flow"] == "leave.hidden")
    assert (await get(eve, "tasks", 404, after=secret))["code"] == "TASK_UNKNOWN"
    cursor = (await get(ben, "tasks", mine="true", limit=1))["next"]
    assert (await get(ben, "tasks", 422, mine="true", cursor=cursor, after=secret))["code"] == "FILTER_INVALID"


async def test_what_others_may_act_on_does_not_hide_what_is_mine(
    flows: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many that a page looks at but a part of them: it is short, and says where to go on."""
    monkeypatch.setattr(inbox, "LOOKED_AT", 4)
    monkeypatch.setattr(inbox, "AT_ONCE", 2)
    for workflow in load_steps(LEAVE).require_sound():
        await flows.engine.for_org("acme").publish(workflow)
    ann, eve = await flows.person("ann", "leave:ask"), await clerk(flows, "eve")
    for n in range(9):
        await start(ann, "leave.trusted", input={"n": n})
    await flows.engine.drain()
    asked = (await start(ann, input={}))["id"]
    plain = [(await start(ann, "leave.plain", input={"n": n}))["id"] for n in range(2)]
    await flows.engine.drain()
    page = await get(eve, "tasks", mine="true", limit=2)
    assert (page["items"], page["next"] is None) == ([], False)
    assert sorted(await _instances(eve, limit=2)) == sorted([asked, *plain])


async def test_what_does_not_exist_is_not_found(flows: Served) -> None:
    client = await operator(flows)
    assert (await get(client, f"tasks/{uuid4()}", 404))["code"] == "TASK_UNKNOWN"
    assert (await get(client, f"tasks/{uuid4()}/events", 404))["code"] == "TASK_UNKNOWN"
    for verb, body in (("claim", None), ("release", None), ("assign", {"to": "a"}), ("decide", {"decision": "a"})):
        assert (await post(client, f"tasks/{uuid4()}/{verb}", 404, body))["code"] == "TASK_UNKNOWN"


async def _instances(client: Any, limit: int = 50, **query: Any) -> list[str]:
    return [(await get(client, f"tasks/{id}"))["instance_id"] for id in await _inbox(client, limit, **query)]


async def _inbox(client: Any, limit: int = 50, **query: Any) -> list[str]:
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await get(client, "tasks", mine="true", limit=limit, **query, **cursor)
        found += [task["id"] for task in page["items"]]
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}
