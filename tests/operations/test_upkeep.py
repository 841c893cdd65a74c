"""The upkeep has no leader: whoever is first does a task, nobody does it twice, and nobody has to be alive for it."""

from __future__ import annotations

import threading

import pytest

from holdfast import Engine
from holdfast.runtime.ops.upkeep import PAUSE
from holdfast.store.admin import upkeep
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio


async def test_a_task_is_done_by_one_of_many(engine: Engine, evidence: Evidence) -> None:
    await advance(engine, days=95)
    results: list[upkeep.Upkeep] = []
    ready = threading.Barrier(4)

    def run() -> None:
        ready.wait()
        results.extend(upkeep.run_due(engine.dsn, {}, threading.Event()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(u.task for u in results) == sorted(upkeep.TASKS.keys() - _named())
    assert {u.error for u in results} == {None}
    assert evidence.rows("select task from holdfast.upkeep_runs") == [("partitions",)]
    assert upkeep.run_due(engine.dsn, {}, threading.Event()) == []


def _named() -> set[str]:
    return {name for name, task in upkeep.TASKS.items() if task.needs}


async def test_a_runner_that_died_is_replaced(engine: Engine, evidence: Evidence) -> None:
    upkeep.run_due(engine.dsn, {}, threading.Event())
    await advance(engine, days=2)
    evidence.connection.execute(  # taken, and never finished
        "update holdfast.upkeep set due_at = holdfast.clock() + %s * interval '1 second', runner = 'gone:1'",
        [upkeep.CLAIM_SECONDS],
    )
    assert upkeep.run_due(engine.dsn, {}, threading.Event()) == []
    await advance(engine, seconds=upkeep.CLAIM_SECONDS)
    assert len(upkeep.run_due(engine.dsn, {}, threading.Event())) == 5
    assert evidence.ask("select count(*) from holdfast.upkeep where runner = 'gone:1'") == 0


async def test_queues_are_vacuumed_when_the_server_is_late(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "DEAD_ROWS", 500)
    evidence.connection.execute("alter table holdfast.signals set (autovacuum_enabled = off)")
    evidence.connection.execute(
        "insert into holdfast.signals (instance_id, id, bucket, org_id, kind, ripe_at)"
        " select gen_random_uuid(), gen_random_uuid(), 0, 'acme', 'event', 'infinity' from generate_series(1, 1000)"
    )
    evidence.connection.execute("delete from holdfast.signals")
    dead = "select n_dead_tup from pg_stat_user_tables where relname = 'signals'"
    evidence.rows("select pg_stat_force_next_flush()")
    await until(lambda: evidence.ask(dead) >= 1000)
    vacuumed = "select vacuum_count from pg_stat_user_tables where relname = 'signals'"
    before = evidence.ask(vacuumed)
    await engine.maintain()
    await until(lambda: evidence.ask(dead) < 500 and evidence.ask(vacuumed) == before + 1)
    await engine.maintain()
    evidence.rows("select pg_stat_force_next_flush()")
    assert evidence.ask(vacuumed) == before + 1  # nothing to free, nothing done
    assert evidence.ask("select count(*) from holdfast.upkeep_runs where task = 'vacuum'") == 0


async def test_queues_do_not_wait_for_the_servers_nap(evidence: Evidence) -> None:
    """A look every ten seconds, and a vacuum from where the server itself would make one."""
    assert upkeep.TASKS["vacuum"].every <= PAUSE <= 10
    options = evidence.rows(
        "select unnest(reloptions) from pg_class where oid in"
        " ('holdfast.work'::regclass, 'holdfast.signals'::regclass, 'holdfast.timers'::regclass)"
    )
    thresholds = [option for (option,) in options if option.startswith("autovacuum_vacuum_threshold=")]
    assert thresholds == [f"autovacuum_vacuum_threshold={upkeep.DEAD_ROWS}"] * 3
