"""A graph written as JSON: conditions, parallel branches, joins."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, Engine

pytestmark = pytest.mark.anyio

ORDER: dict[str, Any] = {
    "name": "order",
    "entry": "check",
    "nodes": [
        {"id": "check", "kind": "task", "handler": "check"},
        {"id": "large", "kind": "condition"},
        {"id": "sign_off", "kind": "human"},
        {"id": "fulfil", "kind": "split"},
        {"id": "ship", "kind": "task", "handler": "ship"},
        {"id": "invoice", "kind": "task", "handler": "invoice"},
        {"id": "fulfilled", "kind": "join", "mode": "all"},
        {"id": "cooling_off", "kind": "wait_timer", "delay": 14 * 86_400.0},
        {"id": "done", "kind": "end"},
        {"id": "declined", "kind": "terminal"},
    ],
    "edges": [
        {"id": "check>large", "source": "check", "target": "large"},
        {"id": "large>sign_off", "source": "large", "target": "sign_off", "when": "input.amount > 1000"},
        {"id": "large>fulfil", "source": "large", "target": "fulfil", "priority": 1},
        {"id": "sign_off>fulfil", "source": "sign_off", "target": "fulfil", "on": "approved"},
        {"id": "sign_off>declined", "source": "sign_off", "target": "declined", "on": "rejected"},
        {"id": "fulfil>ship", "source": "fulfil", "target": "ship"},
        {"id": "fulfil>invoice", "source": "fulfil", "target": "invoice"},
        {"id": "ship>fulfilled", "source": "ship", "target": "fulfilled"},
        {"id": "invoice>fulfilled", "source": "invoice", "target": "fulfilled"},
        {"id": "fulfilled>cooling_off", "source": "fulfilled", "target": "cooling_off"},
        {"id": "cooling_off>done", "source": "cooling_off", "target": "done"},
    ],
}


@pytest.fixture
async def shop(engine: Engine) -> Engine:
    @engine.handler("check")
    async def check(ctx: Context, data: Any) -> Any:
        return data

    @engine.handler("ship")
    async def ship(ctx: Context, data: Any) -> str:
        return "shipped"

    @engine.handler("invoice")
    async def invoice(ctx: Context, data: Any) -> str:
        return "invoiced"

    await engine.publish(ORDER)
    return engine


async def names(engine: Engine, id: str) -> list[str]:
    return [step.name for step in await engine.steps(id, all=True)]


async def test_a_condition_chooses_one_way_and_says_which(shop: Engine) -> None:
    order = await shop.start("order", {"amount": 10})
    await shop.drain(timeout=30)
    assert "sign_off" not in await names(shop, order.id)
    [large] = [s for s in await shop.steps(order.id) if s.name == "large"]
    assert large.chosen_edge_ids == ["large>fulfil"]


async def test_branches_run_beside_each_other_and_meet_once(shop: Engine) -> None:
    order = await shop.start("order", {"amount": 10})
    await shop.drain(timeout=30)
    visited = await names(shop, order.id)
    assert sorted(visited[visited.index("fulfil") + 1 :]) == ["cooling_off", "fulfilled", "invoice", "ship"]
    [joined] = [s for s in await shop.steps(order.id) if s.name == "fulfilled"]
    assert joined.output["outputs"] == {"ship": "shipped", "invoice": "invoiced"}


async def test_a_person_decides_and_a_timer_passes(shop: Engine) -> None:
    from holdfast.testing import advance

    order = await shop.start("order", {"amount": 5000})
    await shop.drain(timeout=30)
    order = await shop.get(order.id)
    assert (order.status, order.waiting_for) == ("running", "task")

    await shop.signal(order.id, "approved", {"note": "fine"}, by="ada")
    await shop.drain(timeout=30)
    assert (await shop.get(order.id)).waiting_for == "timer"

    await advance(shop, days=14, seconds=1)
    await shop.drain(timeout=30)
    assert (await shop.get(order.id)).status == "completed"
    [sign_off] = [s for s in await shop.steps(order.id) if s.name == "sign_off"]
    assert (sign_off.status, sign_off.closed_by) == ("confirmed", "ada")


async def test_the_other_answer_takes_the_other_edge(shop: Engine) -> None:
    order = await shop.start("order", {"amount": 5000})
    await shop.drain(timeout=30)
    order = await shop.signal(order.id, "rejected", by="ada")
    assert order.status == "completed"
    assert (await names(shop, order.id))[-1] == "declined"
