"""S9: a network that is slow, narrow, silent for a while, or tears messages apart."""

from __future__ import annotations

import asyncio
import random
import time

from faults import check
from faults.client import Client
from faults.fleet import Fleet
from faults.flows import journey
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared, until
from faults.weather import Kind, Weather, weather
from holdfast import Engine

WORKERS = 2
LEASE = 10.0
STEPS = 3
AT_ONCE = 20
HARMLESS: tuple[Kind, ...] = ("slow", "narrow", "torn")
INCARNATIONS = "select count(*) from holdfast.workers"
CLOSED = "select count(*) from holdfast.steps where status = 'completed'"


def run(profile: Profile, seed: int) -> list[Figure]:
    instances, silence = profile.size(200, 10), profile.seconds(40.0, 3.0)
    luck = random.Random(seed)
    with prepared() as stage, weather(stage.dsn, luck) as (sky, through):
        client, lost_leases, stunned = asyncio.run(_run(stage, sky, through, instances, silence))
        verdict = check.judge(stage.dsn, stage.witness.entries(), started=client.started)
    if verdict.broken():
        print(verdict.report())
    valid = verdict.share_finished >= 0.95 and sky.torn > 0
    told = f"{len(client.started)} instances, {verdict.counts['steps']:,} steps, {sky.passed / 1e6:.1f} MB"
    return [
        Figure(
            "S9: invariants broken",
            verdict.broken(),
            NONE,
            seed,
            f"{told}; 200 ms each way, then 10 KB/s, then {sky.torn} messages torn apart, then {silence:.0f} s silence",
            valid,
        ),
        Figure(
            "S9: leases lost to a slow, narrow or torn network",
            lost_leases,
            NONE,
            seed,
            f"{WORKERS} workers, leases of {LEASE:.0f} s",
            valid,
        ),
        Figure(
            "S9: from the end of the silence to the next step",
            stunned,
            Bar("≤", 30, "s"),
            seed,
            "both workers silenced",
        ),
    ]


async def _run(stage: Stage, sky: Weather, through: str, instances: int, silence: float) -> tuple[Client, int, float]:
    async with Engine(stage.dsn) as engine:  # the caller has a better network, or it would only wait
        client = Client(engine)
        await client.publish(journey("journey", STEPS))
        with Fleet(stage.task(dsn=through, worker={"lease": LEASE}), stage.place, eyes=stage.dsn) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            for kind in HARMLESS:
                sky.kind = kind
                await _work(stage, client, instances)
            while not sky.torn:
                await _work(stage, client, AT_ONCE)
            lost = stage.ask(INCARNATIONS) - WORKERS
            stunned = await _silence(stage, sky, client, silence)
    return client, lost, stunned


async def _work(stage: Stage, client: Client, instances: int) -> None:
    for _ in range(0, instances, AT_ONCE):
        first = len(client.started)
        await client.start("journey", range(first, first + AT_ONCE))
        await until(lambda: stage.unfinished() < AT_ONCE, 120, "the workers keep up")
    await until(lambda: stage.unfinished() == 0, 120, "everything is over")


async def _silence(stage: Stage, sky: Weather, client: Client, seconds: float) -> float:
    """Work is under way when everything falls silent; how long after that the next step is done."""
    first = len(client.started)
    await client.start("journey", range(first, first + AT_ONCE * 5))
    sky.kind = "mute"
    await asyncio.sleep(seconds)
    before = stage.ask(CLOSED)
    sky.kind = "fair"
    calm = time.monotonic()
    await until(lambda: stage.ask(CLOSED) > before or stage.unfinished() == 0, 120, "the workers go on")
    stunned = time.monotonic() - calm
    await until(lambda: stage.unfinished() == 0, 120, "everything is over")
    return stunned
