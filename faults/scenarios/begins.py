"""S26: what must not begin: calls of a worker that was frozen with jobs waiting, and calls of suspended instances.

A worker with one slot is frozen while its queue of jobs waits. Another one takes everything over, fails, and takes it
back; then the first one thaws. Elsewhere instances are suspended and resumed while workers are killed and connections
are cut.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from faults import check, cluster, flows
from faults.check import Pause
from faults.client import Client
from faults.fleet import Fleet
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared, until
from faults.worker import Hands
from holdfast import Context, DoNotRetry, Engine, Flow, Retry, Undo
from holdfast.errors import Conflict

LEASE = 1.0
GROUP = 20  # jobs that wait for the slot of a frozen worker
WORKERS = 3
CUT = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


@dataclass
class Tally:
    pauses: list[Pause] = field(default_factory=list)
    kills: int = 0
    cuts: int = 0


def run(profile: Profile, seed: int) -> list[Figure]:
    rounds, waves = profile.size(10, 1), profile.size(20, 2)
    return [*frozen(seed, rounds), *suspended(seed, waves)]


def hands(engine: Engine, hands: Hands) -> None:
    """Handlers of a saga that always fails: each call is told to the witness before anything else."""

    async def spoil(ctx: Context, data: Any) -> None:
        await hands.witness(ctx, data)
        raise DoNotRetry("it never works")

    engine.register("carry", hands.witness)
    engine.register("carry_back", hands.witness)
    engine.register("spoil", spoil)


# --- frozen ---------------------------------------------------------------------------------------------------------


def frozen(seed: int, rounds: int) -> list[Figure]:
    with prepared() as stage:
        waited = asyncio.run(_freezes(stage, rounds))
        entries = stage.witness.entries()
        late = check.forward_after_undo(entries)
        verdict = check.judge(stage.dsn, entries, ends=("completed", "failed"))
    for sentence in [*late[:10], *verdict.report().splitlines()]:
        print(sentence)
    told = f"{rounds} freezes with {waited} jobs waiting for a slot"
    return [
        Figure("S26: calls begun after their own compensation", len(late), NONE, seed, told, waited > 0),
        Figure("S26: violations after freezes with jobs waiting", verdict.broken(), NONE, seed, told, waited > 0),
    ]


async def _freezes(stage: Stage, rounds: int) -> int:
    waited = 0
    retry = Retry(attempts=flows.CALLS)
    undo = Undo("carry_back", name="un_carry", retry=retry)
    saga = Flow("saga").step("carry", "carry", undo=undo, retry=retry).step("spoil", "spoil")
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish(flows.journey("held", 1, "hold"), saga.build())
        task = stage.task(worker={"lease": LEASE, "concurrency": 1}, extras=["faults.scenarios.begins:hands"])
        with Fleet(task, stage.place) as fleet:
            for number in range(rounds):
                waited += await _freeze(stage, client, fleet, number)
    return waited


async def _freeze(stage: Stage, client: Client, fleet: Fleet, number: int) -> int:
    stage.gate.unlink(missing_ok=True)
    [worker] = await asyncio.to_thread(fleet.grow, 1)
    await client.start("held", range(1), f"h{number}")
    held = client.started[f"h{number}-0"]
    await until(lambda: any(e.instance == held for e in stage.witness.entries()), 30, "its slot is taken")
    await client.start("saga", range(GROUP), f"s{number}")
    await until(lambda: fleet.holding().get(worker.pid, 0) == GROUP + 1, 30, "all others wait for it")
    worker.freeze()
    [heir] = await asyncio.to_thread(fleet.grow, 1)
    await until(lambda: stage.unfinished() == 0, 60, "everything is taken back")
    stage.gate.touch()
    worker.thaw()
    incarnations = "select count(*) from holdfast.workers where pid = %s"
    await until(lambda: stage.ask(incarnations, worker.pid) == 2, 30, "it goes on under a new id")
    for member in (worker, heir):  # leaving in order, it has begun whatever it would
        await asyncio.to_thread(member.leave)
        fleet.members.remove(member)
    return GROUP


# --- suspended ------------------------------------------------------------------------------------------------------


def suspended(seed: int, waves: int) -> list[Figure]:
    with prepared() as stage:
        tally, client = asyncio.run(_pauses(stage, random.Random(seed), waves))
        entries = stage.witness.entries()
        begun = check.begun_while_suspended(entries, tally.pauses)
        verdict = check.judge(stage.dsn, entries, started=client.started)
    for sentence in [*begun[:10], *verdict.report().splitlines()]:
        print(sentence)
    told = f"{len(tally.pauses)} pauses, {tally.kills} kills that hit, {tally.cuts} cut connections"
    valid = bool(tally.pauses and tally.kills and tally.cuts) and verdict.share_finished >= 0.95
    return [
        Figure("S26: calls begun while suspended", len(begun), NONE, seed, told, valid),
        Figure("S26: violations after pauses under kills", verdict.broken(), NONE, seed, told, valid),
        Figure("S26: pauses", len(tally.pauses), Bar(">", 0), seed, f"{len(client.started)} instances", valid),
    ]


async def _pauses(stage: Stage, luck: random.Random, waves: int) -> tuple[Tally, Client]:
    tally = Tally()
    async with Engine(stage.dsn) as engine:
        client = Client(engine)
        await client.publish(flows.journey(steps=6))
        task = stage.task(worker={"lease": LEASE, "concurrency": 4}, nap=0.2)
        with Fleet(task, stage.place) as fleet:
            await asyncio.to_thread(fleet.grow, WORKERS)
            for number in range(waves):
                await client.start("journey", range(40), f"w{number}")
                chosen = luck.sample([client.started[f"w{number}-{n}"] for n in range(40)], 15)
                member = await asyncio.to_thread(fleet.holder, luck)
                answered = await _suspend(client, chosen)
                tally.kills += bool(await asyncio.to_thread(fleet.kill, member))
                tally.cuts += cluster.ask(stage.dsn, CUT)[0][0]
                await asyncio.to_thread(fleet.grow, 1)
                await asyncio.sleep(LEASE * luck.uniform(1.5, 2.5))  # long enough for a takeover
                for id, moment in answered.items():
                    tally.pauses.append(Pause(id, moment, time.time()))
                    await client.insist(lambda id=id: _resume(engine, id))
            await until(lambda: stage.unfinished() == 0, 60, "everything is over")
    return tally, client


async def _suspend(client: Client, chosen: list[str]) -> dict[str, float]:
    """When each was answered; what is over by then cannot be suspended."""
    answered: dict[str, float] = {}
    for id in chosen:
        try:
            await client.insist(lambda id=id: client.engine.suspend(id))
        except Conflict:
            continue
        answered[id] = time.time()
    return answered


async def _resume(engine: Engine, id: str) -> None:
    """An answer that was lost may have resumed it already."""
    try:
        await engine.resume(id)
    except Conflict as refused:
        if refused.code != "INSTANCE_NOT_SUSPENDED":
            raise
