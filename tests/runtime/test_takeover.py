"""Who goes on with a rollback that somebody else has planned reads what is left of it from the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from secrets import token_hex
from typing import Any

import pytest

from holdfast import Branch, Context, DoNotRetry, Engine, Flow, Undo
from holdfast.core.model.state import Instance
from holdfast.core.rollback.pending import LARGEST
from holdfast.store.commit import locks
from holdfast.store.commit.locks import undos_query
from holdfast.store.pg.statements import Query
from running import Evidence, until

pytestmark = pytest.mark.anyio

LEFT = "select (state -> 'rollback' ->> 'plan')::int from holdfast.instances"


async def do(ctx: Context, data: Any) -> None:
    pass


async def refuse(ctx: Context, data: Any) -> Any:
    raise DoNotRetry("as it should be")


async def test_a_rollback_that_alternates_between_processes(holdfast_dsn: str, evidence: Evidence) -> None:
    """Neither has the other's compensations: every stride is taken over, and the snapshot only counts what is left."""
    told: list[tuple[str, str, int]] = []

    def undo(place: str) -> Any:
        async def handler(ctx: Context, data: Any) -> None:
            [(left,)] = evidence.rows(LEFT)
            told.append((place, ctx.step, left))

        return handler

    branches = [
        Branch().step("b", "do", undo=Undo("here", name="un-b")).step("c", "do", undo=Undo("there", name="un-c")),
        Branch().step("d", "do", undo=Undo("here", name="un-d")),
    ]
    flow = (
        Flow("order")
        .step("a", "do", undo=Undo("there", name="un-a"))
        .fork("fork", *branches)
        .join("join", "all")
        .step("last", "refuse", undo=Undo("here", name="un-last"))
        .build()
    )
    async with Engine(holdfast_dsn) as here, Engine(holdfast_dsn) as there:
        for engine, place in ((here, "here"), (there, "there")):
            engine.register(place, undo(place))
        here.register("do", do)
        here.register("refuse", refuse)
        await here.publish(flow)
        async with here.worker(), there.worker():
            ended = await here.wait((await here.start("order", {})).id, timeout=30)
        steps = {step.name: step.status for step in await here.steps(ended.id)}
    assert told == [
        ("here", "un-last", 5),
        ("there", "un-c", 4),
        ("here", "un-b", 3),
        ("here", "un-d", 2),
        ("there", "un-a", 1),
    ]
    assert (ended.status, {steps[name] for name in ("a", "b", "c", "d", "last")}) == ("failed", {"rolled_back"})


async def test_whoever_takes_a_rollback_over_reads_it_once(
    holdfast_dsn: str, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that planned it is gone; another one has all that is left to do, and goes on from memory."""
    flow = Flow("order")
    for number in range(12):
        flow = flow.step(f"s{number}", "do", undo=Undo("undo", name=f"un{number}"))
    read = list[int]()

    def counted(instances: Iterable[Instance]) -> Query:
        found = list(instances)
        read.append(len(found))
        return undos_query(found)

    async with Engine(holdfast_dsn) as first:
        first.register("do", do)
        first.register("refuse", refuse)
        await first.publish(flow.step("last", "refuse").build())
        async with first.worker():
            started = await first.start("order", {"n": 1})
            await until(lambda: evidence.rows("select status::text from holdfast.instances") == [("rolling_back",)])
    monkeypatch.setattr(locks, "undos_query", counted)
    given: list[Any] = []

    async def undo(ctx: Context, data: Any) -> None:
        given.append((ctx.step, data))

    async with Engine(holdfast_dsn) as second:
        second.register("undo", undo)
        async with second.worker():
            ended = await second.wait(started.id, timeout=30)
    assert ended.status == "failed"
    assert [step for step, _ in given] == [f"un{number}" for number in reversed(range(12))]
    assert given[-1] == ("un0", {"input": {"n": 1}, "output": None})
    assert read == [1]


async def test_what_is_too_large_for_memory_comes_with_its_claim(holdfast_dsn: str, evidence: Evidence) -> None:
    """Also for whoever has taken the rollback over: each of them goes through the queue."""
    given: list[Any] = []

    async def much(ctx: Context, data: Any) -> Any:
        return {"noise": token_hex(LARGEST)}

    async def undo(ctx: Context, data: Any) -> None:
        given.append((ctx.step, len(data["output"]["noise"])))

    flow = Flow("order")
    for number in range(3):
        flow = flow.step(f"s{number}", "much", undo=Undo("undo", name=f"un{number}"))
    async with Engine(holdfast_dsn) as first:
        first.register("much", much)
        first.register("refuse", refuse)
        await first.publish(flow.step("last", "refuse").build())
        async with first.worker():
            started = await first.start("order", {})
            await until(lambda: evidence.rows("select status::text from holdfast.instances") == [("rolling_back",)])
    async with Engine(holdfast_dsn) as second:
        second.register("undo", undo)
        async with second.worker():
            assert (await second.wait(started.id, timeout=30)).status == "failed"
    assert given == [(f"un{number}", 2 * LARGEST) for number in (2, 1, 0)]


async def test_a_snapshot_that_counts_others_than_there_are_is_found_and_made_anew(
    engine: Engine, evidence: Evidence
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    @engine.handler("hold")
    async def hold(ctx: Context, data: Any) -> None:
        reached.set()
        await go_on.wait()

    engine.register("do", do)
    engine.register("refuse", refuse)
    await engine.publish(
        Flow("order")
        .step("a", "do", undo=Undo("do", name="un-a"))
        .step("b", "refuse", undo=Undo("hold", name="un-b"))
        .build()
    )
    async with engine.worker():
        started = await engine.start("order", {})
        await asyncio.wait_for(reached.wait(), 30)
        evidence.connection.execute(
            "update holdfast.instances set state = jsonb_set(state, '{rollback,plan}', '7'), version = version + 1"
        )
        [difference] = (await engine.rebuild(started.id, dry_run=True)).differences
        assert (difference.what, difference.stored["left"], difference.rebuilt["left"]) == ("rollback", 7, 2)
        assert (await engine.rebuild(started.id, by="ann")).written
        assert evidence.rows(LEFT) == [(2,)]
        go_on.set()
        ended = await engine.wait(started.id, timeout=30)
    assert {step.name: step.status for step in await engine.steps(ended.id)} == {
        "a": "rolled_back",
        "b": "rolled_back",
        "un-b": "completed",
        "un-a": "completed",
    }
