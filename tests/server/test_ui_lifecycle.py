"""Starting and advancing workflows over HTTP, as the text tells it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from office import EXECUTE, ORDER, Office, send, start, told

pytestmark = pytest.mark.anyio

SAME = ("id", "status", "state", "version", "tenant_id", "partition_id", "subject_id", "created_at", "expires_at")


async def test_start_enters_the_first_step_and_waits_for_a_person(office: Office) -> None:
    alice = await office.alice()
    answer = await alice.post("/ui/workflows/orders.approval/start", json=ORDER)
    started = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/ui/workflows/{started['id']}"
    assert answer.headers["etag"] == f'"{started["version"]}"'
    assert (started["workflow_id"], started["tenant_id"], started["subject_id"]) == (
        "orders.approval",
        office.company("acme"),
        "alice",
    )
    assert (started["current_step"], started["status"], started["version"]) == ("review", "active", 1)
    assert started["state"] == ORDER
    lasts = datetime.fromisoformat(started["expires_at"]) - datetime.fromisoformat(started["created_at"])
    assert abs(lasts - timedelta(hours=72)) < timedelta(minutes=1)
    seen = (await alice.get(answer.headers["location"])).json()
    assert {name: seen[name] for name in SAME} == {name: started[name] for name in SAME}


async def test_approving_runs_the_chain_to_its_end_within_the_request(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    answer = await send(bob, order["id"], "approved", approval_notes="Looks good")
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["current_step"], done["status"]) == ("approved", "completed")
    assert done["state"] == {
        **ORDER,
        "approval_notes": "Looks good",
        "approved_by": "bob",
        "confirmed_at": "2026-01-15T10:45:00Z",
    }
    assert office.calls == [
        ("process", {"order": "ord-123", "tenant": office.company("acme"), "by": "bob"}),
        ("notify", {"to": "bob@example.com"}),
    ]


async def test_an_approval_calls_its_operation_within_the_request(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    claim = await start(alice, "claims", amount=5)
    done = (await send(bob, claim["id"], "approved", note="fine")).json()
    assert (done["current_step"], done["status"], done["state"]["booked"]) == ("paid", "completed", True)
    assert office.calls == [("book", {"amount": 5, "note": "fine", "by": "bob"})]


async def test_a_rejection_calls_nothing(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    claim = await start(alice, "claims", amount=5)
    assert (await send(bob, claim["id"], "rejected")).json()["current_step"] == "refused"
    assert office.calls == []


async def test_an_operation_of_an_approval_that_fails_takes_the_way_of_errors(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    office.failing.add("book")
    claim = await start(alice, "claims", amount=5)
    failed = (await send(bob, claim["id"], "approved", note="fine")).json()
    assert (failed["current_step"], failed["status"]) == ("repair", "active")
    assert failed["state"]["_last_error"]["message"] == "book failed"


async def test_the_audit_trail_tells_who_did_what(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    await bob.post(
        f"/ui/workflows/{order['id']}/advance",
        json={"event": "approved", "input": {"approval_notes": "ok"}, "comment": "As usual."},
    )
    seen = (await alice.get(f"/ui/workflows/{order['id']}")).json()
    told = [
        (entry["event"], entry["step"], entry["actor"]) for entry in seen["history"] if entry["event"] != "transition"
    ]
    assert told == [
        ("step_entered", "review", "alice"),
        ("step_completed", "review", "bob"),
        ("approved", "review", "bob"),
        ("step_entered", "process", "system"),
        ("step_completed", "process", "system"),
        ("step_entered", "notify", "system"),
        ("step_completed", "notify", "system"),
        ("step_entered", "approved", "system"),
        ("workflow_completed", None, "system"),
    ]
    assert next(entry for entry in seen["history"] if entry["event"] == "approved")["comment"] == "As usual."


async def test_starting_needs_the_capability_of_the_workflow(office: Office) -> None:
    carol = await office.person("carol")
    assert told(await carol.post("/ui/workflows/orders.approval/start", json=ORDER)) == (403, "CAPABILITY_MISSING")
    dave = await office.person("dave", "orders:*")
    assert (await dave.post("/ui/workflows/orders.approval/start", json=ORDER)).status_code == 201


async def test_a_workflow_nobody_published_is_not_found(office: Office) -> None:
    alice = await office.alice()
    assert told(await alice.post("/ui/workflows/nothing/start", json={})) == (404, "FLOW_UNKNOWN")


async def test_the_input_must_fit_its_schema(office: Office) -> None:
    alice = await office.alice()
    answer = await alice.post("/ui/workflows/orders.approval/start", json={"amount": "much"})
    assert told(answer) == (422, "INPUT_INVALID")
    assert len(answer.json()["errors"]) == 2


async def test_the_form_of_a_step_must_be_filled_in(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    answer = await send(bob, order["id"], "approved", approval_notes="x" * 101)
    assert told(answer) == (422, "FORM_INVALID")
    assert "approval_notes" in answer.json()["errors"][0]["place"]
    assert told(await send(bob, order["id"], "approved")) == (422, "FORM_INVALID")


async def test_nobody_approves_what_they_started(office: Office) -> None:
    alice = await office.person("alice", EXECUTE, roles=["approver"])
    order = await start(alice)
    assert told(await send(alice, order["id"], "approved", approval_notes="ok")) == (403, "SELF_APPROVAL")


async def test_who_approved_is_not_taken_from_the_input(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    done = (await send(bob, order["id"], "approved", approval_notes="ok", approved_by="mallory")).json()
    assert done["state"]["approved_by"] == "bob"


async def test_nobody_starts_what_is_approved_already(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice, **ORDER, approved_by="ceo", _last_error="none")
    assert order["state"] == ORDER
    done = (await bob.post(f"/ui/workflows/{order['id']}/advance", json={"event": "rejected"})).json()
    assert done["state"] == {**ORDER, "rejected_by": "bob"}


async def test_only_events_of_the_current_step_lead_anywhere(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    for event in ("shipped", "error", "timeout"):
        answer = await send(bob, order["id"], event, approval_notes="ok")
        assert told(answer) == (422, "INVALID_TRANSITION")
        assert "approved, rejected" in answer.json()["hint"]
        assert answer.json()["facts"] == {"allowed": ["approved", "rejected"]}


async def test_a_guard_refuses_whoever_lacks_its_capability(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    carol = await office.person("carol", EXECUTE, roles=["approver"])
    assert told(await send(carol, order["id"], "rejected", approval_notes="no")) == (403, "GUARD_REFUSED")
    done = (await send(bob, order["id"], "rejected", approval_notes="no")).json()
    assert (done["current_step"], done["status"], done["state"]["rejected_by"]) == ("rejected", "completed", "bob")


async def test_a_condition_chooses_the_way(office: Office) -> None:
    alice = await office.alice()
    small, large = await start(alice, "expenses", cost_centre=7), await start(alice, "expenses", cost_centre=7)
    done = (await send(alice, small["id"], "completed", amount=50)).json()
    assert (done["current_step"], done["status"], done["state"]["booked"]) == ("paid", "completed", True)
    waiting = (await send(alice, large["id"], "completed", amount=500)).json()
    assert (waiting["current_step"], waiting["status"]) == ("manager", "active")


async def test_a_step_asks_for_its_own_capabilities(office: Office) -> None:
    alice = await office.alice()
    report = await start(alice, "expenses", cost_centre=7)
    await send(alice, report["id"], "completed", amount=500)
    bob = await office.bob()
    assert told(await send(bob, report["id"], "approved")) == (403, "CAPABILITY_MISSING")
    boss = await office.person("boss", "expenses:approve")
    done = (await send(boss, report["id"], "approved")).json()
    assert (done["status"], done["state"]["approved_by"]) == ("completed", "boss")


async def test_a_workflow_that_is_over_takes_nothing(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    await send(bob, order["id"], "approved", approval_notes="ok")
    answer = await send(bob, order["id"], "approved", approval_notes="ok")
    assert told(answer) == (409, "WORKFLOW_NOT_ACTIVE")
    assert (answer.json()["status"], answer.json()["facts"]) == (409, {"status": "completed"})


async def test_another_person_finds_and_advances_it_later(office: Office) -> None:
    """Alice starts and leaves; Bob, who plays the role, sees it, reads its form and decides."""
    order = await start(await office.alice())
    bob = await office.bob()
    [found] = (await bob.get("/ui/workflows", params={"status": "active"})).json()["items"]
    assert (found["id"], found["current_step"]) == (order["id"], "review")
    seen = (await bob.get(f"/ui/workflows/{order['id']}")).json()
    assert seen["current_step"]["form"]["required"] == ["approval_notes"]
    assert seen["allowed_events"] == ["approved", "rejected"]
    assert [step["status"] for step in seen["steps"] if step["id"] == "review"] == ["current"]
    done = (await send(bob, order["id"], "approved", approval_notes="ok")).json()
    assert (done["subject_id"], done["state"]["approved_by"]) == ("alice", "bob")


async def test_seeing_is_not_acting(office: Office) -> None:
    alice = await office.alice()
    order = await start(alice)
    assert (await alice.get(f"/ui/workflows/{order['id']}")).json()["allowed_events"] == []
    stranger = await office.person("stranger")
    assert told(await stranger.get(f"/ui/workflows/{order['id']}")) == (404, "INSTANCE_UNKNOWN")
