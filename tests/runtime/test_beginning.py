"""What must hold at the moment a call begins: the lease is trusted, and the instance is not suspended."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, Retry
from holdfast.runtime.hooks.middleware import Middleware
from holdfast.runtime.worker.worker import Worker
from holdfast.store.commit.calls import CallLimits
from holdfast.store.queue import lease as leases
from holdfast.store.queue.lease import Lease
from holdfast.testing import failpoint
from running import Evidence, Recorder, until, worker_process

pytestmark = pytest.mark.anyio

LONG = 60.0  # seconds of a lease that nothing renews while a test looks
LEASED = "select count(*) from holdfast.work where worker is not null"
CALLS = "select node, calls from holdfast.steps where instance_id = %s and behaviour in ('work', 'call')"


class Slot:
    """A handler that keeps the only slot of its worker until it is let go."""

    def __init__(self, engine: Engine) -> None:
        self.taken, self.go = asyncio.Event(), asyncio.Event()
        engine.register("slot", self.hold)

    async def hold(self, ctx: Context, data: Any) -> None:
        self.taken.set()
        await self.go.wait()


def a_call(name: str) -> dict[str, Any]:
    """A flow whose one step runs inside the transaction that records it."""
    nodes = [{"id": "work", "kind": "action", "handler": "work"}, {"id": "end", "kind": "end"}]
    edges = [{"id": "out", "source": "work", "target": "end"}]
    return {"name": name, "kind": "saga", "version": 1, "entry": "work", "nodes": nodes, "edges": edges,
            "policy": {"on_error": "fail"}}  # fmt: skip


def noting(begun: list[int]) -> Callable[[Context, Any], None]:
    def note(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)

    return note


def lose_trust(worker: Worker) -> None:
    """As if the process had been frozen for longer than its lease."""
    worker.lease.trusted_until = 0.0


def trust_again(worker: Worker) -> None:
    worker.lease.trusted_until = time.monotonic() + LONG
    worker.wake()


@asynccontextmanager
async def one_slot(engine: Engine) -> AsyncGenerator[tuple[Worker, Slot]]:
    """A worker whose only slot is taken."""
    slot = Slot(engine)
    await engine.publish(Flow("slot").step("slot", "slot").build())
    async with engine.worker(lease=LONG, concurrency=1) as worker:
        await engine.start("slot")
        await asyncio.wait_for(slot.taken.wait(), 30)
        yield worker, slot
        slot.go.set()


# --- the lease ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain", "call", "limited"])
async def test_a_worker_that_lost_its_lease_begins_nothing(engine: Engine, evidence: Evidence, kind: str) -> None:
    begun: list[int] = []

    async def awaited(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)

    def plain(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)

    flow: Any
    if kind == "call":
        engine.call("work")(awaited)
        flow = a_call("waiting")
    else:
        engine.register("work", plain if kind == "plain" else awaited)
        flow = Flow("waiting").step("work", "work", timeout=LONG if kind == "limited" else None).build()
    await engine.publish(flow)
    async with one_slot(engine) as (worker, slot):
        started = await engine.start_many("waiting", [{"n": n} for n in range(3)])
        await until(lambda: evidence.ask(LEASED) == 4)
        lose_trust(worker)
        slot.go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert begun == []
        assert [evidence.rows(CALLS, i.id) for i in started] == [[("work", 0)]] * 3
        trust_again(worker)
        assert {(await engine.wait(i.id, timeout=30)).status for i in started} == {"completed"}
    assert begun == [1, 1, 1]


async def test_a_compensation_is_not_begun_without_a_lease(engine: Engine, evidence: Evidence) -> None:
    failing, undone = asyncio.Event(), list[int]()

    async def fail(ctx: Context, data: Any) -> None:
        await failing.wait()
        raise DoNotRetry("no")

    async def undo(ctx: Context, data: Any) -> None:
        undone.append(ctx.attempt)

    engine.register("done", noting([]))
    engine.register("fail", fail)
    engine.register("undo", undo)
    await engine.publish(Flow("saga").step("done", "done", undo="undo").step("fail", "fail").build())
    slot = Slot(engine)
    await engine.publish(Flow("slot").step("slot", "slot").build())
    async with engine.worker(lease=LONG, concurrency=1) as worker:
        saga = await engine.start("saga")
        await until(lambda: evidence.ask("select count(*) from holdfast.steps where node = 'fail'") == 1)
        await engine.start("slot")
        await until(lambda: evidence.ask(LEASED) == 2)
        failing.set()
        await asyncio.wait_for(slot.taken.wait(), 30)
        await until(lambda: evidence.ask("select count(*) from holdfast.steps where kind = 'compensate'") == 1)
        lose_trust(worker)
        slot.go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert undone == []
        trust_again(worker)
        assert (await engine.wait(saga.id, timeout=30)).status == "failed"
    assert undone == [1]


async def test_a_lease_lost_behind_a_hook_is_seen_before_the_handler(engine: Engine, evidence: Evidence) -> None:
    begun, reached, told = list[int](), asyncio.Event(), list[str]()
    go = asyncio.Event()

    class Slow(Middleware):
        async def step(self, ctx: Context, data: Any, call: Any) -> None:
            reached.set()
            await go.wait()
            await call()

        async def step_failed(self, ctx: Context, failure: BaseException) -> None:
            told.append(repr(failure))

    engine.use(Slow())
    engine.register("work", noting(begun))
    await engine.publish(Flow("hooked").step("work", "work").build())
    async with engine.worker(lease=LONG) as worker:
        instance = await engine.start("hooked")
        await asyncio.wait_for(reached.wait(), 30)
        lose_trust(worker)
        go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert (begun, told) == ([], [])
        trust_again(worker)
        await engine.wait(instance.id, timeout=30)
    assert begun == [1]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_lease_lost_inside_the_transaction_of_a_call_is_seen_before_its_function(
    engine: Engine, evidence: Evidence, kind: str
) -> None:
    """Nothing of the transaction has happened: it is taken back, and the call is not counted."""
    begun, reached, go = list[int](), asyncio.Event(), asyncio.Event()

    class Slow(Middleware):
        async def step(self, ctx: Context, data: Any, call: Any) -> None:
            reached.set()
            await go.wait()
            await call()

    async def awaited(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)

    engine.use(Slow())
    engine.call("work")(noting(begun) if kind == "plain" else awaited)
    await engine.publish(a_call("calling"))
    async with engine.worker(lease=LONG) as worker:
        instance = await engine.start("calling")
        await asyncio.wait_for(reached.wait(), 30)
        lose_trust(worker)
        go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert begun == []
        assert evidence.rows(CALLS, instance.id) == [("work", 0)]
        trust_again(worker)
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"
    assert begun == [1]


async def test_a_lease_lost_before_a_thread_is_free_is_seen_in_the_thread(engine: Engine, evidence: Evidence) -> None:
    """More slots than threads: the job is in a slot, and its function waits."""
    begun, busy, go = list[int](), threading.Semaphore(0), threading.Event()

    def block(ctx: Context, data: Any) -> None:
        busy.release()
        go.wait(30)

    engine.register("block", block)
    engine.register("work", noting(begun))
    await engine.publish(Flow("block").step("block", "block").build())
    await engine.publish(Flow("late").step("work", "work").build())
    try:
        async with engine.worker(lease=LONG, concurrency=65) as worker:
            await engine.start_many("block", [{"n": n} for n in range(64)])
            for _ in range(64):
                assert await asyncio.to_thread(busy.acquire, timeout=30)
            instance = await engine.start("late")
            await until(lambda: worker.executor.running == 65)
            lose_trust(worker)
            go.set()
            await until(lambda: evidence.ask(LEASED) == 0)
            assert begun == []
            assert evidence.rows(CALLS, instance.id) == [("work", 0)]
            trust_again(worker)
            await engine.wait(instance.id, timeout=30)
    finally:
        go.set()
    assert begun == [1]


async def test_an_effect_is_not_delivered_without_a_lease(engine: Engine, evidence: Evidence) -> None:
    """Trust is lost while the answer of the claim is under way: the attempt is not made, and not counted."""
    delivered: list[int] = []

    def tell(ctx: Any, data: Any) -> None:
        delivered.append(ctx.attempt)

    engine.register_effect("tell", tell)
    nodes = [{"id": "tell", "kind": "effect", "handler": "tell"}, {"id": "end", "kind": "end"}]
    edges = [{"id": "out", "source": "tell", "target": "end"}]
    await engine.publish({"name": "telling", "entry": "tell", "nodes": nodes, "edges": edges})
    attempts = "select status, attempts, fence from holdfast.effects"
    async with engine.worker(lease=LONG) as worker:
        with failpoint("statement.after.claim_effects", "delay", seconds=1.0) as point:
            await engine.start("telling")
            await until(lambda: point.fired)
            lose_trust(worker)
        await until(lambda: evidence.rows(attempts) == [("pending", 0, 2)])  # claimed and given back
        assert delivered == []
        trust_again(worker)
        await until(lambda: evidence.rows(attempts) == [("completed", 1, 3)])
    assert delivered == [1]


async def test_work_of_the_incarnation_before_is_not_taken_for_never_begun(engine: Engine, evidence: Evidence) -> None:
    """The lease runs out between the two questions about strays, while a step runs that must not be called twice."""
    begun, go = list[int](), asyncio.Event()

    async def once(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)
        await go.wait()

    engine.register("once", once)
    await engine.publish(Flow("once").step("once", "once", idempotent=False).build())
    async with engine.worker(lease=0.9) as worker:
        instance = await engine.start("once")
        await until(lambda: begun)
        first = worker.lease.id
        with failpoint("statement.after.list_leased_work", "delay", seconds=2.0) as point:
            worker.reconnected()
            await until(lambda: point.fired)
            with psycopg.connect(engine.dsn, autocommit=True) as connection:
                connection.execute("update holdfast.workers set lease_until = clock_timestamp() - interval '1 ms'")
            await until(lambda: worker.lease.id != first)
            ended = await engine.wait(instance.id, timeout=30)
        go.set()
    assert (ended.status, ended.reason, begun) == ("failed", "OUTCOME_UNKNOWN", [1])
    assert evidence.rows(CALLS, instance.id) == [("once", 1)]


async def test_trust_is_counted_from_the_sending_of_a_renewal(engine: Engine, evidence: Evidence) -> None:
    """The answer is kept back by a lock on the worker's row: the time it took is not trusted."""
    lease = Lease(engine.dsn, 3.0, lambda _: None)
    lease.queues = ["work"]
    await asyncio.to_thread(lease.start)
    try:
        with psycopg.connect(engine.dsn) as connection:
            connection.execute("select from holdfast.workers for update")
            waiting = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%lease_until%%'"
            )
            await until(lambda: evidence.ask(waiting))
            sent_before, trusted = time.monotonic(), lease.trusted_until
        await until(lambda: lease.trusted_until != trusted)
        assert lease.trusted_until < sent_before + lease.seconds
    finally:
        await asyncio.to_thread(lease.stop)


