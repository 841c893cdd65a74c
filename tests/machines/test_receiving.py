"""Consumers that pull: long polls share facts, beat by themselves, and answer with the handle."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from orders import BLUEPRINT, GATES, deliveries

from holdfast import Engine, Machine, Postpone
from holdfast.errors import NotFound, Refused
from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio


async def office(engine: Engine, name: str = "billing", **wishes: object) -> None:
    await engine.import_machine(Machine.load(BLUEPRINT))
    await engine.register_consumer("prod", name, **wishes)  # type: ignore[arg-type]
    assert await engine.receive("prod", name) == []  # it has its past


async def test_a_poll_takes_what_is_due_and_the_handle_answers_it(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check", {"n": 1})
    await engine.trigger("prod", "order", "O-1", "Pack")
    [event] = await engine.receive("prod", "billing")
    assert (event.to_state, event.payload, event.consumer) == ("Checked", {"n": 1}, "billing")
    assert await engine.receive("prod", "billing") == []
    await engine.ack("prod", "billing", event.ack, "processed")
    [event] = await engine.receive("prod", "billing")
    assert event.to_state == "Packed"


async def test_a_poll_waits_for_a_fact_without_a_worker(engine: Engine) -> None:
    await office(engine)
    async with Engine(engine.dsn) as other:
        waiting = asyncio.create_task(other.receive("prod", "billing", wait=30))
        await until(lambda: other._ears._task is not None)  # pyright: ignore[reportPrivateUsage]
        await engine.trigger("prod", "order", "O-1", "Check")
        [event] = await asyncio.wait_for(waiting, 20)
        assert event.external_ref == "O-1"


async def test_several_polls_of_one_consumer_share_its_facts(engine: Engine) -> None:
    await office(engine)
    for n in range(6):
        await engine.trigger("prod", "order", f"O-{n}", "Check")
    polls = await asyncio.gather(*(engine.receive("prod", "billing", most=2) for _ in range(3)))
    assert sorted(e.external_ref for poll in polls for e in poll) == [f"O-{n}" for n in range(6)]


async def test_3_5_b_the_same_bytes_come_again_without_an_answer(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    [first] = await engine.receive("prod", "billing")
    await engine.settle_directly("prod", "billing", first.ack, "delivered")
    await advance(engine, seconds=60)
    assert await engine.receive("prod", "billing") == []
    await advance(engine, seconds=181)
    [again] = await engine.receive("prod", "billing")
    assert (again.raw, again.ack, again.attempt) == (first.raw, first.ack, 2)
    await engine.settle_directly("prod", "billing", again.ack, "retry", wish=Postpone(delay=10))
    await advance(engine, seconds=11)
    assert [e.attempt for e in await engine.receive("prod", "billing")] == [3]
    await engine.ack("prod", "billing", first.ack, "processed")
    await engine.settle_directly("prod", "billing", first.ack, "delivered")  # late: nothing changes
    assert deliveries(engine.dsn, "billing")[0].status == "processed"


async def test_5_6_a_poll_is_a_beat(engine: Engine) -> None:
    await office(engine, ttl=5)
    before = (await engine.get_consumer("prod", "billing")).beat_at
    await engine.receive("prod", "billing")
    state = await engine.get_consumer("prod", "billing")
    assert state.beat_at > before
    assert state.alive


async def test_a_listener_yields_facts_in_order(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Remind", "Pack"):
        await engine.trigger("prod", "order", "O-1", event)
    seen: list[int] = []
    async for event in engine.listen("prod", "billing"):
        seen.append(event.lifecycle)
        await engine.ack("prod", "billing", event.ack, "processed")
        if len(seen) == 3:
            break
    assert seen == [1, 2, 3]


async def test_what_is_unknown_is_refused(engine: Engine) -> None:
    await office(engine)
    await office(engine, "other")
    with pytest.raises(NotFound, match="CONSUMER_UNKNOWN"):
        await engine.receive("prod", "nobody")
    await engine.trigger("prod", "order", "O-1", "Check")
    [event] = await engine.receive("prod", "billing")
    with pytest.raises(NotFound, match="ACK_UNKNOWN"):
        await engine.settle_directly(
            "prod", "billing", event.ack[:-1] + ("A" if event.ack[-1] != "A" else "B"), "delivered"
        )
    for wrong in ({"ttl": 0}, {"in_flight": 0}, {"max_attempts": "3"}, {"way": "here"}, {"since": "yesterday"},
                  {"way": "push"}, {"target": {"url": "https://x"}}):  # fmt: skip
        with pytest.raises(Refused):
            await engine.register_consumer("prod", "wrong", **wrong)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        await engine.register_consumer("pr.od", "wrong")


async def test_a_removed_consumer_holds_no_gate(engine: Engine) -> None:
    await office(engine)
    await office(engine, "audit")
    await engine.import_machine(Machine.load(BLUEPRINT, GATES))
    await engine.trigger("prod", "order", "O-1", "Check")
    while events := await engine.receive("prod", "billing"):
        for event in events:
            await engine.ack("prod", "billing", event.ack, "processed")
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.CREDIT"]
    await engine.remove_consumer("prod", "audit")
    await engine.drain(timeout=30)
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == ["CHECK.STOCK"]
    assert {d.status for d in deliveries(engine.dsn, "audit")} == {"abandoned"}
    [event] = await engine.receive("prod", "billing")
    assert event.hook == "CHECK.STOCK"


async def test_a_replay_gives_facts_again(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack"):
        await engine.trigger("prod", "order", "O-1", event)
        for got in await engine.receive("prod", "billing"):
            await engine.ack("prod", "billing", got.ack, "processed")
    since = datetime.now(UTC) - timedelta(hours=1)
    assert (await engine.replay_consumer("prod", "billing", since=since, dry_run=True)).dry_run
    assert await engine.receive("prod", "billing") == []
    await engine.replay_consumer("prod", "billing", since=since)
    seen: list[int] = []
    for _ in range(2):
        [got] = await engine.receive("prod", "billing")
        seen.append(got.lifecycle)
        await engine.ack("prod", "billing", got.ack, "processed")
    assert seen == [1, 2]
