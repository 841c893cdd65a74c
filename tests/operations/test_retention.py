"""Retention: what is over goes in time, what is not over is never touched, and whoever is interrupted goes on."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from operations_flows import echo, undoable, waiting
from psycopg.conninfo import make_conninfo

from holdfast import Engine
from holdfast.errors import Refused
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.upkeep import maintain
from holdfast.store.admin import upkeep
from holdfast.testing import advance
from running import Evidence

pytestmark = pytest.mark.anyio

MONTH = timedelta(days=31)
EVERYTHING = (
    "instances", "steps", "events", "effects", "step_receipts", "outbox_receipts", "dead_letters", "timers", "inbox",
    "tasks", "task_events", "key_waits", "instance_attributes",
)  # fmt: skip


async def keep(engine: Engine, **spans: timedelta) -> dict[str, dict[str, Any]]:
    done = await maintain(engine.dsn, Retention(**spans))
    assert {u.error for u in done} == {None}
    return {u.task: u.result for u in done}


async def finished(engine: Engine, count: int = 1, **options: Any) -> list[str]:
    ids = [(await engine.start("plain", {"n": n}, **options)).id for n in range(count)]
    await engine.drain(timeout=30)
    for id in ids:
        await engine.signal(id, "signed")
    await engine.drain(timeout=30)
    assert {(await engine.get(id)).status for id in ids} == {"completed"}
    return ids


@pytest.fixture
async def office(engine: Engine) -> Engine:
    engine.register("echo", echo)
    await engine.publish(waiting())
    return engine


def rows(evidence: Evidence, table: str, id: str) -> int:
    return evidence.ask(f"select count(*) from holdfast.{table} where {_key(table)} = %s", id)


def _key(table: str) -> str:
    return "id" if table == "instances" else "instance_id"


async def test_nothing_goes_unless_somebody_says_so(office: Engine, evidence: Evidence) -> None:
    [id] = await finished(office)
    await advance(office, days=4000)
    done = await keep(office)
    assert set(done) == {"partitions", "expiry", "vacuum", "statistics", "runs"}
    assert rows(evidence, "steps", id) == 4
    assert len(await office.steps(id)) == 3


async def test_months_are_dropped_when_nobody_needs_them(office: Engine, evidence: Evidence) -> None:
    over = await finished(office, 3)
    await office.publish(undoable())
    active = await office.start("saga")
    await office.drain(timeout=30)
    month = evidence.ask("select to_char(holdfast.clock() at time zone 'UTC', '_YYYYMM')")
    await advance(office, days=70)
    assert (await keep(office))["partitions"] is not None  # the months since then

    held = await keep(office, steps=MONTH, events=MONTH, effects=MONTH)
    assert held["steps"]["held"] == {f"steps{month}": active.id}
    assert held["events"]["held"] == {f"events{month}": active.id}
    assert f"effects{month}" in held["effects"]["dropped"]  # there are none
    assert rows(evidence, "steps", over[0]) == 4

    await office.signal(active.id, "signed")
    await office.drain(timeout=30)
    assert (await office.get(active.id)).status == "completed"
    dropped = await keep(office, steps=MONTH, events=MONTH)
    assert (dropped["steps"], dropped["events"]) == (
        {"dropped": [f"steps{month}"], "held": {}},
        {"dropped": [f"events{month}"], "held": {}},
    )
    assert await office.steps(over[0]) == []
    assert (await office.get(over[0])).data == {"n": 0}  # the instance itself stays
    assert [s.name for s in await office.steps(active.id)] == ["two"]  # the rest of it happened in this month
    assert evidence.ask("select to_regclass(%s)", f"holdfast.steps{month}") is None
    assert len(await finished(office, 2)) == 2


async def test_an_open_dead_letter_keeps_its_month_and_its_instance(office: Engine, evidence: Evidence) -> None:
    [id] = await finished(office)
    month = evidence.ask("select to_char(holdfast.clock() at time zone 'UTC', '_YYYYMM')")
    letter = (
        "insert into holdfast.dead_letters (id, bucket, org_id, instance_id, flow, source, envelope, reason,"
        " created_at) select gen_random_uuid(), bucket, org_id, id, flow, 'signal', '{}', 'TEST', created_at"
        " from holdfast.instances where id = %s"
    )
    evidence.connection.execute(letter, [id])
    await advance(office, days=70)
    done = await keep(office, steps=MONTH, instances=MONTH, receipts=MONTH, dead_letters=MONTH)
    assert done["steps"]["held"] == {f"steps{month}": id}
    assert (done["instances"], done["receipts"], done["dead_letters"]) == ({"removed": 0},) * 3

    evidence.connection.execute(
        "update holdfast.dead_letters set resolved_at = holdfast.clock(), resolution = 'discarded'"
    )
    done = await keep(office, steps=MONTH, dead_letters=MONTH)
    assert (done["steps"]["dropped"], done["dead_letters"]) == ([f"steps{month}"], {"removed": 0})
    await advance(office, days=32)
    assert (await keep(office, dead_letters=MONTH))["dead_letters"] == {"removed": 1}


async def test_an_instance_goes_with_everything_that_belongs_to_it(office: Engine, evidence: Evidence) -> None:
    await office.publish(waiting("mother", {"kind": "sub_flow", "child": {"flow": "plain"}}))
    mother = await office.start("mother", attributes={"customer": "c1", "tags": ["not", "searched"]})
    lonely = await office.start("mother", attributes={"customer": "c1"})
    await office.drain(timeout=30)
    children = {p: c for p, c in evidence.rows("select parent_id::text, id::text from holdfast.instances") if p}
    await office.signal(children[mother.id], "signed", id="0b5e5d0e-0000-4000-8000-000000000001")
    await office.drain(timeout=30)
    assert (await office.get(mother.id)).status == "completed"
    await advance(office, days=32)

    before = {table: rows(evidence, table, lonely.id) for table in EVERYTHING}
    assert (await keep(office, instances=MONTH))["instances"] == {"removed": 2}
    for table in EVERYTHING:
        assert rows(evidence, table, mother.id) == rows(evidence, table, children[mother.id]) == 0, table
        assert rows(evidence, table, lonely.id) == before[table], table
    assert rows(evidence, "steps", children[lonely.id]) == 2

    # The child ends now, the mother with it; both are young again.
    await office.signal(children[lonely.id], "signed")
    await office.drain(timeout=30)
    assert (await office.get(lonely.id)).status == "completed"
    assert (await keep(office, instances=MONTH))["instances"] == {"removed": 0}


async def test_a_key_that_was_forgotten_starts_anew(office: Engine, evidence: Evidence) -> None:
    """No receipt of the instance before it is taken for its own."""
    for lap in range(3):
        [id] = await finished(office, key="again")
        assert [s.status for s in await office.steps(id)] == ["completed"] * 3
        await advance(office, days=32)
        assert (await keep(office, instances=MONTH))["instances"] == {"removed": 1}, lap
    assert evidence.ask("select count(*) from holdfast.step_receipts") == 0


async def test_receipts_go_first_and_are_not_looked_for_again(office: Engine, evidence: Evidence) -> None:
    over = await finished(office, 5)
    active = await office.start("plain")
    await office.drain(timeout=30)
    kept = rows(evidence, "step_receipts", active.id)
    signals = evidence.ask("select count(*) from holdfast.outbox_receipts")
    assert signals == 5
    await advance(office, days=32)
    assert (await keep(office, receipts=MONTH))["receipts"] == {"removed": 5 * 4 + signals}
    assert evidence.ask("select count(*) from holdfast.step_receipts") == kept
    assert rows(evidence, "steps", over[0]) == 4
    assert (await keep(office, receipts=MONTH))["receipts"] == {"removed": 0}
    await office.signal(active.id, "signed")
    await office.drain(timeout=30)
    assert (await office.get(active.id)).status == "completed"


async def test_an_interrupted_pass_goes_on_where_it_stopped(
    office: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "BATCH", 2)
    waits = await office.start("plain")  # the oldest of all: every pass meets it first
    await office.drain(timeout=30)
    await finished(office, 7)
    await advance(office, days=32)
    span = Retention(instances=MONTH).seconds()
    removed, places = 0, []
    upkeep.run_due(office.dsn, {}, threading.Event())  # what else is due
    for _ in range(5):
        evidence.connection.execute(
            "insert into holdfast.upkeep values ('instances', holdfast.clock())"
            " on conflict (task) do update set due_at = excluded.due_at"
        )
        [done] = upkeep.run_due(office.dsn, span, threading.Event(), budget=0)  # one page at a time
        removed += done.result["removed"]
        places.append(evidence.ask("select position from holdfast.upkeep where task = 'instances'"))
        assert done.is_complete == (places[-1] is None)
        assert evidence.ask("select due_at > holdfast.clock() from holdfast.upkeep where task = 'instances'")
    assert removed == 7
    assert places[:4] == sorted(places[:4])
    assert places[4] is None  # it came to the end
    assert (await office.get(waits.id)).status == "running"
    recorded = evidence.rows("select (result ->> 'removed')::int from holdfast.upkeep_runs where task = 'instances'")
    assert sum(count for (count,) in recorded) == 7


async def test_two_at_once_do_it_once(office: Engine, evidence: Evidence) -> None:
    await finished(office, 40)
    await advance(office, days=32)
    span, results = Retention(instances=MONTH, receipts=MONTH).seconds(), list[upkeep.Upkeep]()
    threads = [threading.Thread(target=lambda: results.extend(upkeep.run_all(office.dsn, span))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {u.error for u in results} == {None}
    await keep(office, instances=MONTH)
    assert evidence.ask("select count(*) from holdfast.instances") == 0
    assert evidence.ask("select count(*) from holdfast.steps") == 0


async def test_early_events_expire_and_leave_a_trace(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting("early", {"kind": "wait_event", "wait": {"event": "signed", "early": True}}))
    await engine.publish(waiting("keyed", {"kind": "wait_event", "wait": {"event": "docked", "key": "input.ship"}}))
    instance = await engine.start("early")
    async with engine.worker(maintenance=False):
        await engine.signal(instance.id, "signed")
        await engine.wait(instance.id, timeout=30)
    evidence.connection.execute(
        "insert into holdfast.inbox (instance_id, id, bucket, org_id, event, created_at, expires_at)"
        " select id, gen_random_uuid(), bucket, org_id, 'signed', created_at, holdfast.clock() + interval '7 days'"
        " from holdfast.instances, generate_series(1, 3)"
    )
    waits = await engine.start("keyed", {"ship": "anna"})
    await engine.drain(timeout=30)
    for ship in ("berta", "clara", "anna"):
        await engine.signal_key("docked", ship)
    await engine.drain(timeout=30)
    assert (await engine.get(waits.id)).status == "completed"
    assert (await keep(engine))["expiry"] == {"expire_inbox": 0, "expire_key_events": 0}
    await advance(engine, days=8)
    assert (await keep(engine))["expiry"] == {"expire_inbox": 3, "expire_key_events": 3}
    told = (await engine.events(instance.id))[-3:]
    assert [(e.type, e.detail["event"]) for e in told] == [("event_expired", "signed")] * 3
    assert [e.ordinal for e in told] == [1000, 1001, 1002]
    assert (await engine.events(instance.id, limit=100))[-3:] == told
    for table in ("inbox", "key_events", "event_keys"):
        assert evidence.ask(f"select count(*) from holdfast.{table}") == 0, table


async def test_removing_history_needs_a_role_of_its_own(office: Engine, evidence: Evidence) -> None:
    [id] = await finished(office)
    await advance(office, days=32)
    evidence.connection.execute("drop role if exists hf_only_worker")
    evidence.connection.execute("create role hf_only_worker login in role holdfast_worker")
    try:
        dsn = make_conninfo(office.dsn, user="hf_only_worker")
        done = {u.task: u for u in await maintain(dsn, Retention(instances=MONTH))}
        assert done["partitions"].error is None
        assert "GRANT holdfast_maintenance" in (done["instances"].error or "")
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select holdfast.purge_instances(now(), null, 10)")
        assert rows(evidence, "steps", id) == 4
        evidence.connection.execute("grant holdfast_maintenance to hf_only_worker")
        done = {u.task: u for u in await maintain(dsn, Retention(instances=MONTH))}
        assert (done["instances"].error, done["instances"].result) == (None, {"removed": 1})
    finally:
        evidence.connection.execute("drop role hf_only_worker")


async def test_finished_history_costs_the_search_for_holders_nothing(office: Engine, evidence: Evidence) -> None:
    await office.start("plain")
    await office.drain(timeout=30)

    def cost() -> int:
        with psycopg.connect(office.dsn) as connection:
            connection.execute("select * from holdfast.old_partitions('steps', 'infinity')")
            row = connection.execute(
                "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int from pg_stat_xact_user_tables"
                " where relname = 'instances'"
            ).fetchone()
            assert row is not None
            return row[0]

    await advance(office, days=70)
    before = cost()
    evidence.connection.execute(
        "insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state,"
        " data, input, created_at, updated_at, completed_at)"
        " select md5(n::text)::uuid, get_byte(uuid_send(md5(n::text)::uuid), 15), org_id, definition_id, flow, 1,"
        " case when n % 100 = 0 then 'failed' else 'completed' end, 2, '{}', '{}', '{}', created_at, created_at,"
        " created_at from holdfast.instances, generate_series(1, 20000) n"
    )
    assert before <= cost() <= before + 2


def test_what_cannot_be_meant_is_refused() -> None:
    assert Retention.parse(["steps=90d, events=1y", "instances=36h"]).seconds() == {
        "steps": 90 * 86_400,
        "events": 365 * 86_400,
        "instances": 36 * 3600,
    }
    assert Retention.parse([""]) == Retention()
    for wrong in ("steps", "steps=", "steps=-1d", "step=3d", "steps=3", "steps=0d", "steps=3 months"):
        with pytest.raises(Refused) as refusal:
            Retention.parse([wrong])
        assert refusal.value.code == "RETENTION_INVALID"
    with pytest.raises(Refused):
        Retention(steps=timedelta(minutes=5))
