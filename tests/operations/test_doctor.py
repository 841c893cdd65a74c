"""The examination finds what is wrong, and each finding is provoked for real."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from operations_flows import echo, waiting
from psycopg.conninfo import make_conninfo

from holdfast import DoNotRetry, Engine, Flow, Retry
from holdfast.errors import Refused
from holdfast.store import embedded
from holdfast.store.admin.doctor import CHECKS, GOOD, Finding, examine
from holdfast.store.admin.schema import latest
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio


async def refuse(_ctx: Any, _data: Any) -> None:
    raise DoNotRetry("no")


async def stumble(_ctx: Any, _data: Any) -> None:
    raise ValueError("not yet")


async def findings(engine: Engine, code: str, **thresholds: float) -> list[Finding]:
    """What is not well. Every complaint says what to do."""
    report = await engine.doctor(**thresholds)
    found = [f for f in report.findings if f.code == code and f.severity not in ("ok", "advice")]
    assert all(f.action and f.message for f in found)
    return found


async def graded(engine: Engine, code: str, **thresholds: float) -> list[tuple[str, str]]:
    return [(f.severity, f.subject) for f in await findings(engine, code, **thresholds)]


@pytest.fixture
def admin(holdfast_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        yield connection


async def test_a_healthy_database(engine: Engine) -> None:
    report = await engine.doctor()
    told = {f.code: f.severity for f in report.findings}
    assert set(told) >= set(CHECKS) - {"durability", "workers_live"}
    assert told["workers_live"] == "advice"  # nobody works, and there is nothing to do
    # The server of the tests is fast because it forgets; that is the one thing to complain of.
    wrong = {f.code for f in report.findings if f.severity in ("warning", "critical")}
    assert wrong <= {"durability"}
    assert set(GOOD) == set(CHECKS)


async def test_the_schema_is_behind_or_ahead(engine: Engine, evidence: Evidence) -> None:
    evidence.connection.execute("delete from holdfast.schema_version where number = %s", [latest()])
    [finding] = await findings(engine, "schema")
    assert (finding.severity, finding.value, finding.threshold) == ("warning", latest() - 1, latest())
    evidence.connection.execute("insert into holdfast.schema_version values (%s, 'future', '')", [latest() + 1])
    assert await graded(engine, "schema") == [("critical", "")]


async def test_a_database_without_the_schema(holdfast_server: str) -> None:
    with psycopg.connect(holdfast_server, autocommit=True) as connection:
        connection.execute("drop database if exists hf_doctor_empty")
        connection.execute("create database hf_doctor_empty template template0")
        try:
            report = await asyncio.to_thread(examine, make_conninfo(holdfast_server, dbname="hf_doctor_empty"))
        finally:
            connection.execute("drop database hf_doctor_empty with (force)")
    told = {f.code: f for f in report.findings}
    assert told["schema"].severity == "critical"
    assert "migrate" in told["schema"].action
    assert told["oldest_signal"].severity == "unknown"
    assert told["xid_age"].severity == "ok"


async def test_months_and_the_default_partition(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting())
    await advance(engine, days=70)
    assert {s for s, _ in await graded(engine, "partitions_ahead")} == {"warning"}
    await advance(engine, days=100)
    await engine.start("plain")
    await engine.drain(timeout=30)
    monthly = ("ack_consumers", "acks", "effects", "events", "notices", "steps")
    assert await graded(engine, "partitions_ahead") == [(("critical"), t) for t in monthly]
    assert await graded(engine, "default_partition") == [("warning", "events"), ("warning", "steps")]
    assert await graded(engine, "default_partition", default_critical=2) == [
        ("critical", "events"),
        ("critical", "steps"),
    ]
    await engine.maintain()
    assert await findings(engine, "partitions_ahead") == await findings(engine, "default_partition") == []


async def test_signals_and_timers_that_wait(engine: Engine) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting("pause", {"kind": "wait_timer", "delay": 60.0}))
    await engine.start("pause")
    await engine.drain(timeout=30)
    assert await findings(engine, "oldest_signal") == []
    await advance(engine, minutes=3)
    assert await graded(engine, "oldest_signal") == [("warning", "timer")]
    await engine.start("pause")
    await advance(engine, minutes=20)
    assert sorted(await graded(engine, "oldest_signal")) == [("critical", "signal"), ("critical", "timer")]


async def test_work_that_nobody_takes(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(waiting())
    await engine.start("plain")
    await engine.drain(timeout=30)
    assert await graded(engine, "queue_unserved") == [("warning", "echo")]
    await advance(engine, minutes=30)
    assert await graded(engine, "queue_unserved") == [("critical", "echo")]
    evidence.connection.execute(
        "insert into holdfast.workers values (gen_random_uuid(), 'h', 1, 'v', '{echo}', holdfast.clock(),"
        " clock_timestamp() + interval '1 minute')"
    )
    assert await findings(engine, "queue_unserved") == []
    assert await graded(engine, "oldest_work") == [("critical", "echo")]
    assert (await findings(engine, "oldest_work", queue_critical=1e6))[0].severity == "warning"


async def ready_for(engine: Engine, queue: str) -> float:
    """Seconds, as the doctor tells them."""
    [age] = [f.value for f in await findings(engine, "queue_unserved") if f.subject == queue]
    assert age is not None
    return age


async def test_a_wait_is_told_from_when_the_work_was_ready(engine: Engine) -> None:
    """Whatever its priority makes of its rank: below 50 a step stands as if it had come minutes later."""
    await engine.publish(Flow("low").step("lift", "lift", priority=0).build())
    started = await engine.start("low")
    await engine.drain(timeout=30)
    await advance(engine, seconds=90)
    assert 90 <= await ready_for(engine, "lift") < 150
    await engine.suspend(started.id, by="ann")
    await advance(engine, hours=1)
    await engine.resume(started.id, by="ann")
    await engine.drain(timeout=30)
    assert 0 <= await ready_for(engine, "lift") < 60


async def test_a_retry_waits_since_its_pause_was_over(engine: Engine) -> None:
    engine.register("stumble", stumble)
    await engine.publish(Flow("again").step("stumble", "stumble", retry=Retry(attempts=2, delay=3600)).build())
    await engine.start("again")
    await engine.drain(timeout=30)
    async with Engine(engine.dsn) as bare:  # has no such handler, but decides
        await advance(bare, hours=1, seconds=1)
        await bare.drain(timeout=30)
        assert 0 <= await ready_for(bare, "stumble") < 60


async def test_effects_that_are_late(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting("letter", {"kind": "notification", "handler": "webhook"}))
    await engine.start("letter")
    async with engine.worker(effects=False, maintenance=False):
        await until(lambda: evidence.ask("select count(*) from holdfast.effects"))
    assert await findings(engine, "outbox_lag") == []
    await advance(engine, minutes=5)
    assert await graded(engine, "outbox_lag") == [("warning", "")]
    assert await graded(engine, "effects_left") == [("warning", "webhook")]
    await advance(engine, hours=1)
    assert await graded(engine, "outbox_lag") == [("critical", "")]
    assert await graded(engine, "effects_left") == [("critical", "webhook")]


async def test_dead_letters(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(waiting())
    started = await engine.start("plain")
    evidence.connection.execute(
        "update holdfast.signals set payload = '[]' where instance_id = %s", [started.id]
    )  # cannot be read
    await engine.drain(timeout=30)
    assert await graded(engine, "dead_letters") == [("warning", "")]
    assert await graded(engine, "dead_letters", letters_critical=1) == [("critical", "")]


async def test_dead_letters_name_their_tenants(engine: Engine, evidence: Evidence) -> None:
    for tenant, count in (("acme", 2), ("globex", 1)):
        view = engine.for_org(tenant)
        await view.publish(waiting())
        await view.start_many("plain", [{}] * count)
    evidence.connection.execute("update holdfast.signals set payload = '[]'")
    await engine.drain(timeout=30)
    [finding] = await findings(engine, "dead_letters")
    assert finding.message == "3 dead letters wait for a person: 2 of 'acme', 1 of 'globex'."


async def test_instances_that_stand_still_or_fail(engine: Engine) -> None:
    engine.register("refuse", refuse)
    for tenant, dlq in (("acme", False), ("globex", True)):
        view = engine.for_org(tenant)
        await view.publish(Flow("order", dlq=dlq).step("pay", "refuse").build())
        await view.start("order", {})
    paused = await engine.for_org("acme").start("order", {})
    await engine.for_org("acme").suspend(paused.id, by="ann", reason="audit")
    await engine.drain(timeout=30)
    found = {f.severity: f for f in (await engine.doctor()).findings if f.code == "instances_stopped"}
    assert "of 'order' of the tenant 'acme' failed within the last hour: DoNotRetry" in found["advice"].message
    told = [finding.message for finding in await findings(engine, "instances_stopped")]
    assert any("'acme' stand still, suspended: audit (for example " + paused.id in message for message in told)
    assert any("'globex' stand still, dlq" in message for message in told)
    assert len(await findings(engine, "instances_stopped", failed_warning=1)) == 3
    await advance(engine, hours=2)
    assert len(await findings(engine, "instances_stopped", failed_warning=1)) == 2


async def test_workers_that_ended_without_a_word(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting())
    evidence.connection.execute(
        "insert into holdfast.workers values (gen_random_uuid(), 'h', 1, 'v', '{}', holdfast.clock(),"
        " clock_timestamp() - interval '1 minute')"
    )
    [finding] = await findings(engine, "workers_lost")
    assert (finding.severity, "pid 1 on h" in finding.message) == ("warning", True)
    await engine.start("plain")
    assert await graded(engine, "workers_live") == [("critical", "")]
    async with engine.worker():
        assert await findings(engine, "workers_live") == []


async def test_an_old_transaction(engine: Engine, admin: psycopg.Connection[Any]) -> None:
    admin.execute("begin isolation level repeatable read")
    admin.execute("select 1")
    pid = admin.info.backend_pid
    assert await findings(engine, "oldest_transaction") == []
    [finding] = await findings(engine, "oldest_transaction", transaction_warning=0)
    assert (finding.severity, f"process {pid}" in finding.subject) == ("warning", True)
    assert (await findings(engine, "oldest_transaction", transaction_critical=0))[0].severity == "critical"
    admin.execute("rollback")
    assert await findings(engine, "oldest_transaction", transaction_warning=0) == []


async def test_dead_rows_that_an_old_transaction_holds_back(engine: Engine, evidence: Evidence) -> None:
    evidence.connection.execute(
        "insert into holdfast.signals (instance_id, id, bucket, org_id, kind, ripe_at)"
        " select gen_random_uuid(), gen_random_uuid(), 0, 'acme', 'event', 'infinity' from generate_series(1, 2000)"
    )
    with psycopg.connect(engine.dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select 1")
        evidence.connection.execute("delete from holdfast.signals")
        evidence.connection.execute("vacuum holdfast.signals")
        evidence.rows("select pg_stat_force_next_flush()")
        assert await findings(engine, "dead_rows") == []
        [finding] = await findings(engine, "dead_rows", dead_rows_warning=2000)
        assert (finding.severity, finding.subject) == ("warning", "signals")
        assert (finding.value or 0) >= 2000  # as the statistics know it
        assert (await findings(engine, "dead_rows", dead_rows_warning=1000, dead_rows_critical=2000))[
            0
        ].severity == "critical"
    evidence.connection.execute("vacuum holdfast.signals")
    evidence.rows("select pg_stat_force_next_flush()")
    assert await findings(engine, "dead_rows", dead_rows_warning=2000) == []


async def test_transaction_ids_that_grow_old(engine: Engine, admin: psycopg.Connection[Any]) -> None:
    for _ in range(20):
        admin.execute("select txid_current()")
    assert await findings(engine, "xid_age") == []
    assert await graded(engine, "xid_age", xid_warning=20) == [("warning", "transaction id")]
    assert await graded(engine, "xid_age", xid_critical=20) == [("critical", "transaction id")]


async def test_the_notification_queue_fills(engine: Engine, admin: psycopg.Connection[Any]) -> None:
    admin.execute("listen holdfast_doctor_test")
    admin.execute("begin")  # a listener that sits in a transaction hears nothing, and nothing is freed
    admin.execute("select 1")
    with psycopg.connect(engine.dsn, autocommit=True) as sender:
        sender.execute(
            "select count(pg_notify('holdfast_doctor_test', n || repeat('x', 7000))) from generate_series(1, 4000) n"
        )
    [finding] = await findings(engine, "notify_queue", notify_warning=1e-6)
    assert (finding.severity, finding.value) == ("warning", pytest.approx(finding.value))
    assert await graded(engine, "notify_queue", notify_critical=1e-6) == [("critical", "")]
    admin.execute("rollback")


async def test_the_clock_went_back(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting())
    await advance(engine, minutes=30)
    async with engine.worker():
        pass
    assert await findings(engine, "clock_regression") == []
    evidence.connection.execute("update holdfast_testing.clock set shift = '29 minutes 30 seconds'")
    assert await graded(engine, "clock_regression") == [("warning", "")]
    evidence.connection.execute("update holdfast_testing.clock set shift = '0'")
    assert await graded(engine, "clock_regression") == [("critical", "")]


async def test_an_upkeep_that_fails(engine: Engine, evidence: Evidence) -> None:
    await engine.maintain()
    assert await findings(engine, "upkeep") == []
    evidence.connection.execute("alter function holdfast.ensure_partitions(int) rename to away")
    done = {u.task: u.error for u in await engine.maintain()}
    assert "ensure_partitions" in (done["partitions"] or "")
    assert await graded(engine, "upkeep") == [("warning", "partitions")]
    evidence.connection.execute("alter function holdfast.away(int) rename to ensure_partitions")
    await engine.maintain()
    assert await findings(engine, "upkeep") == []


async def test_a_login_with_little_rights_is_told_what_it_could_not_see(engine: Engine, evidence: Evidence) -> None:
    evidence.connection.execute("drop role if exists hf_nobody")
    evidence.connection.execute("create role hf_nobody login")
    try:
        report = await asyncio.to_thread(examine, make_conninfo(engine.dsn, user="hf_nobody"))
    finally:
        evidence.connection.execute("drop role hf_nobody")
    told = {f.code: f for f in report.findings}
    for code in ("schema", "oldest_signal", "dead_letters", "oldest_transaction"):
        assert told[code].severity == "unknown", code
        assert "Grant" in told[code].action
    assert told["xid_age"].severity == "ok"


async def test_a_database_that_is_away(own_server: tuple[Path, str]) -> None:
    directory, dsn = own_server
    await asyncio.to_thread(embedded.stop, directory, "immediate")
    report = await asyncio.to_thread(examine, dsn)
    assert [(f.code, f.severity) for f in report.findings] == [("database", "critical")]
    assert report.exit_code == 2


async def test_a_slot_that_nobody_uses(own_server: tuple[Path, str]) -> None:
    _, dsn = own_server
    async with Engine(dsn) as engine:
        healthy = await engine.doctor()
        assert healthy.exit_code == 0, [f for f in healthy.findings if f.severity in ("warning", "critical")]
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("select pg_create_physical_replication_slot('orphan', true)")
            connection.execute("create table public.junk as select repeat('x', 1000) from generate_series(1, 1000)")
        assert await graded(engine, "replication_slot") == [("warning", "orphan")]
        assert (await engine.doctor()).exit_code == 1
        assert await graded(engine, "replication_slot", slot_critical=1000) == [("critical", "orphan")]


async def test_an_unknown_threshold_is_refused(engine: Engine) -> None:
    with pytest.raises(Refused) as refusal:
        await engine.doctor(queue_warnings=3)
    assert refusal.value.code == "THRESHOLD_UNKNOWN"
