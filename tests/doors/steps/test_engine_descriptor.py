"""A workflow as one person sees it: where it stands, what they can do, what happened."""

from __future__ import annotations

from typing import Any

import pytest
from steps_graphs import NOTES, approval, edge

from holdfast import Caller, Context, Engine
from holdfast.errors import NotFound
from holdfast.testing import advance as pass_time

pytestmark = pytest.mark.anyio

EXECUTE = "orders:approve:execute"
NOTED = {"approval_notes": "Looks good"}


@pytest.fixture
async def orders(engine: Engine) -> Engine:
    @engine.handler("process")
    async def process(ctx: Context, data: Any) -> Any:
        if data.get("broken"):
            raise ValueError("no stock")
        return {"confirmed_at": "2025-01-15T10:45:00Z"}

    @engine.handler("notify")
    async def notify(ctx: Context, data: Any) -> Any:
        raise ConnectionError("mail is down")

    await engine.publish(approval())
    return engine


async def ordered(engine: Engine, name: str = "orders.approval", **input: Any) -> str:
    started = await engine.start(name, {"order_id": "ord-123", **input}, caller=Caller("alice", partition="eu"))
    await engine.drain()
    return started.id


async def test_it_tells_where_the_workflow_stands(orders: Engine) -> None:
    id = await ordered(orders)
    seen = await orders.descriptor(id, by="bob", capabilities=[EXECUTE, "orders:reject"], roles=["approver"])
    assert (seen.id, seen.status, seen.version) == (id, "active", 1)
    assert (seen.workflow.id, seen.workflow.name, seen.workflow.version) == ("orders.approval", "Order approval", 1)
    current = seen.current_step
    assert current is not None
    assert (current.id, current.name, current.type, current.form) == ("review", "Review the order", "approval", NOTES)
    assert (current.roles, current.assignee) == (["approver"], None)
    assert seen.allowed_events == ["approved", "rejected"]
    assert [(s.id, s.type, s.status) for s in seen.steps] == [
        ("review", "approval", "current"),
        ("process", "system", "upcoming"),
        ("rejected", "terminal", "upcoming"),
        ("notify", "notification", "upcoming"),
        ("approved", "terminal", "upcoming"),
    ]
    assert (seen.state, seen.subject_id, seen.partition_id) == ({"order_id": "ord-123"}, "alice", "eu")
    assert seen.expires_at is not None
    assert seen.created_at is not None
    assert (seen.expires_at - seen.created_at).total_seconds() == pytest.approx(72 * 3600, abs=60)
    assert [(e.event, e.step, e.actor) for e in seen.history] == [("step_entered", "review", "alice")]


async def test_the_history_has_the_names_of_the_text(orders: Engine) -> None:
    id = await ordered(orders)
    await orders.advance(id, "approved", NOTED, by="bob", comment="fine")
    await orders.drain()
    seen = await orders.descriptor(id, by="alice")
    assert (seen.status, seen.current_step and seen.current_step.id) == ("completed", "approved")
    assert seen.allowed_events == []
    assert [(e.event, e.step, e.actor) for e in seen.history] == [
        ("step_entered", "review", "alice"),
        ("step_completed", "review", "bob"),
        ("approved", "review", "bob"),
        ("transition", "review", "bob"),
        ("step_entered", "process", "system"),
        ("step_completed", "process", "system"),
        ("transition", "process", "system"),
        ("step_entered", "notify", "system"),
        ("step_failed", "notify", "system"),
        ("step_completed", "notify", "system"),
        ("transition", "notify", "system"),
        ("step_entered", "approved", "system"),
        ("workflow_completed", None, "system"),
    ]
    approved = seen.history[2]
    assert (approved.comment, approved.data["approval_notes"]) == ("fine", "Looks good")
    assert seen.history[3].data == {"event": "approved", "to": "process"}
    assert seen.history[8].data == {"code": "ConnectionError", "message": "mail is down"}
    assert all(event.timestamp is not None for event in seen.history)


async def test_other_ends_are_told_as_well(orders: Engine) -> None:
    cancelled = await ordered(orders)
    await orders.cancel(cancelled, by="carl", reason="not needed")
    last = (await orders.descriptor(cancelled, by="alice")).history[-1]
    assert (last.event, last.actor, last.comment) == ("cancelled", "carl", "not needed")

    stuck = await ordered(orders, broken=True)
    await orders.advance(stuck, "approved", NOTED, by="bob")
    await orders.drain()
    seen = await orders.descriptor(stuck, by="alice")
    assert (seen.status, seen.history[-1].event) == ("suspended", "step_failed")
    assert seen.history[-1].data == {"code": "ValueError", "message": "no stock"}
    assert seen.current_step is not None
    assert seen.current_step.id == "process"

    expired = await ordered(orders)
    await pass_time(orders, hours=73)
    await orders.drain()
    seen = await orders.descriptor(expired, by="alice")
    assert seen.status == "failed"
    assert [e.event for e in seen.history][-2:] == ["timeout", "workflow_failed"]


async def test_who_may_see_is_not_who_may_act(orders: Engine) -> None:
    id = await ordered(orders)

    async def events(by: str, capabilities: Any = (), roles: Any = ()) -> Any:
        return (await orders.descriptor(id, by=by, capabilities=capabilities, roles=roles)).allowed_events

    assert await events("alice") == []  # started it and may not approve it
    assert await events("dora", [EXECUTE]) == []  # no role
    assert await events("bob", [], ["approver"]) == ["approved"]  # no capability for a rejection
    for stranger in ((), ["other"]):
        with pytest.raises(NotFound):
            await events("eve", stranger, ["clerk"])
    with pytest.raises(NotFound):
        await orders.for_org("rival").descriptor(id, by="bob")
    [task] = await orders.tasks(id)
    await orders.assign(task.id, to="eve", by="boss")
    assert await events("eve") == ["approved"]
    assert await events("bob", [EXECUTE], ["approver"]) == []  # in other hands


async def test_conditions_on_the_state_close_events_and_conditions_on_the_answer_do_not(engine: Engine) -> None:
    await engine.publish(
        {
            "name": "choice", "entry": "ask", "kind": "steps", "policy": {"data": "context"},
            "variables": {"workflow": "any", "context": "any", "input": "any"},
            "nodes": [
                {"id": "ask", "kind": "human", "capabilities": ["see", "act"]},
                {"id": "secret", "kind": "human", "capabilities": ["secret"]},
                {"id": "done", "kind": "terminal"},
            ],
            "edges": [
                edge("ask", "done", "small", when="workflow.amount < 100"),
                edge("ask", "secret", "large", when="workflow.amount >= 100"),
                edge("ask", "done", "told", when="input.amount > 5"),
                edge("ask", "done", "mine", when="context.subject_id == 'alice'"),
                edge("secret", "done"),
            ],
        }
    )  # fmt: skip
    started = await engine.start("choice", {"amount": 500}, by="alice")
    await engine.drain()
    seen = await engine.descriptor(started.id, by="bob", capabilities=["see", "act"])
    assert seen.allowed_events == ["large", "mine", "told"]
    assert [step.id for step in seen.steps] == ["ask", "done"]
    assert (await engine.descriptor(started.id, by="bob", capabilities=["see"])).allowed_events == []
    await engine.advance(started.id, "large", by="bob", capabilities=["see", "act"])
    seen = await engine.descriptor(started.id, by="bob", capabilities=["see", "act"])
    assert seen.current_step is not None
    assert (seen.current_step.id, seen.current_step.task_id) == ("secret", None)
    assert {event.step for event in seen.history} == {"ask"}
