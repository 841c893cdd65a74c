"""What is given up on is kept with its envelope and reason, told, and can be put back or let go."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from letters import POISON, buried, counter, send

from holdfast import Context, DoNotRetry, Engine, Flow
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.ops.dead_letters import LetterFilter
from running import Evidence, until

pytestmark = pytest.mark.anyio


# --- what is kept -----------------------------------------------------------------------------------------------------


async def test_a_letter_keeps_envelope_reason_worker_and_time(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    signal = send(evidence, id, "nothing_like_that", {"n": 1})
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    assert (letter.source, letter.reason, letter.attempts) == ("signal", "EVENT_NOT_EXPECTED", 1)
    assert (letter.envelope["id"], letter.envelope["kind"]) == (signal, "event")
    assert letter.envelope["payload"]["payload"] == {"n": 1}
    assert letter.error["code"] == "EVENT_NOT_EXPECTED"
    assert letter.worker is not None
    assert letter.created_at is not None
    [event] = [e for e in await engine.events(id) if e.type == "signal_dead_lettered"]
    told = {"letter": letter.id, "signal": signal, "kind": "event", "event": "nothing_like_that"}
    assert event.detail == {**told, "code": "EVENT_NOT_EXPECTED"}


async def test_a_queued_cancel_of_what_is_taken_back_already_is_a_repetition(
    engine: Engine, evidence: Evidence
) -> None:
    """Sent by SQL, where nobody is left to be refused: while the rollback is under way."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def book(ctx: Context, data: Any) -> Any:
        return {}

    async def release(ctx: Context, data: Any) -> Any:
        began.set()
        await may_end.wait()

    async def fail(ctx: Context, data: Any) -> Any:
        raise DoNotRetry("no")

    await engine.publish(Flow("trip").step("book", book, undo=release).step("pay", fail).build())
    id = (await engine.start("trip")).id
    running = asyncio.create_task(engine.drain(timeout=30))
    await asyncio.wait_for(began.wait(), 30)
    for _ in range(2):
        evidence.ask("select holdfast.cancel(%s)", id)
    waiting = "select count(*) from holdfast.signals where instance_id = %s"
    await until(lambda: evidence.ask(waiting, id) == 0)  # both are read before the rollback may end
    may_end.set()
    await running
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "failed"
    assert await engine.dead_letters(id) == []


async def test_letters_are_listed_by_page_and_by_what_they_are(engine: Engine, evidence: Evidence) -> None:
    id, other = await counter(engine), await engine.start("counter")
    for n in range(5):
        send(evidence, id, f"nothing_{n}")
    evidence.connection.execute(
        """insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
        select id, gen_random_uuid(), bucket, org_id, 'riddle', '{}', holdfast.clock()
        from holdfast.instances where id = %s""",
        (other.id,),
    )
    await engine.drain(timeout=30)
    pages = [await engine.dead_letters(limit=4)]
    pages.append(await engine.dead_letters(limit=4, after=pages[0][-1].id))
    assert [len(page) for page in pages] == [4, 2]
    assert len({letter.id for page in pages for letter in page}) == 6
    assert len(await engine.dead_letters(id)) == 5
    assert [letter.instance_id for letter in await engine.dead_letters(with_reason="SIGNAL_UNREADABLE")] == [other.id]
    assert len(await engine.dead_letters(id, with_reason="EVENT_NOT_EXPECTED", source="signal", limit=2)) == 2
    assert await engine.dead_letters(source="effect") == []
    with pytest.raises(Refused, match="LIMIT_INVALID"):
        await engine.dead_letters(limit=0)


async def test_another_organisation_has_none_of_them(engine: Engine, evidence: Evidence) -> None:
    _, letter = await buried(engine, evidence)
    async with Engine(engine.dsn, org="other") as other:
        assert await other.dead_letters() == []
        for attempt in (other.dead_letter(letter), other.requeue(letter), other.replay_dead_letters([letter])):
            with pytest.raises(NotFound, match="DEAD_LETTER_UNKNOWN"):
                await attempt
        assert (await other.replay_dead_letters(filter=LetterFilter())).count == 0
    assert (await engine.dead_letter(letter)).resolved_at is None


# --- put back and let go ----------------------------------------------------------------------------------------------


