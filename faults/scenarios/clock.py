"""S14: workers whose clocks are an hour wrong, a database clock that is stepped forward and back, DST, a month's end.

Timers are relative and absolute. The clock of the database is the one that counts: a timer may be late by any step
back, it may never fire before its moment. Moving it over a year passes both changes of summer time and every end of a
month with no maintenance run. Leases read another clock and must not notice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from faults import cluster, scene
from faults.check import judge
from faults.fleet import Fleet
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine

SKEWS = (3600, -3600)
LEASE = 2.0
STEP_BACK = timedelta(minutes=10)
MOVE = "update holdfast_testing.clock set shift = shift + %s"
NOW = "select holdfast.clock()"
DUE = """
select (select count(*) from holdfast.timers where due_at <= holdfast.clock()) + (select count(*) from holdfast.signals)
"""
# What fired: the moment it was due, and the database's time when that was decided.
FIRED = """
select s.instance_id::text, s.node, s.closed_at, i.input ->> 'until', s.created_at
from holdfast.steps s join holdfast.instances i on i.id = s.instance_id
where s.behaviour = 'timer' and s.closed_at is not null
"""
TIMERS: dict[str, Any] = {
    "name": "timers",
    "entry": "which",
    "nodes": [
        {"id": "which", "kind": "condition"},
        {"id": "relative", "kind": "wait_timer", "delay": 3600.0},
        {"id": "absolute", "kind": "wait_timer", "until": "input.until"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "a", "source": "which", "target": "absolute", "when": "input.until != null"},
        {"id": "r", "source": "which", "target": "relative", "priority": 1},
        {"id": "re", "source": "relative", "target": "end"},
        {"id": "ae", "source": "absolute", "target": "end"},
    ],
}


def run(profile: Profile, seed: int) -> list[Figure]:
    return [*still(10, seed), *through_the_year(profile.size(full=400, short=30), seed)]


def still(timers: int, seed: int) -> list[Figure]:
    """The database's clock stands where it is, the workers' are an hour off: in some seconds nothing can be due."""
    with scene.prepared(movable_clock=True) as stage:
        with _skewed_workers(stage):
            asyncio.run(_set_timers(stage, [{"until": None}] * timers))
            time.sleep(LEASE * 1.5)
        early, fired = _early(stage)
        incarnations = stage.ask("select count(*) from holdfast.workers")
    told = f"{timers} timers due in an hour, watched for {LEASE * 1.5:g} s"
    return [
        Figure("S14: timers fired by a worker's clock", early + fired, NONE, seed, told),
        Figure("S14: leases lost to a worker's clock", incarnations - len(SKEWS), NONE, seed, f"{len(SKEWS)} workers"),
    ]


@contextmanager
def _skewed_workers(stage: Stage) -> Iterator[None]:
    patches = ["faults.skew", *stage.task().patches]
    task = stage.task(nap=0.0, worker={"lease": LEASE, "scan": 0.5}, patches=patches)
    with ExitStack() as fleets:
        for skew in SKEWS:
            fleets.enter_context(Fleet(task, stage.place, environment={"FAULTS_SKEW": str(skew)})).grow(1)
        yield


def through_the_year(timers: int, seed: int) -> list[Figure]:
    with scene.prepared(movable_clock=True) as stage:
        with _skewed_workers(stage):
            moves = asyncio.run(_step_the_clock(stage, timers, random.Random(seed)))
        early, fired = _early(stage)
        leases = stage.ask("select count(*) from holdfast.workers") - len(SKEWS)
        verdict = judge(stage.dsn, [])
    skews = " and ".join(f"{skew // 3600:+d} h" for skew in SKEWS)
    told = f"{fired} timers over {moves} steps of the database clock, workers {skews}"
    for line in verdict.report(3).splitlines():
        print(f"    {line}", flush=True)
    return [
        Figure("S14: timers fired early", early, NONE, seed, told, fired == timers),
        Figure("S14: leases lost to a clock", leases, NONE, seed, f"{len(SKEWS)} workers"),
        Figure("S14: invariants broken", verdict.broken(), NONE, seed, f"{verdict.counts['replayed']} replayed"),
        Figure("S14: timers fired", fired, Bar("≥", timers), seed, told),
    ]


async def _set_timers(stage: Stage, inputs: list[dict[str, Any]]) -> None:
    async with Engine(stage.dsn) as engine:
        await engine.publish(TIMERS)
        await engine.start_many("timers", inputs)
        await scene.until(lambda: not stage.ask("select count(*) from holdfast.signals"), 30, "all timers are set")


async def _step_the_clock(stage: Stage, timers: int, luck: random.Random) -> int:
    """Forward in jumps of days and hours, with a step back after each; until a year is over."""
    start = _now(stage)
    moments = [_moment(start, luck) for _ in range(timers // 2)]
    await _set_timers(stage, [{"until": m} for m in moments] + [{"until": None}] * (timers - len(moments)))
    moves = 0
    while _now(stage) < start + timedelta(days=400):
        moves += 2
        _move(stage, timedelta(hours=luck.choice((1, 13, 24, 24 * 17, 24 * 40, 24 * 60))))
        await _quiet(stage)
        _move(stage, -STEP_BACK)
        await _quiet(stage)
    _move(stage, timedelta(days=1))
    await scene.until(lambda: not stage.unfinished(), 30, "every timer fired")
    return moves + 1


def _moment(start: datetime, luck: random.Random) -> str:
    """Around the changes of summer time and the ends of months more often than not."""
    year = start.year + 1
    special = [
        datetime(year, 3, 28, 1, tzinfo=UTC), datetime(year, 10, 31, 1, tzinfo=UTC),
        *(datetime(year, month, 1, tzinfo=UTC) for month in range(1, 11)),
    ]  # fmt: skip
    near = luck.choice(special) + timedelta(seconds=luck.randint(-3, 3))
    any_time = start + timedelta(seconds=luck.randint(60, 390 * 24 * 3600))
    return (near if luck.random() < 0.7 and near > start else any_time).isoformat()


def _now(stage: Stage) -> datetime:
    return stage.ask(NOW)


def _move(stage: Stage, by: timedelta) -> None:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(MOVE, (by,))
        connection.execute("notify holdfast")


async def _quiet(stage: Stage) -> None:
    """Nothing due by the database's clock is left over."""
    await scene.until(lambda: stage.ask(DUE) == 0, 30, "what is due fires")


def _early(stage: Stage) -> tuple[int, int]:
    early = 0
    found = cluster.ask(stage.dsn, FIRED)
    for _, node, closed, until, opened in found:
        due = datetime.fromisoformat(until) if node == "absolute" else opened + timedelta(hours=1)
        early += closed < due
    return early, len(found)
