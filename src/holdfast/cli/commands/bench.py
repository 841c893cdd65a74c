"""`holdfast bench`: how fast this machine and this PostgreSQL run flows, measured in a database of its own."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from holdfast.cli.commands.doctor import address
from holdfast.cli.render.output import busy
from holdfast.cli.render.output import show as show_facts
from holdfast.doors.saga.flow import Flow
from holdfast.runtime.engine import Engine
from holdfast.runtime.process.loop import run
from holdfast.runtime.worker.context import Context
from holdfast.testing.database import copied_database

FLOW = "bench"


def bench(
    instances: Annotated[int, typer.Option("--instances", min=1, max=1_000_000, help="How many to run.")] = 2000,
    steps: Annotated[int, typer.Option("--steps", min=1, max=100, help="Steps of each, one after the other.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run many small instances and say how fast it went. The database is made for it and dropped afterwards."""
    with copied_database(address()) as database, busy(f"{instances} instances of {steps} steps"):
        facts = run(_measure(database.dsn, instances, steps))
    show_facts(facts, json=json)


async def _measure(dsn: str, instances: int, steps: int) -> dict[str, Any]:
    flow = Flow(FLOW)
    for number in range(steps):
        flow = flow.step(f"step{number + 1}", _nothing)
    async with Engine(dsn) as engine:
        await engine.publish(flow.build())
        async with engine.worker():
            began = time.perf_counter()
            started = await engine.start_many(FLOW, [{} for _ in range(instances)])
            stored = time.perf_counter()
            await asyncio.gather(*(engine.wait(instance.id) for instance in started[-100:]))
            await engine.drain()
            ended = time.perf_counter()
            alone = await _latency(engine)
    seconds = ended - began
    return {
        "instances": instances,
        "steps": instances * steps,
        "seconds": round(seconds, 3),
        "starts per second": round(instances / (stored - began)),
        "instances per second": round(instances / seconds),
        "steps per second": round(instances * steps / seconds),
        "milliseconds of one alone": round(alone * 1000, 1),
    }


async def _latency(engine: Engine, times: int = 21) -> float:
    """Measure the median time from start to end of an instance that runs alone."""
    found: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await engine.wait((await engine.start(FLOW)).id)
        found.append(time.perf_counter() - began)
    return sorted(found)[times // 2]


async def _nothing(ctx: Context, data: Any) -> None:
    return None
