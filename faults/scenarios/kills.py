"""S1 + S6: all six kinds of step while workers are killed with kill -9 and the database crashes."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import psycopg

from faults import check
from faults.check import History, Verdict
from faults.client import Client
from faults.fleet import Fleet, Member
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared, until
from holdfast import Engine

LEASE = 1.5
WORKERS = 4
AHEAD = 3  # shares of the work that are under way at once
LITTLE = 20  # instances


@dataclass
class Tally:
    """What was done to the run."""

    kills: int = 0
    hits: int = 0  # kills of a worker that held a lease
    held: int = 0  # leases that died with them
    crashes: int = 0
    healed: float = 0.0  # seconds from the last fault until everything was over
    history: History = field(default_factory=History)


def run(profile: Profile, seed: int) -> list[Figure]:
    instances = profile.size(10_000, 240)
    wanted_hits, wanted_crashes = profile.size(200, 8), profile.size(30, 2)
    with prepared() as stage:
        tally, client = asyncio.run(_ordeal(stage, random.Random(seed), instances, wanted_hits, wanted_crashes))
        verdict = check.judge(stage.dsn, stage.witness.entries(), history=tally.history, started=client.started)
    if verdict.broken():
        print(verdict.report())
    return _figures(seed, instances, wanted_hits, wanted_crashes, tally, client, verdict)


def _figures(
    seed: int, instances: int, hits: int, crashes: int, tally: Tally, client: Client, verdict: Verdict
) -> list[Figure]:
    counts = verdict.counts
    valid = tally.hits >= hits and tally.crashes >= crashes and verdict.share_finished >= 0.95
    lost = verdict.broken("lost") + max(0, instances - len(client.started))
    faults = f"{tally.hits} kills that hit, {tally.crashes} database crashes"
    rate = 1000 * counts["repeated effects"] / max(1, counts["steps"])
    return [
        Figure(
            "S1 + S6: instances lost",
            lost,
            NONE,
            seed,
            f"{len(client.started):,} instances, {counts['steps']:,} steps, {WORKERS} workers, {faults};"
            f" over {tally.healed:.1f} s after the last fault",
            valid,
        ),
        Figure(
            "S1 + S6: receipts doubled or overwritten",
            verdict.broken("receipts", "overwritten", "stale"),
            NONE,
            seed,
            f"{counts['receipts']:,} receipts, looked at {tally.history.looks} times",
            valid,
        ),
        Figure(
            "S1 + S6: replay differs", verdict.broken("replay"), NONE, seed, f"{counts['replayed']:,} replayed", valid
        ),
        Figure(
            "S1 + S6: effects without cause, key or witness",
            verdict.broken("witness", "left over"),
            NONE,
            seed,
            f"{counts['effects']:,} witnessed, {counts['repeated effects']:,} of them repeated under the same key"
            f" ({rate:.1f} per 1,000 steps)",
            valid,
        ),
        Figure(
            "S1: kill -9 that hit a held lease",
            tally.hits,
            Bar("≥", hits),
            seed,
            f"of {tally.kills}; {tally.held:,} leases died with them",
        ),
        Figure(
            "S6: immediate database crashes", tally.crashes, Bar("≥", crashes), seed, "each with recovery from the log"
        ),
    ]


async def _ordeal(stage: Stage, luck: random.Random, instances: int, hits: int, crashes: int) -> tuple[Tally, Client]:
    tally = Tally()
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish_kinds()
        with Fleet(stage.task(worker={"lease": LEASE}, nap=0.4), stage.place) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            feeding = asyncio.create_task(_feed(stage, client, instances, hits + crashes, tally))
            plan = ["kill"] * hits + ["crash"] * crashes
            luck.shuffle(plan)
            for fault in plan:
                if fault == "crash":
                    await asyncio.to_thread(_crash, stage, luck, tally)
                else:
                    await asyncio.to_thread(_kill, fleet, luck, tally)
                if tally.hits % 10 == 5:
                    await asyncio.to_thread(tally.history.look, stage.dsn)
            await feeding
            last = time.monotonic()
            await until(lambda: stage.unfinished() == 0, 120, "everything is over")
            tally.healed = time.monotonic() - last
    return tally, client


async def _feed(stage: Stage, client: Client, instances: int, faults: int, tally: Tally) -> None:
    """New work all the way: as much as the faults have earned, and a little whenever there is none left to hit."""
    share = -(-instances // faults)
    while tally.hits + tally.crashes < faults or len(client.started) < instances:
        earned = (tally.hits + tally.crashes + AHEAD) * share
        if len(client.started) < min(earned, instances):
            await _begin(client, share)
        elif await _is_idle(stage):
            await _begin(client, LITTLE)
        else:
            await asyncio.sleep(0.02)


async def _begin(client: Client, count: int) -> None:
    numbers = range(len(client.started), len(client.started) + count)
    await client.start("kinds", numbers)
    await client.go(numbers)


async def _is_idle(stage: Stage) -> bool:
    try:
        return await asyncio.to_thread(stage.unfinished) < LITTLE
    except psycopg.OperationalError:  # in the middle of a crash
        return False


def _kill(fleet: Fleet, luck: random.Random, tally: Tally) -> None:
    """Until one hit; its place is taken at once."""
    while True:
        time.sleep(luck.uniform(0.05, 0.5))
        victim: Member = fleet.holder(luck)
        held = fleet.kill(victim)
        tally.kills += 1
        fleet.grow(1)
        if held:
            tally.hits += 1
            tally.held += len(held)
            return


def _crash(stage: Stage, luck: random.Random, tally: Tally) -> None:
    time.sleep(luck.uniform(0.05, 0.5))
    stage.cluster.crash()
    time.sleep(luck.uniform(0.0, 0.3))
    stage.cluster.restart()
    tally.crashes += 1
