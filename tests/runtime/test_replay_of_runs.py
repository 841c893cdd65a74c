"""WF-15 on the real thing: at any moment of a wild run, the step rows alone tell what the stored snapshots tell."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest

from holdfast import Context, Engine
from holdfast.core.moments import from_datetime
from holdfast.core.replay import StepRow, replay
from holdfast.core.state import EMPTY, Instance, decode_state, scope_view, token_view, value_of
from holdfast.core.status import InstanceStatus, StepStatus
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

STEPS = """
select id, node, behaviour, path, hop, kind, run, entity_version, opened_version, opened_ordinal, created_at, cause,
    status, outcome, chosen_edge_ids::text, input::text, output::text, error::text, detail::text, closing::text,
    calls, fence, closed_version, closed_ordinal
from holdfast.steps where instance_id = %s
"""
INSTANCES = """
select id, org_id, definition_id, flow, flow_version, version, status, state::text, data::text, reason, entity_version,
    parent_id, parent_token, input::text
from holdfast.instances where version > 0
"""


def step_row(row: tuple[Any, ...]) -> StepRow:
    values: list[Any] = [v.bytes if isinstance(v, UUID) else v for v in row]
    values[10] = from_datetime(row[10])
    values[12] = StepStatus(row[12])
    values[14:20] = [None if v is None else v.encode() for v in row[14:20]]
    return StepRow(*values)


def stored(row: tuple[Any, ...]) -> tuple[Instance, Instance]:
    """What is stored, and what an instance is before anything is known of it."""
    id, org, definition, flow, flow_version, version, status, state, data, reason, entity, parent, token, input = row
    identity = Instance(
        id.bytes, org, definition.bytes, flow, flow_version, 0, InstanceStatus.PENDING, EMPTY,
        input.encode() if input.startswith("{") else b"{}", None, entity, parent and parent.bytes, token,
    )  # fmt: skip
    known = msgspec.structs.replace(
        identity,
        version=version,
        status=InstanceStatus(status),
        state=decode_state(state.encode()),
        data=data.encode(),
        reason=reason,
    )
    return known, identity


def projection(instance: Instance) -> dict[str, Any]:
    state = instance.state
    return {
        "tokens": token_view(state),
        "scopes": scope_view(state),
        "data": msgspec.json.decode(instance.data),
        "status": instance.status,
        "reason": instance.reason,
        "early": state.early,
        "parked": state.parked,
        "stopping": state.stopping,
        "expires": state.expires,
        "values": {path: msgspec.json.decode(value_of(t) or b"null") for path, t in state.tokens.items()},
    }


def check_all(engine: Engine) -> int:
    """In one snapshot of the database, while the run goes on."""
    with psycopg.connect(engine.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        found = connection.execute(INSTANCES).fetchall()
        for row in found:
            known, identity = stored(row)
            program = engine.catalog.known(known.definition)
            assert program is not None
            rows = [step_row(r) for r in connection.execute(STEPS, (row[0],))]
            rebuilt = replay(program, rows, instance=identity)
            assert projection(rebuilt) == projection(known)
    return len(found)


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
