"""One measurement of the queue's order: a task as JSON in the first argument, a JSON line out.

`claims` times single claims out of a queue of steady length; `starving` runs steps of priority 100 at a share of what
the worker can do and says how long steps of priority 0 waited among them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import psycopg

from holdfast import Engine, Flow, run
from holdfast.runtime.commit.options import Options
from holdfast.runtime.process.collector import calm_collector
from holdfast.store.pg.session import Session
from holdfast.store.queue.work import claim_work

QUEUE = "bench"
NAP = 0.02
HANDS = 8
RETURN = """
    update holdfast.work set worker = null, deadline_at = null, ripe_at = ripe_at + %s * interval '1 millisecond'
    where worker = %s
"""
LIVE = """
    insert into holdfast.workers (id, host, pid, version, queues, started_at, lease_until)
    values (%s, 'bench', 1, '1', '{bench}', clock_timestamp(), clock_timestamp() + interval '1 hour')
"""


async def claims(task: dict[str, Any]) -> dict[str, Any]:
    """What is claimed goes back to the end of the queue between two claims, untimed, so its length never changes."""
    worker, latencies = os.urandom(16), list[float]()
    session = await Session.open(task["dsn"])
    with psycopg.connect(task["dsn"], autocommit=True) as others:
        me = worker.hex()
        others.execute(LIVE, (me,))
        for number in range(task["claims"] + 50):
            begin = time.perf_counter()
            found = await claim_work(session, [QUEUE], task["limit"], worker)
            spent = time.perf_counter() - begin
            assert len(found) == task["limit"]
            others.execute(RETURN, (task["queued"], me))
            if number >= 50:
                latencies.append(spent)
        others.execute("delete from holdfast.workers where id = %s", (me,))
    await session.close()
    return {"p50": percentile(latencies, 0.5), "p95": percentile(latencies, 0.95)}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[round((len(values) - 1) * share)]


class Shop:
    """A worker with few hands, an engine elsewhere that fills its queue, and a note of who waited how long."""

    def __init__(self) -> None:
        self.done = 0
        self.waits: list[float] = []

    async def high(self, _: Any, data: Any) -> Any:
        await asyncio.sleep(NAP)
        self.done += 1
        return data

    async def low(self, _: Any, data: Any) -> Any:
        self.waits.append(time.perf_counter() - data["at"])
        await asyncio.sleep(NAP)
        return data


async def starving(task: dict[str, Any]) -> dict[str, Any]:
    shop, options = Shop(), Options(aging=task["aging"])
    async with Engine(task["dsn"], options=options) as engine, Engine(task["dsn"], options=options) as starter:
        engine.register("high", shop.high)
        engine.register("low", shop.low)
        await engine.publish(Flow("high").step("high", "high", priority=100).build())
        await engine.publish(Flow("low").step("low", "low", priority=0).build())
        async with engine.worker(concurrency=HANDS, capacity=HANDS):
            rate = await capacity(starter, shop)
            await offer(starter, shop, rate * task["share"], task["seconds"])
            backlog = await finish(engine)
    return {"rate": rate, "waits": shop.waits, "backlog": backlog}


async def capacity(starter: Engine, shop: Shop) -> float:
    """Steps a second with more in the queue than there are hands."""
    flows = 60 * HANDS
    await starter.start_many("high", [{}] * flows)
    while shop.done < flows // 4:
        await asyncio.sleep(0.001)
    first, begin = shop.done, time.perf_counter()
    while shop.done < flows - HANDS:
        await asyncio.sleep(0.001)
    return (shop.done - first) / (time.perf_counter() - begin)


async def offer(starter: Engine, shop: Shop, rate: float, seconds: float) -> None:
    """Starts at an even pace, whatever becomes of them; one of priority 0 every quarter of a second."""
    begin, started, low = time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - begin) < seconds:
        due = int(passed * rate) - started
        if due > 0:
            await starter.start_many("high", [{}] * due)
            started += due
        if passed > (low + 1) * 0.25:
            await starter.start("low", {"at": time.perf_counter()})
            low += 1
        await asyncio.sleep(0.01)
    while len(shop.waits) < low:
        await asyncio.sleep(0.01)


async def finish(engine: Engine) -> float:
    """Seconds until everything is done: no more than moments, where the load was below the capacity."""
    begin = time.perf_counter()
    await engine.drain()
    return time.perf_counter() - begin


MODES = {"claims": claims, "starving": starving}


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    calm_collector()
    print(json.dumps(run(MODES[wanted["mode"]](wanted))), flush=True)
