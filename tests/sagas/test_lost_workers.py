"""Rollbacks that begin when nobody knows how far a branch came: its worker is lost, or none has taken it on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast import Branch, Context, DoNotRetry, Engine, Flow, Retry, Undo
from running import Evidence

pytestmark = pytest.mark.anyio

FREE = (  # what a scan does for a worker whose lease is over
    "update holdfast.work set worker = null, queue = target, fence = fence + 1 where step_id ="
    " (select id from holdfast.steps where instance_id = %s and node = %s) returning path"
)


class Cast:
    """`lost` begins and never comes back, `wrong` fails for good when it is let go; compensations are written down."""

    def __init__(self, engine: Engine) -> None:
        self.undone: list[str] = []
        self.begun: dict[str, asyncio.Event] = {name: asyncio.Event() for name in ("lost", "wrong")}
        self.gate, self.over = asyncio.Event(), asyncio.Event()
        for handler in (self.do, self.lost, self.wrong, self.undo):
            engine.register(handler.__name__, handler)

    async def do(self, ctx: Context, data: Any) -> Any:
        return data

    async def lost(self, ctx: Context, data: Any) -> Any:
        self.begun["lost"].set()
        if ctx.attempt > 1:  # taken on again before the failure was known: that is fine, too
            return
        while not self.over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.over.wait()

    async def wrong(self, ctx: Context, data: Any) -> Any:
        self.begun["wrong"].set()
        await self.gate.wait()
        raise DoNotRetry("it cannot be done")

    async def undo(self, ctx: Context, data: Any) -> Any:
        self.undone.append(ctx.step)

    async def ends(self, engine: Engine, id: str) -> str:
        """How the instance ends when `wrong` goes on."""
        self.gate.set()
        try:
            return (await engine.wait(id, timeout=20)).status
        finally:
            self.over.set()

    async def are_out(self) -> None:
        for event in self.begun.values():
            await event.wait()


def branch(name: str, handler: str) -> Branch:
    return Branch().step(name, handler, undo=Undo("undo", name=f"un_{name}"), retry=Retry(attempts=5))


async def statuses(engine: Engine, id: str) -> dict[str, str]:
    return {step.name: step.status for step in await engine.steps(id)}


async def test_a_sibling_whose_worker_is_lost_is_compensated_though_nobody_took_it_on_again(
    engine: Engine, evidence: Evidence
) -> None:
    cast = Cast(engine)
    flow = Flow("order").fork("both", branch("lost", "lost"), branch("wrong", "wrong")).join("met", "all")
    await engine.publish(flow.build())
    async with engine.worker(scan=0.5, lease=60.0, grace=0.0):
        id = (await engine.start("order")).id
        await cast.are_out()
        assert evidence.ask(FREE, id, "lost")
        assert await cast.ends(engine, id) == "failed"
    assert (await statuses(engine, id))["lost"] == "rolled_back"
    assert sorted(cast.undone) == ["un_lost", "un_wrong"]


async def test_a_rollback_does_not_wait_for_a_loser_whose_worker_is_lost(engine: Engine, evidence: Evidence) -> None:
    cast = Cast(engine)
    race = Flow("order").fork("race", branch("fast", "do"), branch("lost", "lost")).join("won", "any")
    await engine.publish(race.step("wrong", "wrong").build())
    async with engine.worker(scan=0.5, lease=60.0, grace=0.0):
        id = (await engine.start("order")).id
        await cast.are_out()
        assert evidence.ask(FREE, id, "lost")
        assert await cast.ends(engine, id) == "failed"
    assert (await statuses(engine, id))["lost"] == "cancelled"
    assert cast.undone == ["un_fast"]


async def test_a_rollback_does_not_wait_for_a_loser_that_nobody_took_on(engine: Engine) -> None:
    cast = Cast(engine)
    race = Flow("order").fork("race", branch("fast", "do"), branch("slow", "of_another_service")).join("won", "any")
    await engine.publish(race.step("wrong", "wrong").build())
    async with engine.worker(scan=0.5):
        id = (await engine.start("order")).id
        assert await cast.ends(engine, id) == "failed"
    assert (await statuses(engine, id))["slow"] == "cancelled"
    assert cast.undone == ["un_fast"]
