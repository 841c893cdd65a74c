"""What the fault harness once found, each as small as it gets."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import Conflict, PayloadError
from holdfast.payloads.plain import check
from holdfast.store.pg.session import Disconnected, Session
from holdfast.testing import failpoint
from running import Evidence, until

pytestmark = pytest.mark.anyio

WAITING: dict[str, Any] = {
    "name": "waiting",
    "entry": "rest",
    "nodes": [{"id": "rest", "kind": "state"}, {"id": "end", "kind": "end"}],
    "edges": [
        {"id": "again", "source": "rest", "target": "rest", "on": "add"},
        {"id": "out", "source": "rest", "target": "end", "on": "stop"},
    ],
}


async def test_one_id_with_two_bodies_in_one_batch(engine: Engine) -> None:
    """The body of the one was taken for the body of the other: refused although it was the same, or the reverse."""
    await engine.publish(WAITING)
    instance = await engine.start("waiting")
    await engine.drain(timeout=30)
    for _ in range(10):
        id = uuid4()
        bodies = [{"n": 1}, {"n": 2}, {"n": 1}]
        answers: list[Any] = await asyncio.gather(
            *(engine.signal(instance.id, "add", body, id=id) for body in bodies), return_exceptions=True
        )
        refused = [isinstance(answer, Conflict) and answer.code == "SIGNAL_ID_REUSED" for answer in answers]
        assert refused in ([False, True, False], [True, False, True]), answers
    steps = await engine.steps(instance.id)
    assert len(steps) == 11


async def test_a_connection_that_is_closed_after_the_last_answer_is_lost(engine: Engine, evidence: Evidence) -> None:
    """The server's last words came instead of the end of a flush, and were taken for the answer to nothing."""
    session = await Session.open(engine.dsn)
    try:
        pid = session._pg.backend_pid  # pyright: ignore[reportPrivateUsage]
        evidence.ask("select pg_terminate_backend(%s, 10000)", pid)
        with pytest.raises(Disconnected):
            await session.run([])
        assert session.broken
    finally:
        await session.close()


@pytest.mark.parametrize("kind", ["handler", "call"])
async def test_a_plain_function_that_raises_stop_iteration_has_failed(engine: Engine, kind: str) -> None:
    """A thread's StopIteration never reached whoever waited for the thread: the step was out for ever."""

    def stops(ctx: Context, data: Any) -> Any:
        return next(iter(()))

    if kind == "handler":
        engine.register("stops", stops)
        await engine.publish(Flow("stopping").step("stops", "stops").build())
    else:
        engine.call("stops")(stops)
        await engine.publish(
            {
                "name": "stopping",
                "entry": "stops",
                "nodes": [{"id": "stops", "kind": "action", "handler": "stops"}, {"id": "end", "kind": "end"}],
                "edges": [{"id": "e", "source": "stops", "target": "end"}],
            }
        )
    instance = await engine.start("stopping")
    await engine.drain(timeout=30)
    await until(lambda: engine.stats().handlers_running == 0)
    [step] = await engine.steps(instance.id)
    ended = "rolled_back" if kind == "handler" else "failed"  # a flow takes back, a bare graph does not
    assert (step.status, step.error["code"]) == (ended, "RuntimeError")


async def test_a_hint_that_comes_while_a_worker_looks_is_not_lost(engine: Engine) -> None:
    """It was forgotten at the end of the look, and the work lay until the next scan."""
    engine.register("work", lambda ctx, data: data)
    await engine.publish(Flow("hinted").step("work", "work").build())
    async with Engine(engine.dsn) as other:
        other.register("something else", lambda ctx, data: data)
        with failpoint("scan.after", "delay", seconds=0.5) as gap:
            async with engine.worker(lease=90, scan=30), other.worker(lease=90, scan=30):
                await until(lambda: gap.fired)
                instance = await other.start("hinted")  # for any worker but the one in that process
                assert (await engine.wait(instance.id, timeout=10)).status == "completed"


async def test_a_result_that_is_far_too_large_is_refused_at_once(engine: Engine) -> None:
    """Every item of it was looked at first, and nothing else in the process moved meanwhile."""
    engine.register("huge", lambda ctx, data: [0.5] * 3_000_000)
    await engine.publish(Flow("large").step("huge", "huge").build())
    instance = await engine.start("large")
    slowest, last = 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal slowest, last
        while True:
            slowest, last = max(slowest, time.monotonic() - last), time.monotonic()
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    await engine.drain(timeout=60)
    watching.cancel()
    [step] = await engine.steps(instance.id)
    assert step.error["code"] == "PAYLOAD_TOO_LARGE"
    began = time.monotonic()
    with pytest.raises(PayloadError):
        check([0.5] * 3_000_000 + [object()], "a walk over the same")
    assert slowest < (time.monotonic() - began) / 2
