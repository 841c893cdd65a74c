"""S7: all workers are killed, new ones begin to recover, and the database crashes in the middle of that."""

from __future__ import annotations

import asyncio
import random
import time

from faults import check
from faults.check import History
from faults.client import Client
from faults.fleet import Fleet
from faults.profile import Profile
from faults.report import NONE, Figure
from faults.scene import Stage, prepared, until
from holdfast import Engine

LEASE = 1.0
WORKERS = 2
SHARE = 20  # instances per round
WINDOW = 0.5  # seconds of recovery within which the database crashes
EXPIRED = "select max(lease_until) < clock_timestamp() from holdfast.workers where pid = any(%s)"
OPEN = "select count(*) from holdfast.steps where id = any(%s::uuid[]) and closed_at is null"


def run(profile: Profile, seed: int) -> list[Figure]:
    rounds = profile.size(100, 3)
    with prepared() as stage:
        recovering, client, history = asyncio.run(_rounds(stage, random.Random(seed), rounds))
        verdict = check.judge(stage.dsn, stage.witness.entries(), history=history, started=client.started)
    if verdict.broken():
        print(verdict.report())
    return [
        Figure(
            "S7: stranded after a database crash during recovery",
            verdict.broken(),
            NONE,
            seed,
            f"{rounds} rounds, {recovering} of them with leases of dead workers at the crash,"
            f" {len(client.started):,} instances, {verdict.counts['steps']:,} steps",
            recovering >= rounds * 0.5 and verdict.share_finished >= 0.95,
        )
    ]


async def _rounds(stage: Stage, luck: random.Random, rounds: int) -> tuple[int, Client, History]:
    recovering, history = 0, History()
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish_kinds()
        with Fleet(stage.task(worker={"lease": LEASE}, nap=0.6), stage.place) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            for number in range(rounds):
                numbers = range(number * SHARE, (number + 1) * SHARE)
                await client.start("kinds", numbers)
                await client.go(numbers)
                recovering += await asyncio.to_thread(_round, stage, fleet, luck)
                if number % 10 == 9:
                    await asyncio.to_thread(history.look, stage.dsn)
            await until(lambda: stage.unfinished() == 0, 120, "nothing is stranded")
    return recovering, client, history


def _round(stage: Stage, fleet: Fleet, luck: random.Random) -> bool:
    """Answers whether the crash met steps of the dead that nobody had finished yet."""
    fleet.holder(luck)
    dead = [*fleet.members]
    held = [step for member in dead for _, step, _ in fleet.kill(member)]
    while not stage.ask(EXPIRED, [member.pid for member in dead]):
        time.sleep(0.005)
    fleet.grow(WORKERS)
    time.sleep(luck.uniform(0, WINDOW))
    is_under_way = bool(stage.ask(OPEN, held))
    stage.cluster.crash()
    stage.cluster.restart()
    return is_under_way
