"""What operators do with machines: migrate, cancel, fail, re-run, rebuild."""

from __future__ import annotations

import pytest
from orders import BLUEPRINT, GATES, answer, deliveries, due, office, rows

from holdfast import Engine, Machine

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


async def test_reopening_is_a_new_instance_under_the_same_reference(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        done = await engine.trigger("prod", "order", "O-1", event)
    again = await engine.rerun(done.instance, from_step="Packed", by="ann")
    stands = await engine.machine("prod", "order", "O-1")
    assert (stands.id, stands.id != done.instance) == (again.id, True)
    assert (await engine.trigger("prod", "order", "O-1", "Ship")).instance == again.id
    assert (await engine.get(done.instance)).status == "completed"