async def test_a_signal_is_replayed_once_its_cause_is_gone(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    evidence.connection.execute(POISON)
    send(evidence, id, "stop", {"poison": 1})
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    assert (letter.reason, letter.attempts) == ("ATTEMPTS_EXHAUSTED", 5)
    evidence.connection.execute("alter table holdfast.steps drop constraint no_poison")
    replayed = await engine.requeue(letter.id, by="ann", reason="constraint dropped")
    assert (replayed.resolution, replayed.resolved_by, replayed.resolved_why) == (
        "replayed", "ann", "constraint dropped",
    )  # fmt: skip
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    assert await engine.dead_letters(id) == []
    [event] = [e for e in await engine.events(id) if e.type == "dead_letter_replayed"]
    assert (event.actor, event.detail["why"], event.detail["letter"]) == ("ann", "constraint dropped", letter.id)
    with pytest.raises(Conflict, match="DEAD_LETTER_RESOLVED"):
        await engine.requeue(letter.id)


async def test_what_fails_again_is_a_letter_again(engine: Engine, evidence: Evidence) -> None:
    id, first = await buried(engine, evidence)
    await engine.requeue(first)
    await engine.drain(timeout=30)
    [second] = await engine.dead_letters(id)
    assert second.id != first
    assert second.envelope["id"] == (await engine.dead_letter(first)).envelope["id"]


async def test_many_are_replayed_by_filter_after_a_dry_run(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    evidence.connection.execute(POISON)
    for n in range(7):
        send(evidence, id, "tick", {"poison": n})
    send(evidence, id, "nothing_like_that")
    await engine.drain(timeout=60)
    worn = LetterFilter(with_reason="ATTEMPTS_EXHAUSTED")
    wanted = await engine.replay_dead_letters(filter=worn, dry_run=True)
    assert (wanted.count, wanted.dry_run, len(await engine.dead_letters(id))) == (7, True, 8)
    evidence.connection.execute("alter table holdfast.steps drop constraint no_poison")
    done = await engine.replay_dead_letters(filter=worn, by="ann", reason="fixed")
    assert (sorted(done.ids), done.left) == (sorted(wanted.ids), [])
    await engine.drain(timeout=30)
    assert len([s for s in await engine.steps(id) if s.outcome == "tick"]) == 7
    assert [letter.reason for letter in await engine.dead_letters(id)] == ["EVENT_NOT_EXPECTED"]
    again = await engine.replay_dead_letters(done.ids)
    assert (again.count, again.left) == (0, [])


async def test_letters_are_let_go_with_who_and_why(engine: Engine, evidence: Evidence) -> None:
    id, letter = await buried(engine, evidence)
    assert (await engine.discard_dead_letters([letter], dry_run=True)).ids == [letter]
    done = await engine.discard_dead_letters([letter], by="ann", reason="sent by mistake")
    assert done.ids == [letter]
    read = await engine.dead_letter(letter)
    assert (read.resolution, read.resolved_by, read.resolved_why) == ("discarded", "ann", "sent by mistake")
    assert await engine.dead_letters(id) == []
    [event] = [e for e in await engine.events(id) if e.type == "dead_letter_discarded"]
    assert (event.actor, event.detail["why"]) == ("ann", "sent by mistake")


async def test_letters_must_be_named(engine: Engine, evidence: Evidence) -> None:
    _, letter = await buried(engine, evidence)
    for attempt in (
        engine.replay_dead_letters(),
        engine.discard_dead_letters(),
        engine.discard_dead_letters([letter], filter=LetterFilter()),
    ):
        with pytest.raises(Refused, match="DEAD_LETTERS_NOT_NAMED"):
            await attempt
    with pytest.raises(NotFound, match="DEAD_LETTER_UNKNOWN"):
        await engine.dead_letter(uuid4())
    with pytest.raises(Refused, match="DEAD_LETTER_INPUT"):
        await engine.requeue(letter, {"other": 1})
    with pytest.raises(Refused, match="TEXT_INVALID"):
        await engine.requeue(letter, by="a\0b")


async def test_the_letter_of_a_paused_step_cannot_be_discarded_while_it_waits(engine: Engine) -> None:
    async def broken(ctx: Any, data: Any) -> Any:
        raise DoNotRetry("no")

    engine.register("broken", broken)
    await engine.publish(Flow("pausing", dlq=True).step("broken", "broken").build())
    instance = await engine.start("pausing")
    await engine.drain(timeout=20)
    [letter] = await engine.dead_letters(instance.id)
    assert (await engine.discard_dead_letters([letter.id])).left == [letter.id]
    await engine.cancel(instance.id, by="ann", reason="given up")
    await engine.drain(timeout=20)
    settled = await engine.dead_letter(letter.id)
    assert (settled.resolution, settled.resolved_by) == ("discarded", "ann")
