"""The first flow: publish it, start it, let it run, look at what it did."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import Conflict

pytestmark = pytest.mark.anyio


async def reserve(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "reserved": True}


def ship(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "shipped": True}


ORDER = Flow("order").step("reserve", reserve).step("ship", ship).build()


async def test_a_flow_runs_from_start_to_end(engine: Engine) -> None:
    await engine.publish(ORDER)

    order = await engine.start("order", {"amount": 5})
    assert order.status == "pending"

    await engine.drain(timeout=30)

    order = await engine.get(order.id)
    assert order.status == "completed"
    assert order.data == {"amount": 5, "reserved": True, "shipped": True}
    assert order.input == {"amount": 5}


async def test_every_visit_of_a_step_is_kept(engine: Engine) -> None:
    await engine.publish(ORDER)
    order = await engine.start("order", {"amount": 5})
    await engine.drain(timeout=30)

    steps = await engine.steps(order.id)

    assert [(s.name, s.status, s.attempts) for s in steps if s.behaviour == "work"] == [
        ("reserve", "completed", 1),
        ("ship", "completed", 1),
    ]
    assert steps[0].input == {"amount": 5}
    assert steps[0].output == {"amount": 5, "reserved": True}


async def test_handlers_are_registered_by_name(engine: Engine) -> None:
    @engine.handler("greet")
    async def greet(ctx: Context, data: dict[str, Any]) -> str:
        return f"Hello {data['name']}"

    await engine.publish(Flow("greeting").step("greet", "greet").build())
    greeting = await engine.start("greeting", {"name": "Ada"})
    await engine.drain(timeout=30)
    assert (await engine.get(greeting.id)).data == "Hello Ada"


async def test_plain_functions_run_in_threads(engine: Engine) -> None:
    threads: set[int] = set()

    @engine.handler("where")
    def where(ctx: Context, data: Any) -> None:
        threads.add(threading.get_ident())

    await engine.publish(Flow("threads").step("where", "where").build())
    await engine.start("threads")
    await engine.drain(timeout=30)
    assert threads
    assert threading.get_ident() not in threads


async def test_a_start_with_a_key_happens_once(engine: Engine) -> None:
    await engine.publish(ORDER)
    first = await engine.start("order", {"amount": 5}, key="order-17")
    again = await engine.start("order", {"amount": 5}, key="order-17")
    assert again.id == first.id

    await engine.drain(timeout=30)

    later = await engine.start("order", {"amount": 5}, key="order-17")
    assert (later.id, later.status) == (first.id, "completed")
    assert len((await engine.list()).items) == 1


async def test_the_same_key_with_another_input_is_a_conflict(engine: Engine) -> None:
    await engine.publish(ORDER)
    await engine.start("order", {"amount": 5}, key="order-17")
    with pytest.raises(Conflict) as refusal:
        await engine.start("order", {"amount": 6}, key="order-17")
    assert refusal.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert len((await engine.list()).items) == 1


async def test_versions_live_beside_each_other(engine: Engine) -> None:
    async def one(ctx: Context, data: Any) -> int:
        return 1

    async def two(ctx: Context, data: Any) -> int:
        return 2

    await engine.publish(Flow("counting", version=1).step("count", one).build())
    await engine.publish(Flow("counting", version=2).step("count", two).build())
    old = await engine.start("counting", version=1)
    new = await engine.start("counting")
    await engine.drain(timeout=30)
    assert [(await engine.get(i.id)).data for i in (old, new)] == [1, 2]


async def test_a_published_version_never_changes(engine: Engine) -> None:
    published = await engine.publish(Flow("order").step("reserve", "reserve").build())
    same = await engine.publish(Flow("order").step("reserve", "reserve").build())
    assert (published.new, same.new, same.hash) == (True, False, published.hash)
    with pytest.raises(Conflict) as refusal:
        await engine.publish(Flow("order").step("reserve", "reserve").step("ship", "ship").build())
    assert refusal.value.code == "VERSION_TAKEN"
