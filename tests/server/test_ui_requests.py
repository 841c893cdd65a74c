"""The manners of a request: once only, for one version, without waiting, of one tenant."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from office import EXECUTE, ORDER, Office, send, start, told

from holdfast import Engine
from holdfast.core.model.signals import Decided
from holdfast.runtime.commit.items import Item
from running import until

pytestmark = pytest.mark.anyio


# --- once only ------------------------------------------------------------------------------------------------------


async def test_a_start_with_a_key_counts_once(office: Office) -> None:
    alice = await office.alice()
    key = {"Idempotency-Key": "order-17"}
    answers = await asyncio.gather(
        *(alice.post("/ui/workflows/orders.approval/start", json=ORDER, headers=key) for _ in range(5))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await alice.post("/ui/workflows/orders.approval/start", json={"order_id": "other"}, headers=key)
    assert told(other) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_a_key_belongs_to_its_tenant_and_to_whoever_used_it(office: Office) -> None:
    key = {"Idempotency-Key": "order-17"}
    alice, eve = await office.alice(), await office.person("eve", EXECUTE)
    far = await office.person("alice", EXECUTE, tenant="globex")
    first = await alice.post("/ui/workflows/orders.approval/start", json=ORDER, headers=key)
    theirs = await far.post("/ui/workflows/orders.approval/start", json=ORDER, headers=key)
    assert theirs.status_code == 201
    assert theirs.json()["id"] != first.json()["id"]
    assert told(await eve.post("/ui/workflows/orders.approval/start", json=ORDER, headers=key)) == (
        409,
        "IDEMPOTENCY_KEY_REUSED",
    )


async def test_a_key_of_one_workflow_does_not_answer_for_another(office: Office) -> None:
    alice, key = await office.alice(), {"Idempotency-Key": "order-18"}
    order = await alice.post("/ui/workflows/orders.approval/start", json=ORDER, headers=key)
    report = await alice.post("/ui/workflows/expenses/start", json=ORDER, headers=key)
    assert (report.status_code, report.json()["workflow_id"]) == (201, "expenses")
    assert report.json()["id"] != order.json()["id"]


async def test_an_advance_with_a_key_counts_once_however_far_it_went(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    request = {"event": "approved", "input": {"approval_notes": "ok"}}
    path, key = f"/ui/workflows/{order['id']}/advance", {"Idempotency-Key": "decision-1"}
    first = await bob.post(path, json=request, headers=key)
    again = await bob.post(path, json=request, headers=key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    assert [name for name, _ in office.calls] == ["process", "notify"]
    other = await bob.post(path, json={**request, "input": {"approval_notes": "no"}}, headers=key)
    assert told(other) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert other.json()["detail"].startswith("The id or key of this request")  # not what was made of it
    assert told(await bob.post(path, json=request)) == (409, "WORKFLOW_NOT_ACTIVE")


async def test_a_key_of_an_advance_belongs_to_whoever_used_it(office: Office) -> None:
    """Somebody else with the same key and the same words has said nothing yet."""
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    request = {"event": "approved", "input": {"approval_notes": "yes"}}
    path, key = f"/ui/workflows/{order['id']}/advance", {"Idempotency-Key": "decision-2"}
    assert (await bob.post(path, json=request, headers=key)).status_code == 200
    ben = await office.person("ben", EXECUTE, roles=["approver"])
    for other in (alice, ben):
        assert told(await other.post(path, json=request, headers=key)) == (409, "WORKFLOW_NOT_ACTIVE")
    assert (await bob.post(path, json=request, headers=key)).status_code == 200


async def test_a_key_of_somebody_else_gives_no_right(office: Office) -> None:
    alice, meg = await office.alice(), await office.person("meg", "expenses:approve")
    report = await start(alice, "expenses")
    path, key = f"/ui/workflows/{report['id']}/advance", {"Idempotency-Key": "filled-1"}
    filled = {"event": "completed", "input": {"amount": 500}}
    assert (await alice.post(path, json=filled, headers=key)).json()["current_step"] == "manager"
    stranger = await office.person("sue")
    assert told(await stranger.post(path, json=filled, headers=key)) == (403, "CAPABILITY_MISSING")
    assert told(await meg.post(path, json=filled, headers=key)) == (422, "INVALID_TRANSITION")


async def test_a_cancel_with_a_key_may_be_repeated(office: Office) -> None:
    alice = await office.alice()
    order = await start(alice)
    path, key = f"/ui/workflows/{order['id']}/cancel", {"Idempotency-Key": "cancel-1"}
    for _ in range(2):
        answer = await alice.post(path, json={"reason": "why not"}, headers=key)
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert told(await alice.post(path, json={"reason": "another"}, headers=key)) == (409, "WORKFLOW_NOT_ACTIVE")


@pytest.mark.parametrize("key", ["", "x" * 256, "ü", "a b"])
async def test_an_unfit_key_is_refused(office: Office, key: str) -> None:
    alice = await office.alice()
    answer = await alice.post(
        "/ui/workflows/orders.approval/start", json=ORDER, headers={"Idempotency-Key": key.encode()}
    )
    assert told(answer) == (422, "REQUEST_INVALID")


# --- for one version ------------------------------------------------------------------------------------------------


async def test_a_change_may_be_meant_for_one_version_only(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    request = {"event": "approved", "input": {"approval_notes": "ok"}}
    path = f"/ui/workflows/{order['id']}/advance"
    for wrong in ('"999"', 'W/"1"', "nonsense"):
        answer = await bob.post(path, json=request, headers={"If-Match": wrong})
        assert told(answer) == (412, "PRECONDITION_FAILED"), wrong
    seen = await bob.get(f"/ui/workflows/{order['id']}")
    done = await bob.post(path, json=request, headers={"If-Match": seen.headers["etag"]})
    assert done.status_code == 200
    late = await alice.post(f"/ui/workflows/{order['id']}/cancel", headers={"If-Match": seen.headers["etag"]})
    assert late.status_code in (409, 412)


async def test_a_look_is_answered_only_if_something_changed(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    path = f"/ui/workflows/{order['id']}"
    first = await alice.get(path)
    again = await alice.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (await bob.get(path)).headers["etag"] != first.headers["etag"]  # he may do more, so he sees something else
    await send(bob, order["id"], "approved", approval_notes="ok")
    changed = await alice.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["status"]) == (200, "completed")


async def test_a_server_may_insist_on_a_version(office: Office) -> None:
    async with office.strict(needs_if_match=True):
        alice, bob = await office.alice(), await office.bob()
        order = await start(alice)
        answer = await send(bob, order["id"], "approved", approval_notes="ok")
        assert told(answer) == (428, "PRECONDITION_REQUIRED")
        answer = await bob.post(
            f"/ui/workflows/{order['id']}/advance",
            json={"event": "approved", "input": {"approval_notes": "ok"}},
            headers={"If-Match": "*"},
        )
        assert answer.status_code == 200


async def test_of_many_who_decide_at_once_one_does(office: Office) -> None:
    alice = await office.alice()
    order = await start(alice)
    people = [await office.person(f"p{n}", EXECUTE, "orders:reject", roles=["approver"]) for n in range(6)]
    events = ["approved", "rejected"] * 3
    sent = (send(who, order["id"], event, approval_notes="x") for who, event in zip(people, events, strict=True))
    answers = await asyncio.gather(*sent)
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {409, 422}  # over, or already at the system step
    seen = (await alice.get(f"/ui/workflows/{order['id']}")).json()
    decided = [entry["event"] for entry in seen["history"] if entry["event"] in ("approved", "rejected")]
    assert len(decided) == 1


@pytest.mark.parametrize(
    ("times", "patience", "answered"),
    [(12, 60.0, (200, "completed")), (1000, 0.3, (409, "INSTANCE_BUSY"))],
    ids=["in_the_end", "never"],
)
async def test_whoever_is_overtaken_looks_again_until_the_time_is_up(
    office: Office, monkeypatch: pytest.MonkeyPatch, times: int, patience: float, answered: tuple[int, str]
) -> None:
    """Every time bob's answer is about to be committed, an operator elsewhere asks for the review anew."""
    alice, bob = await office.alice(), await office.bob()
    order = await start(alice)
    acme = office.engine.for_org(office.company("acme"))
    apply, tries = acme.committer.apply, 0
    monkeypatch.setattr(acme.races, "patience", patience)

    async def overtaken(item: Item) -> Any:
        nonlocal tries
        if isinstance(item.signal, Decided):
            tries += 1
            if tries <= times:
                await elsewhere.rerun(order["id"], from_step="review", by="olga")
        return await apply(item)

    async with Engine(office.engine.dsn, org=acme.org) as elsewhere:
        monkeypatch.setattr(acme.committer, "apply", overtaken)
        answer = await send(bob, order["id"], "approved", approval_notes="x")
    assert (answer.status_code, answer.json().get("code", answer.json()["status"])) == answered
    assert tries == 13 if answer.status_code == 200 else tries > 1


