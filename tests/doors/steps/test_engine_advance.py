"""People answer where a workflow rests."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from steps_graphs import approval, edge

from holdfast import Context, Engine
from holdfast.errors import Conflict, Forbidden, HoldfastError, InputInvalid, NotFound, Refused

pytestmark = pytest.mark.anyio

NOTED = {"approval_notes": "Looks good"}
BOB: dict[str, Any] = {"by": "bob", "capabilities": ["orders:approve:execute"], "roles": ["approver"]}


@pytest.fixture
async def orders(engine: Engine) -> Engine:
    @engine.handler("process")
    async def process(ctx: Context, data: Any) -> Any:
        return {"confirmed_at": "2025-01-15T10:45:00Z"}

    @engine.handler("notify")
    async def notify(ctx: Context, data: Any) -> Any:
        return None

    await engine.publish(approval())
    await engine.publish(approval("orders.strict", capabilities=["orders:review", "orders:see"]))
    return engine


async def ordered(engine: Engine, name: str = "orders.approval") -> str:
    started = await engine.start(name, {"order_id": "ord-123"}, by="alice")
    await engine.drain()
    return started.id


async def test_an_approval_runs_the_chain_to_its_end(orders: Engine) -> None:
    id = await ordered(orders)
    async with orders.worker():
        answered = await orders.advance(id, "approved", NOTED, **BOB, comment="fine")
        assert answered.data["approval_notes"] == "Looks good"
        ended = await orders.settle(id, timeout=20)
    assert (ended.status, ended.data["confirmed_at"]) == ("completed", "2025-01-15T10:45:00Z")
    [task] = await orders.tasks(id)
    assert (task.decision, task.comment, task.decided_by) == ("approved", "fine", "bob")


async def refused(error: type[HoldfastError], *args: Any, **options: Any) -> HoldfastError:
    engine, id, event, *rest = args
    before = await engine.get(id)
    with pytest.raises(error) as refusal:
        await engine.advance(id, event, *rest, **{**BOB, **options})
    assert await engine.get(id) == before
    return refusal.value


async def test_what_does_not_fit_the_form_is_refused_with_its_place(orders: Engine) -> None:
    id = await ordered(orders)
    for input, path in (
        (None, "$"),
        ({"approval_notes": 5}, "$.approval_notes"),
        ({**NOTED, "rating": 0}, "$.rating"),
    ):
        refusal = await refused(InputInvalid, orders, id, "approved", input)
        assert isinstance(refusal, InputInvalid)
        assert (refusal.code, refusal.misfits[0].path) == ("FORM_INVALID", path)
    assert (await refused(InputInvalid, orders, id, "approved", ["no object"])).code == "FORM_INVALID"


@pytest.mark.parametrize("event", ["shipped", "error", "timeout", "completed"])
async def test_an_event_without_a_transition_leads_nowhere(orders: Engine, event: str) -> None:
    refusal = await refused(Refused, orders, await ordered(orders), event, NOTED)
    assert (refusal.code, refusal.detail["allowed"]) == ("INVALID_TRANSITION", ["approved", "rejected"])


async def test_an_id_belongs_to_whoever_used_it(orders: Engine) -> None:
    id, request = await ordered(orders), uuid4()
    await orders.advance(id, "approved", NOTED, **BOB, id=request)
    with pytest.raises(Conflict) as refusal:
        await orders.advance(id, "approved", NOTED, **{**BOB, "by": "ben"}, id=request)
    assert refusal.value.code == "IDEMPOTENCY_KEY_REUSED"
    await orders.advance(id, "approved", NOTED, **BOB, id=request)


async def test_guards_and_capabilities_are_asked_for(orders: Engine) -> None:
    id = await ordered(orders)
    assert (await refused(Forbidden, orders, id, "rejected", NOTED)).code == "GUARD_REFUSED"
    assert (await refused(Forbidden, orders, id, "approved", NOTED, roles=["clerk"])).code == "TASK_ROLE_MISSING"
    strict = await ordered(orders, "orders.strict")
    missing = await refused(Forbidden, orders, strict, "approved", NOTED, capabilities=["orders:see"])
    assert (missing.code, missing.detail["missing"]) == ("CAPABILITY_MISSING", ["orders:review"])
    unasked = await refused(Forbidden, orders, strict, "shipped", NOTED, capabilities=["orders:see"])
    assert unasked.code == "CAPABILITY_MISSING"
    rejected = await orders.advance(id, "rejected", by="bob", capabilities=["orders:reject"], roles=["approver"])
    assert rejected.status == "completed"
    trusted = await orders.advance(strict, "rejected", by="bob")
    assert trusted.status == "completed"


async def test_nobody_approves_what_they_started(orders: Engine) -> None:
    refusal = await refused(Forbidden, orders, await ordered(orders), "approved", NOTED, by="alice")
    assert refusal.code == "SELF_APPROVAL"


async def test_a_task_in_other_hands_is_not_decided(orders: Engine) -> None:
    id = await ordered(orders)
    [task] = await orders.tasks(id)
    await orders.claim(task.id, by="carol", roles=["approver"])
    assert (await refused(Conflict, orders, id, "approved", NOTED)).code == "TASK_CLAIMED"


async def test_a_workflow_that_is_not_active_takes_nothing(orders: Engine) -> None:
    id = await ordered(orders)
    await orders.suspend(id)
    assert (await refused(Conflict, orders, id, "approved", NOTED)).code == "WORKFLOW_NOT_ACTIVE"
    await orders.cancel(id, by="alice")
    refusal = await refused(Conflict, orders, id, "approved", NOTED)
    assert (refusal.code, refusal.detail["status"]) == ("WORKFLOW_NOT_ACTIVE", "cancelled")


async def test_another_tenants_instance_is_not_found(orders: Engine) -> None:
    id = await ordered(orders)
    with pytest.raises(NotFound):
        await orders.for_org("rival").advance(id, "approved", NOTED, **BOB)


async def test_the_version_may_be_named(orders: Engine) -> None:
    id = await ordered(orders)
    version = (await orders.get(id)).version
    assert (await refused(Conflict, orders, id, "approved", NOTED, if_version=version - 1)).code == "VERSION_CONFLICT"
    assert (await orders.advance(id, "approved", NOTED, **BOB, if_version=version)).version == version + 1


async def test_the_same_id_has_one_effect_and_another_body_is_a_conflict(orders: Engine) -> None:
    id, key = await ordered(orders), uuid4()
    first = await orders.advance(id, "approved", NOTED, **BOB, id=key)
    again = await orders.advance(id, "approved", NOTED, **BOB, id=key)
    assert again.version == first.version
    await orders.drain()
    over = await orders.advance(id, "approved", NOTED, **BOB, id=key)
    assert over.status == "completed"
    for event, input in (("approved", {"approval_notes": "other"}), ("rejected", NOTED)):
        with pytest.raises(Conflict) as reused:
            await orders.advance(id, event, input, **BOB, id=key)
        assert reused.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert len([s for s in await orders.steps(id) if s.name == "process"]) == 1


async def test_of_many_who_answer_at_once_one_is_taken(orders: Engine) -> None:
    id = await ordered(orders)
    calls = [orders.advance(id, "approved", NOTED, **{**BOB, "by": f"bob-{n}"}) for n in range(20)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert len([a for a in answers if not isinstance(a, BaseException)]) == 1
    assert {a.code for a in answers if isinstance(a, HoldfastError)} == {"INVALID_TRANSITION"}


async def test_a_loop_is_answered_lap_by_lap(engine: Engine) -> None:
    """The same step again: an answer to the first lap is not taken for one to the second."""
    await engine.publish(
        {
            "name": "laps", "entry": "ask", "kind": "steps", "policy": {"data": "context"},
            "nodes": [{"id": "ask", "kind": "human"}, {"id": "done", "kind": "terminal"}],
            "edges": [edge("ask", "ask", "again"), edge("ask", "done")],
        }
    )  # fmt: skip
    started = await engine.start("laps", {})
    await engine.drain()
    key = uuid4()
    lap = await engine.advance(started.id, "again", {"n": 1}, by="bob", id=key)
    assert (await engine.advance(started.id, "again", {"n": 1}, by="bob", id=key)).version == lap.version
    assert (await engine.advance(started.id, "again", {"n": 2}, by="bob")).version == lap.version + 1
    assert (await engine.advance(started.id, "completed", by="bob")).status == "completed"
