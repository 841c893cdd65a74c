"""Rebuild: a damaged snapshot is made anew from the steps; where something would be lost, nothing is written."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest
from operations_flows import echo, waiting

from holdfast import Context, Engine, Flow
from holdfast.errors import Conflict
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

FORK = {
    "name": "fork",
    "entry": "split",
    "nodes": [
        {"id": "split", "kind": "split"},
        {"id": "left", "kind": "task", "handler": "echo"},
        {"id": "right", "kind": "wait_event", "wait": {"event": "signed"}},
        {"id": "join", "kind": "join", "mode": "all"},
        {"id": "last", "kind": "task", "handler": "echo"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "a", "source": "split", "target": "left"},
        {"id": "b", "source": "split", "target": "right"},
        {"id": "c", "source": "left", "target": "join"},
        {"id": "d", "source": "right", "target": "join"},
        {"id": "e", "source": "join", "target": "last"},
        {"id": "f", "source": "last", "target": "end"},
    ],
}


@pytest.fixture
async def office(engine: Engine) -> Engine:
    engine.register("echo", echo)
    await engine.publish(waiting())
    await engine.publish(waiting("pause", {"kind": "wait_timer", "delay": 3600.0}))
    await engine.publish(FORK)
    return engine


def damage(evidence: Evidence, id: str, **columns: Any) -> None:
    """Behind the engine's back, as a careless hand would."""
    changes = ", ".join(f"{name} = %s" for name in columns)
    evidence.connection.execute(
        f"update holdfast.instances set {changes}, version = version + 1 where id = %s", [*columns.values(), id]
    )


def stored(evidence: Evidence, id: str) -> tuple[Any, ...]:
    [row] = evidence.rows("select version, status, state, data from holdfast.instances where id = %s", id)
    return row


async def test_a_sound_snapshot_is_left_alone(office: Engine, evidence: Evidence) -> None:
    for flow in ("plain", "pause", "fork"):
        started = await office.start(flow, {"n": 1})
        await office.drain(timeout=30)
        before = stored(evidence, started.id)
        done = await office.rebuild(started.id, by="ann")
        assert (done.written, done.differences, done.missing) == (False, [], [])
        assert stored(evidence, started.id) == before


@pytest.mark.parametrize("flow", ["plain", "pause", "fork"])
async def test_a_damaged_snapshot_is_made_anew_and_runs_to_its_end(
    office: Engine, evidence: Evidence, flow: str
) -> None:
    started = await office.start(flow, {"n": 1})
    await office.drain(timeout=30)
    _, _, state, data = stored(evidence, started.id)
    damage(evidence, started.id, state="{}", data='{"n": 99}')

    found = await office.rebuild(started.id, dry_run=True)
    assert not found.written
    assert "data" in {d.what for d in found.differences}
    assert stored(evidence, started.id)[2] == {}

    done = await office.rebuild(started.id, by="ann", reason="somebody edited it")
    assert (done.written, done.differences, done.missing) == (True, found.differences, [])
    version, status, new_state, new_data = stored(evidence, started.id)
    assert (status, new_state, new_data, version) == ("running", state, data, done.version)
    [event] = [e for e in await office.events(started.id) if e.type == "instance_rebuilt"]
    assert (event.actor, event.detail["reason"]) == ("ann", "somebody edited it")
    assert event.detail["changed"] == [d.what for d in done.differences]

    if flow == "pause":
        await advance(office, hours=2)
    else:
        await office.signal(started.id, "signed")
    await office.drain(timeout=30)
    assert (await office.get(started.id)).status == "completed"


async def test_a_snapshot_nobody_can_read_is_made_anew(office: Engine, evidence: Evidence) -> None:
    started = await office.start("plain", {"n": 1})
    await office.drain(timeout=30)
    damage(evidence, started.id, state=json.dumps({"tokens": "gone"}))
    done = await office.rebuild(started.id, by="ann")
    assert [d.what for d in done.differences] == ["state"]
    await office.signal(started.id, "signed")
    await office.drain(timeout=30)
    assert (await office.get(started.id)).status == "completed"