async def test_a_dead_event_loop_does_not_keep_its_lease(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALL_SECONDS", 0.6)
    monkeypatch.setattr(leases, "STALL_LEASES", 1)
    lease = Lease(engine.dsn, 0.6, lambda _: None)
    lease.queues = ["work"]
    await asyncio.to_thread(lease.start)
    alive = "select count(*) from holdfast.workers where lease_until > clock_timestamp()"
    try:
        await until(lambda: not lease.is_fresh, timeout=10)  # nobody beats
        await until(lambda: evidence.ask(alive) == 0, timeout=10)
    finally:
        await asyncio.to_thread(lease.stop)


async def looking(worker: Worker) -> None:
    """Look all the time, not only when something is due."""
    while True:
        worker.wake()
        await asyncio.sleep(0.02)


async def test_nothing_happens_before_its_moment(engine: Engine, evidence: Evidence) -> None:
    """Timers and pauses between calls, by the database's own dates."""
    calls: list[float] = []

    def flaky(ctx: Context, data: Any) -> None:
        calls.append(time.monotonic())
        if ctx.attempt == 1:
            raise ValueError("again")

    engine.register("flaky", flaky)
    await engine.publish(
        Flow("slow").sleep("nap", 0.4).step("flaky", "flaky", retry=Retry(attempts=2, delay=0.4)).build()
    )
    async with engine.worker() as worker:
        instance = await engine.start("slow")
        waking = asyncio.create_task(looking(worker))
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"
        waking.cancel()
    nap = "select extract(epoch from closed_at - created_at)::float from holdfast.steps where node = 'nap'"
    assert evidence.ask(nap) >= 0.4
    assert calls[1] - calls[0] >= 0.35  # a timer's moment is counted from the commit, which is later than the call


# --- suspended instances --------------------------------------------------------------------------------------------


@pytest.fixture
async def other(engine: Engine) -> AsyncIterator[Engine]:
    """Another service on the same database."""
    async with Engine(engine.dsn) as other:
        yield other


@pytest.mark.parametrize("kind", ["step", "call"])
async def test_queued_work_of_a_suspended_instance_is_not_claimed(
    engine: Engine, other: Engine, evidence: Evidence, kind: str
) -> None:
    begun: list[str] = []

    async def work(ctx: Context, data: Any) -> None:
        begun.append(ctx.instance)

    await engine.publish(a_call("queued") if kind == "call" else Flow("queued").step("work", "work").build())
    async with engine.worker(lease=LONG):
        paused, free = await engine.start_many("queued", [{"n": 1}, {"n": 2}])
        await until(lambda: evidence.ask("select count(*) from holdfast.work") == 2)
        await engine.suspend(paused.id)
    if kind == "call":
        other.call("work")(work)
    else:
        other.register("work", work)
    async with other.worker(lease=LONG) as worker:
        await other.wait(free.id, timeout=30)
        await until(worker.is_done)
        assert begun == [str(free.id)]
        await engine.resume(paused.id)
        assert (await other.wait(paused.id, timeout=30)).status == "completed"
    assert begun == [str(free.id), str(paused.id)]
    assert evidence.rows(CALLS, paused.id) == [("work", 1)]


@pytest.mark.parametrize("kind", ["step", "call"])
@pytest.mark.parametrize("near", [True, False], ids=["by its worker", "by another process"])
async def test_what_waits_for_a_slot_goes_back_when_it_is_suspended(
    engine: Engine, other: Engine, evidence: Evidence, near: bool, kind: str
) -> None:
    begun: list[int] = []

    async def work(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)

    if kind == "call":
        engine.call("work")(work)
    else:
        engine.register("work", work)
    await engine.publish(a_call("waiting") if kind == "call" else Flow("waiting").step("work", "work").build())
    async with one_slot(engine) as (_, slot):
        instance = await engine.start("waiting")
        await until(lambda: evidence.ask(LEASED) == 2)
        await (engine if near else other).suspend(instance.id)
        await until(lambda: evidence.ask(LEASED) == 1)
        slot.go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert begun == []
        assert evidence.rows(CALLS, instance.id) == [("work", 0)]
        await (engine if near else other).resume(instance.id)
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"
    assert begun == [1]


async def test_a_call_that_waits_for_a_session_is_not_begun_when_its_instance_is_suspended(
    engine: Engine, other: Engine, evidence: Evidence
) -> None:
    """It has its slot already. Hint or not, it looks under the lock."""
    taken, go, begun = asyncio.Event(), asyncio.Event(), list[int]()

    async def hold(ctx: Context, data: Any) -> None:
        taken.set()
        await go.wait()

    async def work(ctx: Context, data: Any) -> None:
        begun.append(ctx.attempt)

    engine.call("hold")(hold)
    engine.call("work")(work)
    holding = a_call("holding")
    holding["nodes"][0]["handler"] = "hold"
    await engine.publish(holding)
    await engine.publish(a_call("waiting"))
    async with engine.worker(lease=LONG, calls=CallLimits(sessions=1)) as worker:
        await engine.start("holding")
        await asyncio.wait_for(taken.wait(), 30)
        instance = await engine.start("waiting")
        await until(lambda: worker.executor.running == 2)
        await other.suspend(instance.id)
        go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert begun == []
        assert evidence.rows(CALLS, instance.id) == [("work", 0)]
        await other.resume(instance.id)
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"
    assert begun == [1]


async def test_a_compensation_that_waits_for_a_slot_goes_back_when_it_is_suspended(
    engine: Engine, evidence: Evidence
) -> None:
    failing, undone = asyncio.Event(), list[int]()

    async def fail(ctx: Context, data: Any) -> None:
        await failing.wait()
        raise DoNotRetry("no")

    async def undo(ctx: Context, data: Any) -> None:
        undone.append(ctx.attempt)

    engine.register("done", noting([]))
    engine.register("fail", fail)
    engine.register("undo", undo)
    await engine.publish(Flow("saga").step("done", "done", undo="undo").step("fail", "fail").build())
    slot = Slot(engine)
    await engine.publish(Flow("slot").step("slot", "slot").build())
    async with engine.worker(lease=LONG, concurrency=1):
        saga = await engine.start("saga")
        await until(lambda: evidence.ask("select count(*) from holdfast.steps where node = 'fail'") == 1)
        await engine.start("slot")
        await until(lambda: evidence.ask(LEASED) == 2)
        failing.set()
        await asyncio.wait_for(slot.taken.wait(), 30)
        await until(lambda: evidence.ask("select count(*) from holdfast.steps where kind = 'compensate'") == 1)
        await engine.suspend(saga.id)
        await until(lambda: evidence.ask(LEASED) == 1)
        slot.go.set()
        await until(lambda: evidence.ask(LEASED) == 0)
        assert undone == []
        await engine.resume(saga.id)
        assert (await engine.wait(saga.id, timeout=30)).status == "failed"
    assert undone == [1]


async def test_work_of_a_dead_worker_waits_for_the_resume(engine: Engine, evidence: Evidence) -> None:
    recorder = Recorder(engine.dsn)
    await engine.publish(Flow("lost").step("step", "step", retry=Retry(attempts=2)).build())
    instance = await engine.start("lost")
    with worker_process(engine.dsn, ["step=never"], lease=1.0) as victim:
        await until(lambda: evidence.calls() == 1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    await engine.suspend(instance.id)
    engine.register("step", recorder.note)
    async with engine.worker(lease=LONG) as worker:
        await until(lambda: evidence.ask(LEASED) == 0)
        await until(worker.is_done)
        assert evidence.calls() == 1
        await engine.resume(instance.id)
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"
    await recorder.close()
    assert evidence.rows("select attempt from public.calls") == [(1,), (2,)]


async def test_a_suspended_instance_that_is_cancelled_leaves_no_work(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(Flow("queued").step("work", "nobody").build())
    async with engine.worker(lease=LONG):
        instance = await engine.start("queued")
        await until(lambda: evidence.ask("select count(*) from holdfast.work") == 1)
        await engine.suspend(instance.id)
        await engine.cancel(instance.id)
        assert (await engine.wait(instance.id, timeout=30)).status == "cancelled"
    assert evidence.ask("select count(*) from holdfast.work") == 0
