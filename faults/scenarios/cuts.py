"""S5: the server cuts connections, any of them several times a second; then, on their own, those that listen."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import quantiles

from faults import check, cluster
from faults.client import Client
from faults.fleet import Fleet
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared, until
from holdfast import Engine

WORKERS = 4
SHARE = 100
UNDER_WAY = 400
LISTEN_BAR = 5.0  # seconds: the time between two looks that nobody asked for
BACKENDS = """
select pid from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid() order by pid
"""
LISTENERS = """
select pid from pg_stat_activity where datname = current_database() and starts_with(query, 'listen holdfast')
"""
CUT = "select pg_terminate_backend(%s)"


def run(profile: Profile, seed: int) -> list[Figure]:
    instances, wanted, ears = profile.size(10_000, 100), profile.size(300, 15), profile.size(100, 5)
    luck = random.Random(seed)
    with prepared() as stage:
        client, cuts = asyncio.run(_cut_any(stage, luck, instances, wanted, profile.seconds(0.2, 0.05)))
        verdict = check.judge(stage.dsn, stage.witness.entries(), started=client.started)
    with prepared() as stage:
        deaf = asyncio.run(_cut_listeners(stage, luck, ears))
    if verdict.broken():
        print(verdict.report())
    valid = verdict.share_finished >= 0.95 and cuts >= wanted
    worst = quantiles(deaf, n=100, method="inclusive")[98]
    return [
        Figure(
            "S5: invariants broken",
            verdict.broken(),
            NONE,
            seed,
            f"{len(client.started):,} instances, {verdict.counts['steps']:,} steps, {WORKERS} workers, {cuts}"
            f" connections cut",
            valid,
        ),
        Figure(
            "S5: listening again after its connection was cut, p99",
            worst,
            Bar("≤", LISTEN_BAR, "s"),
            seed,
            f"{len(deaf)} times",
        ),
    ]


async def _cut_any(stage: Stage, luck: random.Random, instances: int, wanted: int, pause: float) -> tuple[Client, int]:
    cuts = 0

    async def cut() -> None:
        nonlocal cuts
        while True:
            cuts += await asyncio.to_thread(_cut_one, stage, luck)
            await asyncio.sleep(pause)

    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish_kinds()
        with Fleet(stage.task(worker={"lease": 5.0}), stage.place) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            cutting = asyncio.create_task(cut())
            while len(client.started) < instances or cuts < wanted:
                numbers = range(len(client.started), len(client.started) + SHARE)
                await client.start("kinds", numbers)
                await client.go(numbers)
                await until(lambda: stage.unfinished() < UNDER_WAY, 120, "the workers keep up")
            cutting.cancel()
            await asyncio.gather(cutting, return_exceptions=True)
            await until(lambda: stage.unfinished() == 0, 120, "everything is over")
    return client, cuts


def _cut_one(stage: Stage, luck: random.Random) -> int:
    pids = [row[0] for row in cluster.ask(stage.dsn, BACKENDS)]
    return int(bool(pids) and bool(stage.ask(CUT, luck.choice(pids))))


async def _cut_listeners(stage: Stage, luck: random.Random, times: int) -> list[float]:
    """How long a worker was deaf, each time."""
    deaf: list[float] = []
    with Fleet(stage.task(), stage.place) as fleet:
        await asyncio.to_thread(fleet.grow, 1)
        for _ in range(times):
            ear = await until(lambda: _listeners(stage), 30, "somebody listens")
            await asyncio.sleep(luck.uniform(0.0, 0.1))
            cut = time.monotonic()
            await asyncio.to_thread(stage.ask, CUT, ear[0])
            await until(lambda ear=ear: set(_listeners(stage)) - set(ear), 60, "somebody listens again")
            deaf.append(time.monotonic() - cut)
    return deaf


def _listeners(stage: Stage) -> list[int]:
    return [row[0] for row in cluster.ask(stage.dsn, LISTENERS)]
