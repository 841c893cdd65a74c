"""3.4, 3.5 and 4.6: what the answers of consumers change, and what follows when there is none."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from orders import GATES, answer, deliveries, due, office, register, rows

from holdfast import Engine
from holdfast.errors import Conflict, NotFound, Refused

pytestmark = pytest.mark.anyio


async def test_processed_closes_and_a_repeat_changes_nothing(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [fact] = deliveries(engine.dsn)
    for _ in range(2):
        assert await engine.ack("prod", "ledger", fact.ack, "processed") is None
    [fact] = deliveries(engine.dsn)
    assert (fact.status, fact.is_closed, fact.is_due) == ("processed", True, False)
    await engine.ack("prod", "ledger", fact.ack, "failed", message="too late")
    assert deliveries(engine.dsn)[0].status == "processed"


async def test_the_next_event_comes_in_the_same_commit_and_once(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [fact] = deliveries(engine.dsn)
    then = ("Pack", {"box": 4})
    answers = await asyncio.gather(*(engine.ack("prod", "ledger", fact.ack, "processed", then=then) for _ in range(4)))
    assert {repr(one) for one in answers} == {repr(answers[0])}
    assert answers[0] is not None
    assert (answers[0].applied, answers[0].to_state) == (True, "Packed")
    assert (await engine.machine("prod", "order", "O-1")).lifecycle == 2
    versions = rows(engine.dsn, "select version from holdfast.instances")
    closed = rows(
        engine.dsn,
        "select d.closed_at, (select max(created_at) from holdfast.acks) from holdfast.ack_consumers d"
        " where d.closed_at is not null",
    )
    assert versions == [(2,)]
    assert closed[0][0] == closed[0][1], "one commit, one date"


async def test_a_next_event_that_is_refused_leaves_the_fact_open(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [fact] = deliveries(engine.dsn)
    with pytest.raises(Refused) as caught:
        await engine.ack("prod", "ledger", fact.ack, "processed", then=("Fly", None))
    assert caught.value.code == "EVENT_UNKNOWN"
    assert deliveries(engine.dsn)[0].status == "pending"
    told = await engine.ack("prod", "ledger", fact.ack, "processed", then=("Ship", None))
    assert told is not None
    assert (told.applied, told.reason) == (False, "not_applicable")
    assert deliveries(engine.dsn)[0].status == "processed"


async def test_a_failure_of_a_critical_consumer_suspends_and_the_resume_tries_again(engine: Engine) -> None:
    await office(engine, consumers=("ledger", "audit"))
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await engine.trigger("prod", "order", "O-1", "Remind")
    first = deliveries(engine.dsn)[0]
    await engine.ack("prod", "ledger", first.ack, "failed", message="no paper")
    instance = await engine.get(done.instance)
    assert instance.status == "suspended"
    assert instance.reason is not None
    assert "ledger" in instance.reason
    assert first.guid in instance.reason
    [notice] = (await engine.notices(code="ACK_SUSPEND")).items
    assert (notice.kind, notice.consumer, notice.instance_id) == ("warn", "ledger", done.instance)
    assert rows(
        engine.dsn, "select source, reason, envelope ->> 'ack_guid', resolved_at from holdfast.dead_letters"
    ) == [("ack", "ACK_SUSPEND", first.guid, None)]
    assert due(engine.dsn) == [], "what failed halts what comes behind it"
    assert due(engine.dsn, "audit") == ["→ Checked"], "others go on"
    await engine.resume(done.instance)
    again = deliveries(engine.dsn)[0]
    assert (again.status, again.is_due, again.most) == ("pending", True, 3)
    await engine.ack("prod", "ledger", again.ack, "processed")
    assert due(engine.dsn) == ["→ Checked"]


async def test_processed_beats_failed(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [fact] = deliveries(engine.dsn)
    await engine.ack("prod", "ledger", fact.ack, "failed")
    await engine.ack("prod", "ledger", fact.ack, "processed")
    [fact] = deliveries(engine.dsn)
    assert (fact.status, fact.is_closed) == ("processed", True)


async def test_a_failure_of_another_consumer_goes_on_behind_it(engine: Engine) -> None:
    await office(engine, consumers=())
    register(engine.dsn, "ledger", critical=False)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await engine.trigger("prod", "order", "O-1", "Pack")
    await answer(engine, "→ Checked", "failed", message="no paper")
    assert (await engine.get(done.instance)).status == "running"
    assert due(engine.dsn) == ["→ Packed"]
    [notice] = (await engine.notices()).items
    assert (notice.code, notice.consumer) == ("ACK_FAIL", "ledger")
    assert rows(engine.dsn, "select reason from holdfast.dead_letters") == [("ACK_FAIL",)]


async def test_a_failure_after_the_end_is_a_notice(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        done = await engine.trigger("prod", "order", "O-1", event)
    await answer(engine, "→ Checked", "failed")
    assert [notice.code for notice in (await engine.notices()).items] == ["ACK_FAIL"]
    assert (await engine.get(done.instance)).status == "completed"
    assert due(engine.dsn) == ["→ Packed"]


async def test_unknown_handles_consumers_outcomes_and_verdicts(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [fact] = deliveries(engine.dsn)
    register(engine.dsn, "late")
    register(engine.dsn, "theirs", org_id="acme")
    wrong = [
        ("prod", "ledger", "nonsense", "processed", "ACK_UNKNOWN"),
        ("prod", "ledger", fact.ack[:-1] + ("A" if fact.ack[-1] != "A" else "B"), "processed", "ACK_UNKNOWN"),
        ("prod", "late", fact.ack, "processed", "ACK_UNKNOWN"),
        ("prod", "theirs", fact.ack, "processed", "CONSUMER_UNKNOWN"),
        ("test", "ledger", fact.ack, "processed", "CONSUMER_UNKNOWN"),
    ]
    for environment, consumer, ack, outcome, code in wrong:
        with pytest.raises(NotFound) as caught:
            await engine.ack(environment, consumer, ack, outcome)
        assert caught.value.code == code
    with pytest.raises(Refused):
        await engine.ack("prod", "ledger", fact.ack, "eaten")
    with pytest.raises(Refused):
        await engine.ack("prod", "ledger", fact.ack, "processed", verdict="perhaps")
    assert deliveries(engine.dsn)[0].status == "pending"


async def test_in_the_consumers_transaction_it_counts_with_its_work_or_not_at_all(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [fact] = deliveries(engine.dsn)
    with psycopg.connect(engine.dsn) as connection:
        connection.execute("create table public.books (n int)")
        connection.commit()
        for ends in (connection.rollback, connection.commit):
            connection.execute("insert into public.books values (1)")
            await engine.ack("prod", "ledger", fact.ack, "processed", then=("Pack", None), conn=connection)
            ends()
    await engine.drain(timeout=30)
    assert rows(engine.dsn, "select count(*) from public.books") == [(1,)]
    assert deliveries(engine.dsn)[0].status == "processed"
    assert (await engine.machine("prod", "order", "O-1")).state == "Packed"
    with psycopg.connect(engine.dsn) as connection:
        again = connection.execute("select holdfast.ack('ledger', %s, environment => 'prod')", [fact.ack]).fetchone()
        assert again == (False,), "whoever did the work twice is told so and can roll back"
        connection.execute("insert into public.books values (2)")
        with pytest.raises(Conflict) as caught:
            await engine.ack("prod", "ledger", fact.ack, "processed", conn=connection)
        connection.rollback()
    assert caught.value.code == "ACK_REPEATED"
    assert rows(engine.dsn, "select count(*) from public.books") == [(1,)]


# --- gates ----------------------------------------------------------------------------------------------------------


async def test_a_gate_waits_for_all_of_its_consumers_and_another_for_any(engine: Engine) -> None:
    await office(engine, GATES, consumers=("ledger", "bank"))
    await engine.trigger("prod", "order", "O-1", "Check")
    assert (await engine.trigger("prod", "order", "O-1", "Pack")).reason == "blocked"
    await answer(engine, "CHECK.CREDIT")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.CREDIT"]
    await answer(engine, "CHECK.CREDIT", consumer="bank")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.STOCK"]
    await answer(engine, "CHECK.STOCK", consumer="bank")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == []
    [complete] = [d for d in deliveries(engine.dsn) if d.kind == "complete"]
    assert (complete.body["verdict"], complete.body["send"]) == ("success", "Pack")
    assert (await engine.trigger("prod", "order", "O-1", complete.body["send"])).applied
    await answer(engine, "CHECK.STOCK")
    assert len([d for d in deliveries(engine.dsn) if d.kind == "complete"]) == 1


async def test_a_verdict_of_failure_names_the_event_for_it(engine: Engine) -> None:
    await office(engine, GATES, consumers=("ledger", "bank"))
    await engine.trigger("prod", "order", "O-1", "Check")
    await answer(engine, "CHECK.CREDIT", verdict="failure")
    await answer(engine, "CHECK.CREDIT", consumer="bank")
    [complete] = [d for d in deliveries(engine.dsn) if d.kind == "complete"]
    assert (complete.body["verdict"], complete.body["send"]) == ("failure", "Back")
    assert not any(d.what == "CHECK.STOCK" for d in deliveries(engine.dsn))


async def test_answers_at_once_complete_a_gate_once(engine: Engine) -> None:
    names = tuple(f"c{n}" for n in range(8))
    await office(engine, GATES, consumers=names)
    for ref in ("O-1", "O-2", "O-3"):
        await engine.trigger("prod", "order", ref, "Check")
    for phase in ("CHECK.CREDIT", "CHECK.STOCK"):
        open_ones = [(name, d.ack) for name in names for d in deliveries(engine.dsn, name) if d.what == phase]
        await asyncio.gather(*(engine.ack("prod", name, ack, "processed") for name, ack in open_ones))
    completed = [d for d in deliveries(engine.dsn, "c0") if d.kind == "complete"]
    assert len(completed) == 3