async def test_work_under_way_goes_on_and_its_result_counts(office: Engine, evidence: Evidence) -> None:
    """The fence of the running call stays good; a worker that knows an older version reads again."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    @office.handler("hold")
    async def hold(ctx: Context, data: Any) -> Any:
        reached.set()
        await go_on.wait()
        return {"attempt": ctx.attempt}

    await office.publish(Flow("held").step("hold", "hold").step("echo", "echo").build())
    async with office.worker():
        started = await office.start("held", {"n": 1})
        await asyncio.wait_for(reached.wait(), 30)
        damage(evidence, started.id, state="{}")
        done = await office.rebuild(started.id, by="ann")
        assert (done.written, done.missing) == (True, [])
        go_on.set()
        ended = await office.wait(started.id, timeout=30)
    assert (ended.status, ended.data) == ("completed", {"attempt": 1})


async def test_lost_work_is_named_and_a_reenqueue_helps(office: Engine, evidence: Evidence) -> None:
    await office.publish(waiting("unheard", {"kind": "task", "handler": "nobody"}))
    started = await office.start("unheard")
    await office.drain(timeout=30)
    damage(evidence, started.id, state="{}")
    evidence.connection.execute("delete from holdfast.work")
    [stuck] = await office.stuck(older_than=0)
    assert [m.missing for m in stuck.missing] == ["tokens"]
    assert [m.missing for m in (await office.reenqueue(started.id)).left] == ["tokens"]
    done = await office.rebuild(started.id, by="ann")
    assert [(m.missing, m.node) for m in done.missing] == [("work", "middle")]
    assert [m.node for m in (await office.reenqueue(started.id, by="ann")).moved] == ["middle"]
    office.register("nobody", echo)
    await office.drain(timeout=30)
    assert (await office.get(started.id)).status == "completed"


async def test_steps_that_are_gone_refuse_it(office: Engine, evidence: Evidence) -> None:
    started = await office.start("plain")
    await office.drain(timeout=30)
    with evidence.connection.transaction():
        evidence.connection.execute("set local holdfast.maintenance = 'on'")
        evidence.connection.execute("delete from holdfast.steps where node = 'one'")
    before = stored(evidence, started.id)
    with pytest.raises(Conflict) as refusal:
        await office.rebuild(started.id)
    assert refusal.value.code == "REBUILD_INCOMPLETE"
    assert stored(evidence, started.id) == before


async def test_what_is_over_stays_over_and_work_is_not_thrown_away(office: Engine, evidence: Evidence) -> None:
    over = await office.start("plain")
    await office.drain(timeout=30)
    await office.abort(over.id)
    assert not (await office.rebuild(over.id)).written
    damage(evidence, over.id, data='{"n": 99}')
    with pytest.raises(Conflict) as refusal:
        await office.rebuild(over.id)
    assert refusal.value.code == "REBUILD_REFUSED"

    waits = await office.start("plain")
    await office.drain(timeout=30)
    damage(evidence, waits.id, data='{"n": 99}')
    evidence.connection.execute(
        "insert into holdfast.work (instance_id, path, bucket, org_id, step_id, step_created_at, queue, target, fence,"
        " ripe_at) select id, '0/7.0', bucket, org_id, id, created_at, 'q', 'q', 1, created_at from holdfast.instances"
        " where id = %s",
        [waits.id],
    )
    with pytest.raises(Conflict) as refusal:
        await office.rebuild(waits.id)
    assert refusal.value.code == "REBUILD_REFUSED"
    assert "0/7.0" in refusal.value.message


async def test_a_fold_that_fails_is_told(office: Engine, evidence: Evidence) -> None:
    started = await office.start("plain")
    await office.drain(timeout=30)
    with evidence.connection.transaction():
        evidence.connection.execute("set local session_replication_role = replica")
        evidence.connection.execute(
            "update holdfast.steps set chosen_edge_ids = '[\"nowhere\"]' where instance_id = %s and node = 'one'",
            [started.id],
        )
    with pytest.raises(Conflict) as refusal:
        await office.rebuild(started.id)
    assert refusal.value.code == "REBUILD_IMPOSSIBLE"


async def test_it_waits_for_whoever_holds_the_instance(office: Engine, evidence: Evidence) -> None:
    started = await office.start("plain", {"n": 1})
    await office.drain(timeout=30)
    damage(evidence, started.id, state="{}")
    with psycopg.connect(office.dsn) as holder:
        holder.execute("select from holdfast.instances where id = %s for update", [started.id])
        rebuilding = asyncio.create_task(office.rebuild(started.id))
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        await until(lambda: evidence.ask(waits))
        assert not rebuilding.done()
    assert (await rebuilding).written
