"""WF-15 on the real thing: at any moment of a wild run, the step rows alone tell what the stored snapshots tell."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import psycopg
import pytest
from faults.replayed import replay_all

from holdfast import Context, Engine
from holdfast.errors import HoldfastError
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

CHILD = {
    "name": "child",
    "entry": "work",
    "nodes": [{"id": "work", "kind": "task", "handler": "shaky"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "e", "source": "work", "target": "end"}],
}

WILD: dict[str, Any] = {
    "name": "wild",
    "entry": "begin",
    "policy": {"on_error": "suspend", "timeout": 864_000.0},
    "nodes": [
        {"id": "begin", "kind": "task", "handler": "shaky", "retry": {"calls": 2}},
        {"id": "choose", "kind": "condition"},
        {"id": "all", "kind": "split"},
        {"id": "a", "kind": "task", "handler": "shaky", "retry": {"calls": 3, "delay": 60.0}},
        {"id": "pause", "kind": "wait_timer", "delay": 3600.0},
        {"id": "met", "kind": "join", "mode": "all"},
        {"id": "any", "kind": "split"},
        {"id": "fast", "kind": "task", "handler": "shaky"},
        {"id": "person", "kind": "human", "deadline": 7200.0},
        {"id": "first", "kind": "join", "mode": "any"},
        {"id": "keyed", "kind": "wait_event", "wait": {"event": "go", "key": "context.key"}},
        {"id": "early", "kind": "wait_event", "wait": {"event": "come", "early": True}, "deadline": 7200.0},
        {"id": "child", "kind": "sub_flow", "child": {"flow": "child"}},
        {"id": "tell", "kind": "notification", "handler": "mail"},
        {"id": "end", "kind": "end"},
        {"id": "over", "kind": "terminal"},
    ],
    "edges": [
        {"id": "begin>choose", "source": "begin", "target": "choose"},
        {"id": "choose>all", "source": "choose", "target": "all", "when": "input.n > 2"},
        {"id": "choose>any", "source": "choose", "target": "any", "when": "input.n > 0"},
        {"id": "choose>keyed", "source": "choose", "target": "keyed", "priority": 1},
        {"id": "all>a", "source": "all", "target": "a"},
        {"id": "all>pause", "source": "all", "target": "pause"},
        {"id": "a>met", "source": "a", "target": "met"},
        {"id": "a>over", "source": "a", "target": "over", "on": "error"},
        {"id": "pause>met", "source": "pause", "target": "met"},
        {"id": "met>early", "source": "met", "target": "early"},
        {"id": "any>fast", "source": "any", "target": "fast"},
        {"id": "any>person", "source": "any", "target": "person"},
        {"id": "fast>first", "source": "fast", "target": "first"},
        {"id": "person>first", "source": "person", "target": "first", "on": "approved"},
        {"id": "person>over", "source": "person", "target": "over", "on": "timeout"},
        {"id": "first>child", "source": "first", "target": "child"},
        {"id": "keyed>early", "source": "keyed", "target": "early"},
        {"id": "early>child", "source": "early", "target": "child"},
        {"id": "early>tell", "source": "early", "target": "tell", "on": "timeout"},
        {"id": "child>tell", "source": "child", "target": "tell"},
        {"id": "child>begin", "source": "child", "target": "begin", "on": "error"},
        {"id": "tell>end", "source": "tell", "target": "end"},
    ],
}


def check_all(engine: Engine) -> int:
    """In one snapshot of the database, while the run goes on."""
    with psycopg.connect(engine.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        replayed = list(replay_all(connection))
    assert [r for r in replayed if r.difference is not None] == []
    return len(replayed)


async def prod(engine: Engine, ids: list[str], luck: random.Random) -> None:
    """Something from outside, legal or not."""
    id = luck.choice(ids)
    with contextlib.suppress(HoldfastError):
        match luck.randrange(9):
            case 0:
                await engine.signal(id, "approved", {"n": luck.randrange(5)}, by="ada")
            case 1 | 2:
                await engine.signal(id, "come", {"n": luck.randrange(5)})
            case 3 | 4:
                await engine.signal_key("go", f"k{luck.randrange(6)}", {"n": 1})
            case 5:
                await engine.suspend(id)
            case 6 | 7:
                await engine.resume(id)
            case _:
                await luck.choice((engine.cancel, engine.abort, engine.resume))(id)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_rows_tell_what_the_snapshots_tell(engine: Engine, evidence: Evidence, seed: int) -> None:
    luck = random.Random(seed)

    async def shaky(ctx: Context, data: Any) -> Any:
        await asyncio.sleep(luck.random() * 0.01)
        if luck.random() < 0.25:
            raise ConnectionError("unlucky")
        n = data.get("n", 0) if isinstance(data, dict) else 0
        return {"n": (n + 1) % 5, "key": f"k{luck.randrange(6)}"}

    await engine.publish(CHILD)
    await engine.publish(WILD)
    async with Engine(engine.dsn) as other:
        for one in (engine, other):
            one.register("shaky", shaky)
        async with engine.worker(lease=2), other.worker(lease=2):
            ids = [i.id for i in await engine.start_many("wild", [{"n": n % 5} for n in range(30)])]
            for round in range(12):
                await asyncio.gather(*(prod(luck.choice((engine, other)), ids, luck) for _ in range(8)))
                await advance(engine, minutes=luck.choice((1, 30, 61)))
                if round % 4 == 1:  # a worker loses its lease in the middle of everything
                    evidence.connection.execute(
                        "update holdfast.workers set lease_until = clock_timestamp() where id ="
                        " (select id from holdfast.workers where lease_until > clock_timestamp() order by id limit 1)"
                    )
                checked = await asyncio.to_thread(check_all, engine)
                assert checked
            await asyncio.gather(*(quietly_resume(engine, id) for id in ids))
            await until(lambda: not evidence.ask("select count(*) from holdfast.signals"))
        await engine.drain(timeout=30)
    assert await asyncio.to_thread(check_all, engine) >= 30
    visited = {node for (node,) in evidence.rows("select distinct node from holdfast.steps")}
    missed = {node["id"] for node in WILD["nodes"]} - visited
    assert len(missed) <= 4, f"too tame a run: {missed}"
    assert evidence.ask("select count(*) from holdfast.dead_letters where reason like 'ATTEMPTS%%'") == 0


async def quietly_resume(engine: Engine, id: str) -> None:
    with contextlib.suppress(HoldfastError):
        await engine.resume(id)
