"""S22: somebody leaves a transaction open while the queue works: the doctor says so, and the engine goes on.

An idle REPEATABLE READ transaction keeps every dead row of the hot tables from being cleaned up. The throughput is
told, not promised: a database in this state gets slower whatever runs on it. What is promised is the alarm.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg

from faults import scene
from faults.check import judge
from faults.fleet import Fleet
from faults.flows import journey
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine

STEPS = 3
BATCH = 300
ALARM_AFTER = 2.0  # the threshold given to the doctor, in seconds; its default is a minute


def run(profile: Profile, seed: int) -> list[Figure]:
    seconds = profile.seconds(full=60.0, short=2.0)
    with scene.prepared() as stage:
        task = stage.task(nap=0.0, worker={"lease": 10.0})
        with Fleet(task, stage.place) as fleet:
            fleet.grow(2)
            rates, alarms, quiet = asyncio.run(_hold(stage, seconds))
        verdict = judge(stage.dsn, [])
    before, during, after = rates
    told = f"{before:,.0f} steps/s before, {during:,.0f} during {seconds:.0f} s of a held snapshot, {after:,.0f} after"
    verdicts = verdict.broken("lost", "receipts", "replay", "left over")
    calm = f"and {quiet} before it was held"
    return [
        Figure("S22: alarms raised for a held snapshot", alarms, Bar("≥", 1), seed, calm, quiet == 0),
        Figure("S22: share of throughput while it is held", during / before, Bar(">", 0, "×"), seed, told),
        Figure("S22: invariants broken", verdicts, NONE, seed, f"{verdict.counts['instances']:,} instances"),
    ]


async def _hold(stage: Stage, seconds: float) -> tuple[tuple[float, float, float], int, int]:
    async with Engine(stage.dsn) as engine:
        await engine.publish(journey("load", STEPS))
        await _rate(stage, engine, seconds / 4)  # warms up
        before = await _rate(stage, engine, seconds / 2)
        quiet = await _alarms(engine)
        with psycopg.connect(stage.dsn) as idle:
            idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            idle.execute("select count(*) from holdfast.work")
            during = await _rate(stage, engine, max(seconds, ALARM_AFTER + 0.5))
            alarms = await _alarms(engine)
        after = await _rate(stage, engine, seconds / 2)
    return (before, during, after), alarms, quiet


async def _rate(stage: Stage, engine: Engine, seconds: float) -> float:
    """Steps per second, batch after batch."""
    begin, done = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        await engine.start_many("load", [{"n": n} for n in range(BATCH)])
        await scene.until(lambda: not stage.unfinished(), 60, "a batch is done")
        done += BATCH * STEPS
    return done / (time.monotonic() - begin)


async def _alarms(engine: Any) -> int:
    report = await engine.doctor(transaction_warning=ALARM_AFTER)
    return sum(f.code == "oldest_transaction" and f.severity in ("warning", "critical") for f in report.findings)