async def test_ten_people_send_a_hundred_answers_to_one_workflow(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer leads back to the step it is for, so every one that is committed overtakes all others."""
    monkeypatch.setattr(office.engine.races, "patience", 30.0)  # a slow machine shall not decide
    people = [await office.person(f"p{n}") for n in range(10)]
    count = await start(people[0], "counter", total=0)

    async def ten(who: httpx2.AsyncClient) -> list[httpx2.Response]:
        return [await send(who, count["id"], "counted") for _ in range(10)]

    answers = [answer for some in await asyncio.gather(*map(ten, people)) for answer in some]
    assert {(answer.status_code, answer.json().get("code")) for answer in answers} == {(200, None)}
    steps = await office.engine.for_org(office.company("acme")).steps(count["id"], limit=500)
    assert len([step for step in steps if step.name == "count"]) == 101


# --- without waiting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", [{"headers": {"Prefer": "respond-async"}}, {"params": {"wait": 0}}], ids=str)
async def test_nobody_has_to_wait(office: Office, wish: dict[str, Any]) -> None:
    alice = await office.alice()
    answer = await alice.post("/ui/workflows/slow/start", json={"job": 1}, **wish)
    assert answer.status_code == 202
    assert answer.headers.get("preference-applied") == wish.get("headers", {}).get("Prefer")
    assert answer.json()["status"] == "active"
    office.gate.set()
    seen = await until(lambda: _completed(alice, answer.headers["location"]))
    assert seen["current_step"]["id"] == "done"


async def test_whoever_waits_in_vain_is_told_where_to_look(office: Office) -> None:
    async with office.strict(request_patience=0.2):
        alice = await office.alice()
        answer = await alice.post("/ui/workflows/slow/start", json={"job": 1})
        assert (answer.status_code, answer.json()["current_step"]) == (202, "work")
        office.gate.set()
        await until(lambda: _completed(alice, answer.headers["location"]))


async def _completed(client: httpx2.AsyncClient, location: str) -> dict[str, Any] | None:
    seen = (await client.get(location)).json()
    return seen if seen["status"] == "completed" else None


# --- of one tenant --------------------------------------------------------------------------------------------------


async def test_what_another_tenant_has_does_not_exist(office: Office) -> None:
    order = await start(await office.alice())
    far = await office.person("alice", EXECUTE, "orders:reject", tenant="globex", roles=["approver"])

    async def answers(id: str) -> list[tuple[int, Any]]:
        found = [
            await far.get(f"/ui/workflows/{id}"),
            await send(far, id, "approved", approval_notes="ok"),
            await far.post(f"/ui/workflows/{id}/cancel", json={}),
            await far.get(f"/ui/workflows/{id}/events/stream"),
        ]
        return [(answer.status_code, _told(answer, id)) for answer in found]

    unknown = str(uuid4())
    theirs, nobodys = await answers(order["id"]), await answers(unknown)
    assert [status for status, _ in theirs] == [404] * 4
    assert theirs == nobodys
    assert (await far.get("/ui/workflows")).json() == {"items": [], "next": None}


def _told(answer: httpx2.Response, id: str) -> dict[str, Any]:
    document = json.loads(answer.text.replace(id, "ID"))
    assert document.pop("request_id") == answer.headers["x-request-id"]
    return document


async def test_an_id_that_is_none_is_refused_with_its_place(office: Office) -> None:
    alice = await office.alice()
    answer = await alice.get("/ui/workflows/not-an-id")
    assert told(answer) == (422, "REQUEST_INVALID")
    assert answer.json()["errors"][0]["place"] == "path.instance_id"


# --- lists ----------------------------------------------------------------------------------------------------------


async def test_a_list_has_pages_and_filters(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    orders = [await start(alice, order_id=f"ord-{n}") for n in range(5)]
    own = await start(bob, "expenses", cost_centre=7)
    seen: list[str] = []
    query: dict[str, Any] = {"workflow_id": "orders.approval", "limit": 2}
    while True:
        page = (await bob.get("/ui/workflows", params=query)).json()
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == [order["id"] for order in reversed(orders)]
    mine = (await bob.get("/ui/workflows", params={"subject_id": "bob"})).json()["items"]
    assert [item["id"] for item in mine] == [own["id"]]
    await alice.post(f"/ui/workflows/{orders[0]['id']}/cancel")
    gone = (await bob.get("/ui/workflows", params={"status": "cancelled"})).json()["items"]
    assert [item["id"] for item in gone] == [orders[0]["id"]]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 201}, {"status": "running"}, {"cursor": "AAAA"}, {"cursor": "?"}]
)
async def test_a_list_refuses_what_it_cannot_take(office: Office, query: dict[str, Any]) -> None:
    alice = await office.alice()
    assert (await alice.get("/ui/workflows", params=query)).status_code == 422


async def test_a_cursor_means_something_only_to_its_own_list(office: Office) -> None:
    alice = await office.alice()
    for n in range(2):
        await start(alice, order_id=f"ord-{n}")
    cursor = (await alice.get("/ui/workflows", params={"limit": 1})).json()["next"]
    far = await office.person("alice", EXECUTE, tenant="globex")
    assert told(await far.get("/ui/workflows", params={"cursor": cursor})) == (422, "CURSOR_INVALID")
    other = await alice.get("/ui/workflows", params={"cursor": cursor, "status": "active"})
    assert told(other) == (422, "CURSOR_INVALID")


async def test_grants_with_wildcards_see_what_they_cover(office: Office) -> None:
    order = await start(await office.alice())
    report = await start(await office.person("eve"), "expenses", cost_centre=7)
    wide, other = await office.person("wide", "orders:*"), await office.person("other", "disputes:*")
    assert [item["id"] for item in (await wide.get("/ui/workflows")).json()["items"]] == [report["id"], order["id"]]
    assert [item["id"] for item in (await other.get("/ui/workflows")).json()["items"]] == [report["id"]]
    assert (await wide.get(f"/ui/workflows/{order['id']}")).status_code == 200


# --- traces ---------------------------------------------------------------------------------------------------------


async def test_a_request_is_known_to_the_steps_it_sets_off(office: Office) -> None:
    alice = await office.alice()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = await alice.post(
        "/ui/workflows/orders.approval/start", json=ORDER, headers={"traceparent": trace, "x-correlation-id": "case-9"}
    )
    seen = (await alice.get(answer.headers["location"])).json()
    assert seen["correlation_id"] == "case-9"
    with psycopg.connect(office.engine.dsn) as connection:
        [[kept]] = connection.execute("select trace from holdfast.instances where id = %s", (seen["id"],)).fetchall()
    assert kept == trace
