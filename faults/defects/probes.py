"""Gates: one thing each that must never happen, provoked on purpose in one process.

They belong to the scenarios they are named after and run twice: as the engine is, where they must be green, and with
the defect they are made for, where they must turn red.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from typing import Any
from uuid import uuid4

import psycopg

from faults import scene
from faults.check import History
from faults.defects.patching import add
from faults.flows import CALLS, journey
from faults.report import NONE, Figure
from faults.scene import Stage
from holdfast import Context, Engine, Flow, Retry
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Session, rows
from holdfast.store.pg.statements import SQL, Statement
from holdfast.store.pg.transaction import PIN
from holdfast.store.queue import work as queue

ROUNDS = 3
SETTLED = 20.0  # seconds after which what could happen has; a probe goes on as soon as it has
LONG = 30.0
EXPIRE = "update holdfast.workers set lease_until = clock_timestamp() - interval '1 ms' where id = %s"
OVERDUE = "update holdfast.work set deadline_at = holdfast.clock() - interval '1 hour' where instance_id = %s"
LIMIT = 10


def do(stage: Stage, statement: str, *values: Any) -> None:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(statement, values)


def prepare(stage: Stage) -> None:
    """What a defect changes in the database itself."""
    for patch in os.environ.get("FAULTS_PATCHES", "").split():
        change = getattr(importlib.import_module(patch), "prepare", None)
        if change is not None:
            change(stage.dsn)


class Held:
    """A handler whose first call is out until it is let go, and so is its second; each answers which one it was."""

    def __init__(self, engine: Engine) -> None:
        self.out = [asyncio.Event() for _ in range(10)]
        self.go = [asyncio.Event() for _ in range(10)]
        self.told_lost = False
        engine.register("held", self.handle)

    async def handle(self, ctx: Context, data: Any) -> int:
        self.out[ctx.attempt].set()
        try:
            while not self.go[ctx.attempt].is_set():
                self._look(ctx)
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:  # it is told by a cancel, which may come before the next look
            self._look(ctx)
            raise
        return ctx.attempt

    def _look(self, ctx: Context) -> None:
        self.told_lost = self.told_lost or (ctx.attempt == 1 and ctx.lost)


async def _result(stage: Stage, id: str) -> Any:
    return await asyncio.to_thread(
        stage.ask, "select output from holdfast.steps where instance_id = %s and node = 'held'", id
    )


async def _settled(engine: Engine, stage: Stage, id: str, before: int) -> None:
    """The late result was refused, or it was taken, or nothing happens."""
    deadline = time.monotonic() + SETTLED
    while (
        time.monotonic() < deadline and engine.stats().results_rejected == before and await _result(stage, id) is None
    ):
        await asyncio.sleep(0.01)


# --- S3: somebody else's result ------------------------------------------------------------------------------------


def zombie(seed: int) -> list[Figure]:
    """A worker that lost its lease without knowing answers while its successor is still at work."""
    with scene.prepared() as stage:
        accepted, rejected = asyncio.run(_zombies(stage))
    told = f"{ROUNDS} results of a lost lease while its successor was at work, {rejected} rejected"
    return [Figure("S3: late results accepted", accepted, NONE, seed, told, accepted + rejected == ROUNDS)]


async def _zombies(stage: Stage) -> tuple[int, int]:
    """A round in which a renewal of the lease told the first worker, after all, does not count and is made again."""
    accepted = rejected = 0
    async with Engine(stage.dsn) as old, Engine(stage.dsn) as new:
        await old.publish(Flow("held").step("held", "held", retry=Retry(attempts=CALLS)).build())
        for _ in range(2 * ROUNDS):
            if accepted + rejected == ROUNDS:
                break
            old.handlers = type(old.handlers)()
            new.handlers = type(new.handlers)()
            first, second = Held(old), Held(new)
            async with old.worker(lease=LONG) as worker:
                instance = await old.start("held")
                await asyncio.wait_for(first.out[1].wait(), 30)
                worker._tasks[0].cancel()  # it looks no more, or it could take over from itself
                await asyncio.to_thread(do, stage, EXPIRE, worker.lease.id.hex())
                async with new.worker(lease=LONG):
                    await asyncio.wait_for(second.out[2].wait(), 30)
                    before = old.stats().results_rejected
                    first.go[1].set()
                    await _settled(old, stage, str(instance.id), before)
                    was_rejected = old.stats().results_rejected > before
                    second.go[2].set()
                    await new.wait(instance.id, timeout=20)
            was_accepted = await _result(stage, str(instance.id)) != 2
            rejected += was_rejected
            accepted += was_accepted
    return accepted, rejected


# --- S4: one's own earlier result ----------------------------------------------------------------------------------


def same_worker(seed: int) -> list[Figure]:
    """A worker whose step was taken from it by its deadline claims it again; then the first call answers."""
    with scene.prepared() as stage:
        accepted = asyncio.run(_again(stage))
    return [Figure("S4: a worker's own late results accepted", accepted, NONE, seed, f"of {ROUNDS}")]


async def _again(stage: Stage) -> int:
    accepted = 0
    async with Engine(stage.dsn) as engine:
        await engine.publish(Flow("held").step("held", "held", retry=Retry(attempts=CALLS)).build())
        for _ in range(ROUNDS):
            engine.handlers = type(engine.handlers)()
            held = Held(engine)
            async with engine.worker(lease=LONG) as worker:
                instance = await engine.start("held")
                await asyncio.wait_for(held.out[1].wait(), 30)
                await asyncio.to_thread(do, stage, OVERDUE, instance.id)
                worker.wake()
                await asyncio.wait_for(held.out[2].wait(), 30)
                before = engine.stats().results_rejected
                held.go[1].set()
                await _settled(engine, stage, str(instance.id), before)
                held.go[2].set()
                await engine.wait(instance.id, timeout=20)
            accepted += await _result(stage, str(instance.id)) != 2
    return accepted


# --- S3: a lease that ran out --------------------------------------------------------------------------------------


def revived(seed: int) -> list[Figure]:
    """A worker whose lease ran out renews it, as one does that was frozen and thawed."""
    with scene.prepared() as stage:
        alive, untold = asyncio.run(_revived(stage))
    return [
        Figure("S3: leases revived after they ran out", alive, NONE, seed, "of 1"),
        Figure("S3: handlers not told of a lost lease", untold, NONE, seed, "of 1"),
    ]


async def _revived(stage: Stage) -> tuple[int, int]:
    lease = 1.5
    async with Engine(stage.dsn) as engine, Engine(stage.dsn) as other:
        held, heir = Held(engine), Held(other)
        await engine.publish(Flow("held").step("held", "held", retry=Retry(attempts=CALLS)).build())
        async with engine.worker(lease=lease) as worker:
            instance = await engine.start("held")
            await asyncio.wait_for(held.out[1].wait(), 30)
            id = worker.lease.id.hex()
            await asyncio.to_thread(do, stage, EXPIRE, id)
            async with other.worker(lease=LONG):
                await asyncio.sleep(lease)  # at least two renewals
                alive = await asyncio.to_thread(
                    stage.ask,
                    "select count(*) from holdfast.workers where id = %s and lease_until > clock_timestamp()",
                    id,
                )
                untold = int(not held.told_lost)
                for event in (*held.go, *heir.go):
                    event.set()
                await other.wait(instance.id, timeout=20)
    return alive, untold


# --- S8: the same visit twice --------------------------------------------------------------------------------------


def second_receipt(seed: int) -> list[Figure]:
    """A writer that believes its commit was lost sends the receipts of the same visits again."""
    with scene.prepared() as stage:
        prepare(stage)
        changed, taken, receipts = asyncio.run(_twice(stage))
    told = f"{receipts} receipts sent again for other steps"
    return [
        Figure("S8: receipts overwritten", changed, NONE, seed, told, receipts > 0),
        Figure("S8: second receipts taken", taken, NONE, seed, told, receipts > 0),
    ]


async def _twice(stage: Stage) -> tuple[int, int, int]:
    async with Engine(stage.dsn) as engine:
        engine.register("work", lambda ctx, data: data)
        await engine.publish(journey("visits", 3))
        await engine.start("visits")
        await engine.drain(timeout=30)
    history = History()
    history.look(stage.dsn)
    found = scene.cluster.ask(
        stage.dsn, "select instance_id, bucket, token, kind, run, org_id, key from holdfast.step_receipts"
    )
    session = await Session.open(stage.dsn)
    taken = 0
    for instance, bucket, token, kind, run, org, key in found:
        row = (instance.bytes, bucket, token, kind, run, org, key, uuid4().bytes)
        try:
            await session.run([BEGIN, PIN, SQL.insert_receipts.rows([row], _now()), COMMIT])
            taken += 1
        except DatabaseError:
            await session.run([ROLLBACK])
    await session.close()
    history.look(stage.dsn)
    return len(history.changes), taken, len(found)


def _now() -> int:
    from datetime import UTC, datetime

    from holdfast.core.model.timestamps import from_datetime

    return from_datetime(datetime.now(UTC))


# --- S10: more than was asked for ----------------------------------------------------------------------------------


def claim_size(seed: int) -> list[Figure]:
    """Claims on a queue whose statistics say that it is empty."""
    with scene.prepared() as stage:
        largest, claims = asyncio.run(_claim(stage))
    told = f"{claims} claims of at most {LIMIT}, the largest answered {largest}"
    return [Figure("S10: rows claimed beyond the limit", max(0, largest - LIMIT), NONE, seed, told, claims > 1)]


async def _claim(stage: Stage) -> tuple[int, int]:
    async with Engine(stage.dsn) as engine:
        await engine.publish(journey("queued", 1, handler="nobody"))
        async with engine.worker(lease=LONG):
            await engine.start_many("queued", [{"n": n} for n in range(200)])
            await scene.until(lambda: stage.ask("select count(*) from holdfast.work") == 200, 30, "all is queued")
    queues = [row[0] for row in scene.cluster.ask(stage.dsn, "select distinct queue from holdfast.work")]
    session = await Session.open(stage.dsn)
    sizes: list[int] = []
    while sum(sizes) < 200 and len(sizes) < 30:
        sizes.append(len(await queue.claim_work(session, queues, LIMIT, uuid4().bytes)))
    await session.close()
    return max(sizes), len(sizes)


# --- S13: committed late -------------------------------------------------------------------------------------------


def late_commit(seed: int) -> list[Figure]:
    """A caller's transaction starts an instance, others come and go, and only then does it commit."""
    with scene.prepared() as stage:
        lost = asyncio.run(_late(stage))
    return [Figure("S13: starts lost that were committed late", lost, NONE, seed, f"of {ROUNDS}")]


