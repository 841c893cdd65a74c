"""Leases: what becomes of steps whose worker died, stood still, or went away in order."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from holdfast import Context, Engine, Flow, Retry
from holdfast.core.model.ids import bucket_of
from running import Evidence, Recorder, until, worker_process

pytestmark = pytest.mark.anyio

LEASE = 1.0  # seconds; long enough for a busy machine to renew it in time


def leased(evidence: Evidence) -> int:
    return evidence.ask("select count(*) from holdfast.work where worker is not null")


async def test_a_step_whose_worker_died_ends_as_it_was_declared(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    """One call: failed. A call that must not be repeated: outcome unknown. Two calls: called again."""
    recorder = Recorder(engine.dsn)
    await engine.publish(Flow("once").step("step", "step").build())
    await engine.publish(Flow("never_again").step("step", "step", idempotent=False, retry=Retry(attempts=5)).build())
    await engine.publish(Flow("twice").step("step", "step", retry=Retry(attempts=2)).build())
    started = {flow: await engine.start(flow) for flow in ("once", "never_again", "twice")}

    with worker_process(engine.dsn, ["step=never"], lease=LEASE) as victim:
        await until(lambda: evidence.calls() == 3)
        victim.send_signal(signal.SIGKILL)
        victim.wait()

    engine.register("step", recorder.note)
    async with engine.worker(lease=LEASE):
        ended = {flow: await engine.wait(i.id, timeout=30) for flow, i in started.items()}
    await recorder.close()

    assert {flow: (i.status, i.reason) for flow, i in ended.items()} == {
        "once": ("failed", "LEASE_LOST"),
        "never_again": ("failed", "OUTCOME_UNKNOWN"),
        "twice": ("completed", None),
    }
    assert evidence.calls() == 4
    counted = {flow: [s.attempts for s in await engine.steps(i.id) if s.name == "step"] for flow, i in ended.items()}
    assert counted == {"once": [1], "never_again": [1], "twice": [2]}
    told = [
        (e.type, (e.detail or {}).get("calls")) for e in await engine.events(started["twice"].id) if e.node == "step"
    ]
    assert told == [("step_started", None), ("step_retried", 1), ("step_completed", 2)]
    logged = {r.__dict__["instance"] for r in caplog.records if r.getMessage().startswith("Step taken over")}
    assert logged == {i.id for i in started.values()}
    assert evidence.rows("select attempt from public.calls where instance = %s", started["twice"].id) == [(1,), (2,)]
    assert evidence.ask("select count(*) from holdfast.work") == 0


async def test_a_worker_that_stood_still_cannot_finish_what_others_took_over(
    engine: Engine, evidence: Evidence
) -> None:
    recorder = Recorder(engine.dsn)
    await engine.publish(Flow("held").step("hold", "hold", retry=Retry(attempts=3)).step("note", "note").build())
    started = await engine.start_many("held", [{"n": n} for n in range(10)])

    with worker_process(engine.dsn, ["hold", "note"], lease=LEASE) as zombie:
        await until(lambda: evidence.calls("hold") == 10)
        zombie.send_signal(signal.SIGSTOP)
        evidence.open_gate()
        recorder.register(engine, ["hold", "note"])
        async with engine.worker(lease=LEASE):
            ended = [await engine.wait(i.id, timeout=30) for i in started]
        assert {i.status for i in ended} == {"completed"}
        zombie.send_signal(signal.SIGCONT)

        # It notices, goes on under a new id, and is as good as any other worker.
        await until(lambda: evidence.ask("select count(*) from holdfast.workers where pid = %s", zombie.pid) == 2)
        after = await engine.start("held")
        assert (await engine.wait(after.id, timeout=30)).status == "completed"
    await recorder.close()

    outputs = evidence.rows(
        "select distinct output from holdfast.steps where node = 'hold' and instance_id <> %s", after.id
    )
    assert outputs == [(os.getpid(),)]
    assert evidence.rows("select count(*), min(calls), max(calls) from holdfast.steps where node = 'hold'") == [
        (11, 1, 2)
    ]
    assert evidence.rows("select distinct calls from holdfast.steps where node = 'note'") == [(1,)]
    assert evidence.ask("select count(*) from holdfast.work") == 0


async def test_a_handler_is_told_that_its_lease_is_gone(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    """Its result comes together with the one of the call that took over: the late one alone is refused."""
    reached, taken_over = asyncio.Event(), asyncio.Event()

    @engine.handler("watchful")
    async def watchful(ctx: Context, data: Any) -> str:
        if ctx.attempt > 1:
            taken_over.set()
            return "second"
        reached.set()
        while ctx.heartbeat():
            await asyncio.sleep(0.01)
        await taken_over.wait()
        await until(lambda: engine.committer.incidents.leases_lost == 1)  # distrusted before it is known to be gone
        return "first"

    await engine.publish(Flow("watch").step("watchful", "watchful", retry=Retry(attempts=2)).build())
    async with engine.worker(lease=LEASE), Engine(engine.dsn) as other:
        instance = await engine.start("watch")
        await asyncio.wait_for(reached.wait(), 10)
        other.register("watchful", watchful)
        async with other.worker(lease=30):
            evidence.connection.execute(
                "update holdfast.workers set lease_until = clock_timestamp()"
                " where lease_until < clock_timestamp() + interval '10 s'"
            )
            assert (await engine.wait(instance.id, timeout=30)).data == "second"
        await until(lambda: engine.stats().results_rejected == 1)
    told = {
        r.getMessage().partition(":")[0]: r.__dict__ for r in caplog.records
        if r.name == "holdfast.incidents" and r.__dict__["instance"] == instance.id
    }  # fmt: skip
    assert set(told) == {
        "Lease lost while the step ran",
        "Step taken over",
        "Result came too late",
        "Step failed, retry follows",
    }
    lost = told["Lease lost while the step ran"]
    assert (lost["flow"], lost["step"], lost["attempt"], lost["error"]) == ("watch", "watchful", 1, "LEASE_LOST")
    assert engine.committer.incidents.leases_lost == 1
    [lease] = [r for r in caplog.records if r.name == "holdfast.lease"]
    assert "ran out; going on as" in lease.getMessage()


async def test_a_worker_that_leaves_gives_back_what_it_has_not_begun(engine: Engine, evidence: Evidence) -> None:
    """No call is burned: each step may be called once only, and is."""
    reached, opened = asyncio.Event(), asyncio.Event()
    called: list[str] = []

    @engine.handler("gate")
    async def gate(ctx: Context, data: Any) -> str:
        called.append(ctx.instance)
        reached.set()
        await opened.wait()
        return "done"

    await engine.publish(Flow("gated").step("gate", "gate").step("again", "gate").build())
    started = await engine.start_many("gated", [{"n": n} for n in range(20)])
    async with engine.worker(concurrency=1):
        await asyncio.wait_for(reached.wait(), 10)
        await until(lambda: leased(evidence) == 20)
        opened.set()
    assert leased(evidence) == 0
    assert len(called) < 40

    await engine.drain(timeout=30)
    assert {(await engine.get(i.id)).status for i in started} == {"completed"}
    assert len(called) == 40
    assert evidence.rows("select distinct calls from holdfast.steps where behaviour = 'work'") == [(1,)]


async def test_a_handler_that_does_not_end_in_time_is_left_to_others(engine: Engine, evidence: Evidence) -> None:
    reached = asyncio.Event()

    @engine.handler("slow")
    async def slow(ctx: Context, data: Any) -> int:
        if ctx.attempt == 1:
            reached.set()
            await asyncio.Event().wait()
        return ctx.attempt

    await engine.publish(Flow("slow").step("slow", "slow", retry=Retry(attempts=2)).build())
    instance = await engine.start("slow")
    async with engine.worker(grace=0.05):
        await asyncio.wait_for(reached.wait(), 10)
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).data == 2


async def test_workers_do_only_what_they_can(engine: Engine, evidence: Evidence) -> None:
    """Two processes share a flow, step by step; no call is counted twice on the way."""
    flow = Flow("relay").step("a1", "a").step("b1", "b").step("a2", "a").step("b2", "b")
    await engine.publish(flow.build())
    with (
        worker_process(engine.dsn, ["a=note"], scan=30, lease=30) as one,
        worker_process(engine.dsn, ["b=note"], scan=30, lease=30) as two,
    ):
        started = await engine.start_many("relay", [{"n": n} for n in range(20)])
        ended = [await engine.wait(i.id, timeout=30) for i in started]
    assert {i.status for i in ended} == {"completed"}
    assert set(evidence.rows("select step, pid, count(*) from public.calls group by 1, 2")) == {
        ("a1", one.pid, 20),
        ("b1", two.pid, 20),
        ("a2", one.pid, 20),
        ("b2", two.pid, 20),
    }
    assert evidence.rows("select distinct calls from holdfast.steps where behaviour = 'work'") == [(1,)]


async def test_a_worker_of_a_queue_leaves_steps_it_has_no_handler_for(engine: Engine, evidence: Evidence) -> None:
    recorder = Recorder(engine.dsn)
    await engine.publish(Flow("parcel").step("weigh", "a", queue="depot").step("ship", "b", queue="depot").build())
    parcel = await engine.start("parcel")
    with worker_process(engine.dsn, ["a=note"], queues=["depot"]) as scales:
        await until(lambda: evidence.calls("weigh") == 1)
        await until(
            lambda: evidence.ask("select count(*) from holdfast.work where worker is null and queue = 'depot:b'")
        )
        recorder.register(engine, ["a=note", "b=note"])
        async with engine.worker(queues=("elsewhere",)):
            await until(lambda: evidence.ask("select count(*) from holdfast.workers") == 2)
            assert (await engine.get(parcel.id)).status == "running"
        async with engine.worker(queues=("depot",)):
            assert (await engine.wait(parcel.id, timeout=30)).status == "completed"
    await recorder.close()
    assert evidence.rows("select step, pid from public.calls order by 1 desc") == [
        ("weigh", scales.pid),
        ("ship", os.getpid()),
    ]
    assert evidence.rows("select distinct calls from holdfast.steps where behaviour = 'work'") == [(1,)]


async def test_a_hint_wakes_an_idle_worker_in_another_process(engine: Engine, evidence: Evidence) -> None:
    """The worker looks by itself only once a minute; whoever starts something says so."""
    await engine.publish(Flow("quick").step("note", "note").build())
    with worker_process(engine.dsn, ["note"], scan=60, lease=60):
        loop = asyncio.get_running_loop()
        for key in (None, "with-a-key"):
            begun = loop.time()
            instance = await engine.start("quick", key=key)
            await until(
                lambda id=instance.id: evidence.ask("select completed_at from holdfast.instances where id = %s", id)
            )
            assert loop.time() - begun < 5
        begun = loop.time()
        evidence.ask("select holdfast.start('quick')")
        await until(lambda: evidence.calls() == 3)
        assert loop.time() - begun < 5


async def test_ids_carry_their_bucket(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(Flow("quick").step("note", "note").build())
    await engine.start("quick", key="k")
    assert evidence.ask("select bucket from holdfast.instances") == bucket_of("default", "k")
