"""Handlers learn that their step is not wanted any more, wherever they run, and nothing begins after that."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Branch, Context, DoNotRetry, Engine, Flow, Retry, Undo
from holdfast.core.model.decision import Decision, Release
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.store.commit.rows import Entry, Rows, stop_work
from holdfast.store.queue.work import NOT_TO_START, TOLD_TO_STOP
from holdfast.testing import advance
from running import Evidence, Recorder, until, worker_process

pytestmark = pytest.mark.anyio

SLOW = 30.0  # seconds between looks nobody asked for: what is told sooner came by a hint
SOON = 1.0
COME_LATE = "select count(*) from holdfast.events where type = 'step_finished_late'"


class Stand:
    """An async handler that stands still until somebody tells it to stop."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.told: dict[str, float] = {}
        self.seen: list[tuple[bool, bool]] = []

    async def __call__(self, ctx: Context, data: Any) -> Any:
        self.begun.append(ctx.step)
        self.seen.append((ctx.cancelled, ctx.heartbeat()))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told[ctx.step] = time.monotonic()
            self.seen.append((ctx.cancelled, ctx.heartbeat()))
            raise


class Tidy(Stand):
    """One that cleans up and answers."""

    async def __call__(self, ctx: Context, data: Any) -> Any:
        try:
            return await super().__call__(ctx, data)
        except asyncio.CancelledError:
            return "tidied up"


@pytest.fixture
async def other(engine: Engine) -> AsyncIterator[Engine]:
    """Another service on the same database."""
    async with Engine(engine.dsn) as other:
        yield other


def fork(name: str, width: int, mode: Any = "all") -> Any:
    branches = [Branch().step(f"s{n}", "stand") for n in range(width)]
    return Flow(name).fork("split", *branches).join("join", mode).build()


async def statuses(engine: Engine, instance: str) -> dict[str, str]:
    return {step.name: step.status for step in await engine.steps(instance)}


async def called(engine: Engine, instance: str) -> set[str]:
    """The steps whose calls count."""
    return {step.name for step in await engine.steps(instance) if step.attempts}


async def test_an_async_handler_is_cancelled_and_its_runner_goes_on(engine: Engine) -> None:
    stand = Stand()
    engine.register("stand", stand)
    await engine.publish(Flow("standing").step("s0", "stand").build())
    async with engine.worker(concurrency=1, scan=SLOW, lease=3 * SLOW):
        for round in (1, 2):
            instance = await engine.start("standing")
            await until(lambda round=round: len(stand.begun) == round)
            await engine.cancel(instance.id, by="ada", reason="enough")
            assert (await engine.wait(instance.id, timeout=SOON)).status == "cancelled"
            assert (await statuses(engine, instance.id))["s0"] == "skipped"
    assert stand.seen == [(False, True), (True, False)] * 2


@pytest.mark.parametrize("verb", ["cancel", "abort"])
async def test_a_handler_of_another_service_is_told(engine: Engine, other: Engine, verb: str) -> None:
    """The one who cancels runs no handlers at all."""
    stand = Stand()
    other.register("stand", stand)
    await engine.publish(Flow("standing").step("s0", "stand").build())
    async with other.worker(scan=SLOW, lease=3 * SLOW):
        instance = await engine.start("standing")
        await until(lambda: stand.begun)
        asked = time.monotonic()
        await getattr(engine, verb)(instance.id, by="ada", reason="enough")
        await until(lambda: stand.told)
        assert stand.told["s0"] - asked < SOON
        await until(lambda: other.stats().handlers_running == 0)
        ended = await engine.wait(instance.id, timeout=10)
        assert ended.status == {"cancel": "cancelled", "abort": "aborted"}[verb]
        assert (await statuses(engine, instance.id))["s0"] == "skipped"


