"""Services with some of the handlers share a flow. A step nobody can run waits, and it can be seen that it does."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import services_app

from holdfast import Context, Engine, Flow
from holdfast.runtime.worker.unserved import HEAD, LONGEST
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

SLOW = {"scan": 30.0, "lease": 90.0}  # nothing is found by a look that nobody asked for
SKIPPED = "step_skipped_missing_handler"


@pytest.fixture
async def other(engine: Engine) -> AsyncIterator[Engine]:
    async with Engine(engine.dsn) as other:
        yield other


@pytest.fixture
async def delivery(engine: Engine) -> str:
    """A delivery that is cooked and waits for somebody to drive it."""

    async def cook(ctx: Context, data: Any) -> Any:
        return data

    engine.register("cook", cook)
    await engine.publish(services_app.FLOW)
    instance = await engine.start("delivery", {"n": 1})
    await engine.drain(timeout=30)
    return instance.id


async def drive(ctx: Context, data: Any) -> Any:
    return data


async def skips(engine: Engine, instance: str) -> list[Any]:
    return [event for event in await engine.events(instance) if event.type == SKIPPED]


async def test_two_services_share_a_flow(engine: Engine, other: Engine) -> None:
    ran: list[tuple[str, str]] = []

    def of(service: str) -> Any:
        async def handler(ctx: Context, data: Any) -> Any:
            ran.append((service, ctx.step))
            return data

        return handler

    engine.register("cook", of("kitchen"))
    other.register("drive", of("courier"))
    await engine.publish(services_app.FLOW)
    async with engine.worker(**SLOW), other.worker(**SLOW):
        instance = await engine.start("delivery")
        assert (await engine.wait(instance.id, timeout=10)).status == "completed"
    assert ran == [("kitchen", "cook"), ("courier", "drive"), ("kitchen", "clean")]


async def test_a_service_that_comes_later_takes_up_the_step_at_once(
    engine: Engine, other: Engine, delivery: str
) -> None:
    other.register("drive", drive)
    async with engine.worker(**SLOW, missing_handler_cooldown=0.05):
        await until(lambda: skips(engine, delivery))
        assert (await engine.get(delivery)).status == "running"
        begun = time.monotonic()
        async with other.worker(**SLOW):
            assert (await engine.wait(delivery, timeout=10)).status == "completed"
            assert time.monotonic() - begun < 1.0
        await until(lambda: engine.stats().steps_unserved == 0)
    steps = {step.name: (step.status, step.attempts) for step in await engine.steps(delivery)}
    assert steps["drive"] == ("completed", 1)


async def test_a_handler_that_comes_later_is_served_by_the_worker_that_runs(engine: Engine, delivery: str) -> None:
    async with engine.worker(**SLOW):
        await until(lambda: engine.running_worker and engine.running_worker.is_idle)
        await asyncio.to_thread(engine.register, "drive", drive)  # as an engine without a loop does
        assert (await engine.wait(delivery, timeout=10)).status == "completed"
    engine.register("nobody", drive)  # and no worker is asked


async def test_a_flow_of_functions_is_published_beside_a_running_worker(engine: Engine) -> None:
    async with engine.worker(**SLOW):
        await engine.publish(Flow("late").step("drive", drive).build())
        instance = await engine.start("late", {"n": 1})
        assert (await engine.wait(instance.id, timeout=10)).status == "completed"


async def test_others_learn_of_a_handler_that_comes_later(engine: Engine, other: Engine, delivery: str) -> None:
    async with engine.worker(lease=1.5), other.worker(missing_handler_cooldown=0.05):
        await until(lambda: other.stats().steps_unserved == 1)
        engine.register("drive", drive)
        await engine.wait(delivery, timeout=10)
        await until(lambda: _serves(engine, "drive"))


async def _serves(engine: Engine, handler: str) -> bool:
    return any(handler in worker.handlers for worker in await engine.workers())


async def test_what_waits_is_told_on_the_instance_in_the_log_and_in_numbers(
    engine: Engine, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.missing")
    async with engine.worker(missing_handler_cooldown=0.05):
        await until(lambda: skips(engine, delivery))
        assert engine.stats().steps_unserved == 1
        await until(lambda: caplog.records)
    event = (await skips(engine, delivery))[0]
    assert (event.node, event.token, event.actor) == ("drive", "0@1", "system")
    assert event.detail["handler"] == event.detail["queue"] == "drive"
    assert event.detail["waiting_seconds"] >= 0
    assert len(caplog.records) == 1  # a minute has not passed
    assert "'drive': 1 steps wait" in caplog.text
    [finding] = [f for f in (await engine.doctor()).findings if f.code == "queue_unserved"]
    assert (finding.subject, finding.severity) == ("drive", "warning")


async def test_a_step_that_waits_for_a_week_is_told_of_ever_more_seldom(engine: Engine, delivery: str) -> None:
    async with engine.worker(missing_handler_cooldown=5.0) as worker:
        await worker.missing.look()
        for seconds in [2] * 8 + [10] * 8 + [900] * 8 + [6 * 3600] * 28:
            await advance(engine, seconds=seconds)
            await worker.missing.look()
    told = [event.created_at for event in await skips(engine, delivery)]
    assert 15 < len(told) < 50
    gaps = [(after - before).total_seconds() for before, after in pairwise(told)]
    assert gaps[0] >= 5.0 * 0.8
    assert all(gap >= LONGEST * 0.8 for gap in gaps[-8:])


async def test_steps_are_told_of_once_whoever_looks(engine: Engine, other: Engine, evidence: Evidence) -> None:
    await engine.publish(services_app.FLOW)
    await engine.start_many("delivery", [{"n": n} for n in range(50)])
    async with engine.worker() as worker, other.worker() as second:
        await until(lambda: evidence.ask("select count(*) from holdfast.work") == 50)
        await asyncio.gather(worker.missing.look(), second.missing.look())
        assert evidence.ask("select count(*) from holdfast.work where missed_since is not null") == 50
        await advance(engine, seconds=30)
        await asyncio.gather(worker.missing.look(), second.missing.look())
        told = evidence.rows("select instance_id, count(*) from holdfast.events where type = %s group by 1", SKIPPED)
        assert [count for _, count in told] == [1] * 50


async def test_only_the_head_of_a_queue_is_marked(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(services_app.FLOW)
    await engine.start_many("delivery", [{"n": n} for n in range(HEAD + 200)])
    async with engine.worker() as worker:
        await until(lambda: evidence.ask("select count(*) from holdfast.work") == HEAD + 200)
        await worker.missing.look()
        assert worker.missing.waiting == HEAD
        assert evidence.ask("select count(*) from holdfast.work where missed_since is not null") == HEAD


async def test_a_claim_forgets_the_wait(engine: Engine, delivery: str, evidence: Evidence) -> None:
    async with engine.worker() as worker:
        await worker.missing.look()
    marks = "select count(*) from holdfast.work where missed_since is not null"
    assert evidence.ask(marks) == 1
    reached, opened = asyncio.Event(), asyncio.Event()

    @engine.handler("drive")
    async def drive(ctx: Context, data: Any) -> Any:
        reached.set()
        await opened.wait()

    async with engine.worker():
        await asyncio.wait_for(reached.wait(), 10)
        assert evidence.ask(marks) == 0
        opened.set()
        assert (await engine.wait(delivery, timeout=10)).status == "completed"


async def test_nobody_looks_where_it_is_switched_off(engine: Engine, delivery: str, evidence: Evidence) -> None:
    async with engine.worker(missing_handler_cooldown=0, scan=0.05):
        await advance(engine, minutes=5)
        await until(lambda: engine.stats().lease_seconds_left > 0)
    assert await skips(engine, delivery) == []
    assert evidence.ask("select count(*) from holdfast.work where missed_since is not null") == 0


# --- real services -------------------------------------------------------------------------------------------------


@contextmanager
def service(dsn: str, name: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`holdfast worker` with the handlers of one service."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "worker", f"services_app:{name}", "--lease=90"],
            cwd=Path(__file__).parent, env={**os.environ, "HOLDFAST_DSN": dsn}, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_services_in_processes_of_their_own(engine: Engine, evidence: Evidence, tmp_path: Path) -> None:
    await engine.publish(services_app.FLOW)
    with service(engine.dsn, "kitchen", tmp_path / "kitchen") as kitchen:
        early = await engine.start("delivery")
        await until(lambda: evidence.ask("select count(*) from holdfast.work where queue = 'drive' and worker is null"))
        with service(engine.dsn, "courier", tmp_path / "courier") as courier:
            late = await engine.start("delivery")
            ended = [await engine.wait(instance.id, timeout=30) for instance in (early, late)]
    assert [instance.status for instance in ended] == ["completed"] * 2
    shares = {"cook": kitchen.pid, "drive": courier.pid, "clean": kitchen.pid}
    assert [instance.data for instance in ended] == [shares] * 2
