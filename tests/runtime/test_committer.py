"""The committer: what folds into one commit, who was faster, and what becomes of a commit that is refused."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import Busy, Refused, StoreError
from holdfast.store.commit.locks import Locked
from running import Evidence, until

pytestmark = pytest.mark.anyio

COUNTER: dict[str, Any] = {
    "name": "counter",
    "entry": "count",
    "nodes": [
        {"id": "count", "kind": "state"},
        {"id": "closed", "kind": "state"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "tick", "source": "count", "target": "count", "on": "tick"},
        {"id": "stop", "source": "count", "target": "end", "on": "stop"},
        {"id": "close", "source": "count", "target": "closed", "on": "close"},
        {"id": "finish", "source": "closed", "target": "end", "on": "finish"},
    ],
}
POISON = "alter table holdfast.steps add constraint no_poison check (output->>'poison' is null) not valid"


async def echo(ctx: Context, data: Any) -> Any:
    return data


async def counter(engine: Engine) -> str:
    await engine.publish(COUNTER)
    instance = await engine.start("counter")
    await engine.drain(timeout=30)
    return instance.id


# --- folding --------------------------------------------------------------------------------------------------------


async def test_concurrent_requests_for_one_instance_share_commits(engine: Engine) -> None:
    id, committer = await counter(engine), engine.committer
    held = {UUID(id).bytes}
    before, version = engine.stats().commits, (await engine.get(id)).version
    committer.hold(Locked(0, {}, {}, [], 0), held)  # until all have come, however slowly
    sent = [asyncio.create_task(engine.signal(id, "tick")) for _ in range(40)]
    await until(lambda: len(committer.buffer) == len(sent))
    committer.release(held)
    await asyncio.gather(*sent)
    assert (await engine.get(id)).version == version + 40
    assert engine.stats().commits - before < 5


async def test_queued_signals_of_one_instance_fold_in_their_order(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    for n in range(50):
        evidence.ask("select holdfast.signal(%s, 'tick', %s::jsonb)", id, str(n))
    evidence.ask("select holdfast.signal(%s, 'stop')", id)
    before = engine.stats().commits
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    ticks = [s.output for s in await engine.steps(id) if s.outcome == "tick"]
    assert ticks == list(range(50))
    assert engine.stats().commits - before <= 6


async def test_one_id_sent_twice_at_once_is_one_signal(engine: Engine) -> None:
    id, signal = await counter(engine), uuid4()
    answers = await asyncio.gather(*(engine.signal(id, "tick", {"n": 1}, id=signal) for _ in range(8)))
    assert {a.status for a in answers} == {"running"}
    assert len([s for s in await engine.steps(id) if s.outcome == "tick"]) == 1


async def test_a_refused_signal_leaves_no_receipt_beside_an_accepted_one(engine: Engine) -> None:
    """It may be sent again under its id once it is legal, even though its neighbour in the batch was applied."""
    id, signal = await counter(engine), uuid4()
    answers = await asyncio.gather(
        engine.signal(id, "tick"), engine.signal(id, "finish", id=signal, early=False), return_exceptions=True
    )
    assert isinstance(answers[1], Refused)
    await engine.signal(id, "close")
    assert (await engine.signal(id, "finish", id=signal)).status == "completed"


# --- who was faster -------------------------------------------------------------------------------------------------


async def test_a_cancel_from_elsewhere_beats_a_commit_without_locks(engine: Engine) -> None:
    """The worker's snapshot is old when its result arrives: refused, read again, recorded as what it is."""
    reached, opened = asyncio.Event(), asyncio.Event()

    @engine.handler("gate")
    async def gate(ctx: Context, data: Any) -> str:
        reached.set()
        await opened.wait()
        return "late"

    await engine.publish(Flow("gated").step("gate", "gate").step("next", "gate").build())
    async with engine.worker(), Engine(engine.dsn) as elsewhere:
        instance = await engine.start("gated")
        await asyncio.wait_for(reached.wait(), 10)
        await elsewhere.cancel(instance.id)
        opened.set()
        ended = await engine.wait(instance.id, timeout=10)
        assert engine.stats().batches_retried >= 1
        assert engine.stats().results_rejected == 0
    assert ended.status == "cancelled"
    assert [(s.status, s.output) for s in await engine.steps(instance.id) if s.behaviour == "work"] == [
        ("rolled_back", "late")
    ]


async def test_a_busy_instance_is_told_to_the_caller_and_waited_for_by_results(
    engine: Engine, evidence: Evidence
) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()

    @engine.handler("gate")
    async def gate(ctx: Context, data: Any) -> str:
        reached.set()
        await opened.wait()
        return "done"

    await engine.publish(Flow("gated").step("gate", "gate").build())
    async with engine.worker():
        held = await engine.start("gated")
        free = await engine.start("gated")
        await asyncio.wait_for(reached.wait(), 10)
        with evidence.connection.transaction():
            evidence.ask("select 1 from holdfast.instances where id = %s for update", held.id)
            with pytest.raises(Busy) as refusal:
                await engine.cancel(held.id)
            assert refusal.value.code == "INSTANCE_BUSY"
            opened.set()
            assert (await engine.wait(free.id, timeout=10)).status == "completed"
            assert (await engine.get(held.id)).status == "running"
        assert (await engine.wait(held.id, timeout=10)).data == "done"


