"""Consumers of this process: handlers get facts in order, answer, fail, and commit with their ACK."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from orders import BLUEPRINT, GATES, deliveries, rows

from holdfast import Consumer, ConsumerEvent, DoNotRetry, Engine, Machine, Postpone, Trigger, Verdict
from holdfast.errors import HoldfastError, Refused
from holdfast.testing import advance

pytestmark = pytest.mark.anyio


async def office(engine: Engine, policy: dict[str, Any] | None = None, **wishes: Any) -> Consumer:
    await engine.import_machine(Machine.load(BLUEPRINT, policy))
    return engine.consumer("ledger", env="prod", **wishes)


async def ready(engine: Engine) -> None:
    """A worker has registered the consumers."""
    await engine.drain(timeout=30)


async def send(engine: Engine, *events: str, ref: str = "O-1") -> None:
    for event in events:
        assert (await engine.trigger("prod", "order", ref, event, {"sent": event}, by="ann")).applied


async def test_3_3_a_handler_gets_the_fields_of_the_fact(engine: Engine) -> None:
    ledger = await office(engine)
    got: list[ConsumerEvent] = []

    @ledger.on("Checked")
    async def checked(event: ConsumerEvent, ctx: Any) -> None:
        assert ctx.conn is None
        assert await event.is_current()
        got.append(event)

    await ready(engine)
    await send(engine, "Check")
    await engine.drain(timeout=30)
    [event] = got
    assert (event.external_ref, event.kind, event.from_state, event.to_state) == ("O-1", "transition", "New", "Checked")
    assert (event.event, event.code, event.lifecycle, event.actor, event.attempt) == ("Check", 1001, 1, "ann", 1)
    assert event.payload == {"sent": "Check"}
    [delivery] = deliveries(engine.dsn)
    assert (delivery.status, delivery.ack, delivery.guid) == ("processed", event.ack, str(event.ack_guid))


async def test_the_handler_that_names_most_is_called(engine: Engine) -> None:
    ledger = await office(engine)
    called: list[str] = []
    ledger.on()(lambda event: called.append(f"any {event.to_state}"))
    ledger.on("Checked")(lambda event: called.append("checked"))
    ledger.on("Checked", via=1005)(lambda event, ctx: called.append("reminded"))
    with pytest.raises(HoldfastError, match="HANDLER_DUPLICATE"):
        ledger.on("Checked")(lambda event: None)
    await ready(engine)
    await send(engine, "Check", "Remind", "Pack")
    await engine.drain(timeout=30)
    assert called == ["checked", "reminded", "any Packed"]


async def test_a_handler_brings_the_next_event(engine: Engine) -> None:
    ledger = await office(engine)

    @ledger.on("Checked")
    async def checked(event: ConsumerEvent) -> Trigger:
        return Trigger("Pack", {"box": 4})

    @ledger.on("Packed")
    def packed(event: ConsumerEvent, ctx: Any) -> Trigger:
        return Trigger(1003)

    await ready(engine)
    await send(engine, "Check")
    await engine.drain(timeout=30)
    machine = await engine.machine("prod", "order", "O-1")
    assert (machine.state, machine.lifecycle) == ("Shipped", 3)
    assert {d.status for d in deliveries(engine.dsn)} == {"processed"}


async def test_3_3_a_handler_that_raises_gets_the_fact_again_and_harms_nobody(engine: Engine) -> None:
    ledger = await office(engine)
    attempts: list[int] = []

    @ledger.on("Checked")
    async def checked(event: ConsumerEvent) -> None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            raise ValueError("no ink")

    await ready(engine)
    await send(engine, "Check")
    await send(engine, "Check", ref="O-2")
    await engine.drain(timeout=30)
    assert attempts == [1, 1]
    assert {d.status for d in deliveries(engine.dsn)} == {"pending"}
    found = (await engine.notices(code="EVENT_HANDLER_ERROR")).items
    assert {notice.consumer for notice in found} == {"ledger"}
    assert "no ink" in found[0].message
    await advance(engine, seconds=41)
    await engine.drain(timeout=30)
    assert attempts == [1, 1, 2, 2]
    assert {d.status for d in deliveries(engine.dsn)} == {"processed"}
    assert len((await engine.notices(code="ACK_RETRY")).items) == 2


async def test_5_8_an_instance_waits_and_others_do_not(engine: Engine) -> None:
    ledger = await office(engine)
    order: list[tuple[str, int]] = []
    gate = asyncio.Event()

    @ledger.on()
    async def any_state(event: ConsumerEvent) -> None:
        if event.external_ref == "O-1" and event.lifecycle == 1:
            await gate.wait()
        order.append((event.external_ref, event.lifecycle))
        if len(order) == 2:
            gate.set()

    await ready(engine)
    await send(engine, "Check", "Remind", "Pack")
    await send(engine, "Check", "Pack", ref="O-2")
    await engine.drain(timeout=30)
    assert order[:2] == [("O-2", 1), ("O-2", 2)]
    assert order[2:] == [("O-1", 1), ("O-1", 2), ("O-1", 3)]


async def test_3_5_b_out_of_attempts_suspends(engine: Engine) -> None:
    ledger = await office(engine, max_attempts=2)

    @ledger.on()
    async def never(event: ConsumerEvent) -> None:
        raise ValueError("no")

    await ready(engine)
    await send(engine, "Check")
    for _ in range(3):
        await engine.drain(timeout=30)
        await advance(engine, seconds=41)
    await engine.drain(timeout=30)
    [delivery] = deliveries(engine.dsn)
    assert delivery.status == "failed"
    assert (await engine.get(delivery.body["instance"])).status == "suspended"
    assert len((await engine.notices(code="ACK_SUSPEND")).items) == 1


async def test_do_not_retry_fails_at_once(engine: Engine) -> None:
    ledger = await office(engine, critical=False)

    @ledger.on()
    def never(event: ConsumerEvent) -> None:
        raise DoNotRetry("no such account")

    await ready(engine)
    await send(engine, "Check", "Pack")
    await engine.drain(timeout=30)
    assert [d.status for d in deliveries(engine.dsn)] == ["failed", "failed"]
    [message] = rows(engine.dsn, "select distinct message from holdfast.ack_consumers")
    assert message == ("no such account",)


async def test_3_4_a_handler_puts_the_fact_off(engine: Engine) -> None:
    ledger = await office(engine)
    attempts: list[int] = []

    @ledger.on()
    async def later(event: ConsumerEvent) -> Postpone | None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            raise Postpone(delay=3600, message="closed on Sundays")
        return None

    await ready(engine)
    await send(engine, "Check")
    await engine.drain(timeout=30)
    await advance(engine, minutes=59)
    await engine.drain(timeout=30)
    assert attempts == [1]
    await advance(engine, minutes=2)
    await engine.drain(timeout=30)
    assert attempts == [1, 2]
    with pytest.raises(Refused):
        Postpone()


async def test_gates_are_answered_by_verdicts_and_the_completion_names_the_event(engine: Engine) -> None:
    ledger = await office(engine, GATES)
    ledger.hook("CHECK.CREDIT")(lambda event: None)
    ledger.hook()(lambda event: Verdict.failure("out of stock"))

    @ledger.complete()
    async def complete(event: ConsumerEvent) -> Trigger:
        assert (event.verdict, event.send) == ("failure", "Back")
        return Trigger(event.send)

    await ready(engine)
    await send(engine, "Check")
    await engine.drain(timeout=30)
    assert (await engine.machine("prod", "order", "O-1")).state == "New"


async def test_a_fact_without_an_ack_is_sent_once(engine: Engine) -> None:
    ledger = await office(engine)
    attempts: list[int] = []

    @ledger.on()
    async def fails(event: ConsumerEvent) -> None:
        attempts.append(event.attempt)
        raise ValueError("no")

    await ready(engine)
    await engine.trigger("prod", "order", "O-1", "Check", ack_required=False)
    await engine.drain(timeout=30)
    await advance(engine, hours=1)
    await engine.drain(timeout=30)
    assert attempts == [1]
    assert deliveries(engine.dsn)[0].status == "processed"


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_what_a_transactional_handler_writes_commits_with_its_ack(engine: Engine, kind: str) -> None:
    ledger = await office(engine)
    with psycopg.connect(engine.dsn) as db:
        db.execute("create table public.booked (ref text, attempt int)")
    insert = "insert into public.booked values (%s, %s)"

    async def book(event: ConsumerEvent, ctx: Any) -> Trigger:
        await ctx.conn.execute(insert, [event.external_ref, event.attempt])
        if event.attempt == 1:
            raise ValueError("after the write")
        return Trigger("Pack", {"booked": True})

    def book_plainly(event: ConsumerEvent, ctx: Any) -> Trigger:
        ctx.conn.execute(insert, [event.external_ref, event.attempt])
        if event.attempt == 1:
            raise ValueError("after the write")
        return Trigger("Pack", {"booked": True})

    ledger.on("Checked", transactional=True)(book if kind == "async" else book_plainly)
    await ready(engine)
    await send(engine, "Check")
    await engine.drain(timeout=30)
    assert rows(engine.dsn, "select * from public.booked") == []
    await advance(engine, seconds=41)
    await engine.drain(timeout=30)
    assert rows(engine.dsn, "select * from public.booked") == [("O-1", 2)]
    assert (await engine.machine("prod", "order", "O-1")).state == "Packed"
    assert {d.status for d in deliveries(engine.dsn)} == {"processed"}


async def test_a_transactional_handler_that_comes_second_is_rolled_back(engine: Engine) -> None:
    """The same fact twice at a time: the one that commits later finds it settled, and none of its writes stay."""
    ledger = await office(engine)
    with psycopg.connect(engine.dsn) as db:
        db.execute("create table public.booked (ref text)")

    @ledger.on("Checked", transactional=True)
    async def book(event: ConsumerEvent, ctx: Any) -> None:
        await ctx.conn.execute("insert into public.booked values (%s)", [event.external_ref])
        await engine.ack("prod", "ledger", event.ack, "processed")

    await ready(engine)
    await send(engine, "Check")
    await engine.drain(timeout=30)
    assert rows(engine.dsn, "select * from public.booked") == []
    assert deliveries(engine.dsn)[0].status == "processed"


async def test_since_the_beginning_catches_up_in_order(engine: Engine) -> None:
    await office(engine)
    await ready(engine)
    await send(engine, "Check", "Remind", "Pack", "Ship")
    await engine.drain(timeout=30)
    late = engine.consumer("archive", env="prod", since="beginning", in_flight=1)
    got: list[int] = []
    late.on()(lambda event: got.append(event.lifecycle))
    await engine.drain(timeout=30)
    assert got == [1, 2, 3, 4]


async def test_4_8_consumers_are_listed_and_removed(engine: Engine) -> None:
    await office(engine, definitions=["order"], states=["Packed"])
    await ready(engine)
    await send(engine, "Check", "Pack")
    [state] = await engine.consumers()
    assert (state.name, state.way, state.definitions, state.open, state.alive) == ("ledger", "here", ["order"], 1, True)
    page = await engine.deliveries(consumer=("prod", "ledger"))
    assert [(d.state, d.status, d.external_ref) for d in page.items] == [("Packed", "pending", "O-1")]
    assert page.next is None
    [mine] = (await engine.deliveries(instance=page.items[0].instance_id)).items
    assert mine.ack == page.items[0].ack
    await engine.remove_consumer("prod", "ledger", by="ann")
    assert await engine.consumers() == []
    assert (await engine.for_org("other").consumers()) == []
    async with engine.worker():
        pass