async def test_a_result_given_after_the_telling_is_recorded(engine: Engine) -> None:
    tidy, undone = Tidy(), list[Any]()

    async def undo(ctx: Context, data: Any) -> None:
        undone.append(data)

    engine.register("tidy", tidy)
    engine.register("undo", undo)
    await engine.publish(Flow("tidying").step("s0", "tidy", undo="undo").build())
    async with engine.worker():
        instance = await engine.start("tidying", {"n": 1})
        await until(lambda: tidy.begun)
        await engine.cancel(instance.id)
        assert (await engine.wait(instance.id, timeout=10)).status == "cancelled"
    assert undone == [{"input": {"n": 1}, "output": "tidied up"}]


async def test_a_plain_function_sees_a_flag(engine: Engine) -> None:
    begun, seen = threading.Event(), list[tuple[bool, bool]]()

    def patient(ctx: Context, data: Any) -> str:
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.005)
        seen.append((ctx.cancelled, ctx.heartbeat()))
        return "told"

    engine.register("patient", patient)
    await engine.publish(Flow("patience").step("s0", "patient").build())
    async with engine.worker():
        instance = await engine.start("patience")
        await asyncio.to_thread(begun.wait)
        await engine.cancel(instance.id)
        assert (await engine.wait(instance.id, timeout=10)).status == "cancelled"
        [step] = [s for s in await engine.steps(instance.id) if s.name == "s0" and s.kind == "forward"]
        assert (step.status, step.output) == ("rolled_back", "told")
    assert seen == [(True, False)]


async def test_a_plain_function_that_waits_for_a_thread_is_not_begun(engine: Engine) -> None:
    begun, opened = list[str](), threading.Event()

    def busy(ctx: Context, data: Any) -> None:
        begun.append(ctx.step)
        opened.wait(30)

    width = 80  # more than there are threads
    engine.register("stand", busy)
    await engine.publish(fork("threads", width))
    async with engine.worker():
        instance = await engine.start("threads")
        await until(lambda: engine.stats().handlers_running == width and len(begun) == 64)
        await engine.cancel(instance.id)
        await until(lambda: engine.stats().handlers_running == 64)
        opened.set()
        assert (await engine.wait(instance.id, timeout=10)).status == "cancelled"
    assert len(begun) == 64
    assert await called(engine, instance.id) == set(begun)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_next_call_that_waits_for_its_turn_is_not_made_and_does_not_count(
    engine: Engine, other: Engine, end: str
) -> None:
    """The first call failed, the second was counted and has no runner yet when the instance is taken back."""
    stand, fail = Stand(), asyncio.Event()

    async def flaky(ctx: Context, data: Any) -> None:
        await engine.start("standing")
        await until(lambda: engine.stats().jobs_queued == 1)  # it comes before the next call of this one
        raise RuntimeError("the first time")

    async def wrong(ctx: Context, data: Any) -> None:
        await fail.wait()
        raise DoNotRetry("for good")

    async def undo(ctx: Context, data: Any) -> None:
        pass

    engine.register("flaky", flaky)
    engine.register("stand", stand)
    for handler in (wrong, undo):
        other.register(handler.__name__, handler)
    await engine.publish(Flow("standing").step("s0", "stand").build())
    both = (
        Branch().step("again", "flaky", undo=Undo("undo", name="un_again"), retry=Retry(attempts=2)),
        Branch().step("wrong", "wrong"),
    )
    await engine.publish(Flow("taken back").fork("both", *both).join("met").build())
    async with engine.worker(concurrency=1, scan=SLOW, lease=3 * SLOW, grace=0.05), other.worker():
        instance = await other.start("taken back")
        await until(lambda: stand.begun and engine.stats().jobs_queued == 1)
        if end == "cancelled":
            await other.cancel(instance.id)
        fail.set()
        assert (await other.wait(instance.id, timeout=10)).status == end
    [step] = [s for s in await engine.steps(instance.id) if s.name == "again"]
    assert (step.status, step.attempts) == ({"failed": "rolled_back", "cancelled": "skipped"}[end], 1)
    assert step.error is not None
    assert step.error["code"] == "NOT_CALLED_AGAIN"


