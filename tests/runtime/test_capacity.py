"""How much a worker takes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Engine, Flow

pytestmark = pytest.mark.anyio


async def test_every_handler_the_concurrency_allows_can_be_busy_at_once(engine: Engine) -> None:
    arrived, everyone = 0, asyncio.Event()

    async def meet(ctx: Any, data: Any) -> Any:
        nonlocal arrived
        arrived += 1
        if arrived == 8:
            everyone.set()
        await everyone.wait()
        return data

    engine.register("meet", meet)
    await engine.publish(Flow("meeting", version=1).step("meet", "meet").build())
    async with engine.worker(concurrency=8, capacity=2), asyncio.timeout(30):
        started = await engine.start_many("meeting", [{} for _ in range(8)])
        ended = [await engine.wait(instance.id) for instance in started]
    assert {instance.status for instance in ended} == {"completed"}
