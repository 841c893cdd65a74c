"""Statistics are exact: what was committed is counted once, whoever committed it, and folding changes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, Retention, Retry, Undo
from holdfast.errors import Refused
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.runtime.reads.statistics import FlowStatistics, StepStatistics, durations_of
from holdfast.store.reads.statistics import Sum, bar_of, edge_of
from holdfast.testing import advance
from running import Evidence, counting, journey

pytestmark = pytest.mark.anyio

FAR = timedelta(days=400)
WAITS = {
    "name": "waits",
    "entry": "one",
    "nodes": [
        {"id": "one", "kind": "task", "handler": "step"},
        {"id": "wait", "kind": "wait_event", "wait": {"event": "go"}},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "one>wait", "source": "one", "target": "wait"},
        {"id": "wait>end", "source": "wait", "target": "end"},
    ],
}


async def only(engine: Engine, flow: str, **period: Any) -> FlowStatistics:
    [found] = await engine.statistics(flow, **period)
    return found


def step(found: FlowStatistics, name: str) -> StepStatistics:
    answer = found.step(name)
    assert answer is not None
    return answer


async def test_flows_and_steps_are_counted(engine: Engine) -> None:
    counting(engine)
    await engine.publish(journey())
    async with engine.worker():
        started = await engine.start_many("journey", [{"n": n} for n in range(20)])
        await asyncio.gather(*(engine.wait(instance.id) for instance in started))
    found = await only(engine, "journey")
    assert (found.flow, found.version, found.started, found.completed) == ("journey", 1, 20, 20)
    assert (found.failed, found.cancelled, found.aborted, found.failure_rate) == (0, 0, 0, 0.0)
    assert found.durations.count == 20
    assert [s.name for s in found.steps] == ["one", "three", "two"]
    for one in found.steps:
        assert (one.calls, one.completed, one.failed, one.retried, one.failure_rate) == (20, 20, 0, 0, 0.0)
        assert one.durations.count == 20


async def test_failures_and_retries_are_counted(engine: Engine) -> None:
    @engine.handler("moody")
    async def moody(ctx: Context, data: Any) -> Any:
        if data["fails"] == "always" or (data["fails"] == "once" and ctx.attempt == 1):
            raise RuntimeError("not today")
        return data

    await engine.publish(Flow("moods").step("moody", "moody", retry=Retry(attempts=3)).build())
    for fails in ("never", "once", "always", "never"):
        await engine.start("moods", {"fails": fails})
    await engine.drain()
    found = await only(engine, "moods")
    assert (found.started, found.completed, found.failed, found.failure_rate) == (4, 3, 1, 0.25)
    one = step(found, "moody")
    assert (one.completed, one.failed, one.retried, one.calls) == (3, 1, 3, 7)
    assert one.failure_rate == 0.25


async def test_counts_agree_with_the_rows(engine: Engine, evidence: Evidence) -> None:
    @engine.handler("odd")
    async def odd(_: Context, data: Any) -> Any:
        if data["n"] % 3 == 0:
            raise DoNotRetry("never")
        return data

    flow = Flow("mixed").step("first", "odd").step("second", "odd").build()
    await engine.publish(flow)
    async with engine.worker():
        await engine.start_many("mixed", [{"n": n} for n in range(30)])
    await engine.drain()
    found = await only(engine, "mixed")
    ends = dict(evidence.rows("select status, count(*) from holdfast.instances group by 1"))
    assert {"completed": found.completed, "failed": found.failed} == ends == {"completed": 20, "failed": 10}
    rows = evidence.rows(
        "select node, count(*), sum(extract(epoch from closed_at - created_at)), max(closed_at - created_at)"
        " from holdfast.steps where behaviour = 'work' and kind = 'forward' group by 1 order by 1"
    )
    for (name, count, total, most), one in zip(rows, found.steps, strict=True):
        assert (one.name, one.durations.count) == (name, count)
        assert one.durations.total == pytest.approx(float(total))
        assert one.max == pytest.approx(most.total_seconds())


async def test_durations_span_what_the_database_says(engine: Engine, evidence: Evidence) -> None:
    counting(engine)
    await engine.publish(WAITS)
    instance = await engine.start("waits", {})
    await engine.drain()
    await advance(engine, minutes=10)
    await engine.signal(instance.id, "go")
    await engine.drain()
    found = await only(engine, "waits")
    whole = evidence.ask("select extract(epoch from completed_at - created_at)::float8 from holdfast.instances")
    assert whole >= 600
    assert found.durations.total == pytest.approx(whole, abs=1e-6)
    waited = step(found, "wait").durations
    assert waited.count == 1
    assert waited.total == waited.mean == waited.min == waited.p50 == waited.p99 == waited.max >= 600


async def test_folding_changes_nothing(engine: Engine, evidence: Evidence) -> None:
    counting(engine)
    await engine.publish(journey())
    seen: list[FlowStatistics] = []
    for _ in range(3):
        for _ in range(3):
            await engine.start("journey", {})
        await engine.drain()
        before = await only(engine, "journey")
        assert evidence.ask("select count(*) from holdfast.statistics_deltas") > 0
        await engine.maintain()
        assert evidence.ask("select count(*) from holdfast.statistics_deltas") == 0
        assert await only(engine, "journey") == before
        seen.append(before)
        await advance(engine, hours=5)
    assert [found.completed for found in seen] == [3, 6, 9]
    assert evidence.ask("select count(distinct hour) from holdfast.statistics") == 4  # three hours, and all times


async def test_a_period_is_made_of_hours(engine: Engine, evidence: Evidence) -> None:
    counting(engine)
    await engine.publish(journey())

    async def finish_one() -> datetime:
        await engine.start("journey", {})
        await engine.drain()
        return evidence.ask("select max(completed_at) from holdfast.instances")

    first = await finish_one()
    await advance(engine, hours=3)
    second = await finish_one()
    await engine.maintain()
    await advance(engine, hours=3)
    third = await finish_one()

    async def completed(**period: Any) -> int:
        return sum(found.completed for found in await engine.statistics("journey", **period))

    assert await completed() == 3
    assert await completed(since=second) == 2
    assert await completed(until=second + timedelta(hours=1)) == 2
    assert await completed(since=second, until=third) == 2  # the hour that a moment falls into counts whole
    assert await completed(since=second, until=third.replace(minute=0, second=0, microsecond=0)) == 1
    assert await completed(since=second + timedelta(hours=1)) == 1
    assert await completed(since=first - FAR, until=first - timedelta(hours=1)) == 0
    assert (
        await engine.statistics(
            "journey", since=datetime.min.replace(tzinfo=UTC), until=datetime.max.replace(tzinfo=UTC)
        )
        != []
    )
    with pytest.raises(Refused) as refused:
        await engine.statistics(since=third, until=first)
    assert refused.value.code == "PERIOD_INVALID"


async def test_flows_versions_and_organisations_are_apart(engine: Engine) -> None:
    counting(engine)
    await engine.publish(journey())
    await engine.publish(Flow("journey", version=2).step("one", "step").build())
    await engine.publish(Flow("other").step("one", "step").build())
    for flow, version in (("journey", 1), ("journey", 2), ("journey", 2), ("other", None)):
        await engine.start(flow, {}, version=version)
    await engine.drain()
    async with Engine(engine.dsn, org="another") as another:
        counting(another)
        await another.publish(journey())
        await another.start("journey", {})
        await another.drain()
        for _ in range(2):
            everything = [(f.flow, f.version, f.completed) for f in await engine.statistics()]
            assert everything == [("journey", 1, 1), ("journey", 2, 2), ("other", 1, 1)]
            assert [(f.version, f.completed) for f in await engine.statistics("journey", version=2)] == [(2, 2)]
            assert [(f.flow, f.completed) for f in await another.statistics()] == [("journey", 1)]
            assert await engine.statistics("nobody") == []
            await engine.maintain()


async def test_a_refused_commit_counts_nothing(engine: Engine, evidence: Evidence) -> None:
    """Two engines, one database: results that lost their lease and starts that were there already."""
    counting(engine)
    await engine.publish(journey())
    for _ in range(5):
        await engine.start("journey", {}, key="the same")
    await engine.drain()
    found = await only(engine, "journey")
    assert (found.started, found.completed) == (1, 1)
    assert evidence.ask("select count(*) from holdfast.instances") == 1


async def test_cancelled_instances_are_counted(engine: Engine) -> None:
    counting(engine)
    await engine.publish(WAITS)
    for verb in (engine.cancel, engine.abort):
        instance = await engine.start("waits", {})
        await engine.drain()
        await verb(instance.id, by="ops", reason="no more")
        await engine.drain()
    found = await only(engine, "waits")
    assert (found.started, found.completed, found.cancelled, found.aborted) == (2, 0, 1, 1)
    assert step(found, "one").completed == 2


async def test_compensations_are_counted(engine: Engine) -> None:
    @engine.handler("works")
    async def works(_: Context, data: Any) -> Any:
        return data

    @engine.handler("breaks")
    async def breaks(_: Context, data: Any) -> Any:
        raise DoNotRetry("never")

    flow = (
        Flow("saga")
        .step("reserve", "works", undo=Undo("works", name="release"))
        .step("charge", "works", undo=Undo("breaks", name="refund", retry=Retry(attempts=2)))
        .step("ship", "breaks")
        .build()
    )  # fmt: skip
    await engine.publish(flow)
    for _ in range(2):
        await engine.start("saga", {})
    await engine.drain()
    found = await only(engine, "saga")
    assert (found.failed, found.rolled_back, found.failure_rate) == (2, 2, 1.0)
    assert step(found, "reserve").compensated == 2
    assert step(found, "release").completed == 2
    assert step(found, "charge").compensated == 0
    assert step(found, "refund").failed == 2
    assert (step(found, "ship").failed, step(found, "ship").failure_rate) == (2, 1.0)


async def test_hours_are_kept_as_long_as_retention_says(engine: Engine, evidence: Evidence) -> None:
    counting(engine)
    await engine.publish(journey())
    await engine.start("journey", {})
    await engine.drain()
    await advance(engine, days=8)
    await engine.start("journey", {})
    await engine.drain()
    await engine.maintain()
    done = {u.task: u for u in await engine.maintain(Retention(statistics=timedelta(days=7)))}
    assert done["old_statistics"].error is None
    assert done["old_statistics"].result["removed"] > 0
    assert evidence.ask("select count(distinct hour) from holdfast.statistics") == 2
    assert (await only(engine, "journey")).completed == 2


def test_the_same_without_a_loop(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        engine.register("step", lambda _, data: data)
        engine.publish(journey())
        engine.start("journey", {})
        engine.drain()
        [found] = engine.statistics("journey")
        assert found.completed == 1


def test_bars_widen_with_the_duration() -> None:
    for duration in [*range(5000), *(2**n + m for n in range(12, 50) for m in (-1, 0, 1))]:
        bar = bar_of(duration)
        assert edge_of(bar) <= duration < edge_of(bar + 1)
        assert edge_of(bar + 1) - edge_of(bar) <= max(1, duration / 4)


def test_percentiles_are_near_the_truth() -> None:
    durations = sorted(round(1000 * 1.01**n) for n in range(1000))
    sums: dict[int, list[int]] = {}
    for duration in durations:
        sums.setdefault(bar_of(duration), []).append(duration)
    found = durations_of(
        Sum("f", 1, "n", "completed", bar, len(part), sum(part), min(part), max(part)) for bar, part in sums.items()
    )
    assert found.count == 1000
    for share, answer in ((500, found.p50), (950, found.p95), (990, found.p99)):
        assert answer == pytest.approx(durations[share] / 1_000_000, rel=0.05)
    assert (found.min, found.max) == (durations[0] / 1_000_000, durations[-1] / 1_000_000)
