"""What goes wrong in a workflow and what becomes of it: errors, limits, timeouts, cancelling."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from office import EXECUTE, ORDER, Office, send, start, told

from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio


async def look(client: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    return (await client.get(f"/ui/workflows/{id}")).json()


def events(seen: dict[str, Any]) -> list[str]:
    return [entry["event"] for entry in seen["history"]]


async def test_an_error_takes_its_transition(office: Office) -> None:
    alice = await office.alice()
    office.failing.add("book")
    report = await start(alice, "expenses", cost_centre=7)
    stuck = (await send(alice, report["id"], "completed", amount=50)).json()
    assert (stuck["current_step"], stuck["status"]) == ("repair", "active")
    assert stuck["state"]["_last_error"]["step"] == "book"
    assert "book failed" in stuck["state"]["_last_error"]["message"]
    assert "step_failed" in events(await look(alice, report["id"]))
    office.failing.clear()
    done = (await send(alice, report["id"], "retry")).json()
    assert (done["current_step"], done["status"]) == ("paid", "completed")


async def test_an_error_without_a_transition_suspends(office: Office) -> None:
    alice = await office.alice()
    stopped = await start(alice, "fragile", job=1)
    assert (stopped["status"], stopped["current_step"]) == ("suspended", "work")
    assert "the service is down" in stopped["state"]["_last_error"]["message"]
    assert told(await send(alice, stopped["id"], "completed")) == (409, "WORKFLOW_NOT_ACTIVE")
    office.failing.add("fail")  # here: it works again
    operator = await office.person("olga", roles=["operator"])
    resumed = await operator.post(f"/api/v1/instances/{stopped['id']}/resume")
    assert resumed.status_code == 200, resumed.text
    done = await until(lambda: _when(alice, stopped["id"], "completed"))
    assert done["current_step"]["id"] == "done"
    entered = [entry["actor"] for entry in done["history"] if entry["event"] == "step_entered"]
    assert entered == ["alice", "olga", "system"]


async def _when(client: httpx2.AsyncClient, id: str, status: str) -> dict[str, Any] | None:
    seen = await look(client, id)
    return seen if seen["status"] == status else None


async def test_a_notification_is_best_effort(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    office.failing.add("notify")
    order = await start(alice)
    done = (await send(bob, order["id"], "approved", approval_notes="ok")).json()
    assert (done["current_step"], done["status"]) == ("approved", "completed")
    assert done["state"]["_last_error"]["step"] == "notify"
    seen = await look(alice, order["id"])
    assert [e["event"] for e in seen["history"] if e["step"] == "notify"] == [
        "step_entered", "step_failed", "step_completed", "transition",
    ]  # fmt: skip


async def test_a_circle_of_system_steps_is_suspended_after_ten(office: Office) -> None:
    alice = await office.alice()
    stopped = await start(alice, "circle", stop=False)
    assert (stopped["status"], stopped["reason"]) == ("suspended", "WORKFLOW_CHAIN_LIMIT")
    kept = stopped["state"]["_last_error"]
    assert (kept["code"], kept["step"]) == ("WORKFLOW_CHAIN_LIMIT", "one")
    assert len(office.calls) == 10
    assert (await look(alice, stopped["id"]))["reason"] == "WORKFLOW_CHAIN_LIMIT"
    operator = await office.person("olga", roles=["operator"])
    assert (await operator.post(f"/api/v1/instances/{stopped['id']}/resume")).status_code == 200
    again = await until(lambda: _when(alice, stopped["id"], "suspended"))  # another ten, and no end in sight
    assert (again["reason"], len(office.calls)) == ("WORKFLOW_CHAIN_LIMIT", 20)
    assert (await start(alice, "circle", stop=True))["status"] == "completed"


async def test_a_step_that_nobody_answers_goes_where_its_timeout_says(office: Office) -> None:
    alice, manager = await office.alice(), await office.person("meg", EXECUTE, "orders:escalate", roles=["manager"])
    order = await start(alice)
    await advance(office.engine, hours=25)
    seen = await until(lambda: _at(alice, order["id"], "escalated"))
    assert seen["status"] == "active"
    assert "timeout" in events(seen)
    done = (await send(manager, order["id"], "approved")).json()
    assert (done["status"], done["state"]["approved_by"]) == ("completed", "meg")


async def _at(client: httpx2.AsyncClient, id: str, step: str) -> dict[str, Any] | None:
    seen = await look(client, id)
    return seen if seen["current_step"]["id"] == step else None


async def test_a_workflow_that_takes_too_long_goes_where_its_timeout_says(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    alice = await office.alice()
    before = office.engine.for_org(office.company("acme")).stats().timeouts
    order = await start(alice)
    await advance(office.engine, hours=25)
    await until(lambda: _at(alice, order["id"], "escalated"))
    await advance(office.engine, hours=48)
    seen = await until(lambda: _when(alice, order["id"], "completed"))
    assert seen["current_step"]["id"] == "expired"
    assert "timeout" in events(seen)
    now = office.engine.for_org(office.company("acme")).stats().timeouts
    for kind in ("step", "workflow"):
        assert now["orders.approval", kind] - before.get(("orders.approval", kind), 0) >= 1
    told = {(r.__dict__["instance"], r.__dict__["step"]): r.message for r in caplog.records if "timed out" in r.message}
    assert told[order["id"], "review"].startswith("The step timed out at review: orders.approval version 1")
    assert told[order["id"], None].startswith("The workflow timed out")


async def test_a_workflow_without_such_a_step_fails_in_time(office: Office) -> None:
    alice = await office.alice()
    asked = await start(alice, "limited", question=1)
    await advance(office.engine, hours=47)
    assert (await look(alice, asked["id"]))["status"] == "active"
    await advance(office.engine, hours=2)
    seen = await until(lambda: _when(alice, asked["id"], "failed"))
    assert events(seen)[-1] == "workflow_failed"
    assert "timeout" in events(seen)


async def test_cancelling_undoes_nothing_and_ends_it(office: Office) -> None:
    alice = await office.alice()
    order = await start(alice)
    answer = await alice.post(f"/ui/workflows/{order['id']}/cancel", json={"reason": "The customer asked for it"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "cancelled"
    last = (await look(alice, order["id"]))["history"][-1]
    assert (last["event"], last["actor"], last["comment"]) == ("cancelled", "alice", "The customer asked for it")
    assert told(await send(await office.bob(), order["id"], "approved", approval_notes="ok")) == (
        409,
        "WORKFLOW_NOT_ACTIVE",
    )


async def test_what_is_over_cannot_be_cancelled(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    await send(bob, order["id"], "approved", approval_notes="ok")
    assert (await alice.post(f"/ui/workflows/{order['id']}/cancel")).status_code == 409
    other = await start(alice)
    assert (await alice.post(f"/ui/workflows/{other['id']}/cancel")).status_code == 200
    assert told(await alice.post(f"/ui/workflows/{other['id']}/cancel")) == (409, "WORKFLOW_NOT_ACTIVE")


async def test_what_is_suspended_can_be_cancelled(office: Office) -> None:
    alice = await office.alice()
    stopped = await start(alice, "fragile", job=1)
    answer = await alice.post(f"/ui/workflows/{stopped['id']}/cancel", json={})
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


async def test_not_everybody_who_sees_a_workflow_may_cancel_it(office: Office) -> None:
    order = await start(await office.alice())
    approver = await office.person("carol", roles=["approver"])
    assert (await approver.get(f"/ui/workflows/{order['id']}")).status_code == 200
    assert told(await approver.post(f"/ui/workflows/{order['id']}/cancel")) == (403, "CAPABILITY_MISSING")
    peer = await office.person("dave", "orders:*")
    assert (await peer.post(f"/ui/workflows/{order['id']}/cancel")).status_code == 200


async def test_the_state_of_an_order_stays_readable_after_all(office: Office) -> None:
    alice = await office.alice()
    order = await start(alice)
    await alice.post(f"/ui/workflows/{order['id']}/cancel")
    seen = await look(alice, order["id"])
    assert (seen["state"], seen["allowed_events"]) == (ORDER, [])
