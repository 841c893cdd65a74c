"""One measurement of machines through the public surface: a task as JSON in the first argument, JSON lines out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from benchmarks.machines.model import ENV, MOVE, NAME, PLAIN, machine, move, plain
from benchmarks.ours import linear
from holdfast import ConsumerEvent, Engine, run
from holdfast.runtime.commit.options import Options
from holdfast.runtime.process.collector import calm_collector

DRAINED = 900.0  # seconds until what is due must be done
WARM = 100  # latencies that are left out
# What a session is set to is no statement about data.
CALLS = """
    select coalesce(sum(s.calls), 0) from pg_stat_statements s join pg_database d on d.oid = s.dbid
    where d.datname = current_database() and s.query ~ 'holdfast\\.' and s.query !~ 'set_config|pg_stat_statements'
"""


async def each(callers: int, calls: int, call: Callable[[int], Awaitable[Any]]) -> None:
    """So many callers at a time, each with its own number, one call after the other."""

    async def one(caller: int) -> None:
        for _ in range(calls):
            await call(caller)

    await asyncio.gather(*(one(caller) for caller in range(callers)))


async def prepare(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Register consumers and leave them alone, then move so many machines so many times."""
    for name in task["consumers"]:
        engine.consumer(name, env=ENV)
    async with engine.worker():
        await engine.drain(timeout=DRAINED)
    await each(task["machines"], task["moves"], lambda caller: move(engine, f"sample-{caller}"))
    return {}


# --- rates ------------------------------------------------------------------------------------------------------------