async def test_work_taken_back_in_the_batch_that_dispatched_it_is_never_called(
    engine: Engine, evidence: Evidence
) -> None:
    """Start and cancel lie in the queue together: the step is opened and skipped in one commit."""
    engine.register("echo", echo)
    await engine.publish(Flow("short").step("echo", "echo").build())
    instance = await engine.start("short")
    evidence.ask("select holdfast.cancel(%s)", instance.id)
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).status == "cancelled"
    [step] = [s for s in await engine.steps(instance.id) if s.name == "echo"]
    assert (step.status, step.attempts) == ("skipped", 0)
    assert evidence.ask("select count(*) from holdfast.work") == 0


# --- poison ---------------------------------------------------------------------------------------------------------


async def test_a_result_the_database_refuses_fails_only_its_own_step(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(Flow("parcels").step("first", "echo").step("second", "echo").build())
    evidence.connection.execute(POISON)
    bad = [await engine.start("parcels", {"poison": n}) for n in range(2)]
    good = await engine.start_many("parcels", [{"n": n} for n in range(60)])
    await engine.drain(timeout=30)
    assert {(await engine.get(i.id)).status for i in good} == {"completed"}
    for instance in bad:
        failed = await engine.get(instance.id)
        assert (failed.status, failed.error["code"]) == ("failed", "RESULT_REFUSED")
        assert [s.status for s in await engine.steps(instance.id) if s.behaviour == "work"] == ["rolled_back"]


async def test_a_request_the_database_refuses_is_answered(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    evidence.connection.execute(POISON)
    with pytest.raises(StoreError) as refusal:
        await engine.signal(id, "tick", {"poison": 1})
    assert refusal.value.code == "STORE_REFUSED"
    assert "holdfast doctor" in refusal.value.hint
    assert (await engine.signal(id, "stop")).status == "completed"


async def test_a_queued_signal_the_database_refuses_is_buried_after_five_attempts(
    engine: Engine, evidence: Evidence
) -> None:
    id, other = await counter(engine), await engine.start("counter")
    await engine.drain(timeout=30)
    evidence.connection.execute(POISON)
    evidence.ask("""select holdfast.signal(%s, 'tick', '{"poison": 1}')""", id)
    evidence.ask("select holdfast.signal(%s, 'stop')", other.id)
    await engine.drain(timeout=30)
    [(reason, attempts, envelope, error)] = evidence.rows(
        "select reason, attempts, envelope, error from holdfast.dead_letters"
    )
    assert (reason, attempts) == ("ATTEMPTS_EXHAUSTED", 5)
    assert envelope["payload"]["payload"] == {"poison": 1}
    assert "no_poison" in error["message"]
    assert (await engine.get(other.id)).status == "completed"
    assert (await engine.signal(id, "stop")).status == "completed"


@pytest.mark.parametrize(("kind", "payload"), [("event", '{"event": 5}'), ("riddle", "{}"), ("timer", "[]")])
async def test_a_queued_signal_nobody_can_read_is_buried_at_once(
    engine: Engine, evidence: Evidence, kind: str, payload: str
) -> None:
    id = await counter(engine)
    evidence.connection.execute(
        """insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
        select id, gen_random_uuid(), bucket, org_id, %s, %s, holdfast.clock() from holdfast.instances where id = %s""",
        (kind, payload, id),
    )
    await engine.drain(timeout=30)
    [(reason, envelope, worker)] = evidence.rows("select reason, envelope, worker from holdfast.dead_letters")
    assert reason == "SIGNAL_UNREADABLE"
    assert envelope["kind"] == kind
    assert worker is not None
    assert evidence.ask("select count(*) from holdfast.signals") == 0
    assert (await engine.signal(id, "stop")).status == "completed"


async def test_a_queued_signal_that_is_refused_is_buried_with_the_reason(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    evidence.ask("select holdfast.signal(%s, 'nothing_like_that')", id)
    evidence.ask("select holdfast.signal(%s, 'tick', node => 'nowhere')", id)
    await engine.drain(timeout=30)
    assert {r for (r,) in evidence.rows("select reason from holdfast.dead_letters")} == {
        "EVENT_NOT_EXPECTED",
        "NODE_UNKNOWN",
    }


async def test_a_definition_that_was_tampered_with_stops_only_its_own_instances(
    engine: Engine, evidence: Evidence
) -> None:
    engine.register("echo", echo)
    await engine.publish(Flow("sound").step("echo", "echo").build())
    await engine.publish(Flow("spoiled").step("echo", "echo").build())
    spoiled, sound = await engine.start("spoiled"), await engine.start("sound")
    with evidence.connection.transaction():
        evidence.connection.execute("set local session_replication_role = replica")
        evidence.connection.execute("update holdfast.definitions set hash = 'forged' where name = 'spoiled'")
    async with Engine(engine.dsn) as fresh:
        fresh.register("echo", echo)
        await fresh.drain(timeout=30)
        assert (await fresh.get(sound.id)).status == "completed"
        assert (await fresh.get(spoiled.id)).status == "pending"
    [(reason, error)] = evidence.rows("select reason, error from holdfast.dead_letters")
    assert (reason, error["code"]) == ("WORKFLOW_HASH_MISMATCH", "WORKFLOW_HASH_MISMATCH")


async def test_trouble_with_the_schema_drops_nothing(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    await engine.publish(Flow("parcels").step("echo", "echo").build())
    evidence.connection.execute("revoke insert on holdfast.step_receipts from holdfast_worker")
    async with engine.worker():
        keyed = await engine.start("parcels", key="k")
        await until(lambda: engine.stats().batches_retried)
        with pytest.raises(StoreError) as refusal:
            await engine.start("parcels")
        assert refusal.value.code == "STORE_REFUSED"
        evidence.connection.execute("grant insert on holdfast.step_receipts to holdfast_worker")
        engine.wake()
        assert (await engine.wait(keyed.id, timeout=20)).status == "completed"
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
