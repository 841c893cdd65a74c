"""Nobody starves: under any load of higher priority, waiting work has its turn within the bound of its aging."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, Engine, Flow
from holdfast.runtime.commit.options import Options
from running import until

pytestmark = pytest.mark.anyio

AGING = 200.0  # points a second: the longest wait is half a second
BACKLOG = 12


class Load:
    """Steps of priority 100 without end: whenever one is done, the next is started, so the queue never runs dry."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.done = 0
        self.low_at: float | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = False
        engine.register("high", self.high)
        engine.register("low", self.low)

    async def high(self, _: Context, data: Any) -> Any:
        await asyncio.sleep(0.002)
        self.done += 1
        if not self._over:
            self.start()
        return data

    async def low(self, _: Context, data: Any) -> Any:
        self.low_at = asyncio.get_running_loop().time()
        return data

    def start(self) -> None:
        task = asyncio.create_task(self.engine.start("high", {}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def begin(self, backlog: int = BACKLOG) -> None:
        await self.engine.publish(Flow("high").step("high", "high", priority=100).build())
        await self.engine.publish(Flow("low").step("low", "low", priority=0).build())
        for _ in range(backlog):
            self.start()
        await asyncio.gather(*self._tasks)  # all of them are queued

    async def end(self) -> None:
        self._over = True
        while self._tasks:
            await asyncio.gather(*self._tasks)


async def test_constant_load_of_high_priority_starves_nobody(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn, options=Options(aging=AGING)) as engine:
        load = Load(engine)
        async with engine.worker(concurrency=2, capacity=2):
            await load.begin()
            await until(lambda: load.done > BACKLOG)
            since = asyncio.get_running_loop().time()
            await engine.start("low", {})
            await until(lambda: load.low_at)
            assert load.low_at is not None
            waited = load.low_at - since
            await load.end()
        # The bound is when its turn comes; what was queued before that moment may still go first.
        assert waited < 100 / AGING + 2.0
        await engine.drain()


async def test_without_aging_it_waits_for_as_long_as_there_is_more_urgent_work(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn, options=Options(aging=None)) as engine:
        load = Load(engine)
        async with engine.worker(concurrency=2, capacity=2):
            await load.begin(300)  # more than is done below, however late the next ones come
            await engine.start("low", {})
            await until(lambda: load.done > 150)
            assert load.low_at is None
            await load.end()
        await engine.drain()
        assert load.low_at is not None


async def test_steps_that_hand_off_do_not_keep_queued_work_from_free_slots(engine: Engine) -> None:
    """Long flows fill three of four slots and go on by themselves; what waits takes turns on the fourth."""
    length, hops, done = 400, 0, 0
    filled, going = asyncio.Event(), asyncio.Event()

    @engine.handler("hop")
    async def hop(_: Context, data: Any) -> Any:
        nonlocal hops
        hops += 1
        await going.wait()
        await asyncio.sleep(0.01)
        return data

    @engine.handler("short")
    async def short(_: Context, data: Any) -> Any:
        nonlocal done
        await filled.wait()
        done += 1
        return data

    long = Flow("long")
    for n in range(length):
        long = long.step(f"hop-{n}", "hop")
    await engine.publish(long.build())
    await engine.publish(Flow("short").step("short", "short").build())
    async with engine.worker(concurrency=4, capacity=4, scan=60.0, lease=180.0):
        await engine.start_many("long", [{}] * 3)
        await until(lambda: hops == 3)
        await engine.start_many("short", [{}] * 7)
        filled.set()
        going.set()
        await until(lambda: done == 7)
        assert hops < 3 * length


async def test_new_work_does_not_pass_what_is_queued(engine: Engine) -> None:
    """A worker with its hands full puts what it starts itself behind what others wait for, equal by equal."""
    order: list[int] = []
    going = asyncio.Event()

    @engine.handler("note")
    async def note(_: Context, data: Any) -> Any:
        order.append(data["n"])
        await going.wait()
        return data

    await engine.publish(Flow("note").step("note", "note").build())
    async with engine.worker(concurrency=1, capacity=1):
        for n in range(4):
            await engine.start("note", {"n": n})
        await until(lambda: order)
        late = asyncio.create_task(engine.start("note", {"n": 4}))
        await late
        going.set()
        await engine.drain()
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert order[1:] == sorted(order[1:])
