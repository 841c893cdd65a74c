"""Events and the waits they are meant for, in a race: whoever comes first, each event arrives once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, Engine
from running import Evidence

pytestmark = pytest.mark.anyio

ROUNDS = 60


def graph(name: str, wait: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "entry": "work",
        "nodes": [
            {"id": "work", "kind": "task", "handler": "work"},
            {"id": "wait", "kind": "wait_event", "wait": wait},
            {"id": "after", "kind": "task", "handler": "after"},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "work>wait", "source": "work", "target": "wait"},
            {"id": "wait>after", "source": "wait", "target": "after"},
            {"id": "after>end", "source": "after", "target": "end"},
        ],
    }


@pytest.fixture
async def arrivals(engine: Engine) -> dict[str, int]:
    """How often each instance got past its wait."""
    counted: dict[str, int] = {}

    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        await asyncio.sleep(0.001 * (data["n"] % 5))
        return data

    @engine.handler("after")
    async def after(ctx: Context, data: Any) -> Any:
        counted[ctx.instance] = counted.get(ctx.instance, 0) + 1
        return data

    await engine.publish(graph("by_instance", {"event": "go", "early": True}))
    await engine.publish(graph("by_key", {"event": "go", "key": "input.key"}))
    return counted


async def test_an_event_for_an_instance_meets_its_wait(engine: Engine, arrivals: dict[str, int]) -> None:
    async def one(n: int) -> str:
        instance = await engine.start("by_instance", {"n": n})
        await asyncio.sleep(0.001 * (n % 7))
        await engine.signal(instance.id, "go", {"n": n})
        return instance.id

    async with engine.worker():
        ids = await asyncio.gather(*(one(n) for n in range(ROUNDS)))
        ended = await asyncio.gather(*(engine.wait(id, timeout=20) for id in ids))
    assert [i.data for i in ended] == [{"n": n} for n in range(ROUNDS)]
    assert arrivals == dict.fromkeys(ids, 1)


async def test_an_event_by_key_meets_its_waits_in_every_process(
    engine: Engine, arrivals: dict[str, int], evidence: Evidence
) -> None:
    async def one(n: int, sender: Engine) -> list[str]:
        pair = [await engine.start("by_key", {"n": n + m, "key": f"k{n}"}) for m in range(2)]
        await asyncio.sleep(0.001 * (n % 7))
        await sender.signal_key("go", f"k{n}", {"n": n})
        return [i.id for i in pair]

    async with engine.worker(), Engine(engine.dsn) as elsewhere:
        pairs = await asyncio.gather(*(one(n, elsewhere) for n in range(ROUNDS)))
        ended = [await asyncio.gather(*(engine.wait(id, timeout=20) for id in pair)) for pair in pairs]
    assert [[i.data for i in pair] for pair in ended] == [[{"n": n}] * 2 for n in range(ROUNDS)]
    assert arrivals == dict.fromkeys((id for pair in pairs for id in pair), 1)
    assert evidence.ask("select count(*) from holdfast.key_waits") == 0
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0


async def test_an_event_kept_and_the_step_before_its_wait_in_one_batch(engine: Engine, evidence: Evidence) -> None:
    """The event is not in the inbox yet when the wait opens: it is taken from the batch itself."""
    engine.register("after", lambda ctx, data: data)
    await engine.publish(
        {
            **graph("queued", {"event": "go", "early": True}),
            "nodes": [
                {"id": "work", "kind": "state"},
                {"id": "wait", "kind": "wait_event", "wait": {"event": "go", "early": True}},
                {"id": "after", "kind": "task", "handler": "after"},
                {"id": "end", "kind": "end"},
            ],
            "edges": [
                {"id": "work>wait", "source": "work", "target": "wait", "on": "open"},
                {"id": "wait>after", "source": "wait", "target": "after"},
                {"id": "after>end", "source": "after", "target": "end"},
            ],
        }
    )
    instance = await engine.start("queued")
    evidence.ask("""select holdfast.signal(%s, 'go', '{"n": 1}')""", instance.id)
    evidence.ask("select holdfast.signal(%s, 'open')", instance.id)
    await engine.drain(timeout=30)
    ended = await engine.get(instance.id)
    assert (ended.status, ended.data) == ("completed", {"n": 1})
    assert evidence.ask("select count(*) from holdfast.inbox") == 0


async def test_an_early_event_may_lead_into_a_sub_flow(engine: Engine) -> None:
    engine.register("work", lambda ctx, data: {"child": True})
    await engine.publish(
        {
            "name": "child",
            "entry": "work",
            "nodes": [{"id": "work", "kind": "task", "handler": "work"}, {"id": "end", "kind": "end"}],
            "edges": [{"id": "e", "source": "work", "target": "end"}],
        }
    )
    await engine.publish(
        {
            "name": "parent",
            "entry": "wait",
            "nodes": [
                {"id": "wait", "kind": "wait_event", "wait": {"event": "go", "key": "input.key"}},
                {"id": "child", "kind": "sub_flow", "child": {"flow": "child"}},
                {"id": "end", "kind": "end"},
            ],
            "edges": [
                {"id": "wait>child", "source": "wait", "target": "child"},
                {"id": "child>end", "source": "child", "target": "end"},
            ],
        }
    )
    await engine.signal_key("go", "k")
    parent = await engine.start("parent", {"key": "k"})
    await engine.drain(timeout=30)
    ended = await engine.get(parent.id)
    assert (ended.status, ended.data) == ("completed", {"child": True})
