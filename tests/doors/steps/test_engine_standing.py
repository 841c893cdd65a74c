"""Where a workflow stands once somebody has changed it: told by the commit itself, and the same as a look says."""

from __future__ import annotations

from typing import Any

import pytest
from steps_graphs import approval

from holdfast import Caller, Context, Engine
from holdfast.errors import Conflict, NotFound
from holdfast.runtime.people.standing import Standing

pytestmark = pytest.mark.anyio

ORDER = {"order_id": "ord-123"}
NOTES = {"approval_notes": "Looks good"}


@pytest.fixture
async def orders(engine: Engine) -> Engine:
    @engine.handler("process")
    async def process(ctx: Context, data: Any) -> Any:
        return {"confirmed": True}

    engine.register("notify", process)
    await engine.publish(approval())
    return engine


async def is_what_a_look_says(engine: Engine, found: Standing) -> None:
    seen = await engine.descriptor(found.instance.id, by="system")
    assert await engine.get(found.instance.id) == found.instance
    assert (seen.current_step and seen.current_step.id, seen.expires_at) == (found.step, found.expires_at)
    assert await engine.standing(found.instance.id) == found


async def test_a_start_is_answered_where_it_rests(orders: Engine) -> None:
    async with orders.worker():
        found = await orders.start_and_settle(
            "orders.approval", ORDER, timeout=20, caller=Caller("alice", partition="eu")
        )
        assert (found.step, found.is_settled, found.instance.version) == ("review", True, 1)
        await is_what_a_look_says(orders, found)


async def test_an_answer_is_answered_where_the_chain_behind_it_ended(orders: Engine) -> None:
    async with orders.worker():
        begun = await orders.start_and_settle("orders.approval", ORDER, timeout=20, by="alice")
        found = await orders.advance_and_settle(begun.instance.id, "approved", NOTES, timeout=20, by="bob")
        assert (found.step, found.is_settled, found.instance.status) == ("approved", True, "completed")
        await is_what_a_look_says(orders, found)


async def test_a_start_with_a_key_is_answered_the_same_twice(orders: Engine) -> None:
    async with orders.worker():
        first = await orders.start_and_settle("orders.approval", ORDER, timeout=20, key="k", by="alice")
        assert await orders.start_and_settle("orders.approval", ORDER, timeout=20, key="k", by="alice") == first
        await is_what_a_look_says(orders, first)


async def test_without_a_worker_it_is_answered_as_it_is_when_the_time_is_up(orders: Engine) -> None:
    found = await orders.start_and_settle("orders.approval", ORDER, timeout=0, by="alice")
    assert (found.step, found.is_settled, found.instance.status) == (None, False, "pending")


async def test_steps_that_run_elsewhere_are_waited_for(orders: Engine) -> None:
    async with Engine(orders.dsn) as desk:
        async with orders.worker():
            begun = await desk.start_and_settle("orders.approval", ORDER, timeout=20, by="alice")
            found = await desk.advance_and_settle(begun.instance.id, "approved", NOTES, timeout=20, by="bob")
        assert (begun.step, found.step, found.is_settled) == ("review", "approved", True)
        await is_what_a_look_says(desk, found)


async def test_what_is_refused_is_refused_at_once(orders: Engine) -> None:
    async with orders.worker():
        begun = await orders.start_and_settle("orders.approval", ORDER, timeout=20, by="alice")
        for org in (orders, orders.for_org("elsewhere")):
            with pytest.raises((Conflict, NotFound)):
                await org.advance_and_settle(
                    begun.instance.id, "approved", NOTES, timeout=20, by="bob", if_version=7
                )  # fmt: skip
        with pytest.raises(NotFound):
            await orders.for_org("elsewhere").standing(begun.instance.id, 20)