async def test_a_loser_that_waits_for_its_turn_is_not_called_and_counts_no_call(
    engine: Engine, other: Engine, evidence: Evidence
) -> None:
    """It has lost already when its worker says so."""
    stand, gates = Stand(), {name: asyncio.Event() for name in ("fast", "after")}

    async def wait(ctx: Context, data: Any) -> None:
        await gates[ctx.step].wait()

    engine.register("stand", stand)
    other.register("wait", wait)
    await engine.publish(Flow("standing").step("s0", "stand").build())
    slow = Branch().step(
        "slow", "stand", undo=Undo("wait", name="un_slow")
    )  # who can be taken back is asked how it ended
    race = Flow("race").fork("both", slow, Branch().step("fast", "wait")).join("won", "any")
    await engine.publish(race.step("after", "wait").build())
    async with engine.worker(concurrency=1, scan=SLOW, lease=3 * SLOW, grace=0.05), other.worker():
        await other.start("standing")
        await until(lambda: stand.begun == ["s0"])
        instance = await other.start("race")
        await until(lambda: engine.stats().jobs_queued == 1)
        gates["fast"].set()
        await until(lambda: evidence.ask(COME_LATE) == 1)
        gates["after"].set()
        assert (await other.wait(instance.id, timeout=10)).status == "completed"
    [step] = [s for s in await engine.steps(instance.id) if s.name == "slow"]
    assert (step.status, step.attempts, stand.begun) == ("cancelled", 0, ["s0"])


async def test_a_thread_learns_that_its_time_is_up(engine: Engine) -> None:
    noticed = threading.Event()

    def slow(ctx: Context, data: Any) -> None:
        while not ctx.cancelled:
            time.sleep(0.005)
        noticed.set()

    engine.register("slow", slow)
    await engine.publish(Flow("slow").step("s0", "slow", timeout=0.05).build())
    instance = await engine.start("slow")
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).reason == "STEP_TIMEOUT"
    assert await asyncio.to_thread(noticed.wait, 10)


async def test_what_waits_for_its_turn_is_not_begun(engine: Engine, other: Engine) -> None:
    stand = Stand()
    other.register("stand", stand)
    await engine.publish(fork("crowd", 20))
    async with other.worker(concurrency=3, scan=SLOW, lease=3 * SLOW):
        instance = await engine.start("crowd")
        await until(lambda: len(stand.begun) == 3 and other.stats().jobs_queued == 17)
        await engine.cancel(instance.id)
        assert (await engine.wait(instance.id, timeout=10)).status == "cancelled"
    assert len(stand.begun) == len(stand.told) == 3
    assert await called(engine, instance.id) == set(stand.begun)
    found = await statuses(engine, instance.id)
    assert {status for node, status in found.items() if node.startswith("s") and node != "split"} == {"skipped"}


@pytest.mark.parametrize("verb", ["cancel", "abort"])
async def test_nothing_begins_on_any_worker_after_the_commit(engine: Engine, other: Engine, verb: str) -> None:
    """Some of the branches run, some are claimed and wait for a slot, some are in the queue, and two workers are about
    to have free slots because their handlers obey."""
    width, slots, held = 200, 4, 20
    options = {"concurrency": slots, "capacity": held, "scan": 0.05, "lease": 3 * SLOW}
    stands = (Stand(), Stand())
    engine.register("here", stands[0])
    other.register("there", stands[1])
    branches = [Branch().step(f"s{n}", ("here", "there")[n % 2]) for n in range(width)]
    await engine.publish(Flow("crowd").fork("split", *branches).join("join").build())
    async with Engine(engine.dsn) as operator, engine.worker(**options), other.worker(**options):
        instance = await operator.start("crowd")
        await until(lambda: all(len(stand.begun) == slots for stand in stands))
        await until(lambda: all(service.stats().jobs_queued for service in (engine, other)))
        asked = time.monotonic()
        await getattr(operator, verb)(instance.id, by="ada", reason="enough")
        ended = await operator.wait(instance.id, timeout=30)
        assert ended.status == {"cancel": "cancelled", "abort": "aborted"}[verb]
        for service, stand in zip((engine, other), stands, strict=True):
            await until(lambda service=service: service.stats().handlers_running == service.stats().jobs_queued == 0)
            assert len(stand.begun) == len(stand.told) == slots
            assert max(stand.told.values()) - asked < SOON
        found = await operator.steps(instance.id)
        ends = [step.status for step in found if step.name not in ("split", "join")]
        assert ends == ["skipped"] * width


