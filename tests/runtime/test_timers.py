"""Timers on the real engine: due by the database's clock, moved, cancelled, raced, and signals that are due later."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import Engine
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

NAP: dict[str, Any] = {
    "name": "nap",
    "entry": "nap",
    "nodes": [{"id": "nap", "kind": "wait_timer", "delay": 3600.0}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "e", "source": "nap", "target": "end"}],
}
ASK: dict[str, Any] = {
    "name": "ask",
    "entry": "ask",
    "policy": {"timeout": 864_000.0},
    "nodes": [
        {"id": "ask", "kind": "state", "deadline": 3600.0},
        {"id": "answered", "kind": "end"},
        {"id": "late", "kind": "end"},
    ],
    "edges": [
        {"id": "ok", "source": "ask", "target": "answered", "on": "ok"},
        {"id": "timeout", "source": "ask", "target": "late", "on": "timeout"},
    ],
}


async def started(engine: Engine, graph: dict[str, Any], input: Any = None) -> str:
    await engine.publish(graph)
    instance = await engine.start(graph["name"], input)
    await engine.drain(timeout=30)
    return instance.id


async def status(engine: Engine, id: str) -> str:
    await engine.drain(timeout=30)
    return (await engine.get(id)).status


async def outcomes(engine: Engine, id: str) -> list[str | None]:
    return [step.outcome for step in await engine.steps(id)]


async def test_a_timer_never_fires_early_and_soon_after_it_is_due(engine: Engine) -> None:
    id = await started(engine, NAP)
    await advance(engine, minutes=59)
    assert await status(engine, id) == "running"
    await advance(engine, minutes=1)
    assert await status(engine, id) == "completed"


async def test_a_cron_timer_in_a_time_zone(engine: Engine) -> None:
    nodes = [{"id": "nap", "kind": "wait_timer", "cron": "0 9 * * *", "timezone": "Asia/Tokyo"}, NAP["nodes"][1]]
    id = await started(engine, {**NAP, "nodes": nodes})
    due = (await engine.get(id)).waiting_until
    assert due is not None
    assert (due.astimezone(UTC).hour, due.minute, due.second) == (0, 0, 0)
    await advance(engine, hours=24)
    assert await status(engine, id) == "completed"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (-5, "TIMER_OUT_OF_RANGE"),
        (1e300, "TIMER_OUT_OF_RANGE"),
        ("soon", "TIMER_NOT_A_MOMENT"),
        (None, "TIMER_NOT_A_MOMENT"),
    ],
)
async def test_a_bad_timer_out_of_the_data_fails_its_step_in_sight(
    engine: Engine, evidence: Evidence, value: Any, code: str
) -> None:
    nodes = [{"id": "nap", "kind": "wait_timer", "after": "input.wait"}, NAP["nodes"][1]]
    id = await started(engine, {**NAP, "nodes": nodes}, {"wait": value})
    failed = await engine.get(id)
    assert (failed.status, failed.error["code"]) == ("failed", code)
    assert [e.detail["code"] for e in await engine.events(id) if e.type == "step_failed"] == [code]
    assert evidence.ask("select count(*) from holdfast.timers") == 0


# --- moved and cancelled ----------------------------------------------------------------------------------------------


async def test_a_timer_is_brought_forward(engine: Engine, evidence: Evidence) -> None:
    id = await started(engine, NAP)
    moved = await engine.reschedule(id, "nap", delay=60, by="ann", reason="the customer waits")
    assert moved.waiting_until is not None
    assert evidence.ask("select count(*) from holdfast.timers") == 1
    await advance(engine, seconds=61)
    assert await status(engine, id) == "completed"
    [event] = [e for e in await engine.events(id) if e.type == "timer_rescheduled"]
    assert (event.actor, event.node, event.detail["reason"]) == ("ann", "nap", "the customer waits")


async def test_a_timer_is_put_off_and_its_old_message_is_stale(engine: Engine, evidence: Evidence) -> None:
    """The old due message lies in the queue already when the wait gets its new token."""
    id = await started(engine, NAP)
    await advance(engine, hours=2)
    evidence.ask(
        """with gone as (delete from holdfast.timers returning *)
        insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
        select instance_id, id, bucket, org_id, 'timer',
            payload || jsonb_build_object('wait', wait, 'purpose', purpose), due_at from gone returning 1"""
    )
    await engine.reschedule(id, "nap", at=datetime.now(UTC) + timedelta(days=3))
    assert await status(engine, id) == "running"
    assert evidence.ask("select count(*) from holdfast.signals") == 0
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
    await advance(engine, days=3)
    assert await status(engine, id) == "completed"


async def test_a_cancelled_timer_waits_until_it_is_released(engine: Engine, evidence: Evidence) -> None:
    id = await started(engine, NAP)
    cancelled = await engine.cancel_timer(id, "nap", by="ann")
    assert (cancelled.waiting_for, cancelled.waiting_until) == ("timer", None)
    assert evidence.ask("select count(*) from holdfast.timers") == 0
    await advance(engine, days=400)
    assert await status(engine, id) == "running"
    await engine.reschedule(id, "nap", delay=0)
    assert await status(engine, id) == "completed"


async def test_a_deadline_is_lifted_and_a_timeout_moved(engine: Engine) -> None:
    id = await started(engine, ASK)
    await engine.cancel_timer(id, "ask")
    await engine.reschedule(id, None, delay=30 * 86_400, by="ann")
    await advance(engine, days=20)
    assert await status(engine, id) == "running"
    await advance(engine, days=20)
    assert await status(engine, id) == "failed"
    assert (await engine.get(id)).reason == "WORKFLOW_TIMEOUT"


NEVER: list[dict[str, Any]] = [
    {"delay": -1},
    {"delay": float("nan")},
    {"delay": float("inf")},
    {"delay": 1e12},
    {"delay": "5"},
    {"delay": True},
    {"at": "tomorrow"},
    {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 — without a zone, which is the point
    {"at": datetime(2500, 1, 1, tzinfo=UTC)},
    {"at": datetime.max.replace(tzinfo=UTC)},
    {"delay": 5, "at": datetime(2030, 1, 1, tzinfo=UTC)},
]


@pytest.mark.parametrize("when", NEVER, ids=str)
async def test_moments_that_make_no_sense_are_refused_and_nothing_is_stored(
    engine: Engine, evidence: Evidence, when: dict[str, Any]
) -> None:
    id = await started(engine, NAP)
    before = evidence.rows("select * from holdfast.timers"), len(await engine.events(id))
    for attempt in (engine.reschedule(id, "nap", **when), engine.signal(id, "go", **when)):
        with pytest.raises(Refused) as refusal:
            await attempt
        assert refusal.value.code in ("TIMER_INVALID", "TIMER_OUT_OF_RANGE")
        assert refusal.value.hint
    assert (evidence.rows("select * from holdfast.timers"), len(await engine.events(id))) == before
    assert evidence.ask("select count(*) from holdfast.signals") == 0


async def test_what_waits_for_no_moment_cannot_be_moved(engine: Engine) -> None:
    id = await started(engine, NAP)
    for node, code in (("end", "TIMER_NOT_WAITING"), ("nowhere", "NODE_UNKNOWN"), (None, "TIMER_NOT_WAITING")):
        with pytest.raises(HoldfastError) as refusal:
            await engine.reschedule(id, node, delay=5)
        assert refusal.value.code == code
    with pytest.raises(Refused, match="TIMER_INVALID"):
        await engine.reschedule(id, "nap")


# --- a signal and a timeout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["event", "timer"])
async def test_whoever_lies_first_in_the_queue_wins(engine: Engine, evidence: Evidence, first: str) -> None:
    id = await started(engine, ASK)
    send = "select holdfast.signal(%s, 'ok')"
    fire = """with gone as (delete from holdfast.timers where purpose = 'deadline' returning *)
        insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
        select instance_id, id, bucket, org_id, 'timer',
            payload || jsonb_build_object('wait', wait, 'purpose', purpose), holdfast.clock() from gone returning 1"""
    if first == "event":
        evidence.ask(send, id)
        evidence.ask(fire)
    else:
        evidence.ask(fire)
        evidence.ask(send, id)
    assert await status(engine, id) == "completed"
    assert await outcomes(engine, id) == ["ok" if first == "event" else "timeout"]
    letters = await engine.dead_letters(id)
    assert [letter.reason for letter in letters] == ([] if first == "event" else ["INSTANCE_OVER"])


async def test_many_races_have_one_winner_each(engine: Engine, evidence: Evidence) -> None:
    """Sends and due timers meet in two processes; each instance ends once, by the one or by the other."""
    races = 150
    await engine.publish({**ASK, "nodes": [{**ASK["nodes"][0], "deadline": 0.4}, *ASK["nodes"][1:]]})
    refused = 0

    async def send(sender: Engine, id: str, n: int) -> None:
        nonlocal refused
        await asyncio.sleep(0.3 + 0.2 * (n % 20) / 20)
        try:
            await sender.signal(id, "ok")
        except (Conflict, Refused):
            refused += 1

    async with Engine(engine.dsn) as elsewhere, engine.worker(), elsewhere.worker():
        ids = [i.id for i in await engine.start_many("ask", [{}] * races)]
        await until(lambda: evidence.ask("select count(*) from holdfast.instances where status = 'running'") == races)
        await asyncio.gather(*(send(elsewhere if n % 2 else engine, id, n) for n, id in enumerate(ids)))
        await asyncio.gather(*(engine.wait(id, timeout=30) for id in ids))
    ends = [await outcomes(engine, id) for id in ids]
    assert {tuple(end) for end in ends} <= {("ok",), ("timeout",)}
    assert sum(end == ["timeout"] for end in ends) == refused
    assert evidence.ask("select count(*) from holdfast.step_receipts where token = '0@1'") == races


# --- signals for later ------------------------------------------------------------------------------------------------


async def test_a_signal_waits_until_it_is_due(engine: Engine, evidence: Evidence) -> None:
    id, signal = await started(engine, ASK), str(uuid4())
    for _ in range(2):
        waiting = await engine.signal(id, "ok", {"n": 1}, id=signal, delay=600, by="ann", capabilities=["sign"])
        assert waiting.status == "running"
    assert evidence.ask("select count(*) from holdfast.timers where purpose = 'signal'") == 1
    with pytest.raises(Conflict, match="SIGNAL_ID_REUSED"):
        await engine.signal(id, "ok", {"n": 2}, id=signal, delay=600)
    await advance(engine, minutes=9)
    assert await status(engine, id) == "running"
    await advance(engine, minutes=1)
    assert await status(engine, id) == "completed"
    [event] = [e for e in await engine.events(id) if e.type == "event_received"]
    assert (event.actor, event.detail["id"]) == ("ann", signal.replace("-", ""))


async def test_a_signal_at_a_moment(engine: Engine) -> None:
    id = await started(engine, ASK)
    await engine.signal(id, "ok", at=datetime.now(UTC) + timedelta(minutes=5))
    await advance(engine, minutes=6)
    assert await status(engine, id) == "completed"


async def test_a_late_signal_that_expects_another_version_is_a_dead_letter(engine: Engine) -> None:
    id = await started(engine, ASK)
    await engine.signal(id, "ok", delay=60, if_version=99)
    await advance(engine, minutes=2)
    assert await status(engine, id) == "running"
    assert [letter.reason for letter in await engine.dead_letters(id)] == ["VERSION_CONFLICT"]


async def test_a_signal_in_the_callers_transaction_keeps_what_it_expects(engine: Engine) -> None:
    id = await started(engine, ASK)
    version = (await engine.get(id)).version
    async with await psycopg.AsyncConnection.connect(engine.dsn) as conn:
        with pytest.raises(Conflict, match="VERSION_CONFLICT"):
            await engine.signal(id, "ok", if_version=version + 1, conn=conn)
        await conn.rollback()
        await engine.signal(id, "ok", token="0@7", conn=conn)
        await engine.signal(id, "ok", if_version=version, delay=60, conn=conn)
    assert await status(engine, id) == "running"
    assert [letter.reason for letter in await engine.dead_letters(id)] == ["EVENT_NOT_EXPECTED"]
    await advance(engine, minutes=2)
    assert await status(engine, id) == "completed"


async def test_a_signal_may_bring_the_waiting_token(engine: Engine) -> None:
    id = await started(engine, ASK)
    token = (await engine.runtime(id)).waiting_token
    assert token == "0@0:deadline"
    await engine.reschedule(id, "ask", delay=60)
    with pytest.raises(Refused, match="EVENT_NOT_EXPECTED"):
        await engine.signal(id, "ok", token=token)
    renewed = (await engine.runtime(id)).waiting_token
    assert (await engine.signal(id, "ok", token=renewed)).status == "completed"


async def test_signals_for_nobody(engine: Engine, evidence: Evidence) -> None:
    id = await started(engine, ASK)
    async with Engine(engine.dsn, org="other") as other:
        for sender, target in ((engine, str(uuid4())), (other, id)):
            for when in ({}, {"delay": 60}):
                with pytest.raises(NotFound, match="INSTANCE_UNKNOWN"):
                    await sender.signal(target, "ok", **when)
    events = len(await engine.events(id))
    await engine.signal(id, "ok")
    await engine.drain(timeout=30)
    for when in ({}, {"delay": 60}):
        with pytest.raises(Conflict, match="INSTANCE_OVER"):
            await engine.signal(id, "ok", by="ann", **when)
    trail = await engine.events(id)
    assert len(trail) > events
    assert [(e.type, e.actor, e.detail["signal"]) for e in trail if e.type == "signal_refused"] == [
        ("signal_refused", "ann", "ok")
    ] * 2
    assert evidence.ask("select count(*) from holdfast.timers") == 0


# --- the runtime columns ----------------------------------------------------------------------------------------------


async def test_the_runtime_of_an_instance(engine: Engine) -> None:
    id = await started(engine, ASK)
    runtime, view = await engine.runtime(id), await engine.get(id)
    assert (runtime.state_version, runtime.snapshot_format) == (view.version, 1)
    assert (runtime.waiting_kind, runtime.waiting_until) == ("deadline", view.waiting_until)
    [pointer] = runtime.resume_pointer
    [step] = await engine.steps(id)
    assert pointer == {"token": "0@0", "node": "ask", "phase": "resting", "step": step.id, "run": 0}
    assert (runtime.active_step, runtime.last_signal) == (step.id, None)
    assert runtime.last_executed_by is not None
    assert runtime.last_executed_at == view.updated_at
    signal = str(uuid4())
    await engine.signal(id, "ok", id=signal)
    ended = await engine.runtime(id)
    assert (ended.status, ended.last_signal, ended.resume_pointer) == ("completed", signal, None)


async def test_the_runtime_of_a_failure(engine: Engine) -> None:
    nodes = [{"id": "nap", "kind": "wait_timer", "after": "input.wait"}, NAP["nodes"][1]]
    id = await started(engine, {**NAP, "nodes": nodes}, {"wait": -1})
    runtime = await engine.runtime(id)
    assert (runtime.last_error_code, runtime.last_error["code"]) == ("TIMER_OUT_OF_RANGE", "TIMER_OUT_OF_RANGE")
    with pytest.raises(NotFound, match="INSTANCE_UNKNOWN"):
        await engine.runtime(uuid4())


async def test_a_tenant_sees_only_its_own_runtimes(engine: Engine, evidence: Evidence) -> None:
    id = await started(engine, ASK)
    with evidence.connection.transaction():
        evidence.connection.execute("set local role holdfast_tenant")
        assert evidence.ask("select count(*) from holdfast.runtime") == 0
        evidence.connection.execute("set local holdfast.org = 'default'")
        assert str(evidence.ask("select instance_id from holdfast.runtime")) == id
