"""Requeue of failed deliveries: their dead letters are put back, in order, at a pace, and counters go on."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from orders import GATES, answer, deliveries, due, office, register, rows

from holdfast import Engine
from holdfast.errors import Conflict, Refused
from holdfast.runtime.ops.dead_letters import LetterFilter

pytestmark = pytest.mark.anyio

WHY: dict[str, Any] = {"by": "ann", "reason": "the printer works again"}
ACKS = LetterFilter(source="ack")


async def fail(engine: Engine, what: str = "→ Checked", consumer: str = "ledger") -> None:
    """The delivery of that name that is due fails."""
    [one] = [d for d in deliveries(engine.dsn, consumer) if d.what == what and d.is_due]
    await engine.ack("prod", consumer, one.ack, "failed", message="no paper")


async def test_3_5_b_a_requeue_gives_as_many_attempts_more_and_the_instance_goes_on(engine: Engine) -> None:
    await office(engine)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await engine.trigger("prod", "order", "O-1", "Remind")
    assert [len(await engine.receive("prod", "ledger")) for _ in range(2)] == [1, 0]
    await fail(engine)
    [letter] = await engine.dead_letters(done.instance, source="ack")
    assert (letter.flow, letter.reason, letter.attempts) == ("prod.order", "ACK_SUSPEND", 1)
    put_back = await engine.requeue(letter.id, **WHY)
    assert (put_back.resolution, put_back.resolved_by, put_back.resolved_why) == (
        "replayed", "ann", "the printer works again",
    )  # fmt: skip
    assert (await engine.get(done.instance)).status == "running"
    [event] = await engine.receive("prod", "ledger")
    assert (event.to_state, event.attempt, deliveries(engine.dsn)[0].most) == ("Checked", 2, 4)
    assert event.ack == deliveries(engine.dsn)[0].ack, "the same guid"
    trail = [(one.type, one.actor) for one in await engine.events(done.instance)]
    assert trail[-2:] == [("instance_resumed", "ann"), ("dead_letter_replayed", "ann")]
    with pytest.raises(Conflict, match="DEAD_LETTER_RESOLVED"):
        await engine.requeue(letter.id, **WHY)
    await engine.ack("prod", "ledger", event.ack, "processed")
    assert due(engine.dsn) == ["→ Checked"], "what came behind it"


async def test_what_fails_again_opens_its_letter_again(engine: Engine) -> None:
    await office(engine)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    for _ in range(2):
        await fail(engine)
        assert (await engine.get(done.instance)).status == "suspended"
        [letter] = await engine.dead_letters(source="ack")
        await engine.requeue(letter.id, **WHY)
    assert rows(engine.dsn, "select count(*) from holdfast.dead_letters") == [(1,)]
    assert await engine.dead_letters(source="ack") == []


async def test_5_8_a_requeued_fact_goes_before_what_is_due_behind_it(engine: Engine) -> None:
    """Its consumer is not critical, so later facts were not held back."""
    await office(engine, consumers=())
    register(engine.dsn, "ledger", critical=False)
    for event in ("Check", "Remind", "Pack"):
        await engine.trigger("prod", "order", "O-1", event)
    await fail(engine)
    assert [d.is_due for d in deliveries(engine.dsn)] == [False, True, False]
    await engine.replay_dead_letters(filter=ACKS, **WHY)
    assert [d.is_due for d in deliveries(engine.dsn)] == [True, False, False]
    seen: list[int] = []
    for _ in range(3):
        [event] = await engine.receive("prod", "ledger")
        seen.append(event.lifecycle)
        await engine.ack("prod", "ledger", event.ack, "processed")
    assert seen == [1, 2, 3]


async def test_5_8_several_of_one_instance_come_again_in_their_order(engine: Engine) -> None:
    await office(engine, consumers=())
    register(engine.dsn, "ledger", critical=False)
    for event, state in (("Check", "Checked"), ("Pack", "Packed")):
        await engine.trigger("prod", "order", "O-1", event)
        await fail(engine, f"→ {state}")
    await engine.trigger("prod", "order", "O-1", "Ship")
    newest_first = [letter.id for letter in await engine.dead_letters(source="ack")]
    assert (await engine.replay_dead_letters(newest_first, **WHY)).count == 2
    assert due(engine.dsn) == ["→ Checked"]
    for state in ("Checked", "Packed", "Shipped"):
        assert due(engine.dsn) == [f"→ {state}"]
        await answer(engine, f"→ {state}")


async def test_a_requeue_behind_something_earlier_waits_for_it(engine: Engine) -> None:
    await office(engine, consumers=())
    register(engine.dsn, "ledger", critical=False)
    for event, state in (("Check", "Checked"), ("Pack", "Packed")):
        await engine.trigger("prod", "order", "O-1", event)
        await fail(engine, f"→ {state}")
    second, first = await engine.dead_letters(source="ack")
    await engine.requeue(first.id, **WHY)
    await engine.requeue(second.id, **WHY)
    assert due(engine.dsn) == ["→ Checked"]


async def test_by_consumer_environment_instance_and_moment(engine: Engine) -> None:
    await office(engine, consumers=("ledger", "bank"))
    refs = [await engine.trigger("prod", "order", f"O-{n}", "Check") for n in range(3)]
    for consumer in ("ledger", "bank"):
        for one in deliveries(engine.dsn, consumer):
            await engine.ack("prod", consumer, one.ack, "failed")
    later = datetime.now(UTC) + timedelta(hours=1)
    for filter, count in (
        (LetterFilter(consumer="bank"), 3), (LetterFilter(consumer="bank", environment="prod"), 3),
        (LetterFilter(consumer="bank", environment="test"), 0), (LetterFilter(consumer="nobody"), 0),
        (LetterFilter(environment="prod"), 6), (LetterFilter(refs[0].instance, consumer="bank"), 1),
        (LetterFilter(consumer="bank", since=later), 0), (LetterFilter(consumer="bank", flow="prod.order"), 3),
        (LetterFilter(consumer="bank", error="ACK_FAILED"), 3),
    ):  # fmt: skip
        assert (await engine.replay_dead_letters(filter=filter, dry_run=True)).count == count, filter
    assert len(await engine.dead_letters(consumer="bank", environment="prod")) == 3
    assert due(engine.dsn, "bank") == []
    done = await engine.replay_dead_letters(filter=LetterFilter(consumer="bank"), **WHY)
    assert (done.count, done.left) == (3, [])
    assert due(engine.dsn, "bank") == ["→ Checked"] * 3
    assert due(engine.dsn) == [], "the other consumer's were not meant"
    assert {(await engine.get(ref.instance)).status for ref in refs} == {"suspended"}
    await engine.replay_dead_letters(filter=ACKS, **WHY)
    assert {(await engine.get(ref.instance)).status for ref in refs} == {"running"}


async def test_at_a_pace(engine: Engine) -> None:
    await office(engine)
    for n in range(6):
        await engine.trigger("prod", "order", f"O-{n}", "Check")
    for one in deliveries(engine.dsn):
        await engine.ack("prod", "ledger", one.ack, "failed")
    oldest_first = [letter.instance_id for letter in await engine.dead_letters(source="ack")][::-1]
    began = time.monotonic()
    assert (await engine.replay_dead_letters(filter=ACKS, rate=20, **WHY)).count == 6
    assert time.monotonic() - began >= 5 / 20
    assert len(due(engine.dsn)) == 6
    resumed = rows(
        engine.dsn, "select instance_id from holdfast.events where type = 'dead_letter_replayed' order by created_at"
    )
    assert [str(id) for (id,) in resumed] == oldest_first
    for rate in (0, -1, True, float("nan"), float("inf")):
        with pytest.raises(Refused, match="NUMBER_INVALID"):
            await engine.replay_dead_letters(filter=ACKS, rate=rate, **WHY)


async def test_what_is_no_failure_any_more_is_left(engine: Engine) -> None:
    await office(engine, consumers=("ledger", "bank"))
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await fail(engine)
    await fail(engine, consumer="bank")
    [fact] = deliveries(engine.dsn)
    await engine.ack("prod", "ledger", fact.ack, "processed")
    mine = {letter.envelope["consumer"]: letter for letter in await engine.dead_letters(source="ack")}
    assert mine.keys() == {"bank"}, "that of the other was settled by its answer"
    await engine.remove_consumer("prod", "bank")
    with pytest.raises(Conflict, match="DEAD_LETTER_STALE"):
        await engine.requeue(mine["bank"].id, **WHY)
    left = await engine.replay_dead_letters([mine["bank"].id], **WHY)
    assert (left.ids, left.left, left.refusals[mine["bank"].id].code) == ([], [mine["bank"].id], "DEAD_LETTER_STALE")
    assert (await engine.get(done.instance)).status == "suspended"
    with pytest.raises(Refused, match="DEAD_LETTER_INPUT"):
        await engine.requeue(mine["bank"].id, {"paper": "A4"}, **WHY)


async def test_a_resume_settles_the_letters(engine: Engine) -> None:
    await office(engine)
    done = await engine.trigger("prod", "order", "O-1", "Check")
    await fail(engine)
    [letter] = await engine.dead_letters(source="ack")
    await engine.resume(done.instance, by="ben")
    settled = await engine.dead_letter(letter.id)
    assert (settled.resolution, settled.resolved_by) == ("replayed", "ben")


async def test_a_fact_after_the_end_is_delivered_again(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        done = await engine.trigger("prod", "order", "O-1", event)
    for state in ("Checked", "Packed"):
        await answer(engine, f"→ {state}")
    await fail(engine, "→ Shipped")
    assert (await engine.replay_dead_letters(filter=ACKS, **WHY)).count == 1
    assert (await engine.get(done.instance)).status == "completed"
    await answer(engine, "→ Shipped")
    assert deliveries(engine.dsn)[-1].status == "processed"
    assert (await engine.events(done.instance))[-1].type == "dead_letter_replayed"


async def test_a_gate_asks_again_while_it_is_open(engine: Engine) -> None:
    await office(engine, GATES, consumers=("bank",))
    register(engine.dsn, "ledger", critical=False)
    await engine.trigger("prod", "order", "O-1", "Check")
    await fail(engine, "CHECK.CREDIT")
    await engine.replay_dead_letters(filter=ACKS, **WHY)
    await answer(engine, "CHECK.CREDIT", consumer="bank")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.CREDIT"]
    await answer(engine, "CHECK.CREDIT")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.STOCK"]


async def test_a_gate_that_is_done_stays_done(engine: Engine) -> None:
    await office(engine, GATES, consumers=())
    register(engine.dsn, "ledger", critical=False)
    await engine.trigger("prod", "order", "O-1", "Check")
    await fail(engine, "CHECK.CREDIT")
    assert [d.body["send"] for d in deliveries(engine.dsn) if d.kind == "complete"] == ["Back"]
    await engine.replay_dead_letters(filter=ACKS, **WHY)
    await answer(engine, "CHECK.CREDIT")
    assert [d.body["send"] for d in deliveries(engine.dsn) if d.kind == "complete"] == ["Back"]


async def test_letters_of_another_organisation_are_not_there(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    await fail(engine)
    theirs = engine.for_org("acme")
    assert (await theirs.replay_dead_letters(filter=ACKS, **WHY)).count == 0
    assert due(engine.dsn) == []


async def test_a_late_answer_and_a_requeue_in_one_batch(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    await fail(engine)
    [letter] = await engine.dead_letters(source="ack")
    ack = deliveries(engine.dsn)[0].ack
    await asyncio.gather(
        engine.requeue(letter.id, **WHY),
        engine.ack("prod", "ledger", ack, "processed"),
        engine.ack("prod", "ledger", ack, "failed"),
        return_exceptions=True,
    )
    assert deliveries(engine.dsn)[0].status == "processed"
    assert (await engine.dead_letter(letter.id)).resolution in ("replayed", "discarded")
