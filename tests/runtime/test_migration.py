"""Migration on the real thing: running instances move to another version, and back; the report says who cannot."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from detours import check_replay, order, published, waits, works

from holdfast import Context, Engine
from holdfast.errors import Forbidden, NotFound, Refused
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

ONE = order(1, waits())
TWO = order(2, waits(), works("check"))
RENAMED = order(3, waits("question"), works("check"))


async def started(engine: Engine, count: int = 1, version: int = 1, flow: str = "order") -> list[str]:
    found = [(await engine.start(flow, {"n": n}, version=version)).id for n in range(count)]
    await engine.drain(timeout=30)
    return found


async def test_waiting_instances_go_on_under_the_new_version(engine: Engine, holdfast_dsn: str) -> None:
    await published(engine, ONE, TWO)
    ids = await started(engine, 5)
    report = await engine.migrate("order", to=2, by="ada", reason="the check was forgotten")
    assert sorted(report.moved) == sorted(ids)
    assert report.counts == {"moved": 5, "blocked": 0, "unchanged": 0}
    assert (await engine.get(ids[0])).flow_version == 2
    check_replay(holdfast_dsn)
    for id in ids:
        await engine.signal(id, "signed", {"trail": ["signed"]})
    await engine.drain(timeout=30)
    assert (await engine.get(ids[0])).data["trail"] == ["signed", "check", "two"]
    check_replay(holdfast_dsn)


async def test_a_dry_run_tells_who_would_move_and_who_could_not(engine: Engine, evidence: Evidence) -> None:
    await published(engine, ONE, RENAMED)
    ids = await started(engine, 2)
    before = evidence.rows("select id, version, definition_id from holdfast.instances order by id")
    blocked = await engine.migrate("order", to=3, dry_run=True)
    assert [(b.id, b.code, b.version) for b in blocked.blocked] == [
        (id, "MIGRATION_NODE_MISSING", 1) for id in sorted(ids)
    ]
    assert "ask" in blocked.blocked[0].reason
    mapped = await engine.migrate("order", to=3, nodes={"ask": "question"}, dry_run=True)
    assert (mapped.dry_run, mapped.moved, mapped.blocked) == (True, sorted(ids), [])
    assert evidence.rows("select id, version, definition_id from holdfast.instances order by id") == before


async def test_nodes_are_mapped_by_name(engine: Engine, holdfast_dsn: str) -> None:
    await published(engine, ONE, RENAMED)
    [id] = await started(engine)
    await engine.migrate("order", to=3, nodes={"ask": "question"})
    check_replay(holdfast_dsn)
    await engine.signal(id, "signed", {"n": 1}, node="question")
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    assert [step.name for step in await engine.steps(id)] == ["one", "ask", "check", "two"]
    check_replay(holdfast_dsn)


async def test_who_did_it_and_why_is_in_the_audit_trail(engine: Engine) -> None:
    await published(engine, ONE, TWO)
    [id] = await started(engine)
    await engine.migrate("order", to=2, by="ada", reason="law of May")
    [event] = [e for e in await engine.events(id) if e.type == "instance_migrated"]
    assert event.actor == "ada"
    assert event.detail == {"from": 1, "to": 2, "by": "ada", "reason": "law of May", "nodes": {}}
    [control] = [step for step in await engine.steps(id, all=True) if step.name == "@migrate"]
    assert control.status == "completed"


async def test_a_migration_is_reverted_with_what_it_recorded(engine: Engine, holdfast_dsn: str) -> None:
    await published(engine, ONE, RENAMED)
    moved = await started(engine, 3)
    [born] = await started(engine, version=3)
    await engine.migrate("order", to=3, nodes={"ask": "question"})
    planned = await engine.revert_migration("order", from_version=3, dry_run=True)
    assert (sorted(planned.moved), [b.code for b in planned.blocked]) == (sorted(moved), ["MIGRATION_NONE"])
    report = await engine.revert_migration("order", from_version=3, by="ada")
    assert (sorted(report.moved), [b.id for b in report.blocked]) == (sorted(moved), [born])
    assert (await engine.get(moved[0])).flow_version == 1
    again = await engine.revert_migration("order", from_version=3)
    assert again.moved == []
    await engine.signal(moved[0], "signed", {"n": 1}, node="ask")
    await engine.drain(timeout=30)
    assert (await engine.get(moved[0])).data["trail"] == ["two"]
    check_replay(holdfast_dsn)


def human(version: int, id: str, *capabilities: str) -> dict[str, Any]:
    return order(version, {"id": id, "kind": "human", "capabilities": list(capabilities), "self_approval": False})


async def inbox(engine: Engine, by: str, *capabilities: str) -> list[str]:
    return [task.node for task in (await engine.inbox(by, capabilities=capabilities)).items]


async def test_a_task_goes_by_the_name_its_step_has_today(engine: Engine, holdfast_dsn: str) -> None:
    await published(engine, human(1, "ask"), human(2, "sign", "contracts"))
    id = (await engine.start("order", {"n": 1}, version=1, by="ann")).id
    await engine.drain(timeout=30)
    await engine.migrate("order", to=2, nodes={"ask": "sign"}, by="ada")
    [task] = await engine.tasks(id)
    assert (task.node, task.status) == ("sign", "open")
    assert [await inbox(engine, "ben", "contracts"), await inbox(engine, "ben")] == [["sign"], []]
    assert await inbox(engine, "ann", "contracts") == []
    with pytest.raises(Forbidden, match="CAPABILITY_MISSING"):
        await engine.claim(task.id, by="ben", capabilities=[])
    with pytest.raises(Forbidden, match="SELF_APPROVAL"):
        await engine.claim(task.id, by="ann", capabilities=["contracts"])
    renamed = (await engine.task_events(task.id))[-1]
    assert (renamed.type, renamed.actor, renamed.detail) == ("renamed", "ada", {"from": "ask", "to": "sign"})
    await engine.claim(task.id, by="ben", capabilities=["contracts"])
    await engine.decide(task.id, by="ben", decision="confirmed", capabilities=["contracts"])
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    check_replay(holdfast_dsn)


async def test_a_reverted_migration_gives_a_task_its_name_back(engine: Engine, holdfast_dsn: str) -> None:
    await published(engine, human(1, "ask"), human(2, "sign", "contracts"))
    [id] = await started(engine)
    await engine.migrate("order", to=2, nodes={"ask": "sign"})
    [task] = await engine.tasks(id)
    await engine.assign(task.id, to="ben", by="boss")
    await engine.revert_migration("order", from_version=2)
    assert await inbox(engine, "ben") == ["ask"]
    await engine.release(task.id, by="ben")
    assert await inbox(engine, "cy") == ["ask"]
    await engine.claim(task.id, by="cy", capabilities=[])
    await engine.decide(task.id, by="cy", decision="confirmed")
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    check_replay(holdfast_dsn)


async def test_repeating_a_migration_changes_nothing(engine: Engine) -> None:
    await published(engine, ONE, TWO)
    [id] = await started(engine)
    await engine.migrate("order", to=2)
    version = (await engine.get(id)).version
    assert (await engine.migrate("order", to=2)).counts["moved"] == 0
    assert (await engine.migrate("order", to=2, instances=[id])).unchanged == [id]
    assert (await engine.get(id)).version == version


async def test_only_the_named_ones_or_those_of_one_version_are_moved(engine: Engine) -> None:
    await published(engine, ONE, TWO, order(4, waits()))
    first, second = await started(engine, 2)
    [other] = await started(engine, version=2)
    assert (await engine.migrate("order", to=4, instances=[first])).moved == [first]
    assert (await engine.migrate("order", to=4, from_version=1)).moved == [second]
    assert (await engine.get(other)).flow_version == 2
    missing = "0190c3a0-0000-7000-8000-000000000000"
    [blocked] = (await engine.migrate("order", to=4, instances=[missing])).blocked
    assert (blocked.id, blocked.code) == (missing, "INSTANCE_UNKNOWN")


async def test_a_long_list_is_walked_in_parts(engine: Engine) -> None:
    await published(engine, ONE, TWO)
    ids = await started(engine, 7)
    seen: list[str] = []
    report = await engine.migrate("order", to=2, limit=3, dry_run=True)
    while True:
        seen += report.moved
        if report.next is None:
            break
        report = await engine.migrate("order", to=2, limit=3, dry_run=True, after=report.next)
    assert seen == sorted(ids)


async def test_what_is_over_is_not_looked_at(engine: Engine) -> None:
    await published(engine, ONE, TWO)
    done, waiting = await started(engine, 2)
    await engine.signal(done, "signed", {"n": 1})
    await engine.drain(timeout=30)
    assert (await engine.migrate("order", to=2)).moved == [waiting]
    [blocked] = (await engine.migrate("order", to=2, instances=[done])).blocked
    assert blocked.code == "INSTANCE_OVER"


async def test_running_work_blocks_until_it_is_done(engine: Engine, holdfast_dsn: str) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    @engine.handler("slow")
    async def slow(ctx: Context, data: Any) -> Any:
        reached.set()
        await gate.wait()
        return data

    await published(engine, order(1, works("wait", "slow")), order(2, works("wait", "slow"), works("more")))
    async with engine.worker():
        id = (await engine.start("order", {"n": 1}, version=1)).id
        await reached.wait()
        [blocked] = (await engine.migrate("order", to=2)).blocked
        assert blocked.code == "MIGRATION_WORK_RUNNING"
        await engine.suspend(id)
        gate.set()
        await until(lambda: engine.stats().handlers_running == 0)

        async def moved() -> bool:
            return (await engine.migrate("order", to=2, nodes={"two": "more"})).moved == [id]

        await until(moved)
        await engine.resume(id)
        done = await engine.wait(id, timeout=30)
    assert done.data["trail"] == ["one", "more", "two"]
    check_replay(holdfast_dsn)


async def test_a_failed_step_is_repaired_by_a_new_version(engine: Engine, holdfast_dsn: str) -> None:
    @engine.handler("broken")
    async def broken(ctx: Context, data: Any) -> Any:
        raise ValueError("a bug")

    flows = [order(n, works("charge", handler), on_error="dlq") for n, handler in ((1, "broken"), (2, "echo"))]
    await published(engine, *flows)
    [id] = await started(engine)
    assert (await engine.get(id)).status == "dlq"
    assert (await engine.migrate("order", to=2)).moved == [id]
    await engine.resume(id)
    await engine.drain(timeout=30)
    assert (await engine.get(id)).data["trail"] == ["one", "charge", "two"]
    check_replay(holdfast_dsn)


def saga(version: int, step: str, undo: str) -> dict[str, Any]:
    flow = order(version, waits(), works("ship", "broken"), on_error="rollback")
    flow["nodes"] = [
        {**works(step), "undo": undo}, *flow["nodes"][1:], {"id": undo, "kind": "compensation", "handler": undo},
    ]  # fmt: skip
    flow["edges"][0]["source"] = flow["entry"] = step
    return flow


async def test_a_rollback_after_a_migration_uses_the_new_compensations(engine: Engine, holdfast_dsn: str) -> None:
    undone: list[tuple[str, Any]] = []

    @engine.handler("broken")
    async def broken(ctx: Context, data: Any) -> Any:
        raise ValueError("no ship")

    @engine.handler("release")
    @engine.handler("free")
    async def release(ctx: Context, data: Any) -> Any:
        undone.append((ctx.step, data["output"]["n"]))

    await published(engine, saga(1, "reserve", "release"), saga(2, "book", "free"))
    [id] = await started(engine)
    [blocked] = (await engine.migrate("order", to=2, dry_run=True)).blocked
    assert blocked.code == "MIGRATION_UNDO_LOST"
    await engine.migrate("order", to=2, nodes={"reserve": "book"})
    await engine.signal(id, "signed")
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "failed"
    assert undone == [("free", 0)]
    assert {step.name: step.status for step in await engine.steps(id)}["reserve"] == "rolled_back"
    check_replay(holdfast_dsn)


def ending(version: int, last: dict[str, Any], *more: dict[str, Any], ask: str = "ask") -> dict[str, Any]:
    flow = order(version, waits(ask), last, waits("stay", "left"), on_error="rollback")
    return {**flow, "nodes": [*flow["nodes"], *more]}


async def test_a_compensation_is_missed_only_where_something_was_done(engine: Engine) -> None:
    undo = {"id": "refund", "kind": "compensation", "handler": "echo"}
    await published(engine, ending(1, {**works("pay"), "undo": "refund"}, undo), ending(2, works("pay")))
    await engine.publish(ending(3, {**works("charge"), "undo": "refund"}, undo))
    early, done, renamed = await started(engine, 3)
    for id in (done, renamed):
        await engine.signal(id, "signed")
    await engine.drain(timeout=30)
    await engine.migrate("order", to=3, instances=[renamed], nodes={"pay": "charge"})
    for dry_run in (True, False):
        report = await engine.migrate("order", to=2, nodes={"charge": "pay"}, dry_run=dry_run)
        assert report.moved == [early]
        assert {b.id: (b.code, "'pay'" in b.reason) for b in report.blocked} == {
            done: ("MIGRATION_UNDO_LOST", True),
            renamed: ("MIGRATION_UNDO_LOST", False),
        }


async def test_a_step_that_may_not_be_called_again_ends_with_its_own_error(engine: Engine, holdfast_dsn: str) -> None:
    @engine.handler("broken")
    async def broken(ctx: Context, data: Any) -> Any:
        raise ValueError("the bank is closed")

    def charging(version: int, calls: int) -> dict[str, Any]:
        return order(version, {**works("charge", "broken"), "retry": {"calls": calls, "delay": 3600}})

    await published(engine, charging(1, 3), charging(2, 1))
    [id] = await started(engine)
    await engine.migrate("order", to=2)
    await advance(engine, hours=1)
    await engine.drain(timeout=30)
    [step] = [step for step in await engine.steps(id) if step.name == "charge"]
    assert (step.status, step.attempts, step.error["message"]) == ("failed", 1, "the bank is closed")
    ended = await engine.get(id)
    assert (ended.status, ended.reason) == ("failed", step.error["code"])
    assert ended.error["message"] == "the bank is closed"
    check_replay(holdfast_dsn)


async def test_a_rebuild_reads_across_migrations(engine: Engine, evidence: Evidence) -> None:
    await published(engine, ONE, RENAMED)
    [id] = await started(engine)
    await engine.migrate("order", to=3, nodes={"ask": "question"})
    done = await engine.rebuild(id)
    assert done.differences == []
    evidence.connection.execute("update holdfast.instances set state = '{}', version = version + 1 where id = %s", [id])
    assert (await engine.rebuild(id)).written
    await engine.signal(id, "signed", {"n": 1})
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"


async def test_signals_that_race_a_migration_are_decided_by_one_version_or_the_other(
    engine: Engine, holdfast_dsn: str
) -> None:
    await published(engine, ONE, TWO)
    ids = await started(engine, 20)
    async with engine.worker():
        report, *_ = await asyncio.gather(
            engine.migrate("order", to=2), *(engine.signal(id, "signed", {"n": 1}) for id in ids)
        )
        for id in ids:
            assert (await engine.wait(id, timeout=30)).status == "completed"
    for id in report.moved:
        assert (await engine.get(id)).data["trail"] == ["check", "two"]
    assert {b.code for b in report.blocked} <= {"MIGRATION_WORK_RUNNING", "INSTANCE_OVER", "INSTANCE_BUSY"}
    check_replay(holdfast_dsn)


async def test_what_makes_no_sense_is_refused_before_anything_is_read(engine: Engine) -> None:
    await published(engine, ONE, TWO)
    with pytest.raises(NotFound, match="VERSION_UNKNOWN"):
        await engine.migrate("order", to=9)
    with pytest.raises(NotFound, match="FLOW_UNKNOWN"):
        await engine.migrate("nothing", to=2)
    with pytest.raises(NotFound, match="NODE_UNKNOWN"):
        await engine.migrate("order", to=2, nodes={"ask": "nowhere"})
    with pytest.raises(Refused, match="LIMIT_INVALID"):
        await engine.migrate("order", to=2, limit=0)
    with pytest.raises(NotFound, match="VERSION_UNKNOWN"):
        await engine.migrate("order", to=2, from_version=9)
    with pytest.raises(NotFound, match="FLOW_UNKNOWN"):
        await engine.revert_migration("nothing", from_version=2)
    with pytest.raises(NotFound, match="VERSION_UNKNOWN"):
        await engine.revert_migration("order", from_version=9)


@pytest.mark.parametrize("nodes", [["ask"], "ask=two", {"ask": 2}, {1: "two"}])
async def test_nodes_are_a_mapping(engine: Engine, nodes: Any) -> None:
    await published(engine, ONE, TWO)
    with pytest.raises(Refused, match=r"NODE_MAPPING_INVALID.*`nodes`"):
        await engine.migrate("order", to=2, nodes=nodes)


async def test_instances_are_ids(engine: Engine) -> None:
    await published(engine, ONE, TWO)
    [id] = await started(engine)
    strange: Any = 5
    with pytest.raises(Refused, match=r"ID_INVALID.*`instances`"):
        await engine.migrate("order", to=2, instances=strange)
    with pytest.raises(Refused, match=r"ID_INVALID.*`instances`"):
        await engine.revert_migration("order", from_version=2, instances=strange)
    assert (await engine.migrate("order", to=2, instances=id)).moved == [id]


async def test_an_old_name_is_one_of_a_version_that_is_migrated_from(engine: Engine) -> None:
    await published(engine, ONE, TWO, RENAMED)
    for origin in (None, 1):
        with pytest.raises(NotFound, match=r"NODE_UNKNOWN.*'aks'"):
            await engine.migrate("order", to=3, from_version=origin, nodes={"ask": "question", "aks": "question"})
    with pytest.raises(NotFound, match=r"NODE_UNKNOWN.*'question'"):
        await engine.migrate("order", to=3, nodes={"question": "check"})
    with pytest.raises(NotFound, match=r"NODE_UNKNOWN.*'check' in version 1"):
        await engine.migrate("order", to=3, from_version=1, nodes={"check": "check"})
    await engine.migrate("order", to=3, nodes={"check": "check"})


async def test_the_database_lets_nobody_else_change_the_version(engine: Engine, evidence: Evidence) -> None:
    await published(engine, ONE, TWO)
    [id] = await started(engine)
    with pytest.raises(psycopg.Error, match="until it is migrated") as refused:
        evidence.connection.execute(
            "update holdfast.instances set flow_version = 2, version = version + 1 where id = %s", [id]
        )
    assert refused.value.sqlstate == "HF002"
