"""One engine, many organisations; and instances that come to rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from steps_graphs import edge

from holdfast import Context, Engine, Flow
from holdfast.errors import HoldfastError, NotFound, Refused
from running import Evidence, worker_process

pytestmark = pytest.mark.anyio


@pytest.fixture
async def chain(engine: Engine) -> Engine:
    """A step, a person, a step."""

    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        return {ctx.step: "done"}

    graph = {
        "name": "chain",
        "entry": "first",
        "kind": "steps",
        "policy": {"data": "context", "on_error": "suspend"},
        "nodes": [
            {"id": "first", "kind": "task", "handler": "work"},
            {"id": "ask", "kind": "human"},
            {"id": "last", "kind": "task", "handler": "work"},
            {"id": "done", "kind": "terminal"},
        ],
        "edges": [edge("first", "ask"), edge("ask", "last", "answered"), edge("last", "done")],
    }
    await engine.publish(graph)
    return engine


async def test_a_view_shares_handlers_and_worker_but_not_instances(engine: Engine) -> None:
    acme, rival = engine.for_org("acme"), engine.for_org("rival")

    @acme.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        return {"org": ctx.org}

    await acme.publish(Flow("order").step("work", "work").build())
    async with engine.worker():
        started = await acme.start("order", {})
        ended = await acme.wait(started.id, timeout=20)
        assert (ended.status, ended.org) == ("completed", "acme")
        with pytest.raises(NotFound):
            await rival.start("order", {})
    for stranger in (rival, engine):
        with pytest.raises(NotFound) as refusal:
            await stranger.get(started.id)
        assert refusal.value.code == "INSTANCE_UNKNOWN"
    assert acme.handlers is engine.handlers
    assert acme.stats() == engine.stats()


async def test_a_view_made_before_the_engine_was_opened_lives_with_it(holdfast_dsn: str) -> None:
    engine = Engine(holdfast_dsn)
    view = engine.for_org("acme")
    with pytest.raises(HoldfastError) as closed:
        await view.list()
    assert closed.value.code == "ENGINE_CLOSED"
    async with engine:
        assert (await view.list()).items == []
        for refused in (view.open, view.close):
            with pytest.raises(HoldfastError) as refusal:
                await refused()
            assert refusal.value.code == "ENGINE_IS_A_VIEW"


@pytest.mark.parametrize("org", ["", "x" * 201, "nul\0", None])
async def test_an_organisation_has_a_name(engine: Engine, org: Any) -> None:
    with pytest.raises(Refused):
        engine.for_org(org)


async def test_nobody_waits_for_what_runs_for_another_organisation(engine: Engine) -> None:
    """Where it runs in this very process, too."""
    acme, rival, gate = engine.for_org("acme"), engine.for_org("rival"), asyncio.Event()

    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        await gate.wait()

    await acme.publish(Flow("order").step("work", "work").build())
    async with engine.worker():
        started = await acme.start("order", {})
        for verb in (rival.wait, rival.settle):
            with pytest.raises(NotFound):
                await verb(started.id, timeout=5)
        gate.set()
        assert (await acme.settle(started.id, timeout=20)).status == "completed"


@pytest.mark.parametrize("key", [None, "k-1"])
async def test_settle_answers_when_a_person_is_asked_and_when_it_is_over(chain: Engine, key: str | None) -> None:
    async with chain.worker():
        started = await chain.start("chain", {"n": 1}, key=key)
        resting = await chain.settle(started.id, timeout=20)
        assert (resting.status, resting.waiting_for, resting.data) == ("running", "task", {"n": 1, "first": "done"})
        await chain.signal(started.id, "answered")
        over = await chain.settle(started.id, timeout=20)
        assert (over.status, over.data["last"]) == ("completed", "done")
        assert await chain.settle(started.id) == over


async def test_settle_gives_up_when_the_time_is_up(chain: Engine) -> None:
    started = await chain.start("chain", {})
    assert (await chain.settle(started.id, timeout=0)).status == "pending"
    assert (await chain.settle(started.id, timeout=0.05)).status == "pending"


async def test_settle_hears_of_another_process(chain: Engine, evidence: Evidence) -> None:
    with worker_process(chain.dsn, ["work=note"]):
        started = await chain.start("chain", {})
        assert (await chain.settle(started.id, timeout=20)).waiting_for == "task"
    assert evidence.calls("first") == 1


async def test_a_suspended_instance_rests(engine: Engine) -> None:
    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        raise ValueError("no stock")

    nodes = [{"id": "work", "kind": "task", "handler": "work"}, {"id": "done", "kind": "terminal"}]
    policy = {"data": "context", "on_error": "suspend"}
    edges = [edge("work", "done")]
    await engine.publish(
        {"name": "bad", "entry": "work", "kind": "steps", "policy": policy, "nodes": nodes, "edges": edges}
    )
    async with engine.worker():
        started = await engine.start("bad", {})
        assert (await engine.settle(started.id, timeout=20)).status == "suspended"
