"""S3, S4: workers frozen past their lease and thawed when others, or they themselves, have done the work again."""

from __future__ import annotations

import asyncio
import random
import time

from faults import check, flows
from faults.client import Client
from faults.fleet import Fleet, Member
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared, until
from holdfast import Engine

LEASE = 1.0
GROUP = 50  # calls one worker is frozen with
WORKERS = 4
REPEATED = """
select count(*) from holdfast.steps s join holdfast.instances i on i.id = s.instance_id
where i.idempotency_key like %s and s.behaviour = 'work' and s.calls >= 2 and s.status = 'completed'
"""


def run(profile: Profile, seed: int) -> list[Figure]:
    luck = random.Random(seed)
    strangers, selves = profile.size(10, 1), profile.size(4, 1)  # rounds of GROUP calls each
    return [*_stale_writes(seed, strangers, selves), _random_freezes(seed, luck, profile)]


def _stale_writes(seed: int, strangers: int, selves: int) -> list[Figure]:
    with prepared() as stage:
        stale, rejected = asyncio.run(_rounds(stage, strangers, selves))
        verdict = check.judge(stage.dsn, stage.witness.entries())
    if verdict.broken():
        print(verdict.report())
    valid = stale == (strangers + selves) * GROUP and verdict.share_finished >= 0.95
    told = f"{strangers * GROUP} written after somebody else, {selves * GROUP} after the same process finished"
    return [
        Figure("S3, S4: stale writes accepted", verdict.broken(), NONE, seed, f"{stale} stale writes: {told}", valid),
        Figure("S3, S4: stale writes rejected", rejected, Bar(">", 0), seed, f"of {stale}", valid),
    ]


async def _rounds(stage: Stage, strangers: int, selves: int) -> tuple[int, int]:
    stale = rejected = 0
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish(flows.journey("held", 1, "hold"))
        with Fleet(stage.task(worker={"lease": LEASE}), stage.place) as fleet:
            [worker] = await asyncio.to_thread(fleet.grow, 1)
            for number in range(strangers + selves):
                before = (await asyncio.to_thread(worker.stats))["rejected"]
                heir = await _freeze_and_replace(stage, client, fleet, worker, number, by_itself=number >= strangers)
                rejected += await _rejected(worker, before)
                stale += await asyncio.to_thread(stage.ask, REPEATED, f"r{number}-%")
                if heir is not worker:
                    await asyncio.to_thread(worker.leave)
                    fleet.members.remove(worker)
                    worker = heir
    return stale, rejected


async def _freeze_and_replace(
    stage: Stage, client: Client, fleet: Fleet, worker: Member, number: int, *, by_itself: bool
) -> Member:
    """The calls of the frozen worker come back after their steps were done by a later lease. Who did them?"""
    stage.gate.unlink(missing_ok=True)
    await client.start("held", range(GROUP), f"r{number}")
    await until(lambda: fleet.holding().get(worker.pid, 0) == GROUP, 30, "the worker holds everything")
    seen = (number + 1) * GROUP + number * GROUP  # earlier rounds called everything twice
    await until(lambda: len(stage.witness.entries()) >= seen, 30, "every call is out")
    worker.freeze()
    heir = worker
    if by_itself:
        await asyncio.sleep(LEASE * 1.5)
        worker.thaw()
    else:
        [heir] = await asyncio.to_thread(fleet.grow, 1)
    await until(lambda: stage.unfinished() == 0, 30, "a later lease finishes everything")
    stage.gate.touch()
    if not by_itself:
        worker.thaw()
    return heir


async def _rejected(worker: Member, before: int) -> int:
    """How many results the thawed worker was refused; it has them all when it is quiet."""
    deadline = time.monotonic() + 10
    refused = 0
    while refused < GROUP and time.monotonic() < deadline:
        refused = (await asyncio.to_thread(worker.stats))["rejected"] - before
        await asyncio.sleep(0.05)
    return refused


def _random_freezes(seed: int, luck: random.Random, profile: Profile) -> Figure:
    freezes, instances = profile.size(40, 3), profile.size(4000, 200)
    with prepared() as stage:
        held, client = asyncio.run(_freezes(stage, luck, freezes, instances))
        verdict = check.judge(stage.dsn, stage.witness.entries(), started=client.started)
    if verdict.broken():
        print(verdict.report())
    return Figure(
        "S3: violations after freezes at any moment",
        verdict.broken(),
        NONE,
        seed,
        f"{freezes} freezes past the lease over {held:,} held leases, {len(client.started):,} instances",
        held > 0 and verdict.share_finished >= 0.95,
    )


async def _freezes(stage: Stage, luck: random.Random, freezes: int, instances: int) -> tuple[int, Client]:
    held = 0
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish(flows.journey(steps=5))
        with Fleet(stage.task(worker={"lease": LEASE}, nap=0.2), stage.place) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            share = instances // freezes
            for number in range(freezes):
                await client.start("journey", range(number * share, (number + 1) * share))
                worker = await asyncio.to_thread(fleet.holder, luck)
                worker.freeze()
                held += len(await asyncio.to_thread(fleet.held_by, worker))
                await asyncio.sleep(LEASE * luck.uniform(1.1, 1.6))
                worker.thaw()
            await until(lambda: stage.unfinished() == 0, 60, "everything is over")
    return held, client
