"""S8: the COMMIT takes effect and its answer never arrives, over and over."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from faults import check
from faults.client import Client
from faults.fleet import Fleet
from faults.profile import Profile
from faults.proxy import Door, Fate, door
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared, until
from holdfast import Engine

WORKERS = 2
SHARE = 20
CHANCE = 0.15  # of a COMMIT to lose its answer


def run(profile: Profile, seed: int) -> list[Figure]:
    wanted = profile.size(2000, 40)
    luck = random.Random(seed)

    def fate() -> Fate:
        return "answer" if opened.lost < wanted and luck.random() < CHANCE else "pass"

    with prepared() as stage, door(stage.dsn, fate) as (opened, through):
        client = asyncio.run(_run(stage, opened, through, wanted))
        entries = stage.witness.entries()
        verdict = check.judge(stage.dsn, entries, started=client.started)
    again = sum(count - 1 for count in Counter(entry.step_id for entry in entries).values())
    if verdict.broken():
        print(verdict.report())
    told = f"{opened.lost:,} answers lost of {opened.commits:,} commits; {verdict.counts['steps']:,} steps"
    valid = opened.lost >= wanted and verdict.share_finished >= 0.95
    lost = verdict.broken("lost", "left over")
    return [
        Figure("S8: COMMIT answers swallowed", opened.lost, Bar("≥", wanted), seed, f"of {opened.commits:,} commits"),
        Figure("S8: losses", lost, NONE, seed, f"{len(client.started):,} instances; {told}", valid),
        Figure("S8: duplicates", verdict.broken() - lost + again, NONE, seed, f"{len(entries):,} calls; {told}", valid),
    ]


async def _run(stage: Stage, opened: Door, through: str, wanted: int) -> Client:
    async with Engine(through) as engine:
        client = Client(engine)
        await client.publish_kinds()
        task = stage.task(dsn=through, worker={"lease": 10.0}, nap=0.05)
        with Fleet(task, stage.place, eyes=stage.dsn) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            first = 0
            while opened.lost < wanted:
                numbers = range(first, first + SHARE)
                await client.start("kinds", numbers)
                await client.go(numbers)
                first += SHARE
                await until(lambda: stage.unfinished() < SHARE * 5, 120, "the workers keep up")
            await until(lambda: stage.unfinished() == 0, 120, "everything is over")
    return client
