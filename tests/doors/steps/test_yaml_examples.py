"""The examples run: an order against a real service, a dispute that the bank answers from outside."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest
from steps_yaml import EXAMPLES, sound

from holdfast import Context, Engine
from holdfast.testing import advance as pass_time

pytestmark = pytest.mark.anyio

ORDER = {"order_id": "ord-123", "customer_email": "bob@example.com"}
APPROVER = {"by": "alice", "roles": ["approver"]}


@pytest.fixture(scope="module")
def service() -> ModuleType:
    spec = importlib.util.spec_from_file_location("steps_example_service", EXAMPLES / "service.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def whereabouts(engine: Engine, id: str) -> tuple[str, str]:
    await engine.settle(id, timeout=30)
    seen = await engine.descriptor(id, by="anybody")
    assert seen.current_step is not None
    return seen.status, seen.current_step.id


async def test_an_order_is_reviewed_confirmed_and_told(engine: Engine, service: ModuleType) -> None:
    with service.running_service() as server:
        engine.openapi("orders", service.DOCUMENT, base_url=server.url)
        await engine.publish(sound((EXAMPLES / "order_approval.yaml").read_text()))
        async with engine.worker():
            order = (await engine.start("orders.approval", ORDER, by="bob")).id
            assert await whereabouts(engine, order) == ("active", "review")
            await engine.advance(order, "approved", {"approval_notes": "Looks good"}, **APPROVER)
            assert await whereabouts(engine, order) == ("completed", "approved")

            sold_out = (await engine.start("orders.approval", {**ORDER, "order_id": "ord-1-sold-out"}, by="bob")).id
            await engine.settle(sold_out, timeout=30)
            await engine.advance(sold_out, "approved", {}, **APPROVER)
            assert await whereabouts(engine, sold_out) == ("completed", "failed")
        assert [told["email"] for told in server.orders.notifications] == ["bob@example.com"]
    state = (await engine.get(order)).data
    assert state == {
        **ORDER,
        "approval_notes": "Looks good",
        "approved_by": "alice",
        "confirmed_at": state["confirmed_at"],
    }
    assert (await engine.get(sold_out)).data["_last_error"]["step"] == "process"


async def test_an_order_that_nobody_reviews_is_escalated_and_expires(engine: Engine) -> None:
    await engine.publish(sound((EXAMPLES / "order_approval.yaml").read_text()))
    async with engine.worker():
        order = (await engine.start("orders.approval", ORDER, by="bob")).id
        assert await whereabouts(engine, order) == ("active", "review")
        await pass_time(engine, hours=25)
        await engine.drain()
        assert await whereabouts(engine, order) == ("active", "escalated")
        await pass_time(engine, hours=48)
        await engine.drain()
        assert await whereabouts(engine, order) == ("completed", "expired")


async def test_a_dispute_is_answered_by_the_bank(engine: Engine) -> None:
    refunds: list[Any] = []

    @engine.handler("submit_dispute")
    async def submit_dispute(ctx: Context, data: Any) -> Any:
        return {"case_number": f"case-{data['charge']}", "queue": 7}

    @engine.handler("refund")
    async def refund(ctx: Context, data: Any) -> Any:
        refunds.append(data)
        return {"refunded": data["amount"]}

    await engine.publish(sound((EXAMPLES / "dispute.yaml").read_text()))
    async with engine.worker():
        both: list[str] = []
        for charge in ("c1", "c2"):
            started = await engine.start("disputes.resolution", {"charge_id": charge, "amount": 40}, by="bob")
            await engine.settle(started.id, timeout=30)
            await engine.advance(started.id, "completed", {"summary": "It was never delivered."}, by="sue")
            assert await whereabouts(engine, started.id) == ("active", "bank")
            both.append(started.id)
        accepted, refused = both
        await engine.signal_key("bank.answered", "case-c1", {"outcome": "accepted"}, by="bank")
        await engine.drain()
        assert await whereabouts(engine, accepted) == ("completed", "resolved")
        await engine.signal_key("bank.answered", "case-c2", {"outcome": "refused"}, by="bank")
        await engine.drain()
        assert await whereabouts(engine, refused) == ("active", "cooling")
        await pass_time(engine, days=3)
        await engine.drain()
        assert await whereabouts(engine, refused) == ("active", "review")
        await engine.advance(refused, "rejected", {}, by="judge", capabilities=["disputes:decide"], roles=["disputes"])
        assert await whereabouts(engine, refused) == ("completed", "rejected")
    assert refunds == [{"charge": "c1", "amount": 40}]
    assert (await engine.get(accepted)).data["refunded"] == 40
