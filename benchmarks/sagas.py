"""Measurements of sagas through the public surface: a task as JSON in the first argument, JSON lines out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.ours import WARM_UP, closed_loop, current_rss, linear, noop, peak_rss
from holdfast import Branch, DoNotRetry, Engine, Flow, Undo, run
from holdfast.runtime.process.collector import calm_collector

STEPS = 5


async def refuse(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("as it should be")


def compensated(name: str, last: str) -> Any:
    """Every step can be taken back; what the last one does decides whether it comes to that."""
    flow = Flow(name)
    for number in range(STEPS):
        handler = last if number == STEPS - 1 else "noop"
        flow = flow.step(f"step_{number}", handler, undo=Undo("noop", name=f"undo_{number}"))
    return flow.build()


def wide(width: int, handler: str) -> Any:
    branches = [Branch().step(f"branch_{number}", handler) for number in range(width)]
    return Flow(f"wide_{width}").fork("fork", *branches).join("join", "all").build()


def undone(width: int) -> Any:
    """All branches succeed; what comes behind them fails, and every branch is taken back."""
    branches = [Branch().step(f"branch_{n}", "noop", undo=Undo("noop", name=f"undo_{n}")) for n in range(width)]
    return Flow(f"undone_{width}").fork("fork", *branches).join("join", "all").step("last", "fail").build()


async def publish(engine: Engine) -> None:
    engine.register("noop", noop)
    engine.register("refuse", refuse)
    await engine.publish(linear("plain", STEPS, "noop"))
    await engine.publish(compensated("saga", "noop"))
    await engine.publish(compensated("broken", "refuse"))


async def load(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Flows of one kind in a closed loop, their starts included."""

    async def one(number: int) -> None:
        started = await engine.start(task["flow"], {"n": number})
        ended = await engine.wait(started.id)
        assert ended.status == task["ends"], ended

    async with engine.worker(concurrency=task["in_flight"]):
        await closed_loop(64, WARM_UP, one)
        begin = time.perf_counter()
        await closed_loop(task["in_flight"], task["flows"], one)
        return {"seconds": time.perf_counter() - begin}


async def alone(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """One flow at a time, from its start to its end."""
    took: list[float] = []
    async with engine.worker():
        for number in range(task["flows"] + 20):
            begin = time.perf_counter()
            ended = await engine.wait((await engine.start(task["flow"], {"n": number})).id)
            took.append(time.perf_counter() - begin)
            assert ended.status == task["ends"], ended
    return {"latencies": took[20:]}


async def branches(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """One flow of so many parallel branches, from its start to its end."""
    width = task["width"]
    await engine.publish(wide(width, "noop"))
    async with engine.worker():
        await engine.wait((await engine.start("saga", {})).id)
        base, begin = current_rss(), time.perf_counter()
        for _ in range(task["flows"]):
            ended = await engine.wait((await engine.start(f"wide_{width}", {})).id)
            assert ended.status == "completed", ended
        seconds = time.perf_counter() - begin
    return {"seconds": seconds / task["flows"], "grown": peak_rss() - base}


async def branches_back(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """One flow of so many parallel branches that is taken back: from the failure behind them to its end."""
    width, failed = task["width"], list[float]()

    async def fail(ctx: Any, data: Any) -> Any:
        failed.append(time.perf_counter())
        raise DoNotRetry("as it should be")

    engine.register("fail", fail)
    await engine.publish(undone(width))
    seconds: list[float] = []
    async with engine.worker():
        for _ in range(task["flows"]):
            ended = await engine.wait((await engine.start(f"undone_{width}", {})).id, timeout=120)
            seconds.append(time.perf_counter() - failed[-1])
            assert ended.status == "failed", ended
    return {"seconds": sum(seconds) / len(seconds)}


async def cancel(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """All branches run when their flow is cancelled: how long until the last handler knows."""
    width, told = task["width"], list[float]()
    running, everyone = 0, asyncio.Event()

    async def wait(ctx: Any, data: Any) -> Any:
        nonlocal running
        running += 1
        if running == width:
            everyone.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(time.perf_counter())

    engine.register("wait", wait)
    await engine.publish(wide(width, "wait"))
    async with Engine(task["dsn"]) as operator, engine.worker(concurrency=width):
        started = await engine.start(f"wide_{width}", {})
        await everyone.wait()
        asked = time.perf_counter()  # the commit is somewhere within the call
        await operator.cancel(started.id, by="bench", reason="measured")
        ended = await engine.wait(started.id)
    assert ended.status == "cancelled", ended
    assert len(told) == running == width, f"{running} started, {len(told)} were told"
    return {"seconds": max(told) - asked}


MODES = {mode.__name__: mode for mode in (load, alone, branches, branches_back, cancel)}


async def main() -> None:
    calm_collector()  # as `holdfast worker` does
    task = json.loads(sys.argv[1])
    async with Engine(task["dsn"]) as engine:
        await publish(engine)
        answer = await MODES[task["mode"]](engine, task)
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    run(main())