async def test_losers_of_a_race_are_told(engine: Engine, other: Engine) -> None:
    stand, go = Stand(), asyncio.Event()

    async def fast(ctx: Context, data: Any) -> str:
        await go.wait()
        return "first"

    engine.register("fast", fast)
    other.register("stand", stand)
    race = Flow("race").fork("split", Branch().step("fast", "fast"), Branch().step("s1", "stand")).join("won", "any")
    await engine.publish(race.build())
    async with engine.worker(scan=SLOW, lease=3 * SLOW), other.worker(scan=SLOW, lease=3 * SLOW):
        instance = await engine.start("race")
        await until(lambda: stand.begun)
        go.set()
        assert (await engine.wait(instance.id, timeout=10)).status == "completed"
        await until(lambda: stand.told, SOON)
        await until(lambda: other.stats().handlers_running == 0)


async def test_a_failure_lets_running_siblings_finish_and_begins_no_others(engine: Engine) -> None:
    begun, go = list[str](), asyncio.Event()

    async def stand(ctx: Context, data: Any) -> str:
        begun.append(ctx.step)
        await go.wait()
        assert not ctx.cancelled
        if ctx.step == "s0":
            raise ValueError("no")
        await until(lambda: engine.stats().jobs_queued == 0)
        return "finished"

    engine.register("stand", stand)
    await engine.publish(fork("failing", 10))
    async with engine.worker(concurrency=2):
        instance = await engine.start("failing")
        await until(lambda: len(begun) == 2 and engine.stats().jobs_queued == 8)
        go.set()
        assert (await engine.wait(instance.id, timeout=10)).status == "failed"
    assert sorted(begun) == ["s0", "s1", "s2"]  # the last one between the failure and its commit
    found = await statuses(engine, instance.id)
    assert {found[f"s{n}"] for n in range(3, 10)} == {"skipped"}


def decision(**given: Any) -> Decision:
    return Decision(**{field: [] for field in Decision.__struct_fields__} | given)


def test_a_path_that_is_used_again_in_the_same_commit_is_not_stopped() -> None:
    """A cancel and the result it waits for may come together: what is dispatched there next is the compensation."""
    rows = Rows(["stop_work"], 0, None, lambda _: False)
    before = Instance(bytes(15) + b"\7", "acme", b"", "saga", 1, 1, InstanceStatus.RUNNING, EMPTY, b"{}")
    cancelled = decision(stops=("0/1.0", "0/1.1"), halts=("0/1.2",))
    stop_work(rows, Entry(before, [cancelled, decision(released=[Release("0/1.0", 3)])]))
    assert [row[1:] for row in rows.tables["stop_work"]] == [(7, "0/1.2", NOT_TO_START), (7, "0/1.1", TOLD_TO_STOP)]


async def test_a_lost_hint_only_costs_time(engine: Engine, evidence: Evidence) -> None:
    """Nobody says anything; the look nobody asked for finds it."""
    stand = Stand()
    engine.register("stand", stand)
    await engine.publish(Flow("standing").step("s0", "stand").build())
    async with engine.worker(scan=0.1):
        await engine.start("standing")
        await until(lambda: stand.begun)
        evidence.connection.execute("update holdfast.work set target = 'told to stop'")
        await until(lambda: stand.told)


