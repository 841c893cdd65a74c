"""From the death of a worker to the second execution of what it held."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict

from faults import check, flows
from faults.client import Client
from faults.fleet import Fleet
from faults.profile import Profile
from faults.report import Bar, Figure
from faults.scene import Stage, prepared, until
from holdfast import Engine

LEASE = 1.5
MARGIN = 2.0
SHORT_MARGIN = 6.0  # beside the rest of a test suite, a processor may be busy elsewhere for seconds
WORKERS = 3
LEAST = 10  # leases a victim must hold


def run(profile: Profile, seed: int) -> list[Figure]:
    rounds = profile.size(25, 3)
    with prepared() as stage:
        waits = sorted(asyncio.run(_deaths(stage, random.Random(seed), rounds)))
        verdict = check.judge(stage.dsn, stage.witness.entries())
    if verdict.broken():
        print(verdict.report())
    p50, p99 = (waits[int(len(waits) * share)] for share in (0.5, 0.99))
    return [
        Figure(
            "worker death to re-execution, p99",
            p99,
            Bar("≤", LEASE + profile.seconds(MARGIN, SHORT_MARGIN), "s"),
            seed,
            f"{len(waits):,} steps of {rounds} killed workers, lease {LEASE} s;"
            f" p50 {p50:.2f} s, most {waits[-1]:.2f} s",
            not verdict.broken() and len(waits) >= rounds * LEAST,
        )
    ]


async def _deaths(stage: Stage, luck: random.Random, rounds: int) -> list[float]:
    waits: list[float] = []
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish(flows.journey(steps=4))
        with Fleet(stage.task(worker={"lease": LEASE}, nap=1.0), stage.place) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            for number in range(rounds):
                await client.start("journey", range(number * 60, number * 60 + 60))
                victim = await asyncio.to_thread(fleet.holder, luck, 30, LEAST)
                died = time.time()
                held = {step for _, step, _ in await asyncio.to_thread(fleet.kill, victim)}
                await asyncio.to_thread(fleet.grow, 1)
                waits += await _called_again(stage, held, died)
            await until(lambda: stage.unfinished() == 0, 60, "everything is over")
    return waits


async def _called_again(stage: Stage, held: set[str], died: float) -> list[float]:
    """Seconds from the death until the witness saw each of these steps again."""
    first: dict[str, float] = {}

    def all_seen() -> bool:
        calls = defaultdict(list)
        for entry in stage.witness.entries():
            if entry.step_id in held and entry.t > died:
                calls[entry.step_id].append(entry.t)
        first.update({step: min(times) for step, times in calls.items()})
        return len(first) == len(held)

    await until(all_seen, 60, "every step of the dead worker is called again")
    return [moment - died for moment in first.values()]
