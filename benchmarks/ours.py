"""One measurement of Holdfast through its public surface: a task as JSON in the first argument, JSON lines out.

Everything here is what a user could write; no option is set that the documentation would not name.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast import Engine, Flow, run
from holdfast.runtime.process.collector import calm_collector

NAP = 0.1
WARM_UP = 200


async def noop(ctx: Any, data: Any) -> Any:
    return data


async def nap(ctx: Any, data: Any) -> Any:
    await asyncio.sleep(NAP)
    return data


def linear(name: str, steps: int, handler: str) -> Any:
    flow = Flow(name, version=1)
    for number in range(steps):
        flow = flow.step(f"step_{number}", handler)
    return flow.build()


async def publish(engine: Engine) -> None:
    engine.register("noop", noop)
    engine.register("nap", nap)
    await engine.publish(linear("flow1", 1, "noop"))
    await engine.publish(linear("flow5", 5, "noop"))
    await engine.publish(linear("napping5", 5, "nap"))


async def closed_loop(width: int, total: int, call: Callable[[int], Awaitable[Any]]) -> None:
    left = iter(range(total))

    async def one() -> None:
        for number in left:
            await call(number)

    await asyncio.gather(*(one() for _ in range(width)))


async def run_flow(engine: Engine, flow: str, number: int) -> None:
    started = await engine.start(flow, {"n": number})
    ended = await engine.wait(started.id)
    assert ended.status == "completed", ended


async def load(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Flows in a closed loop, their starts included."""
    flow = f"flow{task['steps']}"
    async with engine.worker(concurrency=task["in_flight"]):
        await closed_loop(64, WARM_UP, lambda number: run_flow(engine, flow, number))
        begin = time.perf_counter()
        await closed_loop(task["in_flight"], task["flows"], lambda number: run_flow(engine, flow, number))
        return {"seconds": time.perf_counter() - begin, "warm_up": WARM_UP, "rss": peak_rss()}


async def starts(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    await closed_loop(task["callers"], WARM_UP, lambda number: engine.start("flow5", {"n": number}))
    begin = time.perf_counter()
    await closed_loop(task["callers"], task["calls"], lambda number: engine.start("flow5", {"n": number}))
    return {"seconds": time.perf_counter() - begin}


async def start_many(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    inputs = [{"n": number} for number in range(task["size"])]
    await engine.start_many("flow5", inputs[:WARM_UP])
    begin = time.perf_counter()
    for _ in range(task["repeats"]):
        await engine.start_many("flow5", inputs)
    return {"seconds": time.perf_counter() - begin}


async def alone(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    took: list[float] = []
    async with engine.worker():
        await closed_loop(1, 20, lambda number: run_flow(engine, "flow5", number))
        for number in range(task["flows"]):
            begin = time.perf_counter()
            await run_flow(engine, "flow5", number)
            took.append(time.perf_counter() - begin)
    return {"latencies": took}


async def prepare(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Started and not run: the queue for workers to come."""
    for first in range(0, task["flows"], 1000):
        size = min(1000, task["flows"] - first)
        await engine.start_many(task.get("flow", "flow5"), [{"n": first + number} for number in range(size)])
    return {}


async def work(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """A worker process: ready, waits for the word, runs until its input closes."""
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with engine.worker(concurrency=task["in_flight"]):
        await asyncio.to_thread(sys.stdin.read)
    return {"rss": peak_rss()}


async def awaiting(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """The rate of finished flows while all places are taken; the filling and the emptying are left out."""
    finished: list[float] = []

    async def one(number: int) -> None:
        await run_flow(engine, "napping5", number)
        finished.append(time.perf_counter())

    async with engine.worker(concurrency=task["in_flight"]):
        begin = time.perf_counter()
        await closed_loop(task["in_flight"], task["flows"], one)
    window = begin + task["settle"], finished[-task["in_flight"]]
    counted = sum(window[0] <= moment <= window[1] for moment in finished)
    return {"flows": counted, "seconds": window[1] - window[0]}


async def memory(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """All flows are in flight at once: every handler waits for the last one to arrive."""
    arrived, everyone = 0, asyncio.Event()

    async def meet(ctx: Any, data: Any) -> Any:
        nonlocal arrived
        arrived += 1
        if arrived == task["flows"]:
            everyone.set()
        await everyone.wait()
        return data

    engine.register("meet", meet)
    await engine.publish(linear("meeting", 1, "meet"))
    base = peak_rss()
    await prepare(engine, {"flows": task["flows"], "flow": "meeting"})
    async with engine.worker(concurrency=task["flows"]):
        await everyone.wait()
        met = current_rss()
    return {"base": base, "met": met, "peak": peak_rss()}


async def latency(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Claim: from another client's start call to the first handler. Advance: from one handler's end to the next."""
    claims: list[float] = []
    advances: list[float] = []

    async def stamp(ctx: Any, data: Any) -> Any:
        (claims if data["step"] == 0 else advances).append(time.perf_counter() - data["at"])
        return {"step": data["step"] + 1, "at": time.perf_counter()}

    engine.register("stamp", stamp)
    await engine.publish(linear("stamped", 5, "stamp"))
    async with Engine(task["dsn"]) as client, engine.worker(concurrency=task["in_flight"]):

        async def one(number: int) -> None:
            started = await client.start("stamped", {"step": 0, "at": time.perf_counter()})
            await engine.wait(started.id)

        await closed_loop(task["in_flight"], WARM_UP, one)
        claims.clear()
        advances.clear()
        await closed_loop(task["in_flight"], task["flows"], one)
    return {"claims": claims, "advances": advances}


async def keys(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """All starts at once, every key many times: one instance per key, the same in every process."""
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def one(number: int) -> tuple[str, str]:
        key = f"key-{number % task['keys']}"
        return key, str((await engine.start("flow5", {"key": key}, key=key)).id)

    return {"started": await asyncio.gather(*(one(number) for number in range(task["starts"])))}


def peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def current_rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


MODES = {
    mode.__name__: mode for mode in (load, starts, start_many, alone, prepare, work, awaiting, memory, latency, keys)
}


async def main() -> None:
    calm_collector()  # as `holdfast worker` does
    task = json.loads(sys.argv[1])
    async with Engine(task["dsn"]) as engine:
        await publish(engine)
        answer = await MODES[task["mode"]](engine, task)
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    run(main())