async def _late(stage: Stage) -> int:
    async with Engine(stage.dsn) as engine, Engine(stage.dsn) as caller:
        engine.register("work", lambda ctx, data: data)
        await engine.publish(journey("late", 1))
        async with engine.worker(lease=LONG, scan=0.3):
            late: list[Any] = []
            for _ in range(ROUNDS):
                async with await psycopg.AsyncConnection.connect(stage.dsn) as mine:
                    late.append((await caller.start("late", conn=mine)).id)
                    other = await caller.start("late")
                    await caller.wait(other.id, timeout=20)
            try:
                await scene.until(lambda: not stage.unfinished(), SETTLED, "what was committed late")
            except scene.TooLate:
                return stage.unfinished()
    return 0


# --- S18: whose rows -----------------------------------------------------------------------------------------------


def tenant(seed: int) -> list[Figure]:
    """A connection that has just read for one organisation is given to the next, which names none."""
    add(Statement("probe_tenant", "-- What a nameless tenant sees.\nselect count(*) from holdfast.instances"))
    add(Statement("probe_role", "-- Be a tenant.\nselect set_config('role', 'holdfast_tenant', true)"))
    with scene.prepared() as stage:
        seen = asyncio.run(_leak(stage))
    return [
        Figure("S18: rows of another organisation seen on a used connection", seen, NONE, seed, f"of {ROUNDS} rows")
    ]


async def _leak(stage: Stage) -> int:
    async with Engine(stage.dsn, org="acme") as engine:
        await engine.publish(journey("theirs", 1, handler="nobody"))
        started = [await engine.start("theirs") for _ in range(ROUNDS)]
        for instance in started:
            await engine.get(instance.id)
        session = engine._session
        answers = await session.run([BEGIN, SQL.all["probe_role"].one(), SQL.all["probe_tenant"].one(), COMMIT])
        [[count]] = rows(answers[2])
        return int.from_bytes(count, "big")
