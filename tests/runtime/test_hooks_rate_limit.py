"""Rate limits: shared by all workers, kept by the database's clock, and never at the cost of a call or a slot."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast import Context, Engine, Flow, Middleware, RateLimit, Retry
from holdfast.errors import HoldfastError
from holdfast.runtime.worker import parking
from holdfast.store.pg.session import Disconnected, Session
from holdfast.store.queue.rate_limits import Bucket, take_turns
from holdfast.testing import advance
from running import Evidence, Recorder, until, worker_process

pytestmark = pytest.mark.anyio

AHEAD = 30.0


async def echo(ctx: Context, data: Any) -> Any:
    return data


LIMITED = Flow("order").step("charge", echo).build()


async def attempts(engine: Engine, instance: str, step: str = "charge") -> int:
    [found] = [s for s in await engine.steps(instance) if s.name == step]
    return found.attempts


# The bucket


async def test_a_bucket_gives_its_burst_and_then_its_rate(holdfast_dsn: str) -> None:
    session = await Session.open(holdfast_dsn)
    bucket = Bucket("org", "order:charge", rate=2.0, burst=3.0)

    async def take(count: int) -> tuple[int, float]:
        turns = (await take_turns(session, {bucket: count}, AHEAD))["org", "order:charge"]
        return turns.granted, round(turns.last, 1)

    assert await take(5) == (3, 1.0)  # the two others: after half a second, and after a second
    assert await take(1) == (0, 1.5)  # they are waiting in line
    await advance(holdfast_dsn, seconds=1)
    assert (await take(5))[0] == 2
    await advance(holdfast_dsn, seconds=100)
    assert (await take(9))[0] == 3  # it never holds more than the burst
    await session.close()


async def test_nothing_is_planned_too_far_ahead(holdfast_dsn: str) -> None:
    session = await Session.open(holdfast_dsn)
    bucket = Bucket("org", "a:b", rate=1.0, burst=1.0)
    await take_turns(session, {bucket: 1000}, AHEAD)
    turns = (await take_turns(session, {bucket: 1}, AHEAD))["org", "a:b"]
    assert turns.last == pytest.approx(AHEAD + 1, abs=0.1)
    await session.close()


async def test_many_buckets_are_asked_at_once_and_each_organisation_has_its_own(holdfast_dsn: str) -> None:
    session = await Session.open(holdfast_dsn)
    wanted = {Bucket(org, key, 1.0, 2.0): 3 for org in ("a", "b") for key in ("x:y", "x:z")}
    turns = await take_turns(session, wanted, AHEAD)
    assert {(bucket.org, bucket.key) for bucket in wanted} == set(turns)
    assert {turn.granted for turn in turns.values()} == {2}
    await session.close()


async def test_takers_at_the_same_time_never_get_more_than_there_is(holdfast_dsn: str) -> None:
    sessions = [await Session.open(holdfast_dsn) for _ in range(6)]
    buckets = [Bucket("org", key, 0.001, 40.0) for key in ("a:a", "b:b", "c:c")]

    async def greedy(session: Session) -> list[int]:
        rounds = [await take_turns(session, dict.fromkeys(buckets, 3), AHEAD) for _ in range(10)]
        return [sum(turns["org", bucket.key].granted for turns in rounds) for bucket in buckets]

    granted = await asyncio.gather(*map(greedy, sessions))
    assert [sum(column) for column in zip(*granted, strict=True)] == [40, 40, 40]
    for session in sessions:
        await session.close()


# Steps under a limit


async def test_a_step_without_a_turn_waits_in_the_queue_and_burns_no_call(
    engine: Engine, evidence: Evidence, holdfast_dsn: str
) -> None:
    engine.use(RateLimit("order:charge", rate=0.1, burst=1))
    await engine.publish(LIMITED)
    orders = await engine.start_many("order", [{"n": n} for n in range(3)])
    await engine.drain(timeout=30)
    assert sorted([await attempts(engine, o.id) for o in orders]) == [0, 0, 1]
    assert evidence.rows("select worker, queue from holdfast.work") == [(None, "")] * 2
    for waiting in (1, 0):
        await advance(holdfast_dsn, seconds=11)
        await engine.drain(timeout=30)
        assert evidence.ask("select count(*) from holdfast.work") == waiting
    assert {(await engine.get(o.id)).status for o in orders} == {"completed"}
    assert [await attempts(engine, o.id) for o in orders] == [1, 1, 1]


async def test_retries_need_a_turn_each(engine: Engine, holdfast_dsn: str) -> None:
    engine.use(RateLimit("order:charge", rate=0.1, burst=1))

    @engine.handler("fail")
    async def fail(ctx: Context, data: Any) -> None:
        raise ValueError("again")

    await engine.publish(Flow("order").step("charge", "fail", retry=Retry(attempts=2)).build())
    order = await engine.start("order")
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).status == "running"
    assert await attempts(engine, order.id) == 1
    await advance(holdfast_dsn, seconds=11)
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).status == "failed"
    assert await attempts(engine, order.id) == 2


async def test_other_steps_and_flows_are_not_limited(engine: Engine) -> None:
    engine.use(RateLimit("order:charge", rate=0.001, burst=1))
    engine.register("echo", echo)
    await engine.publish(Flow("order").step("reserve", "echo").step("charge", "echo").build())
    await engine.publish(Flow("other").step("charge", "echo").build())
    orders = await engine.start_many("order", [{}] * 20)
    others = await engine.start_many("other", [{}] * 20)
    async with engine.worker(concurrency=2, capacity=2):
        for other in others:
            await engine.wait(other.id, timeout=30)
        await until(lambda: _all_at(engine, [o.id for o in orders]))
    charged = [s.attempts for o in orders for s in await engine.steps(o.id) if s.name == "charge"]
    assert sorted(charged) == [0] * 19 + [1]  # also where the step before it handed over in the same worker
    assert {(await engine.get(o.id)).status for o in others} == {"completed"}


async def _all_at(engine: Engine, orders: list[str]) -> bool:
    """All have done their first step, though only one gets beyond the second."""
    steps = [await engine.steps(order) for order in orders]
    return all(any(s.name == "reserve" and s.status == "completed" for s in found) for found in steps)


@pytest.mark.parametrize(("flow", "step"), [("orders:eu", "charge"), ("orders", "eu:charge"), ("a::b", ":c:")])
async def test_names_with_colons_are_limited_too(engine: Engine, flow: str, step: str) -> None:
    engine.use(RateLimit(f"{flow}:{step}", rate=0.001, burst=1))
    await engine.publish(Flow(flow).step(step, echo).build())
    orders = await engine.start_many(flow, [{}] * 3)
    await engine.drain(timeout=30)
    assert sorted([await attempts(engine, o.id, step) for o in orders]) == [0, 0, 1]


async def test_what_waits_for_its_turn_is_cancelled_at_once(engine: Engine, evidence: Evidence) -> None:
    engine.use(RateLimit("order:charge", rate=0.001, burst=1))
    await engine.publish(LIMITED)
    orders = await engine.start_many("order", [{}] * 4)
    await engine.drain(timeout=30)
    for order in orders:
        if (await engine.get(order.id)).status != "completed":
            await engine.cancel(order.id, by="ops", reason="enough")
    await engine.drain(timeout=30)
    statuses = sorted([(await engine.get(o.id)).status for o in orders])
    assert statuses == ["cancelled"] * 3 + ["completed"]
    assert evidence.ask("select count(*) from holdfast.work") == 0


async def test_whoever_waits_for_an_instance_hears_of_its_end_after_its_turn(engine: Engine) -> None:
    engine.use(RateLimit("order:charge", rate=20, burst=1))
    await engine.publish(LIMITED)
    async with engine.worker():
        orders = [await engine.start("order", {"n": n}) for n in range(8)]
        done = await asyncio.gather(*(engine.wait(o.id, timeout=30) for o in orders))
    assert {instance.status for instance in done} == {"completed"}


async def test_calls_inside_the_transaction_are_limited_too(engine: Engine, holdfast_dsn: str) -> None:
    engine.use(RateLimit("calls:two", rate=0.1, burst=1))
    ran: list[str] = []

    @engine.call("write")
    async def write(ctx: Context, data: Any) -> None:
        ran.append(ctx.step)

    nodes = [{"id": n, "kind": "action", "handler": "write"} for n in ("one", "two")] + [{"id": "end", "kind": "end"}]
    edges = [{"id": "a", "source": "one", "target": "two"}, {"id": "b", "source": "two", "target": "end"}]
    await engine.publish({"name": "calls", "entry": "one", "nodes": nodes, "edges": edges})
    await engine.start_many("calls", [{}] * 2)
    await engine.drain(timeout=30)
    assert sorted(ran) == ["one", "one", "two"]
    await advance(holdfast_dsn, seconds=11)
    await engine.drain(timeout=30)
    assert sorted(ran) == ["one", "one", "two", "two"]


async def test_a_gate_of_ones_own_postpones_in_the_same_way(engine: Engine, holdfast_dsn: str) -> None:
    told: list[float] = []

    class Closed(Middleware):
        is_open = False

        async def admit(self, ctx: Context) -> float | None:
            return None if self.is_open else 60.0

        async def step_postponed(self, ctx: Context, seconds: float) -> None:
            told.append(seconds)

    shop = Closed()
    engine.use(shop)
    await engine.publish(LIMITED)
    order = await engine.start("order")
    await engine.drain(timeout=30)
    assert (told, await attempts(engine, order.id)) == ([60.0], 0)
    shop.is_open = True
    await advance(holdfast_dsn, seconds=61)
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).status == "completed"
    assert await attempts(engine, order.id) == 1


async def test_a_gate_that_raises_fails_the_call(engine: Engine) -> None:
    class Broken(Middleware):
        async def admit(self, ctx: Context) -> float | None:
            raise ValueError("no gate")

    engine.use(Broken())
    await engine.publish(LIMITED)
    order = await engine.start("order")
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).error["message"] == "no gate"


async def test_work_that_could_not_be_parked_goes_back_to_the_queue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    park, failed = parking.park_work, list[int]()

    async def fails_once(session: Session, claims: Any, worker: bytes) -> None:
        if not failed:
            failed.append(len(claims))
            raise Disconnected("lost")
        await park(session, claims, worker)

    monkeypatch.setattr(parking, "park_work", fails_once)
    engine.use(RateLimit("order:charge", rate=20, burst=1))
    await engine.publish(LIMITED)
    async with engine.worker():
        orders = await engine.start_many("order", [{}] * 8)
        for order in orders:
            await engine.wait(order.id, timeout=30)
    assert failed
    assert [await attempts(engine, o.id) for o in orders] == [1] * 8


async def test_a_worker_that_leaves_leaves_parked_work_to_others(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn) as first:
        first.use(RateLimit("order:charge", rate=0.1, burst=1))
        await first.publish(LIMITED)
        orders = await first.start_many("order", [{}] * 2)
        await first.drain(timeout=30)
    await advance(holdfast_dsn, seconds=11)
    async with Engine(holdfast_dsn) as second:
        await second.publish(LIMITED)
        await second.drain(timeout=30)
        assert [await attempts(second, o.id) for o in orders] == [1, 1]


# Several processes


async def test_workers_together_keep_the_rate_and_reach_it(
    engine: Engine, evidence: Evidence, holdfast_dsn: str
) -> None:
    """Three workers, two of them processes of their own: never more than the bucket allows, and not much less."""
    rate, burst, count = 60.0, 15.0, 150
    limit = {"key": "order:charge", "rate": rate, "burst": burst}
    await engine.publish(Flow("order").step("charge", "note").build())
    recorder = Recorder(holdfast_dsn)
    recorder.register(engine, ["note"])
    engine.use(RateLimit(**limit))  # type: ignore[arg-type]
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(worker_process(holdfast_dsn, ["note"], [limit]))
        async with engine.worker():
            began = time.monotonic()
            await engine.start_many("order", [{"n": n} for n in range(count)])
            await until(lambda: evidence.calls() == count, timeout=60)
            took = time.monotonic() - began
    await recorder.close()
    moments = [row[0] for row in evidence.rows("select extract(epoch from at)::float8 from public.calls order by at")]
    late = 0.15  # a call begins, and is written down, a moment after its turn was given
    for first in range(count):
        for last in range(first, count):
            assert last - first + 1 <= burst + rate * (moments[last] - moments[first] + late)
    least = (count - burst) / rate
    assert least - late <= took <= 1.5 * least + 1.0
    assert evidence.ask("select count(*) from public.calls where attempt > 1") == 0


# What is refused


async def test_a_wait_has_an_end(engine: Engine, evidence: Evidence) -> None:
    class Never(Middleware):
        async def admit(self, ctx: Context) -> float | None:
            return float("inf")

    engine.use(Never())
    await engine.publish(LIMITED)
    await engine.start("order")
    await engine.drain(timeout=30)
    assert evidence.ask("select count(*) from holdfast.work where queue = '' and isfinite(deadline_at)") == 1


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("order", {"rate": 1}),
        (":charge", {"rate": 1}),
        ("order:", {"rate": 1}),
        (":", {"rate": 1}),
        ("", {"rate": 1}),
        ("order:charge", {"rate": 0}),
        (5, {"rate": 1}),
        (None, {"rate": 1}),
        ("order:charge", {"rate": -1}),
        ("order:charge", {"rate": float("nan")}),
        ("order:charge", {"rate": float("inf")}),
        ("order:charge", {"rate": "5"}),
        ("order:charge", {"rate": True}),
        ("order:charge", {"rate": 1, "burst": 0.5}),
        ("order:charge", {"rate": 1, "burst": float("inf")}),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(key: Any, options: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError) as refused:
        RateLimit(key, **options)
    assert refused.value.code == "RATE_LIMIT_INVALID"


async def test_a_step_has_one_limit(engine: Engine) -> None:
    engine.use(RateLimit("order:charge", rate=1))
    with pytest.raises(HoldfastError) as refused:
        engine.use(RateLimit("order:charge", rate=2))
    assert refused.value.code == "RATE_LIMIT_INVALID"
