"""A rollback that is planned from memory is planned from exactly what the tables hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Branch, DoNotRetry, Engine, Flow, Retry, Undo
from holdfast.core.model.signals import PastStep
from holdfast.runtime.commit import history_cache
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.committer import Committer
from holdfast.store.commit.history import read_past
from holdfast.store.pg.session import Session

pytestmark = pytest.mark.anyio


class Witness:
    """Both histories of every rollback that begins: what is remembered of it, and what is stored.

    A commit that looks for signals as well locks first and reads every history; it is not seen here.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[list[PastStep] | None, list[PastStep]]] = []

    @property
    def remembered(self) -> list[list[PastStep] | None]:
        return [remembered for remembered, _ in self.seen]

    @property
    def were_read(self) -> list[bool]:
        return [past is None for past in self.remembered]


@pytest.fixture
def witness(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    witness = Witness()
    write = Committer._write_unlocked

    async def observed(self: Committer, session: Session, plan: Plan) -> None:
        for id, entry in plan.rollbacks.items():
            remembered = self.trails.past_of(entry)
            reader = await Session.open(holdfast_dsn)
            stored = (await read_past(reader, [entry]))[id]
            await reader.close()
            witness.seen.append((remembered, stored))  # as a pair: the other lane may be here, too
        await write(self, session, plan)

    monkeypatch.setattr(Committer, "_write_unlocked", observed)
    yield witness
    for remembered, stored in witness.seen:
        assert remembered is None or in_order(remembered) == in_order(stored)


def in_order(steps: list[PastStep]) -> list[tuple[Any, ...]]:
    """JSON is compared as data: the tables keep no order of keys."""
    rows = sorted(steps, key=lambda step: (step.version, step.ordinal))
    return [
        (s.id, s.at, s.hop, s.run, s.version, s.ordinal, s.fence, s.node, s.path, s.kind, s.status,
         data(s.input), data(s.output), s.detail)
        for s in rows
    ]  # fmt: skip


def data(raw: bytes | None) -> Any:
    return None if raw is None else json.loads(raw)


async def work(ctx: Any, given: Any) -> Any:
    return {"z": 1, "by": ctx.step, "a": [1, 2.5, None]}


async def refuse(ctx: Any, given: Any) -> Any:
    raise DoNotRetry("no")


def saga(name: str, *, third: str = "work", retries: int = 1) -> Flow:
    return (
        Flow(name)
        .step("one", "work", undo=Undo("undo", name="un_one"))
        .step("two", "work")
        .step("three", third, undo=Undo("undo", name="un_three"), retry=Retry(attempts=retries))
        .step("four", "refuse", undo=Undo("undo", name="un_four"))
    )  # fmt: skip


@pytest.fixture
def undone(engine: Engine) -> list[tuple[str, Any]]:
    calls: list[tuple[str, Any]] = []

    async def undo(ctx: Any, given: Any) -> None:
        calls.append((ctx.step, given))

    for name, handler in (("work", work), ("refuse", refuse), ("undo", undo)):
        engine.register(name, handler)
    return calls


async def failed(engine: Engine, flow: str, given: Any = None) -> None:
    async with engine.worker():
        ended = await engine.wait((await engine.start(flow, given or {"n": 1})).id)
    assert ended.status == "failed"


async def failed_in_sight(engine: Engine, witness: Witness, flow: str) -> None:
    for _ in range(20):
        await failed(engine, flow)
        if witness.seen:
            return
    pytest.fail("Every commit looked for signals.")


async def test_what_ran_here_is_remembered_as_it_is_stored(
    engine: Engine, witness: Witness, undone: list[tuple[str, Any]]
) -> None:
    await engine.publish(saga("plain").build())
    await failed_in_sight(engine, witness, "plain")
    assert witness.were_read == [False]
    assert [step for step, _ in undone[-3:]] == ["un_four", "un_three", "un_one"]
    outputs = [given["output"] and given["output"]["by"] for _, given in undone[-3:]]
    assert outputs == [None, "three", "one"]


async def test_many_at_once(engine: Engine, witness: Witness, undone: list[tuple[str, Any]]) -> None:
    await engine.publish(saga("plain").build())
    async with engine.worker():
        started = [await engine.start("plain", {"n": n}) for n in range(40)]
        ended = [await engine.wait(instance.id) for instance in started]
    assert {instance.status for instance in ended} == {"failed"}
    assert set(witness.were_read) == {False}
    assert len(undone) == 120


@pytest.mark.parametrize(
    "flow",
    [
        saga("again", third="at_second", retries=2),
        Flow("forked")
        .step("one", "work", undo=Undo("undo", name="un_one"))
        .fork("fork", Branch().step("left", "work", undo=Undo("undo", name="un_left")), Branch().step("right", "work"))
        .join("join", "all")
        .step("four", "refuse"),
        Flow("rested").step("one", "work", undo=Undo("undo", name="un_one")).sleep("nap", 0.001).step("four", "refuse"),
    ],
    ids=lambda flow: flow.build().name,
)  # fmt: skip
async def test_whatever_is_not_plain_is_read(
    engine: Engine, witness: Witness, undone: list[tuple[str, Any]], flow: Flow
) -> None:
    calls = 0

    async def at_second(ctx: Any, given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("once more")

    engine.register("at_second", at_second)
    published = flow.build()
    await engine.publish(published)
    await failed(engine, published.name)
    assert not [past for past in witness.remembered if past is not None]
    assert {"un_one"} <= {step for step, _ in undone}


async def test_a_version_that_somebody_else_wrote_ends_the_trail(
    engine: Engine, witness: Witness, undone: list[tuple[str, Any]], holdfast_dsn: str
) -> None:
    """Or a later step of ours would join a trail that lacks what happened in between."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(ctx: Any, given: Any) -> None:
        began.set()
        await go_on.wait()

    engine.register("slow", slow)
    flow = (
        Flow("disturbed")
        .step("one", "work", undo=Undo("undo", name="un_one"))
        .step("two", "slow")
        .step("three", "work", undo=Undo("undo", name="un_three"))
        .step("four", "refuse")
    )  # fmt: skip
    await engine.publish(flow.build())
    async with Engine(holdfast_dsn) as operator, engine.worker():
        started = await engine.start("disturbed", {})
        await began.wait()
        await operator.suspend(started.id)
        await operator.resume(started.id)
        go_on.set()
        assert (await engine.wait(started.id)).status == "failed"
    assert [past for past in witness.remembered if past is not None] == []
    assert [step for step, _ in undone] == ["un_three", "un_one"]


@pytest.mark.parametrize(
    ("limit", "value"), [("LARGEST", 40), ("LONGEST", 3)], ids=["too much to remember", "too long"]
)
async def test_a_trail_has_limits(
    engine: Engine,
    witness: Witness,
    undone: list[tuple[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(history_cache, limit, value)
    await engine.publish(saga("large").build())
    await failed(engine, "large")
    assert False not in witness.were_read
    assert [step for step, _ in undone] == ["un_four", "un_three", "un_one"]


async def test_there_are_not_too_many(
    engine: Engine, witness: Witness, undone: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_cache, "MOST", 2)
    held = asyncio.Event()

    async def hold(ctx: Any, given: Any) -> None:
        await held.wait()

    engine.register("hold", hold)
    flow = Flow("held").step("one", "hold", undo=Undo("undo", name="un_one")).step("four", "refuse")
    await engine.publish(flow.build())
    async with engine.worker():
        started = [await engine.start("held", {}) for _ in range(4)]
        assert len(engine.committer.trails._of) <= 2
        held.set()
        for instance in started:
            assert (await engine.wait(instance.id)).status == "failed"
    assert witness.were_read.count(False) <= 2
    assert len(undone) == 4


async def test_flows_without_compensations_leave_no_trail(engine: Engine, undone: list[tuple[str, Any]]) -> None:
    await engine.publish(Flow("bare").step("one", "work").step("two", "work").build())
    async with engine.worker():
        await engine.wait((await engine.start("bare", {})).id)
        assert engine.committer.trails._of == {}


async def test_what_is_over_leaves_no_trail(engine: Engine, witness: Witness, undone: list[tuple[str, Any]]) -> None:
    await engine.publish(saga("plain").build())
    await engine.publish(Flow("good").step("one", "work", undo=Undo("undo", name="un_one")).build())
    async with engine.worker():
        assert (await engine.wait((await engine.start("plain", {})).id)).status == "failed"
        assert (await engine.wait((await engine.start("good", {})).id)).status == "completed"
        assert engine.committer.trails._of == {}