async def signals(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Events of the plain graph: each caller moves an instance of its own."""
    started = [await engine.start(PLAIN, {}) for _ in range(task["callers"])]
    async with engine.worker():
        await engine.drain(timeout=DRAINED)
    await each(task["callers"], 1, lambda caller: engine.signal(started[caller].id, MOVE))
    begin = time.perf_counter()
    await each(task["callers"], task["calls"], lambda caller: engine.signal(started[caller].id, MOVE))
    return {"seconds": time.perf_counter() - begin}


async def triggers(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """The same events as triggers, each with its fact and one delivery."""
    await engine.register_consumer(ENV, "billing")
    await each(task["callers"], 1, lambda caller: move(engine, f"own-{caller}"))
    begin = time.perf_counter()
    await each(task["callers"], task["calls"], lambda caller: move(engine, f"own-{caller}"))
    return {"seconds": time.perf_counter() - begin}


class Desk:
    """Callers that wait until the handlers of all consumers were called for their event."""

    def __init__(self, consumers: int) -> None:
        self._consumers = consumers
        self._left: dict[str, int] = {}
        self._called: dict[str, asyncio.Event] = {}

    async def move(self, engine: Engine, ref: str) -> None:
        self._left[ref], self._called[ref] = self._consumers, asyncio.Event()
        await move(engine, ref)
        await self._called[ref].wait()

    async def handle(self, event: ConsumerEvent) -> None:
        self._left[event.external_ref] -= 1
        if not self._left[event.external_ref]:
            self._called[event.external_ref].set()


async def converse(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Trigger, handlers, processed: callers in a closed loop, timed until the last acknowledgement is stored."""
    callers, desk = task["callers"], Desk(len(task["consumers"]))
    for name in task["consumers"]:
        engine.consumer(name, env=ENV, in_flight=callers).on()(desk.handle)
    async with engine.worker():
        await engine.drain(timeout=DRAINED)
        await each(callers, 1, lambda caller: desk.move(engine, f"own-{caller}"))
        await engine.drain(timeout=DRAINED)
        begin = time.perf_counter()
        await each(callers, task["moves"], lambda caller: desk.move(engine, f"own-{caller}"))
        await engine.drain(timeout=DRAINED)
        return {"seconds": time.perf_counter() - begin}


async def catch_up(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """A consumer that was away for all of its backlog, and acknowledges at once."""
    consumer, handled = engine.consumer(task["consumer"], env=ENV, in_flight=task["in_flight"]), 0

    @consumer.on()
    async def at_once(event: ConsumerEvent) -> None:
        nonlocal handled
        handled += 1

    begin = time.perf_counter()
    async with engine.worker():
        await engine.drain(timeout=DRAINED)
        return {"seconds": time.perf_counter() - begin, "handled": handled}


# --- latencies --------------------------------------------------------------------------------------------------------


async def handle(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """A worker process of steps and facts that were sent by another one: how long ago, on the clock both have."""
    waits: list[float] = []

    async def step(ctx: Any, data: Any) -> Any:
        waits.append(time.perf_counter() - data["at"])
        return data

    async def fact(event: ConsumerEvent) -> None:
        waits.append(time.perf_counter() - event.payload["at"])

    engine.register("stamp", step)
    await engine.publish(linear("stamped", 1, "stamp"))
    engine.consumer("billing", env=ENV).on()(fact)
    async with engine.worker():
        await engine.drain(timeout=DRAINED)
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await engine.drain(timeout=DRAINED)
    return {"waits": waits[WARM:]}


async def send(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """At an even pace, whatever becomes of it: triggers, or starts of one step."""

    async def one(number: int) -> None:
        sent = {"at": time.perf_counter()}
        if task["what"] == "trigger":
            await move(engine, f"own-{number % task['machines']}", sent)
        else:
            await engine.start("stamped", sent)

    begin, calls = time.perf_counter(), list[asyncio.Task[None]]()
    for number in range(WARM + task["calls"]):
        await asyncio.sleep(max(0.0, begin + number / task["pace"] - time.perf_counter()))
        calls.append(asyncio.create_task(one(number)))
    await asyncio.gather(*calls)
    return {}


async def age(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Move machines until each has as many transitions as it is to have."""
    for ref, moves in task["machines"].items():
        await each(task["callers"], moves // task["callers"], lambda _, ref=ref: move(engine, ref))
        await each(1, moves % task["callers"], lambda _, ref=ref: move(engine, ref))
    return {}


async def alone(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Triggers one after the other, of each machine in turn."""
    took: dict[str, list[float]] = {ref: [] for ref in task["machines"]}
    for number in range(task["calls"] + 20):
        for ref, latencies in took.items():
            begin = time.perf_counter()
            await move(engine, ref)
            if number >= 20:
                latencies.append(time.perf_counter() - begin)
    return {"latencies": took}


async def timelines(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Whole timelines of machines in turn, and how many statements one takes."""
    took: dict[str, list[float]] = {ref: [] for ref in task["machines"]}
    ids = {ref: (await engine.machine(ENV, NAME, ref)).id for ref in task["machines"]}
    with psycopg.connect(task["dsn"], autocommit=True) as observer:
        observer.execute("create extension if not exists pg_stat_statements")
        before = observer.execute(CALLS).fetchone()
        for _ in range(task["reads"]):
            for ref, entries in task["machines"].items():
                begin = time.perf_counter()
                found = await engine.lifecycle(ids[ref])
                took[ref].append(time.perf_counter() - begin)
                assert len(found.entries) == entries + 1, len(found.entries)  # the start is one
        after = observer.execute(CALLS).fetchone()
    assert before is not None
    assert after is not None
    return {"latencies": took, "statements": int(after[0] - before[0]) / task["reads"] / len(ids)}


async def rest(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """A worker without anything to do, until its input closes."""
    async with engine.worker():
        await asyncio.sleep(task["settle"])
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    return {}


MODES = {
    mode.__name__: mode
    for mode in (prepare, signals, triggers, converse, catch_up, handle, send, age, alone, timelines, rest)
}


async def main() -> None:
    calm_collector()  # as `holdfast worker` does
    task = json.loads(sys.argv[1])
    async with Engine(task["dsn"], options=Options(stale_after=task.get("stale_after"))) as engine:
        await engine.import_machine(machine())
        await engine.publish(plain())
        answer = await MODES[task["mode"]](engine, task)
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    run(main())