async def test_handlers_are_told_when_the_whole_lease_is_gone(engine: Engine, evidence: Evidence) -> None:
    stand = Stand()
    engine.register("stand", stand)
    await engine.publish(Flow("standing").step("s0", "stand", retry=Retry(attempts=3)).build())
    async with engine.worker(lease=1.0, grace=0.05):
        await engine.start("standing")
        await until(lambda: stand.begun)
        evidence.connection.execute("update holdfast.workers set lease_until = clock_timestamp()")
        await until(lambda: stand.told)
        await until(lambda: len(stand.begun) == 2)  # by the new lease


async def test_a_worker_that_dies_after_the_telling_is_not_replaced(engine: Engine, evidence: Evidence) -> None:
    """The step is not called again, however many calls it has left."""
    recorder = Recorder(engine.dsn)
    await engine.publish(Flow("dying").step("s0", "never", retry=Retry(attempts=9)).build())
    instance = await engine.start("dying")
    with worker_process(engine.dsn, ["never"], lease=1.0) as victim:
        await until(lambda: evidence.calls() == 1)
        victim.send_signal(signal.SIGSTOP)
        await engine.cancel(instance.id)
        victim.kill()
        victim.wait()
    engine.register("never", recorder.never)
    async with engine.worker(lease=1.0):
        assert (await engine.wait(instance.id, timeout=30)).status == "cancelled"
    await recorder.close()
    [step] = [s for s in await engine.steps(instance.id) if s.name == "s0"]
    assert (step.status, step.attempts, evidence.calls()) == ("skipped", 1, 1)


async def test_a_thousand_running_branches_are_told_within_a_second(engine: Engine, other: Engine) -> None:
    width = 1_000
    stand = Stand()
    other.register("stand", stand)
    await engine.publish(fork("wide", width))
    async with other.worker(scan=SLOW, lease=3 * SLOW):
        instance = await engine.start("wide")
        await until(lambda: len(stand.begun) == width, 60)
        asked = time.monotonic()  # the commit is somewhere within the call
        await engine.cancel(instance.id)
        await until(lambda: len(stand.told) == width)
        assert max(stand.told.values()) - asked < SOON
        assert (await engine.wait(instance.id, timeout=60)).status == "cancelled"
    assert len(stand.begun) == width


@pytest.mark.parametrize("limit", ["step", "instance"])
async def test_what_follows_a_missed_deadline_is_not_stopped_with_the_late_one(
    limit: str, engine: Engine, other: Engine, evidence: Evidence
) -> None:
    """The late step was claimed from the queue, so its fence is one the instance does not know of."""
    stand = Stand()
    engine.register("stand", stand)
    engine.register("after", lambda ctx, data: "after")
    late = {"id": "late", "kind": "task", "handler": "stand"} | ({"deadline": 3600.0} if limit == "step" else {})
    policy = {"timeout": 3600.0, "on_timeout": "after"} if limit == "instance" else {}
    flow: dict[str, Any] = {
        "name": "late",
        "entry": "late",
        "nodes": [late, {"id": "after", "kind": "task", "handler": "after"}, {"id": "end", "kind": "end"}],
        "edges": [
            {"id": "done", "source": "late", "target": "end"},
            {"id": "timeout", "source": "late", "target": "after", "on": "timeout"},
            {"id": "over", "source": "after", "target": "end"},
        ],
        "policy": policy,
    }
    await engine.publish(flow)
    instance = await engine.start("late", key="late")
    async with other.worker():  # it begins the instance and has no handler for its step
        await until(lambda: evidence.ask("select true from holdfast.work"))
    async with engine.worker():
        await until(lambda: stand.begun)
        await advance(engine, hours=2)
        ended = await engine.wait(instance.id, timeout=30)
        await until(lambda: stand.told)
    assert ended.status == "completed"
    steps = {step.name: (step.status, step.attempts) for step in await engine.steps(instance.id)}
    assert steps["after"] == ("completed", 1)
