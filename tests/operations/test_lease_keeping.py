"""A lease survives what handlers do to their process, and does not survive a process that is as good as dead."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Context, Engine, Flow, Retry
from holdfast.store import embedded
from holdfast.store.commit.calls import CallLimits
from holdfast.store.queue import lease
from running import Evidence, until, worker_process

pytestmark = pytest.mark.anyio

LEASE = 1.5


def holders(evidence: Evidence) -> list[tuple[Any, ...]]:
    """Incarnations of workers in this process: a lease that was lost leaves a second one."""
    return evidence.rows("select id from holdfast.workers where queues && '{step}' order by id")


def step_row(evidence: Evidence) -> tuple[Any, ...]:
    [row] = evidence.rows("select calls, fence, status from holdfast.steps where node = 'step'")
    return row


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(engine: Engine, evidence: Evidence) -> None:
    """Busy for three leases without ever letting go; another process looks for lost work all the time."""
    told: list[bool] = []

    @engine.handler("step")
    async def step(ctx: Context, data: Any) -> str:
        deadline = time.monotonic() + 3 * LEASE
        while time.monotonic() < deadline:
            pass
        told.append(ctx.lost)
        return "done"

    await engine.publish(Flow("busy").step("step", "step", retry=Retry(attempts=2)).build())
    with worker_process(engine.dsn, ["other=note"], lease=LEASE, scan=0.1):
        async with engine.worker(lease=LEASE):
            before = holders(evidence)
            instance = await engine.start("busy")
            ended = await engine.wait(instance.id, timeout=60)
            assert holders(evidence) == before
    assert (ended.status, ended.data, told) == ("completed", "done", [False])
    assert step_row(evidence) == (1, 1, "completed")


async def test_an_event_loop_that_never_comes_back_loses_its_lease(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others do its work; when it does come back, its result is refused and it goes on under a new id."""
    monkeypatch.setattr(lease, "STALL_SECONDS", LEASE)
    monkeypatch.setattr(lease, "STALL_LEASES", 1)
    told: list[bool] = []

    @engine.handler("step")
    async def step(ctx: Context, data: Any) -> str:
        deadline = time.monotonic() + 60
        while evidence.ask("select max(calls) from holdfast.steps") == 1 and time.monotonic() < deadline:
            time.sleep(0.05)  # noqa: ASYNC251 - that is the point
        told.append(ctx.lost)
        return "late"

    await engine.publish(Flow("dead").step("step", "step", retry=Retry(attempts=2)).build())
    async with engine.worker(lease=LEASE):
        instance = await engine.start("dead", {"n": 1})
        await until(lambda: evidence.ask("select count(*) from holdfast.work where worker is not null"))
        with worker_process(engine.dsn, ["step=note"], lease=LEASE, scan=0.1):
            ended = await engine.wait(instance.id, timeout=60)
            await until(lambda: told)
            await until(lambda: engine.stats().lease_seconds_left > 0)
    assert (ended.status, ended.data, told) == ("completed", {"n": 1}, [True])
    assert step_row(evidence)[0] == 2


async def test_calls_that_hold_every_connection_keep_the_lease(engine: Engine, evidence: Evidence) -> None:
    """Both sessions for calls are taken for three leases, and more calls wait."""

    @engine.call("slow")
    async def slow(ctx: Context, data: Any) -> Any:
        await ctx.conn.execute(f"select pg_sleep({3 * LEASE})")
        return data

    graph = {
        "name": "calls",
        "entry": "step",
        "nodes": [{"id": "step", "kind": "action", "handler": "slow"}, {"id": "end", "kind": "end"}],
        "edges": [{"id": "a", "source": "step", "target": "end"}],
    }
    await engine.publish(graph)
    with worker_process(engine.dsn, ["other=note"], lease=LEASE, scan=0.1):
        async with engine.worker(lease=LEASE, calls=CallLimits(sessions=2)):
            started = await engine.start_many("calls", [{"n": n} for n in range(4)])
            ended = [await engine.wait(i.id, timeout=60) for i in started]
    assert [i.status for i in ended] == ["completed"] * 4
    assert evidence.rows("select distinct calls from holdfast.steps where node = 'step'") == [(1,)]
    assert evidence.ask("select count(*) from holdfast.workers where queues && '{call:slow}'") == 1


@pytest.fixture
def small_server(home: Path) -> str:
    """A server with few connections, for a test that takes all of them."""
    return embedded.start(home / "pg", settings={"max_connections": "25"}).dsn


def _every_connection(dsn: str) -> list[psycopg.Connection[Any]]:
    taken: list[psycopg.Connection[Any]] = []
    while True:
        try:
            taken.append(psycopg.connect(dsn, autocommit=True))
        except psycopg.OperationalError:
            return taken


async def test_a_server_without_a_free_connection_costs_no_lease(small_server: str) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    async with Engine(small_server) as engine:

        @engine.handler("step")
        async def step(ctx: Context, data: Any) -> bool:
            reached.set()
            await go_on.wait()
            return ctx.heartbeat()

        await engine.publish(Flow("held").step("step", "step", retry=Retry(attempts=2)).build())
        async with engine.worker(lease=LEASE, maintenance=False):
            instance = await engine.start("held")
            await asyncio.wait_for(reached.wait(), 30)
            taken = _every_connection(small_server)
            assert taken
            deadline = time.monotonic() + 3 * LEASE
            await until(lambda: time.monotonic() > deadline)
            go_on.set()
            ended = await engine.wait(instance.id, timeout=30)
            assert (ended.status, ended.data) == ("completed", True)
            assert taken[0].execute("select count(*), max(calls) from holdfast.workers, holdfast.steps"
                                    " where node = 'step'").fetchall() == [(1, 1)]  # fmt: skip
            for connection in taken:
                connection.close()


async def test_a_handler_sees_that_its_lease_is_gone(engine: Engine, evidence: Evidence) -> None:
    seen: list[tuple[bool, bool]] = []
    reached, again = asyncio.Event(), asyncio.Event()

    @engine.handler("step")
    async def step(ctx: Context, data: Any) -> int:
        if ctx.attempt == 1:
            seen.append((ctx.lost, ctx.heartbeat()))
            reached.set()
            try:
                while ctx.heartbeat():
                    await asyncio.sleep(0.01)
            finally:  # it is also told, maybe by its own scan and a moment before the lease is missed
                while not ctx.lost:
                    await asyncio.sleep(0.01)
                seen.append((ctx.lost, ctx.heartbeat()))
                await again.wait()  # until the step is taken over, its result would still count
        again.set()
        return ctx.attempt

    await engine.publish(Flow("watch").step("step", "step", retry=Retry(attempts=2)).build())
    async with engine.worker(lease=LEASE):
        instance = await engine.start("watch")
        await asyncio.wait_for(reached.wait(), 30)
        evidence.connection.execute("update holdfast.workers set lease_until = clock_timestamp()")
        assert (await engine.wait(instance.id, timeout=60)).data == 2
    assert seen == [(False, True), (True, False)]
