"""Gates of time: what must not happen before its moment, and how long a lease may be trusted."""

from __future__ import annotations

import asyncio
import time

import psycopg

from faults import scene
from faults.report import NONE, Figure
from faults.scene import Stage
from holdfast import Engine, Flow
from holdfast.store.queue import lease as leases
from holdfast.store.queue.lease import Lease

NAP = 0.4
NAPS = 3
SHORT = 0.6
RENEWING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%lease_until%%'"


def early(seed: int) -> list[Figure]:
    """Timers of a worker that looks all the time."""
    with scene.prepared() as stage:
        found = asyncio.run(_naps(stage))
    return [Figure("S14: timers that fired before their moment", found, NONE, seed, f"of {NAPS}")]


async def _naps(stage: Stage) -> int:
    async with Engine(stage.dsn) as engine, engine.worker() as worker:
        await engine.publish(Flow("naps").sleep("nap", NAP).build())
        started = [await engine.start("naps") for _ in range(NAPS)]
        waking = asyncio.create_task(_wake(worker.wake))
        for instance in started:
            await engine.wait(instance.id, timeout=30)
        waking.cancel()
    short = "select count(*) from holdfast.steps where node = 'nap' and closed_at - created_at < interval '399 ms'"
    return stage.ask(short)


async def _wake(wake: object) -> None:
    assert callable(wake)
    while True:
        wake()
        await asyncio.sleep(0.02)


def dead_loop(seed: int) -> list[Figure]:
    """A lease that nobody beats for."""
    leases.STALL_SECONDS, leases.STALL_LEASES = SHORT, 1
    with scene.prepared() as stage:
        lease = _lease(stage, SHORT)
        deadline = time.monotonic() + 10 * SHORT
        while lease.is_fresh and time.monotonic() < deadline:
            time.sleep(0.02)
        kept = int(lease.is_fresh)
        lease.stop()
    return [Figure("S3: leases kept for a dead event loop", kept, NONE, seed, "of 1")]


def late_answer(seed: int) -> list[Figure]:
    """A renewal whose answer is kept back by a lock on the worker's row."""
    with scene.prepared() as stage:
        lease = _lease(stage, 3.0)
        with psycopg.connect(stage.dsn) as connection:
            connection.execute("select from holdfast.workers for update")
            while not stage.ask(RENEWING):
                time.sleep(0.01)
            sent_before, trusted = time.monotonic(), lease._trusted_until
        while lease._trusted_until == trusted:
            time.sleep(0.005)
        late = int(lease._trusted_until >= sent_before + lease.seconds)
        lease.stop()
    return [Figure("S3: leases trusted from the answer", late, NONE, seed, "of 1")]


def _lease(stage: Stage, seconds: float) -> Lease:
    lease = Lease(stage.dsn, seconds, lambda _: None)
    lease.queues = ["work"]
    lease.start()
    return lease
