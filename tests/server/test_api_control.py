"""/api/v1/instances/…: cancel, abort, pause, resume, re-run, requeue."""

from __future__ import annotations

from uuid import uuid4

import pytest
from api_flows import Service, clerk, decide, get, operator, post, publish_flows, register_handlers, start
from http_server import Served

from holdfast import Engine

pytestmark = pytest.mark.anyio


@pytest.fixture
def service(engine: Engine) -> Service:
    return register_handlers(engine)


@pytest.fixture
async def flows(server: Served, service: Service) -> Served:
    await publish_flows(server.engine)
    return server


async def test_cancel_keeps_who_and_why_and_a_repeat_with_its_key_is_answered_again(flows: Served) -> None:
    client = await clerk(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    wish = {"reason": "The customer called."}
    cancelled = await post(client, f"instances/{id}/cancel", 200, wish, idempotency_key="c-1")
    assert (cancelled["status"], cancelled["reason"]) == ("cancelled", "The customer called.")
    again = await post(client, f"instances/{id}/cancel", 200, wish, idempotency_key="c-1")
    assert again == cancelled
    assert (await post(client, f"instances/{id}/cancel", 409))["code"] == "INSTANCE_OVER"
    events = (await get(client, f"instances/{id}/events"))["items"]
    assert ("instance_cancelled", "carla") in {(e["type"], e["actor"]) for e in events}


async def test_cancel_names_the_version_it_is_meant_for(flows: Served) -> None:
    client = await clerk(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    assert (await post(client, f"instances/{id}/cancel", 412, if_match='"99"'))["code"] == "PRECONDITION_FAILED"
    tag = (await client.get(f"/api/v1/instances/{id}")).headers["etag"]
    assert (await post(client, f"instances/{id}/cancel", 200, if_match=tag))["status"] == "cancelled"


async def test_abort_ends_an_instance_at_once(flows: Served) -> None:
    client = await operator(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    aborted = await post(client, f"instances/{id}/abort", 200, {"reason": "Stuck."}, idempotency_key="a-1")
    assert aborted["status"] == "aborted"
    again = await post(client, f"instances/{id}/abort", 200, {"reason": "Stuck."}, idempotency_key="a-1")
    assert again["version"] == aborted["version"]


async def test_pause_and_resume(flows: Served) -> None:
    client = await operator(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    assert (await post(client, f"instances/{id}/pause", 412, if_match='"99"'))["code"] == "PRECONDITION_FAILED"
    paused = await post(client, f"instances/{id}/pause", 200, {"reason": "Stocktaking."}, idempotency_key="p-1")
    assert (paused["status"], paused["reason"]) == ("suspended", "Stocktaking.")
    assert (await post(client, f"instances/{id}/pause", 200, idempotency_key="p-1"))["status"] == "suspended"
    problem = await post(client, f"instances/{id}/signals", 409, {"event": "confirmed"})
    assert problem["code"] == "INSTANCE_SUSPENDED"
    why = {"reason": "Counted."}
    assert (await post(client, f"instances/{id}/resume", 200, why, idempotency_key="r-1"))["status"] == "running"
    resumed = (await get(client, f"instances/{id}/events"))["items"][-1]
    assert (resumed["type"], resumed["detail"]["reason"]) == ("instance_resumed", "Counted.")
    assert (await post(client, f"instances/{id}/resume", 200, idempotency_key="r-1"))["status"] == "running"
    assert (await post(client, f"instances/{id}/resume", 409))["code"] == "INSTANCE_NOT_SUSPENDED"
    await post(client, f"instances/{id}/pause", 200, idempotency_key="p-2")
    late = await post(client, f"instances/{id}/resume", 200, idempotency_key="r-1")
    assert late["status"] == "suspended", "a resume that comes twice is no second resume"
    assert (await post(client, f"instances/{id}/resume", 200, idempotency_key="r-2"))["status"] == "running"


async def test_an_instance_runs_again_from_a_step(flows: Served) -> None:
    client = await operator(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    await decide(await clerk(flows), id)
    await flows.engine.drain()
    wish = {"from_step": "do", "reason": "Once more."}
    new = await post(client, f"instances/{id}/rerun", 200, wish)
    assert new["id"] != id  # what is over stays over
    await flows.engine.drain()
    assert (await get(client, f"instances/{new['id']}"))["status"] == "completed"
    again = [await post(client, f"instances/{id}/rerun", 200, wish, idempotency_key="again-1") for _ in range(2)]
    assert again[0]["id"] == again[1]["id"] not in (id, new["id"])
    problem = await post(client, f"instances/{id}/rerun", 409, {"from_step": "ask"}, idempotency_key="again-1")
    assert problem["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert (await post(client, f"instances/{id}/rerun", 404, {"from_step": "nowhere"}))["code"] == "NODE_UNKNOWN"
    assert (await post(client, f"instances/{id}/rerun", 422, {}))["code"] == "REQUEST_INVALID"


async def test_what_died_is_put_back_by_instance_or_by_letter(flows: Served, service: Service) -> None:
    service.is_up = False
    client = await operator(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    await decide(await clerk(flows), id)
    await flows.engine.drain()
    [letter] = (await get(client, "dead-letters"))["items"]
    assert (letter["instance_id"], letter["source"]) == (id, "step")
    assert await get(client, f"dead-letters/{letter['id']}") == letter
    assert (await get(client, "dead-letters", instance=id, source="step"))["items"] == [letter]
    assert (await get(client, "dead-letters", source="effect"))["items"] == []

    tried = await post(client, f"instances/{id}/requeue", 200, {"dry_run": True})
    assert tried == {"ids": [letter["id"]], "left": [], "dry_run": True, "refusals": []}
    done = await post(client, f"instances/{id}/requeue", 200, {"reason": "Again."})
    assert done["ids"] == [letter["id"]]
    await flows.engine.drain()

    [second] = (await get(client, "dead-letters"))["items"]
    assert second["id"] != letter["id"]
    service.is_up = True
    requeued = await post(client, f"dead-letters/{second['id']}/requeue", 200, {"reason": "It is back."})
    assert (requeued["resolution"], requeued["resolved_by"]) == ("replayed", "olga")
    await flows.engine.drain()
    assert (await get(client, f"instances/{id}"))["status"] == "completed"
    assert (await post(client, f"dead-letters/{second['id']}/requeue", 409))["code"] == "DEAD_LETTER_RESOLVED"


async def test_many_letters_are_put_back_at_once_with_inputs_of_their_own(flows: Served, service: Service) -> None:
    service.is_up = False
    client = await operator(flows)
    ids = [(await start(client))["id"] for _ in range(3)]
    await flows.engine.drain()
    for id in ids:
        await decide(await clerk(flows), id)
    await flows.engine.drain()
    letters = {letter["instance_id"]: letter["id"] for letter in (await get(client, "dead-letters"))["items"]}
    service.is_up = True
    first, second, third = (letters[id] for id in ids)
    await post(client, f"dead-letters/{first}/requeue", 200)

    wish = {"ids": [first, second], "inputs": {second: {"order_id": "other"}}}
    tried = await post(client, "dead-letters/requeue", 200, {**wish, "dry_run": True})
    assert (tried["ids"], tried["dry_run"]) == ([second], True)
    done = await post(client, "dead-letters/requeue", 200, {**wish, "reason": "It is back."})
    assert (done["ids"], done["left"]) == ([second], [])
    assert [(each["id"], each["code"]) for each in done["refusals"]] == [(first, "DEAD_LETTER_RESOLVED")]
    alone = await post(client, f"instances/{ids[2]}/requeue", 200, {"inputs": {third: {"order_id": "third"}}})
    assert alone["ids"] == [third]
    await flows.engine.drain()
    assert {(await get(client, f"instances/{id}"))["status"] for id in ids} == {"completed"}
    inputs = [(await get(client, f"instances/{id}/steps"))["items"] for id in ids[1:]]
    given = [step["input"] for steps in inputs for step in steps if step["run"] == 1]
    assert given == [{"order_id": "other"}, {"order_id": "third"}]

    problem = await post(client, "dead-letters/requeue", 422, {"ids": [first], "inputs": {second: {}}})
    assert problem["code"] == "DEAD_LETTER_INPUT"
    assert (await post(client, "dead-letters/requeue", 404, {"ids": [str(uuid4())]}))["code"] == "DEAD_LETTER_UNKNOWN"
    assert (await post(client, "dead-letters/requeue", 422, {"ids": []}))["code"] == "REQUEST_INVALID"


async def test_putting_letters_back_is_not_a_letter_to_be_read(flows: Served) -> None:
    client = await operator(flows)
    answer = await client.get("/api/v1/dead-letters/requeue")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["code"] == "METHOD_NOT_ALLOWED"


async def test_a_dead_letter_is_let_go(flows: Served) -> None:
    client = await operator(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    await post(client, f"instances/{id}/signals", 200, {"event": "unheard", "at": "2020-01-01T00:00:00Z"})
    await flows.engine.drain()
    [letter] = (await get(client, "dead-letters"))["items"]
    assert letter["source"] == "signal"
    for _ in range(2):
        gone = await post(client, f"dead-letters/{letter['id']}/discard", 200, {"reason": "Never mind."})
        assert (gone["resolution"], gone["resolved_why"]) == ("discarded", "Never mind.")
    assert (await get(client, "dead-letters"))["items"] == []


async def test_a_dead_letter_that_its_instance_needs_stays(flows: Served, service: Service) -> None:
    service.is_up = False
    client = await operator(flows)
    id = (await start(client))["id"]
    await flows.engine.drain()
    await decide(await clerk(flows), id)
    await flows.engine.drain()
    [letter] = (await get(client, "dead-letters"))["items"]
    problem = await post(client, f"dead-letters/{letter['id']}/discard", 409)
    assert problem["code"] == "DEAD_LETTER_NEEDED"
    await post(client, f"instances/{id}/abort", 200)
    assert (await get(client, f"dead-letters/{letter['id']}"))["resolution"] == "discarded"


async def test_workers_and_statistics(flows: Served) -> None:
    client = await operator(flows)
    await start(client)
    async with flows.engine.worker(queues=["slow"]):
        [worker] = (await get(client, "workers"))["items"]
        assert worker["alive"] is True
        assert (worker["handlers"], worker["queues"]) == (["do"], ["slow"])
    [worker] = (await get(client, "workers"))["items"]
    assert worker["alive"] is False
    assert worker["stopped_at"] is not None
    await flows.engine.drain()
    [flow] = (await get(client, "statistics", flow="decision", version=1))["items"]
    assert (flow["flow"], flow["started"]) == ("decision", 1)
    period = {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}
    assert (await get(client, "statistics", 422, **period))["code"] == "PERIOD_INVALID"
