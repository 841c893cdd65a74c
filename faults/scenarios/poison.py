"""S16: handlers that answer and raise what nobody can store, beside others that work; and one that kills its process.

The same load is run alone and beside the corpus, in turn, by the same workers; what counts is how long the good
instances take. Every poisoned instance must end as failed with a code, and no worker may leave. A step that kills its
process takes one worker with it per call it may have, and not one more.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

from faults import cluster, poison, scene
from faults.check import judge
from faults.fleet import Fleet
from faults.flows import journey
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine, Flow, Retry

WORKERS = 2
CALLS = 3  # the suicidal step may have
LEASE = 1.0
EXTRAS = ["faults.poison:register"]
LEFT = "select count(*) from holdfast.instances where completed_at is null and flow = %s"
ENDS = """
select i.input ->> 'poison', i.status, s.status, s.error ->> 'code' from holdfast.instances i
join holdfast.steps s on s.instance_id = i.id and s.behaviour = 'work' where i.flow like 'poison%%'
"""


def run(profile: Profile, seed: int) -> list[Figure]:
    return [
        *beside(profile.size(full=10_000, short=600), profile.size(full=3, short=1), profile.is_short, seed),
        *suicide(seed),
    ]


def beside(good: int, rounds: int, is_short: bool, seed: int) -> list[Figure]:
    with scene.prepared() as stage:
        task = stage.task(nap=0.0, worker={"lease": 10.0, "concurrency": 64}, extras=EXTRAS)
        with Fleet(task, stage.place) as fleet:
            fleet.grow(WORKERS)
            alone, poisoned = asyncio.run(_in_turn(stage, good, rounds))
            exits = sum(not member.lives for member in fleet.members)
        wrong = _not_ended(stage, rounds)
        verdict = judge(stage.dsn, [], left_over=("work", "signals", "timers"))
    for line in wrong[:10]:
        print(f"    {line}", flush=True)
    corpus = len(poison.CORPUS) * 2
    share = median(alone) / median(poisoned)
    times = f"alone {median(alone):.1f} s, beside {corpus} poisoned {median(poisoned):.1f} s (medians)"
    told = f"{rounds} × {good:,} good instances, {times}"
    # A short run is over before the noise of a machine evens out; its bar only catches a standstill.
    bar = Bar("≥", 0.2 if is_short else 0.9)
    return [
        Figure("S16: others' throughput beside poison", share, bar, seed, told),
        Figure("S16: workers that left", exits, NONE, seed, f"of {WORKERS}"),
        Figure("S16: poison that did not end as failed with a code", len(wrong), NONE, seed, f"of {corpus * rounds}"),
        Figure("S16: replays that differ", verdict.broken("replay", "receipts", "left over"), NONE, seed,
               f"{verdict.counts['replayed']:,} replayed"),
    ]  # fmt: skip


async def _in_turn(stage: Stage, good: int, rounds: int) -> tuple[list[float], list[float]]:
    alone: list[float] = []
    poisoned: list[float] = []
    async with Engine(stage.dsn) as engine:
        await engine.publish(journey("good", 3))
        for handler in ("poison", "poison_in_thread"):
            await engine.publish(Flow(handler).step("swallow", handler, retry=Retry(attempts=2)).build())
        await _time(stage, engine, good // 4, poison_too=False)  # warms up, counts for nothing
        for number in range(rounds):
            for poison_too in (False, True) if number % 2 else (True, False):  # a machine that slows down favours none
                took = await _time(stage, engine, good, poison_too=poison_too)
                (poisoned if poison_too else alone).append(took)
    return alone, poisoned


async def _time(stage: Stage, engine: Engine, good: int, *, poison_too: bool) -> float:
    if poison_too:
        for handler in ("poison", "poison_in_thread"):
            await engine.start_many(handler, [{"poison": name} for name in poison.CORPUS])
    begin = time.monotonic()
    await engine.start_many("good", [{"n": n} for n in range(good)])
    await scene.until(lambda: not stage.ask(LEFT, "good"), 120, "the good ones end")
    took = time.monotonic() - begin
    await scene.until(lambda: not stage.unfinished(), 60, "the poisoned ones end")
    return took


def _not_ended(stage: Stage, rounds: int) -> list[str]:
    found = cluster.ask(stage.dsn, ENDS)
    missing = rounds * len(poison.CORPUS) * 2 - len(found)
    wrong = [f"{missing} poisoned instances never began"] if missing else []
    for name, status, step, code in found:
        has_failed = (status, step) == ("failed", "rolled_back") and code
        if not has_failed and not (status == "completed" and name in _HARMLESS):
            wrong.append(f"{name}: the instance is {status}, its step {step} with {code}")
    return wrong


# Odd, but with a JSON form of their own.
_HARMLESS = ("integer keys", "a generator")


def suicide(seed: int) -> list[Figure]:
    """One instance whose step is the death of whoever runs it, among others that must end."""
    with scene.prepared() as stage:
        task = stage.task(nap=0.0, worker={"lease": LEASE}, extras=EXTRAS)
        with Fleet(task, stage.place) as fleet:
            deaths = asyncio.run(_feed(stage, fleet))
        status: Any = stage.ask("select status from holdfast.instances where flow = 'suicide'")
        calls = sum(entry.step == "die" for entry in stage.witness.entries())
    told = f"a step that may be called {CALLS} times was called {calls} times and is {status}"
    return [
        Figure("S16: workers lost to a step that kills", deaths, Bar("≤", CALLS), seed, told, deaths > 0),
        Figure("S16: calls beyond those allowed", max(0, calls - CALLS), NONE, seed, told, status == "failed"),
    ]


async def _feed(stage: Stage, fleet: Fleet) -> int:
    """A supervisor: whoever dies is replaced, a few times more than should be needed."""
    async with Engine(stage.dsn) as engine:
        await engine.publish(Flow("suicide").step("die", "suicide", retry=Retry(attempts=CALLS)).build())
        await engine.start("suicide")
        deaths = 0
        fleet.grow(1)
        deadline = time.monotonic() + 40
        while stage.unfinished() and deaths < CALLS + 2 and time.monotonic() < deadline:
            for member in [m for m in fleet.members if not m.lives]:
                fleet.members.remove(member)
                deaths += 1
                fleet.grow(1, ready=False)
            await asyncio.sleep(0.05)
    return deaths
