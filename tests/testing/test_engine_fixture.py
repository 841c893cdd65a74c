"""The engine fixture and the clock together, as a suite of a Holdfast user would have them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doors.saga import Flow
from holdfast.runtime.engine import Engine
from holdfast.testing import Database, advance

pytestmark = pytest.mark.anyio

REMINDER = {
    "name": "reminder",
    "entry": "pause",
    "nodes": [
        {"id": "pause", "kind": "wait_timer", "delay": 3 * 86_400.0},
        {"id": "remind", "kind": "task", "handler": "remind"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "pause>remind", "source": "pause", "target": "remind"},
        {"id": "remind>end", "source": "remind", "target": "end"},
    ],
}


def total(ctx: object, data: dict[str, Any]) -> dict[str, Any]:
    return {"total": sum(data["prices"])}


async def remind(ctx: object, data: Any) -> dict[str, Any]:
    return {"reminded": True}


async def test_the_engine_runs_on_the_tests_own_database(engine: Engine, holdfast_database: Database) -> None:
    assert engine.dsn == holdfast_database.dsn
    await engine.publish(Flow("order").step("total", total).build())
    order = await engine.start("order", {"prices": [2, 3]})
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).status == "completed"
    [step] = [step for step in await engine.steps(order.id) if step.name == "total"]
    assert step.output == {"total": 5}


async def test_three_days_pass_in_a_moment(engine: Engine) -> None:
    engine.register("remind", remind)
    await engine.publish(REMINDER)
    reminder = await engine.start("reminder")
    await engine.drain(timeout=30)
    assert (await engine.get(reminder.id)).status == "running"
    await advance(engine, days=2, hours=23)
    await engine.drain(timeout=30)
    assert (await engine.get(reminder.id)).status == "running"
    await advance(engine, hours=2)
    await engine.drain(timeout=30)
    assert (await engine.get(reminder.id)).status == "completed"


async def test_a_running_worker_notices(engine: Engine) -> None:
    engine.register("remind", remind)
    await engine.publish(REMINDER)
    async with engine.worker():
        reminder = await engine.start("reminder")
        await advance(engine, days=4)
        assert (await engine.wait(reminder.id, timeout=30)).status == "completed"
