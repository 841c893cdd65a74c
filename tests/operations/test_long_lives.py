"""Long lives: what rests for years is carried into the present month, and the months it leaves can go."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from operations_flows import echo, undoable, waiting

from holdfast import Engine
from holdfast.errors import Conflict, Refused
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.upkeep import maintain
from holdfast.testing import advance
from running import Evidence

pytestmark = pytest.mark.anyio

MONTH = timedelta(days=31)
LONG = os.environ.get("HOLDFAST_PROFILE") == "long"
TABLES = ("steps", "events", "effects")


def machine(name: str = "door", **open_state: Any) -> dict[str, Any]:
    """Two states and the events between them, and an end."""
    ways = [
        ("shut", "open", "opens"),
        ("open", "shut", "shuts"),
        ("open", "open", "knocks"),
        ("open", "gone", "leaves"),
    ]
    return {
        "name": name,
        "kind": "steps",
        "entry": "shut",
        "policy": {"data": "context", "on_error": "suspend", "on_cancel": "stop"},
        "nodes": [
            {"id": "shut", "kind": "state"},
            {"id": "open", "kind": "state", **open_state},
            {"id": "gone", "kind": "terminal"},
        ],
        "edges": [{"id": f"e{n}", "source": a, "target": b, "on": on} for n, (a, b, on) in enumerate(ways)],
    }


async def keep(engine: Engine, span: timedelta = MONTH, **more: timedelta) -> dict[str, dict[str, Any]]:
    done = await maintain(engine.dsn, Retention(**{**dict.fromkeys(TABLES, span), **more}))
    assert {u.error for u in done} == {None}
    return {u.task: u.result for u in done}


async def at(engine: Engine, id: str, evidence: Evidence) -> tuple[str, Any]:
    [(state, data)] = evidence.rows("select state, data from holdfast.instances where id = %s", id)
    [token] = state["tokens"].values()
    return token["node"], data


def months(evidence: Evidence, id: str, table: str = "steps") -> list[str]:
    found = evidence.rows(
        f"select distinct to_char(created_at at time zone 'UTC', 'YYYYMM') from holdfast.{table}"
        " where instance_id = %s order by 1", id
    )  # fmt: skip
    return [month for (month,) in found]


async def carried(engine: Engine, id: str) -> int:
    return len([event for event in await engine.events(id) if event.type == "instance_carried"])


@pytest.fixture
async def office(engine: Engine) -> Engine:
    engine.register("echo", echo)
    await engine.publish(machine())
    return engine


async def begin(engine: Engine, flow: str = "door", *events: str, input: Any = None) -> str:
    id = (await engine.start(flow, input or {"n": 1})).id
    await engine.drain(timeout=30)
    for event in events:
        await engine.signal(id, event)
        await engine.drain(timeout=30)
    return id


async def test_the_months_it_leaves_go_and_it_lives_on(office: Engine, evidence: Evidence) -> None:
    id = await begin(office, "door", "opens", "shuts", "opens")
    [before] = [step for step in await office.steps(id) if step.status == "waiting"]
    [was] = months(evidence, id)
    await advance(office, days=70)
    done = await keep(office)
    assert done["carry"] == {"carried": 1, "receipts": 3, "left": 0}
    assert [f"{table}_{was}" in done[table]["dropped"] for table in TABLES] == [True] * 3
    assert [done[table]["held"] for table in TABLES] == [{}] * 3
    assert was not in months(evidence, id)

    [step] = [step for step in await office.steps(id) if step.behaviour != "control"]
    assert (step.id, step.token, step.status, step.cause) == (before.id, before.token, "waiting", "carried")
    assert (step.began_at, step.run) == (before.created_at, before.run)
    assert await at(office, id, evidence) == ("open", {"n": 1})
    assert (await office.rebuild(id, dry_run=True)).differences == []

    await office.signal(id, "shuts", {"by": "ann"})
    await office.drain(timeout=30)
    assert await at(office, id, evidence) == ("shut", {"n": 1, "by": "ann"})
    for event in ("opens", "leaves"):
        await office.signal(id, event)
        await office.drain(timeout=30)
    assert (await office.get(id)).status == "completed"


async def test_nothing_is_carried_before_its_month_is_old_enough(office: Engine, evidence: Evidence) -> None:
    id = await begin(office)
    await advance(office, days=20)
    assert (await keep(office))["carry"] == {"left": 0}
    await advance(office, days=50)
    assert (await keep(office))["carry"]["carried"] == 1
    version = (await office.get(id)).version
    for _ in range(3):
        assert (await keep(office))["carry"] == {"left": 0}
    assert (await office.get(id)).version == version
    await advance(office, days=70)
    assert (await keep(office))["carry"]["carried"] == 1
    assert await carried(office, id) == 1  # the first event went with its month
    assert len(months(evidence, id)) == 1


async def test_until_the_old_months_are_gone_a_step_is_seen_once(office: Engine, evidence: Evidence) -> None:
    id = await begin(office, "door", "opens")
    await advance(office, days=70)
    await maintain(office.dsn, Retention(effects=MONTH))
    assert len(months(evidence, id)) == 2
    assert [(s.name, s.status) for s in await office.steps(id)] == [("shut", "completed"), ("open", "waiting")]
    rows = evidence.rows(
        "select status, outcome, cause from holdfast.steps where instance_id = %s and node = 'open' order by 3 desc",
        id,
    )
    assert rows == [("superseded", "carried", "event"), ("waiting", None, "carried")]
    assert (await office.rebuild(id, dry_run=True)).differences == []


async def test_a_damaged_snapshot_is_rebuilt_from_the_checkpoint(office: Engine, evidence: Evidence) -> None:
    id = await begin(office, "door", "opens")
    await advance(office, days=70)
    await keep(office)
    await office.signal(id, "shuts", {"by": "ann"})
    await office.drain(timeout=30)
    evidence.connection.execute(
        "update holdfast.instances set state = '{}', data = '{}', version = version + 1 where id = %s", [id]
    )
    done = await office.rebuild(id, by="ann")
    assert done.written
    assert await at(office, id, evidence) == ("shut", {"n": 1, "by": "ann"})
    await office.signal(id, "opens")
    await office.drain(timeout=30)
    assert (await at(office, id, evidence))[0] == "open"


async def test_a_rebuild_without_the_checkpoint_is_refused(office: Engine, evidence: Evidence) -> None:
    id = await begin(office)
    await advance(office, days=70)
    await keep(office)
    evidence.connection.execute(
        "set holdfast.maintenance = 'on'; delete from holdfast.steps where node = '@checkpoint';"
        " reset holdfast.maintenance"
    )
    with pytest.raises(Conflict, match="gone"):
        await office.rebuild(id, dry_run=True)


async def test_cancel_suspend_and_resume_after_a_carry(office: Engine, evidence: Evidence) -> None:
    first, second = await begin(office), await begin(office)
    await office.suspend(second, by="ann")
    await office.drain(timeout=30)
    await advance(office, days=70)
    assert (await keep(office))["carry"]["carried"] == 2
    await office.cancel(first, by="ann")
    await office.resume(second, by="ann")
    await office.drain(timeout=30)
    assert [(await office.get(id)).status for id in (first, second)] == ["cancelled", "running"]
    await office.signal(second, "opens")
    await office.drain(timeout=30)
    assert (await at(office, second, evidence))[0] == "open"


async def test_a_timer_that_was_set_before_fires_after(office: Engine, evidence: Evidence) -> None:
    flow = waiting("late", {"kind": "wait_timer", "delay": 100 * 86400.0})
    await office.publish(flow)
    id = await begin(office, "late")
    await advance(office, days=70)
    assert (await keep(office))["carry"]["carried"] == 1
    await advance(office, days=31)
    await office.drain(timeout=30)
    assert (await office.get(id)).status == "completed"


async def test_events_that_came_early_are_kept_across_a_carry(office: Engine, evidence: Evidence) -> None:
    later = machine("later")
    later["nodes"][1]["wait"] = {"event": "key", "early": True}
    later["edges"].append({"id": "k", "source": "open", "target": "gone", "on": "key"})
    await office.publish(later)
    id = await begin(office, "later")
    await advance(office, days=70)
    await office.signal(id, "key", {"early": True})
    await office.drain(timeout=30)
    assert (await keep(office))["carry"]["carried"] == 1
    assert (await office.rebuild(id, dry_run=True)).differences == []
    await office.signal(id, "opens")
    await office.drain(timeout=30)
    assert ((await office.get(id)).status, (await office.get(id)).data) == ("completed", {"n": 1, "early": True})


async def test_a_task_that_was_open_before_is_decided_after(office: Engine, evidence: Evidence) -> None:
    await office.publish(waiting("asks", {"kind": "human", "assignee": "'ann'"}))
    id = await begin(office, "asks")
    await advance(office, days=70)
    assert (await keep(office))["carry"]["carried"] == 1
    [task] = await office.tasks(instance_id=id)
    await office.decide(task.id, decision="completed", by="ann")
    await office.drain(timeout=30)
    assert (await office.get(id)).status == "completed"


async def test_a_sub_flow_and_its_parent_are_carried_each_for_itself(office: Engine, evidence: Evidence) -> None:
    await office.publish(waiting())
    await office.publish(waiting("mother", {"kind": "sub_flow", "child": {"flow": "plain"}}))
    id = await begin(office, "mother")
    child = evidence.ask("select id::text from holdfast.instances where parent_id = %s", id)
    await advance(office, days=70)
    assert (await keep(office))["carry"]["carried"] == 2
    await office.signal(child, "signed")
    await office.drain(timeout=30)
    assert (await office.get(id)).status == "completed"


async def test_what_cannot_be_carried_keeps_its_months_and_doctor_says_why(office: Engine, evidence: Evidence) -> None:
    await office.publish(undoable())
    await office.publish(waiting("unheard", {"kind": "task", "handler": "nobody"}))
    id, busy = await begin(office, "saga"), await begin(office, "unheard")
    [was] = months(evidence, id)
    await advance(office, days=70)
    done = await keep(office)
    assert done["carry"] == {"carried": 0, "left": 2}
    assert set(done["steps"]["held"]) == {f"steps_{was}"}
    found = {f.subject: f.message for f in (await office.doctor()).findings if f.code == "months_held"}
    assert set(found) == {"saga", "unheard"}
    assert "takes steps back" in found["saga"]
    assert id in found["saga"]
    assert "under way" in found["unheard"]
    await office.cancel(id)
    await office.cancel(busy)
    await office.drain(timeout=30)
    done = await keep(office)
    assert f"steps_{was}" in done["steps"]["dropped"]
    [finding] = [f for f in (await office.doctor()).findings if f.code == "months_held"]
    assert finding.severity == "ok"


async def test_somebody_who_holds_the_instance_is_not_waited_for(office: Engine, evidence: Evidence) -> None:
    id = await begin(office)
    await advance(office, days=70)
    with evidence.connection.transaction():
        evidence.connection.execute("select from holdfast.instances where id = %s for update", [id])
        assert (await asyncio.wait_for(keep(office), 30))["carry"]["carried"] == 0
    assert (await keep(office))["carry"]["carried"] == 1


async def test_a_repeated_signal_is_recognised_for_its_window(office: Engine, evidence: Evidence) -> None:
    first, second = UUID(int=7 << 76 | 8 << 60 | 1), UUID(int=7 << 76 | 8 << 60 | 2)
    id = await begin(office)
    await office.signal(id, "opens", id=first)
    await office.drain(timeout=30)
    await advance(office, days=70)
    await office.signal(id, "shuts", id=second)
    await office.drain(timeout=30)
    await keep(office)
    count = "select count(*) from holdfast.outbox_receipts where instance_id = %s and source = 'signal'"
    assert evidence.ask(count, id) == 2  # for ever, unless somebody says so
    await advance(office, days=70)
    await keep(office, requests=timedelta(days=100))
    assert evidence.ask(count, id) == 1
    version = (await office.get(id)).version
    await office.signal(id, "shuts", id=second)
    await office.drain(timeout=30)
    assert (await office.get(id)).version == version
    with pytest.raises(Refused, match="30 days"):
        Retention(requests=timedelta(days=29))


async def test_a_step_since_the_carry_may_run_again_an_earlier_one_not(office: Engine, evidence: Evidence) -> None:
    id = await begin(office, "door", "opens")
    await advance(office, days=70)
    await keep(office)
    with pytest.raises(Conflict) as refused:
        await office.rerun(id, from_step="shut", by="ann")
    assert refused.value.code == "RERUN_HISTORY_GONE"
    await office.rerun(id, from_step="open", by="ann")
    await office.drain(timeout=30)
    assert (await at(office, id, evidence))[0] == "open"
    assert (await office.rebuild(id, dry_run=True)).differences == []


async def test_a_migration_crosses_a_checkpoint(office: Engine, evidence: Evidence) -> None:
    id = await begin(office, "door", "opens")
    await advance(office, days=70)
    await keep(office)
    newer = {**machine(), "version": 2}
    newer["edges"].append({"id": "x", "source": "shut", "target": "gone", "on": "breaks"})
    await office.publish(newer)
    await office.migrate("door", to=2, instances=[id], by="ann")
    await office.drain(timeout=30)
    await office.signal(id, "shuts")
    await office.drain(timeout=30)
    assert (await office.rebuild(id, dry_run=True)).differences == []
    await advance(office, days=70)
    assert (await keep(office))["carry"]["carried"] == 1
    await office.signal(id, "breaks")
    await office.drain(timeout=30)
    assert (await office.get(id)).status == "completed"


async def test_events_that_come_while_it_is_carried_are_all_taken(office: Engine, evidence: Evidence) -> None:
    """A lane that knows the instance from before is refused by its revision, and decides again."""
    ids = [await begin(office, "door", "opens") for _ in range(12)]
    await advance(office, days=70)
    await maintain(office.dsn, Retention())

    async def knock(id: str) -> None:
        for _ in range(20):
            await office.signal(id, "knocks")

    async with office.worker(maintenance=False):
        *_, first = await asyncio.gather(*map(knock, ids), keep(office))
    await office.drain(timeout=60)
    second = await keep(office)  # those that somebody held
    assert first["carry"]["carried"] + second["carry"].get("carried", 0) == len(ids)
    for id in ids:
        assert (await office.rebuild(id, dry_run=True)).differences == []
        state = evidence.ask("select state from holdfast.instances where id = %s", id)
        assert state["tokens"]["0"]["hop"] == 21
        assert await carried(office, id) == 1


async def test_an_instance_of_many_transitions_over_many_months(
    office: Engine, evidence: Evidence, capsys: pytest.CaptureFixture[str]
) -> None:
    laps, years = (2_000, 24) if LONG else (40, 5)
    id, others = await begin(office), [await begin(office) for _ in range(20 if LONG else 5)]
    most = 0
    async with office.worker(maintenance=False):
        for _ in range(years):
            for event in ("opens", *["knocks"] * laps, "shuts"):
                await office.signal(id, event)
            await office.drain(timeout=120)
            await advance(office, days=62)
            done = await keep(office)
            assert done["steps"]["held"] == {}
            most = max(most, evidence.ask("select count(*) from holdfast.steps where instance_id = %s", id))
            assert evidence.ask("select count(*) from holdfast.step_receipts where instance_id = %s", id) < 2 * laps
    assert most < 2 * laps
    assert len(months(evidence, id)) == 1
    assert (await office.rebuild(id, dry_run=True)).differences == []
    assert {(await at(office, other, evidence))[0] for other in others} == {"shut"}
    assert evidence.ask("select max(opened_version) from holdfast.steps where instance_id = %s", id) > years * laps
    with capsys.disabled():
        print(f"\n{years * (laps + 2)} transitions, at most {most} rows kept")


# --- facts and notices --------------------------------------------------------------------------------------------


TOLD = """
with i (id, bucket, at, fact, org) as (
    select id, bucket, holdfast.clock(), gen_random_uuid(), org_id from holdfast.instances where id = %(id)s
), a as (
    insert into holdfast.acks (instance_id, bucket, created_at, id, org_id, environment, definition, external_ref, kind,
        state, step_id, seq, ordinal, needs_ack, body)
    select id, bucket, at, fact, org, 'prod', 'door', 'D-1', 'transition', 'open', fact, 1, 0, true, '{}' from i
), c as (
    insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal,
        most)
    select id, bucket, at, fact, fact, org, 1, 0, 3 from i
), s as (
    insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at) select id, bucket, org, 60, at from i
), n as (
    insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id)
    select fact, bucket, at, org, 'ACK_RETRY', 'warn', 'again', id from i
)
insert into holdfast.activities (instance_id, bucket, id, org_id, name, actor, status, created_at, updated_at)
select id, bucket, fact, org, 'review', 'ann', 'done', at, at from i
"""


def tell(evidence: Evidence, id: str) -> None:
    """A fact of an instance with one open delivery, a notice, an activity and a look for staleness."""
    evidence.connection.execute(TOLD, {"id": id})


def settle(evidence: Evidence) -> None:
    evidence.connection.execute("update holdfast.ack_consumers set status = 'processed', closed_at = holdfast.clock()")


async def test_facts_keep_their_month_until_they_are_delivered(office: Engine, evidence: Evidence) -> None:
    id = await begin(office)
    tell(evidence, id)
    [was] = months(evidence, id, "acks")
    await advance(office, days=70)
    done = await keep(office, acks=MONTH, notices=MONTH)
    assert done["acks"] == {"dropped": [], "held": {f"acks_{was}": id, f"ack_consumers_{was}": id}}
    assert f"notices_{was}" in done["notices"]["dropped"]
    assert f"steps_{was}" in done["steps"]["dropped"]
    settle(evidence)
    done = await keep(office, acks=MONTH)
    assert done["acks"] == {"dropped": [f"acks_{was}", f"ack_consumers_{was}"], "held": {}}


async def test_an_open_delivery_keeps_an_instance_that_is_over(office: Engine, evidence: Evidence) -> None:
    id = await begin(office, "door", "opens", "leaves")
    assert (await office.get(id)).status == "completed"
    tell(evidence, id)
    await advance(office, days=70)
    kept = await maintain(office.dsn, Retention(instances=MONTH, receipts=MONTH))
    assert {u.task: u.result for u in kept}["instances"] == {"removed": 0}
    settle(evidence)
    gone = await maintain(office.dsn, Retention(instances=MONTH))
    assert {u.task: u.result for u in gone}["instances"] == {"removed": 1}
    for table in ("acks", "ack_consumers", "activities", "stale_checks", "steps", "instances"):
        assert evidence.ask(f"select count(*) from holdfast.{table}") == 0, table
    assert evidence.ask("select count(*) from holdfast.notices") == 1  # they go by their age alone
