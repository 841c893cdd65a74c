"""A system step whose worker is lost is begun again on another one, though it may fail only once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from steps_graphs import POLICY, edge

from holdfast import Context, Engine
from running import Evidence, until

pytestmark = pytest.mark.anyio

FREE = (  # what a scan does for a worker whose lease is over
    "update holdfast.work set worker = null, queue = target, fence = fence + 1 where instance_id = %s returning path"
)


def workflow(**step: Any) -> dict[str, Any]:
    nodes = [{"id": "process", "kind": "task", "handler": "process", **step}, {"id": "done", "kind": "terminal"}]
    return {
        "name": "shaken", "entry": "process", "kind": "steps", "policy": POLICY, "nodes": nodes,
        "edges": [edge("process", "done")],
    }  # fmt: skip


async def lose(engine: Engine, evidence: Evidence, times: int) -> tuple[list[int], Any]:
    """Run the workflow; so many calls are begun and never come back."""
    attempts: list[int] = []
    over = asyncio.Event()

    @engine.handler("process")
    async def process(ctx: Context, data: Any) -> Any:
        attempts.append(ctx.attempt)
        while ctx.attempt <= times and not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()
        return {"processed": True}

    started = await engine.start("shaken", {})
    async with engine.worker(scan=0.05):
        for lost in range(1, times + 1):
            await until(lambda lost=lost: len(attempts) == lost)
            assert evidence.rows(FREE, started.id)
            engine.wake()
        settled = await engine.settle(started.id, timeout=20)
        over.set()
    return attempts, settled


async def test_a_step_that_may_be_repeated_is_begun_again(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(workflow())
    attempts, settled = await lose(engine, evidence, 2)
    assert (settled.status, attempts) == ("completed", [1, 2, 3])


async def test_but_not_for_ever(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(workflow())
    attempts, settled = await lose(engine, evidence, 3)
    assert (settled.status, settled.reason, attempts) == ("suspended", "LEASE_LOST", [1, 2, 3])


async def test_one_that_may_not_be_repeated_is_for_a_person_to_look_at(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(workflow(idempotent=False))
    attempts, settled = await lose(engine, evidence, 1)
    assert (settled.status, settled.reason, attempts) == ("suspended", "OUTCOME_UNKNOWN", [1])
