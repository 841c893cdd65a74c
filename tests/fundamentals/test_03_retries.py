"""When a call fails: again at once, again later, or too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, Engine, Flow, Retry
from holdfast.testing import advance

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails a number of times, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts: list[int] = []

    async def __call__(self, ctx: Context, data: Any) -> str:
        self.attempts.append(ctx.attempt)
        if len(self.attempts) <= self.failures:
            raise ConnectionError("try again")
        return "done"


async def test_a_step_is_called_again_until_it_works(engine: Engine) -> None:
    flaky = Flaky(2)
    engine.register("flaky", flaky)
    await engine.publish(Flow("again").step("flaky", "flaky", retry=Retry(attempts=3)).build())
    instance = await engine.start("again")
    await engine.drain(timeout=30)

    assert flaky.attempts == [1, 2, 3]
    assert (await engine.get(instance.id)).status == "completed"
    [step] = [s for s in await engine.steps(instance.id) if s.name == "flaky"]
    assert (step.attempts, step.status) == (3, "completed")


async def test_retries_counts_all_calls(engine: Engine) -> None:
    flaky = Flaky(9)
    engine.register("flaky", flaky)
    await engine.publish(Flow("again").step("flaky", "flaky", retry=Retry(attempts=3)).build())
    instance = await engine.start("again")
    await engine.drain(timeout=30)

    assert flaky.attempts == [1, 2, 3]
    instance = await engine.get(instance.id)
    assert (instance.status, instance.reason) == ("failed", "ConnectionError")


async def test_backoff_waits_longer_each_time(engine: Engine) -> None:
    flaky = Flaky(3)
    engine.register("flaky", flaky)
    await engine.publish(
        Flow("patient").step("flaky", "flaky", retry=Retry(attempts=4, delay=60, backoff="exponential")).build()
    )
    instance = await engine.start("patient")

    for calls, pause in ((1, 60), (2, 120), (3, 240)):
        await engine.drain(timeout=30)
        assert len(flaky.attempts) == calls
        await advance(engine, seconds=pause - 5)
        await engine.drain(timeout=30)
        assert len(flaky.attempts) == calls
        await advance(engine, seconds=6)

    await engine.drain(timeout=30)
    assert flaky.attempts == [1, 2, 3, 4]
    assert (await engine.get(instance.id)).status == "completed"
    [step] = [s for s in await engine.steps(instance.id) if s.name == "flaky"]
    assert step.attempts == 4


async def test_a_call_that_takes_too_long_counts_as_a_failure(engine: Engine) -> None:
    attempts: list[int] = []

    @engine.handler("slow")
    async def slow(ctx: Context, data: Any) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "done"

    await engine.publish(Flow("slow").step("slow", "slow", retry=Retry(attempts=2), timeout=0.05).build())
    instance = await engine.start("slow")
    await engine.drain(timeout=30)

    assert attempts == [1, 2]
    assert (await engine.get(instance.id)).status == "completed"
    retried = [e for e in await engine.events(instance.id) if e.type == "step_retried"]
    assert [e.detail["code"] for e in retried] == ["STEP_TIMEOUT"]


async def test_a_handlers_own_timeout_is_its_own_error(engine: Engine) -> None:
    @engine.handler("call_out")
    async def call_out(ctx: Context, data: Any) -> None:
        raise TimeoutError("the other side did not answer")

    await engine.publish(Flow("call").step("call_out", "call_out", timeout=60).build())
    instance = await engine.start("call")
    await engine.drain(timeout=30)
    error = (await engine.get(instance.id)).error
    assert (error["code"], error["message"]) == ("TimeoutError", "the other side did not answer")


async def test_a_handler_that_is_cancelled_from_inside_has_failed(engine: Engine) -> None:
    @engine.handler("entangled")
    async def entangled(ctx: Context, data: Any) -> str:
        if ctx.attempt == 1:
            raise asyncio.CancelledError("a task it awaited was cancelled")
        return "done"

    await engine.publish(Flow("tangle").step("entangled", "entangled", retry=Retry(attempts=2)).build())
    instance = await engine.start("tangle")
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).data == "done"


async def test_the_deadline_is_for_all_calls_together(engine: Engine) -> None:
    flaky = Flaky(9)
    engine.register("flaky", flaky)
    await engine.publish(
        Flow("limited").step("flaky", "flaky", retry=Retry(attempts=9, delay=3600), deadline=5400).build()
    )
    instance = await engine.start("limited")
    await engine.drain(timeout=30)
    await advance(engine, hours=1, seconds=1)
    await engine.drain(timeout=30)
    assert flaky.attempts == [1, 2]
    await advance(engine, hours=1)
    await engine.drain(timeout=30)

    assert flaky.attempts == [1, 2]
    instance = await engine.get(instance.id)
    assert (instance.status, instance.error["code"]) == ("failed", "STEP_DEADLINE")
