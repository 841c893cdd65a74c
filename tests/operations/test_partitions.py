"""Months come and go without anybody looking: nothing fails, nothing is lost, and the upkeep puts it right later."""

from __future__ import annotations

import logging

import pytest
from operations_flows import echo, waiting

from holdfast import Engine
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.upkeep import maintain
from holdfast.store.admin.upkeep import Upkeep
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

TABLES = ("steps", "events", "effects")


async def upkeep(engine: Engine) -> dict[str, Upkeep]:
    done = {u.task: u for u in await maintain(engine.dsn, Retention())}
    assert {u.error for u in done.values()} == {None}
    return done


def in_default(evidence: Evidence) -> int:
    return sum(evidence.ask(f"select count(*) from holdfast.{table}_default") for table in TABLES)


def months(evidence: Evidence, table: str = "steps") -> list[str]:
    found = evidence.rows(
        "select c.relname from pg_inherits h join pg_class c on c.oid = h.inhrelid"
        " where h.inhparent = %s::regclass order by 1",
        f"holdfast.{table}",
    )
    return [name for (name,) in found if not name.endswith("default")]


async def test_the_end_of_months_with_no_upkeep_at_all(engine: Engine, evidence: Evidence) -> None:
    """Half a year later rows fall into the default partition; instances begun before go on, and end."""
    engine.register("echo", echo)
    await engine.publish(waiting())
    before = await engine.start("plain", {"n": 1})
    await engine.drain(timeout=30)
    assert in_default(evidence) == 0

    for month in range(3):
        await advance(engine, days=180 if month == 0 else 31)
        between = await engine.start("plain", {"n": 2})
        await engine.drain(timeout=30)
        await engine.signal(between.id, "signed", by="ann")
        await engine.drain(timeout=30)
        assert (await engine.get(between.id)).status == "completed"
    assert in_default(evidence) > 0

    await engine.signal(before.id, "signed", by="ann")  # its open step lies in an old month
    await engine.drain(timeout=30)
    assert (await engine.get(before.id)).status == "completed"

    steps = evidence.rows("select id, status, closed_at from holdfast.steps order by id")
    events = evidence.ask("select count(*) from holdfast.events")
    fallen = in_default(evidence)
    done = await upkeep(engine)
    assert done["partitions"].result["in_default"] == fallen
    assert len(done["partitions"].result["moved"]) >= 2 * 2  # steps and events, months that were over already
    assert in_default(evidence) == 0
    assert evidence.rows("select id, status, closed_at from holdfast.steps order by id") == steps
    assert evidence.ask("select count(*) from holdfast.events") == events
    assert evidence.ask("select min(months_ahead) from holdfast.partition_alarm()") >= 3

    after = await engine.start("plain", {"n": 3})
    await engine.drain(timeout=30)
    assert in_default(evidence) == 0
    assert [s.name for s in await engine.steps(after.id)] == ["one", "middle"]
    assert [s.name for s in await engine.steps(before.id)] == ["one", "middle", "two"]
    again = await upkeep(engine)
    assert again["partitions"].result == {"in_default": 0, "made": [], "moved": []}


async def test_a_worker_makes_the_months_ahead_by_itself(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting())
    await advance(engine, days=95)
    assert evidence.ask("select min(months_ahead) from holdfast.partition_alarm()") < 3
    async with engine.worker():
        await until(lambda: evidence.ask("select count(*) from holdfast.upkeep_runs"))
    assert evidence.ask("select min(months_ahead) from holdfast.partition_alarm()") >= 3
    [(task, runner)] = evidence.rows("select task, runner from holdfast.upkeep_runs")
    assert (task, ":" in runner) == ("partitions", True)


async def test_a_worker_that_finds_rows_without_a_month_raises_an_alarm(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    engine.register("echo", echo)
    await engine.publish(waiting())
    await advance(engine, days=180)
    await engine.start("plain")
    await engine.drain(timeout=30)
    fallen = in_default(evidence)
    assert fallen > 0
    with caplog.at_level(logging.INFO, "holdfast.maintenance"):
        async with engine.worker():
            await until(lambda: engine.stats().default_partition_rows)
            assert engine.stats().default_partition_rows == fallen
    assert in_default(evidence) == 0
    [alarm] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{fallen} rows lay in a default partition" in alarm.getMessage()
    assert "they have moved to their months" in alarm.getMessage()


async def test_writers_go_on_while_rows_move(engine: Engine, evidence: Evidence) -> None:
    """The upkeep gives way to a writer that holds the table, and comes back."""
    engine.register("echo", echo)
    await engine.publish(waiting())
    await advance(engine, days=180)
    await engine.start("plain")
    await engine.drain(timeout=30)
    assert in_default(evidence) > 0
    with evidence.connection.transaction():
        evidence.rows("select 1 from holdfast.steps limit 1")
        done = {u.task: u for u in await maintain(engine.dsn, Retention())}
        assert "lock timeout" in (done["partitions"].error or "")
        started = await engine.start("plain")
    assert evidence.ask("select error from holdfast.upkeep where task = 'partitions'") is not None
    await upkeep(engine)
    assert in_default(evidence) == 0
    assert evidence.ask("select error from holdfast.upkeep where task = 'partitions'") is None
    await engine.drain(timeout=30)
    assert (await engine.get(started.id)).waiting_for == "event"
