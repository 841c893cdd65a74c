"""Stuck instances are found, whatever is missing, and the three ways out of it work and are on record."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from operations_flows import echo, waiting

from holdfast import Engine
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.testing import advance
from running import Evidence

pytestmark = pytest.mark.anyio

SUB_FLOW = {"kind": "sub_flow", "child": {"flow": "plain"}}
PAUSE = {"kind": "wait_timer", "delay": 3600.0}


@pytest.fixture
async def office(engine: Engine) -> Engine:
    engine.register("echo", echo)
    await engine.publish(waiting())
    await engine.publish(waiting("pause", PAUSE))
    await engine.publish(waiting("mother", SUB_FLOW))
    await engine.publish(waiting("limited", timeout=86_400.0))
    return engine


async def stuck(engine: Engine, **options: Any) -> dict[str, list[tuple[str, str | None]]]:
    found = await engine.stuck(older_than=0, **options)
    return {s.id: [(m.missing, m.node) for m in s.missing] for s in found}


def lose(evidence: Evidence, table: str, id: str) -> None:
    assert evidence.connection.execute(f"delete from holdfast.{table} where instance_id = %s", [id]).rowcount


async def audited(engine: Engine, id: str, type: str) -> Any:
    [event] = [event for event in await engine.events(id) if event.type == type]
    assert event.actor == "ann"
    assert event.detail["reason"] == "rows were lost"
    return event.detail


async def test_what_moves_or_waits_for_people_is_not_stuck(office: Engine, evidence: Evidence) -> None:
    """Queued work, timers, sub-flows that run, events from outside, suspension, a start nobody has taken on yet."""
    for flow in ("plain", "pause", "mother", "limited"):
        await office.start(flow)
    await office.drain(timeout=30)
    held = await office.start("plain")
    await office.drain(timeout=30)
    await office.suspend(held.id)
    await office.publish(waiting("unheard", {"kind": "task", "handler": "nobody"}))
    await office.start("unheard")
    await office.drain(timeout=30)
    await office.start("plain")
    assert evidence.ask("select count(*) from holdfast.instances where completed_at is null") >= 7
    assert await stuck(office) == {}


async def test_an_open_step_without_work_is_dispatched_again(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(waiting())
    started = await engine.start("plain")
    await engine.drain(timeout=30)  # nobody here has the handler
    id = started.id
    fence = evidence.ask("select fence from holdfast.work where instance_id = %s", id)
    lose(evidence, "work", id)
    assert await stuck(engine) == {id: [("work", "one")]}
    assert await engine.stuck(older_than=timedelta(hours=1)) == []

    done = await engine.reenqueue(id, by="ann", reason="rows were lost")
    assert ([m.missing for m in done.moved], done.left) == (["work"], [])
    assert evidence.ask("select fence from holdfast.work where instance_id = %s", id) > fence
    detail = await audited(engine, id, "instance_reenqueued")
    assert detail["moved"][0]["missing"] == "work"
    assert await stuck(engine) == {}
    again = await engine.reenqueue(id, by="ann")
    assert (again.moved, again.left) == ([], [])

    engine.register("echo", echo)
    await engine.drain(timeout=30)
    await engine.signal(id, "signed")
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    assert [s.attempts for s in await engine.steps(id) if s.behaviour == "work"] == [1, 1]


async def test_lost_timers_are_set_again_for_the_moment_they_had(office: Engine, evidence: Evidence) -> None:
    pause, limited = await office.start("pause"), await office.start("limited")
    await office.drain(timeout=30)
    before = evidence.rows(
        "select instance_id::text, id, purpose, wait, due_at, payload from holdfast.timers order by 1"
    )
    assert len(before) == 2
    for id in (pause.id, limited.id):
        lose(evidence, "timers", id)
    assert await stuck(office) == {pause.id: [("timer", "middle")], limited.id: [("timer", None)]}
    for id in (pause.id, limited.id):
        await office.reenqueue(id, by="ann", reason="rows were lost")
        await audited(office, id, "instance_reenqueued")
    after = evidence.rows(
        "select instance_id::text, id, purpose, wait, due_at, payload from holdfast.timers order by 1"
    )
    assert after == before
    await advance(office, hours=2)
    await office.drain(timeout=30)
    assert (await office.get(pause.id)).status == "completed"
    await advance(office, days=1)
    await office.drain(timeout=30)
    assert (await office.get(limited.id)).reason == "WORKFLOW_TIMEOUT"


async def test_news_of_a_sub_flow_that_got_lost_are_told_again(office: Engine, evidence: Evidence) -> None:
    mother = await office.start("mother")
    await office.drain(timeout=30)
    [(child,)] = evidence.rows("select id::text from holdfast.instances where parent_id = %s", mother.id)
    evidence.connection.execute("update holdfast.instances set version = version + 1 where id = %s", [mother.id])
    async with office.worker(maintenance=False):
        with psycopg.connect(office.dsn) as holder:  # nobody can take the signal meanwhile
            holder.execute("select from holdfast.instances where id = %s for update", [mother.id])
            await office.signal(child, "signed")
            await office.wait(child, timeout=30)
            lose(evidence, "signals", mother.id)
    assert await stuck(office) == {mother.id: [("child", "middle")]}
    done = await office.reenqueue(mother.id, by="ann", reason="rows were lost")
    assert [m.ref for m in done.moved] == [child]
    await office.drain(timeout=30)
    ended = await office.get(mother.id)
    assert (ended.status, ended.data) == ("completed", {})
    assert [s.attempts for s in await office.steps(mother.id) if s.behaviour == "work"] == [1, 1]


async def test_a_start_whose_signal_got_lost_begins(office: Engine, evidence: Evidence) -> None:
    started = await office.start("plain", {"n": 1}, key="one")
    lose(evidence, "signals", started.id)
    assert await stuck(office) == {started.id: [("start", None)]}
    await office.reenqueue(started.id, by="ann", reason="rows were lost")
    await audited(office, started.id, "instance_reenqueued")
    await office.drain(timeout=30)
    assert (await office.get(started.id)).waiting_for == "event"


async def test_what_no_queue_can_help_is_failed(office: Engine, evidence: Evidence) -> None:
    mother = await office.start("mother")
    await office.drain(timeout=30)
    evidence.connection.execute("delete from holdfast.instances where parent_id = %s", [mother.id])
    assert await stuck(office) == {mother.id: [("child", "middle")]}
    done = await office.reenqueue(mother.id, by="ann")
    assert ([m.missing for m in done.left], done.moved) == (["child"], [])
    ended = await office.force_fail(mother.id, by="ann", reason="rows were lost")
    assert ended.status == "failed"
    await audited(office, mother.id, "instance_force_failed")
    assert await stuck(office) == {}
    with pytest.raises(Conflict) as over:
        await office.reenqueue(mother.id)
    assert over.value.code == "INSTANCE_OVER"


async def test_pages_and_organisations(office: Engine, evidence: Evidence) -> None:
    ids = sorted([(await office.start("pause", {"n": n})).id for n in range(5)])
    await office.drain(timeout=30)
    evidence.connection.execute("delete from holdfast.timers")
    first = list(await stuck(office, limit=2))
    second = list(await stuck(office, limit=2, after=first[-1]))
    third = list(await stuck(office, limit=2, after=second[-1]))
    assert first + second + third == ids
    async with Engine(office.dsn, org="other") as other:
        assert await stuck(other) == {}
        for verb in (other.reenqueue, other.rebuild):
            with pytest.raises(NotFound):
                await verb(ids[0])
    with pytest.raises(Refused):
        await office.stuck(limit=0)
    with pytest.raises(Refused):
        await office.stuck(older_than=-1)


async def test_finished_history_costs_the_detector_nothing(office: Engine, evidence: Evidence) -> None:
    pause = await office.start("pause")
    await office.drain(timeout=30)
    lose(evidence, "timers", pause.id)

    def visited() -> int:
        evidence.rows("select pg_stat_force_next_flush()")
        return evidence.ask(
            "select coalesce(idx_tup_fetch, 0) + seq_tup_read from pg_stat_user_tables where relname = 'instances'"
        )

    evidence.connection.execute(
        "insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state,"
        " data, input, created_at, updated_at, completed_at)"
        " select md5(n::text)::uuid, get_byte(uuid_send(md5(n::text)::uuid), 15), org_id, definition_id, flow, 1,"
        " case when n % 100 = 0 then 'failed' else 'completed' end, 2, '{}', '{}', '{}', created_at, created_at,"
        " created_at from holdfast.instances, generate_series(1, 20000) n"
    )
    before = visited()
    assert await stuck(office) == {pause.id: [("timer", "middle")]}
    assert visited() - before < 50
