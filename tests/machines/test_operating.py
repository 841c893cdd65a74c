"""What operators do with machines: migrate, cancel, fail, re-run, rebuild."""

from __future__ import annotations

import psycopg
import pytest
from orders import BLUEPRINT, GATES, answer, deliveries, due, office, rows

from holdfast import Engine, Machine
from holdfast.errors import Conflict, Refused

pytestmark = pytest.mark.anyio


async def test_a_migration_gives_an_instance_the_newest_policy(engine: Engine) -> None:
    await office(engine)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await engine.import_machine(policy=GATES)
    await engine.migrate("prod.order", to=2, instances=[done.instance], by="ann")
    await engine.trigger("prod", "order", "O-1", "Back")
    await engine.trigger("prod", "order", "O-1", "Check")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.CREDIT"]


async def test_open_gates_survive_a_migration(engine: Engine) -> None:
    await office(engine, GATES)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await engine.import_machine(Machine.load(BLUEPRINT, {**GATES, "timeouts": []} | {"stale_minutes": 5}))
    await engine.migrate("prod.order", to=2, instances=[done.instance], by="ann")
    assert (await engine.trigger("prod", "order", "O-1", "Pack")).reason == "blocked"
    await answer(engine, "CHECK.CREDIT")
    await answer(engine, "→ Checked")
    await answer(engine, "CHECK.STOCK")
    assert (await engine.trigger("prod", "order", "O-1", "Pack")).applied


async def test_what_is_cancelled_or_failed_is_over_and_its_facts_are_still_told(engine: Engine) -> None:
    await office(engine, GATES)
    cancelled = await engine.trigger("prod", "order", "O-1", "Check")
    failed = await engine.trigger("prod", "order", "O-2", "Check")
    await engine.cancel(cancelled.instance, by="ann")
    await engine.force_fail(failed.instance, reason="lost", by="ann")
    assert (await engine.get(cancelled.instance)).status == "cancelled"
    assert (await engine.get(failed.instance)).status == "failed"
    for ref in ("O-1", "O-2"):
        assert (await engine.trigger("prod", "order", ref, "Pack")).reason == "terminal"
        assert due(engine.dsn, ref=ref) == ["→ Checked", "CHECK.CREDIT"]
    for one in deliveries(engine.dsn):
        await engine.ack("prod", "ledger", one.ack, "processed")
    assert not any(one.kind == "complete" for one in deliveries(engine.dsn))


async def test_a_rebuilt_snapshot_knows_its_gates(engine: Engine) -> None:
    await office(engine, GATES)
    done = await engine.trigger("prod", "order", "O-1", "Check", {"n": 1})
    await answer(engine, "CHECK.CREDIT")
    before = rows(engine.dsn, "select state::text, data from holdfast.instances")
    await engine.rebuild(done.instance)
    assert rows(engine.dsn, "select state::text, data from holdfast.instances") == before
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.STOCK"]


async def test_what_is_open_is_moved_by_events_only(engine: Engine) -> None:
    """5.10: a re-run would lead to a state that no consumer is told of."""
    await office(engine)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    with pytest.raises(Conflict) as caught:
        await engine.rerun(done.instance, from_step="New", by="ann")
    assert caught.value.code == "TRIGGER_NEEDED"
    assert (await engine.machine("prod", "order", "O-1")).state == "Checked"


async def test_a_machine_is_not_started_but_triggered(engine: Engine) -> None:
    """3.2: an instance is one of a blueprint and a reference; a start would make any number of them."""
    await office(engine)
    starts = (engine.start("prod.order", {}, business_key="O-1"), engine.start_many("prod.order", [{}]))
    for start in starts:
        with pytest.raises(Refused) as caught:
            await start
        assert caught.value.code == "TRIGGER_NEEDED"
    with psycopg.connect(engine.dsn) as db, pytest.raises(psycopg.Error, match="is a machine") as refused:
        db.execute("select holdfast.start('prod.order', '{}')")
    assert refused.value.sqlstate == "HF422"
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(0,)]


async def test_reopening_is_a_new_instance_under_the_same_reference(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        done = await engine.trigger("prod", "order", "O-1", event)
    again = await engine.rerun(done.instance, from_step="Packed", by="ann")
    stands = await engine.machine("prod", "order", "O-1")
    assert (stands.id, stands.id != done.instance) == (again.id, True)
    assert (await engine.trigger("prod", "order", "O-1", "Ship")).instance == again.id
    assert (await engine.get(done.instance)).status == "completed"
