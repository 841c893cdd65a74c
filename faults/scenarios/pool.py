"""S23: every connection the server has is taken, and every session a worker lends is held, for longer than a lease.

A cluster of its own with few connections: once the worker runs, idle clients take all that is left. Handlers and calls
inside transactions last several leases. The lease is renewed on a connection of its own, so no step may be taken away,
none called twice, and no handler be told that it is lost.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from faults import scene, sink
from faults.check import judge
from faults.cluster import Cluster
from faults.fleet import Fleet
from faults.flows import CALLS
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from faults.worker import Hands
from holdfast import Context, Engine

CONNECTIONS = 40
LEASE = 1.0
SESSIONS = 4  # as many as a worker lends to calls
LOST = "select count(*) from public.told where lost"
TOLD = "create table public.told (step text, lost bool)"


def register(engine: Engine, hands: Hands) -> None:
    seconds = hands.task.nap

    async def long(ctx: Context, data: Any) -> Any:
        """Looks at its lease all the time."""
        answer = await hands.witness(ctx, data)
        ends = time.monotonic() + seconds
        lost = False
        while time.monotonic() < ends:
            lost = lost or ctx.lost
            await asyncio.sleep(0.02)
        return {**answer, "lost": lost}

    async def occupy(ctx: Context, data: Any) -> Any:
        await ctx.conn.execute("select pg_sleep(%s)", (seconds,))
        return {"lost": ctx.lost}

    engine.register("long", long)
    engine.call("occupy")(occupy)


def graph(name: str, node: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "entry": "only",
        "nodes": [{"id": "only", "retry": {"calls": CALLS}, **node}, {"id": "end", "kind": "end"}],
        "edges": [{"id": "e", "source": "only", "target": "end"}],
    }


def run(profile: Profile, seed: int) -> list[Figure]:
    leases = profile.size(full=8, short=3)
    each = profile.size(full=40, short=10)
    cluster = Cluster(settings={"max_connections": str(CONNECTIONS)})
    try:
        with tempfile.TemporaryDirectory(prefix="hf-stage-") as aside, sink.running(Path(aside)) as witness:
            stage = Stage(cluster, cluster.database(), witness, Path(aside))
            return _figures(stage, leases * LEASE, each, seed)
    finally:
        cluster.end()


def _figures(stage: Stage, seconds: float, each: int, seed: int) -> list[Figure]:
    worker = {"lease": LEASE, "concurrency": each + SESSIONS}
    task = stage.task(nap=seconds, worker=worker, extras=[f"{__name__}:register"])
    with Fleet(task, stage.place) as fleet:
        asyncio.run(_prepare(stage, each))
        fleet.grow(1)
        taken = asyncio.run(_starve(stage, each, seconds))
    verdict = judge(stage.dsn, stage.witness.entries())
    incarnations = stage.ask("select count(*) from holdfast.workers")
    again = stage.ask("select count(*) from holdfast.steps where calls > 1")
    told = stage.ask("select count(*) from holdfast.steps where (output ->> 'lost')::bool")
    seen = f"{each} handlers and {SESSIONS} calls for {seconds / LEASE:.0f} leases, {taken} connections taken by others"
    for line in verdict.report(3).splitlines():
        print(f"    {line}", flush=True)
    return [
        Figure(
            "S23: leases lost with no connection left", incarnations - 1 + again + told, NONE, seed, seen, taken > 5
        ),
        Figure("S23: invariants broken", verdict.broken(), NONE, seed, f"{verdict.counts['instances']} instances"),
        Figure("S23: connections refused to others", taken, Bar("≥", 1), seed, f"of {CONNECTIONS}"),
    ]


async def _prepare(stage: Stage, each: int) -> None:
    async with Engine(stage.dsn) as engine:
        await engine.publish(graph("handled", {"kind": "task", "handler": "long"}))
        await engine.publish(graph("called", {"kind": "action", "handler": "occupy"}))
        await engine.start_many("handled", [{"n": n} for n in range(each)])
        await engine.start_many("called", [{"n": n} for n in range(SESSIONS)])


async def _starve(stage: Stage, each: int, seconds: float) -> int:
    """Once everything is under way, take every connection there is, and keep them until the handlers are through."""
    eyes = psycopg.connect(stage.dsn, autocommit=True)
    leased = "select count(*) from holdfast.work where worker is not null"
    await scene.until(lambda: eyes.execute(leased).fetchone() == (each + SESSIONS,), 30, "all is under way")
    idle: list[psycopg.Connection] = []
    try:
        while True:
            try:
                idle.append(psycopg.connect(stage.dsn))
            except psycopg.OperationalError:
                break
        await asyncio.sleep(seconds - LEASE / 2)
    finally:
        for connection in idle:
            connection.close()
    unfinished = "select count(*) from holdfast.instances where completed_at is null"
    await scene.until(lambda: eyes.execute(unfinished).fetchone() == (0,), 30, "all ends")
    eyes.close()
    return len(idle)
