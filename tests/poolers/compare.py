"""What a pooler costs: the same flows with prepared statements, without them, and through PgBouncer, in turns.

python tests/poolers/compare.py [rounds]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bouncer import find, pgbouncer

from holdfast import Context, Engine, Flow
from holdfast.testing import copied_database, running_server

FLOWS = 600
STEPS = 5
LONE = 40
POOLS = (10, 3)


async def step(ctx: Context, data: Any) -> Any:
    return data


async def measure(engine: Engine) -> tuple[float, float]:
    """Steps a second of many flows at once, and milliseconds from the start of a lone flow to its end."""
    flow = Flow("measured")
    for n in range(STEPS):
        flow = flow.step(f"s{n}", "step")
    async with engine:
        engine.register("step", step)
        await engine.publish(flow.build())
        async with engine.worker():
            await asyncio.gather(*(engine.wait(i.id) for i in await engine.start_many("measured", [None] * 50)))
            begun = time.perf_counter()
            started = await engine.start_many("measured", [{"n": n} for n in range(FLOWS)])
            await asyncio.gather(*(engine.wait(i.id) for i in started))
            rate = FLOWS * STEPS / (time.perf_counter() - begun)
            alone: list[float] = []
            for _ in range(LONE):
                begun = time.perf_counter()
                await engine.wait((await engine.start("measured")).id)
                alone.append(1000 * (time.perf_counter() - begun))
    return rate, statistics.median(alone)


def main(rounds: int) -> None:
    with running_server() as admin, copied_database(admin) as database, ExitStack() as stack:
        dsn = database.dsn
        ways: dict[str, Callable[[], Engine]] = {
            "prepared, direct": lambda: Engine(dsn),
            "unnamed, direct": lambda: Engine(dsn, pooled=True),
        }
        if find() is not None:
            for size in POOLS:
                address = stack.enter_context(pgbouncer(dsn, size))
                ways[f"PgBouncer, {size} connections"] = lambda address=address: Engine(address, direct_dsn=dsn)
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                figures[name].append(asyncio.run(measure(way())))
    for name, found in figures.items():
        rates, alone = zip(*found, strict=True)
        print(f"{name:28} {statistics.median(rates):7.0f} steps/s  {statistics.median(alone):6.1f} ms a lone flow")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
