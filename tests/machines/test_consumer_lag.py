"""How far consumers are behind, as Prometheus and the doctor say it."""

from __future__ import annotations

import psycopg
import pytest
from orders import BLUEPRINT

from holdfast import Engine, Machine
from holdfast.store.admin.doctor import Finding
from holdfast.testing import advance

pytestmark = pytest.mark.anyio


async def office(engine: Engine) -> None:
    await engine.import_machine(Machine.load(BLUEPRINT))
    for name in ("billing", "audit"):
        await engine.register_consumer("prod", name)
        await engine.receive("prod", name)
    await engine.trigger("prod", "order", "O-1", "Check")
    [event] = await engine.receive("prod", "audit")
    await engine.ack("prod", "audit", event.ack, "processed")


async def examine(engine: Engine) -> list[Finding]:
    return [finding for finding in (await engine.doctor()).findings if finding.code == "consumers"]


async def test_metrics_name_consumers_of_the_tenant_that_asks(engine: Engine) -> None:
    assert engine.stats().consumer_open_facts is None
    await office(engine)
    await advance(engine, minutes=10)
    await engine.look_at_backlog()
    stats = engine.stats()
    assert stats.consumer_open_facts == {("prod", "billing"): 1, ("prod", "audit"): 0}
    assert stats.consumer_seconds_behind is not None
    assert 600 <= stats.consumer_seconds_behind["prod", "billing"] < 700
    others = engine.for_org("other").stats()
    assert others.consumer_open_facts == {("(others)", "(others)"): 1}


async def test_many_consumers_of_one_tenant_hide_nobody_elses(engine: Engine) -> None:
    await office(engine)
    with psycopg.connect(engine.dsn) as db:  # they come first by the name of their organisation
        db.execute("""
            insert into holdfast.consumers (id, bucket, org_id, environment, name, way, takes_transitions, takes_hooks,
                critical, ttl, max_attempts, in_flight, since, registered_at, updated_at)
            select gen_random_uuid(), 0, 'aaa', 'prod', n::text, 'pull', true, true, true, 9, 9, 9, now(), now(), now()
            from generate_series(1, 200) n""")
    await engine.look_at_backlog()
    stats = engine.stats()
    assert stats.consumer_open_facts == {("prod", "billing"): 1, ("prod", "audit"): 0, ("(others)", "(others)"): 0}


async def test_the_doctor_warns_of_consumers_that_are_behind_or_down(engine: Engine) -> None:
    await office(engine)
    [good] = await examine(engine)
    assert good.severity == "ok"
    await advance(engine, minutes=10)
    [late] = await examine(engine)
    assert (late.severity, late.subject) == ("warning", "billing")
    assert "1 open facts" in late.message
    with psycopg.connect(engine.dsn) as db:
        db.execute("update holdfast.consumer_beats set beat_at = clock_timestamp() - interval '1 minute'")
    [down] = await examine(engine)
    assert down.severity == "warning"
    assert "is down" in down.message
    await advance(engine, hours=1)
    assert (await examine(engine))[0].severity == "critical"
