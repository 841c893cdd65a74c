"""One measurement of throughput in a process of its own: `python -m faults.load <task as JSON>` prints the seconds."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from holdfast import Engine, Flow
from holdfast.runtime.process.collector import calm_collector

STEPS = 5
WARM_UP = 300


async def nothing(ctx: Any, data: Any) -> Any:
    return data


async def measure(task: dict[str, Any]) -> float:
    flow = Flow("load")
    for number in range(STEPS):
        flow = flow.step(f"step_{number}", "nothing")
    async with Engine(task["dsn"]) as engine:
        engine.register("nothing", nothing)
        await engine.publish(flow.build())
        async with engine.worker(concurrency=task["in_flight"], **task["worker"]):
            await closed_loop(engine, 64, WARM_UP)
            begin = time.perf_counter()
            await closed_loop(engine, task["in_flight"], task["flows"])
            return time.perf_counter() - begin


async def closed_loop(engine: Engine, width: int, total: int) -> None:
    left = iter(range(total))

    async def lane() -> None:
        for number in left:
            started = await engine.start("load", {"n": number})
            ended = await engine.wait(started.id)
            assert ended.status == "completed", ended

    await asyncio.gather(*(lane() for _ in range(width)))


if __name__ == "__main__":
    calm_collector()  # as `holdfast worker` does
    print(json.dumps({"seconds": asyncio.run(measure(json.loads(sys.argv[1])))}))
