"""Machines whose stays end in every way there is: by timeouts, by phases of gates, after a suspension.

A story drives one instance to its end, from wherever it finds it. Three engines tell the same story at a time and share
its deliveries; whoever comes after them tells it again. `happened` is what an instance left behind, as labels that are
counted: what happens exactly once has a label with the count 1.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg

from faults.victim import PATIENCE, PERSON, Life
from faults.worker import Hands
from holdfast import ConsumerEvent, Engine, Machine, Postpone, Trigger, Verdict
from holdfast.errors import Busy, Conflict, StoreError

ENV: Final = "prod"
DESK, BOARD = CONSUMERS = ("desk", "board")
ATTEMPTS: Final = 5  # more than there are engines to die of one
PAUSE: Final = 0.005
SOON: Final = "PT0.1S"
HASTE: Final = {"HOLDFAST_ACK_PENDING_RESEND": "0.05", "HOLDFAST_ACK_DELIVERED_RESEND": "0.4"}
REPAIRED: Final = "create table if not exists public.repaired (instance uuid primary key)"
T = TypeVar("T")


def _blueprint(name: str, states: list[str], ways: list[tuple[str, str, str]]) -> dict[str, Any]:
    """States in their order, the first one initial and the last one final; ways are source, event, target."""
    events = dict.fromkeys(event for _, event, _ in ways)
    return {
        "name": name,
        "environment": ENV,
        "version": 1,
        "states": [
            {"name": state, "is_initial": state == states[0], "is_final": state == states[-1]} for state in states
        ],
        "events": [{"code": 1001 + n, "name": event} for n, event in enumerate(events)],
        "transitions": [{"from": source, "event": event, "to": target} for source, event, target in ways],
    }


def _policy(name: str, **parts: Any) -> dict[str, Any]:
    return {"policy_name": name, "for": {"definition": name, "version": 1}, **parts}


@dataclass(frozen=True)
class Stay:
    """A machine, the story of its instances, and what has to happen once to each of them."""

    blueprint: dict[str, Any]
    policy: dict[str, Any]
    story: Callable[[Engine, Eyes, str], Awaitable[None]]
    once: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.blueprint["name"]

    @property
    def machine(self) -> Machine:
        return Machine.load(self.blueprint, self.policy)


# --- the consumers --------------------------------------------------------------------------------------------------


def register(engine: Engine, hands: Hands) -> None:
    desk, board = (engine.consumer(name, env=ENV, max_attempts=ATTEMPTS) for name in CONSUMERS)
    board.on()(_nothing)
    board.hook()(_yes)
    board.complete()(_nothing)
    desk.hook()(_yes)
    desk.complete()(_send)
    desk.on()(_nothing)
    desk.on("Waiting", via="Remind")(_go)

    @desk.on("Broken")
    async def fail_until_repaired(event: ConsumerEvent) -> Trigger | Postpone:
        async with seeing(hands.task.dsn) as eyes:
            is_repaired = await eyes.ask("select 1 from public.repaired where instance = %s", event.instance)
        return Trigger("End") if is_repaired else Postpone(delay=PAUSE)


async def _nothing(event: ConsumerEvent) -> None:
    return None


async def _yes(event: ConsumerEvent) -> Verdict:
    return Verdict.success()


async def _send(event: ConsumerEvent) -> Trigger:
    assert event.send is not None
    return Trigger(event.send)


async def _go(event: ConsumerEvent) -> Trigger:
    return Trigger("Go")


# --- stories --------------------------------------------------------------------------------------------------------


class Eyes:
    """A connection of its own, which no failpoint counts."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def ask(self, question: str, *values: Any) -> Any:
        row = await (await self._connection.execute(question, values)).fetchone()
        return row and row[0]

    async def see(self, question: str, *values: Any) -> None:
        """Until the database has an answer."""
        while not await self.ask(question, *values):
            await asyncio.sleep(PAUSE)


@asynccontextmanager
async def seeing(dsn: str) -> AsyncGenerator[Eyes]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield Eyes(connection)


async def tell(engine: Engine, hands: Hands, life: Life) -> None:
    """The story of the life's machine, until its instance is over and every consumer has everything."""
    hands.trap.set()
    async with asyncio.timeout(PATIENCE), seeing(hands.task.dsn) as eyes:
        begun = await insist(lambda: engine.trigger(ENV, life.flow, life.key, "Begin", request_id=life.key))
        await STAYS[life.flow].story(engine, eyes, begun.instance)
        await eyes.see(DONE, begun.instance, begun.instance)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except (StoreError, Busy):
            await asyncio.sleep(PAUSE)


async def _times_out(engine: Engine, eyes: Eyes, id: str) -> None:
    await eyes.see("select 1 from holdfast.notices where instance_id = %s and code = 'STATE_STALE'", id)
    ref = await eyes.ask("select business_key from holdfast.instances where id = %s", id)
    await insist(lambda: engine.trigger(ENV, "timeouts", ref, "Close", request_id=f"close {ref}"))


async def _passes_gates(engine: Engine, eyes: Eyes, id: str) -> None:
    """It does so by itself."""


async def _is_suspended(engine: Engine, eyes: Eyes, id: str) -> None:
    await eyes.see("select 1 from holdfast.instances where id = %s and status <> 'running'", id)
    await eyes.ask("insert into public.repaired values (%s) on conflict do nothing returning 1", id)
    try:
        await insist(lambda: engine.resume(id, by=PERSON))
    except Conflict as refused:  # another one was faster, or the answer was lost
        if refused.code not in ("INSTANCE_NOT_SUSPENDED", "INSTANCE_OVER"):
            raise


STAYS: Final = {
    stay.name: stay
    for stay in (
        Stay(
            _blueprint(
                "timeouts",
                ["New", "Waiting", "Quiet", "Last", "Done"],
                [
                    ("New", "Begin", "Waiting"), ("Waiting", "Remind", "Waiting"), ("Waiting", "Go", "Quiet"),
                    ("Quiet", "Close", "Last"), ("Last", "Expire", "Done"),
                ],
            ),
            _policy(
                "timeouts",
                timeouts=[
                    {"state": "Waiting", "timeout": SOON, "timeout_event": "Remind", "timeout_mode": "once"},
                    {"state": "Quiet", "timeout": SOON},
                    {"state": "Last", "timeout": SOON, "timeout_event": "Expire"},
                ],
            ),
            _times_out,
            ("Remind → Waiting by system", "STATE_STALE", "Expire → Done by system"),
        ),
        Stay(
            _blueprint(
                "phases",
                ["New", "Review", "Approved"],
                [("New", "Begin", "Review"), ("Review", "Approve", "Approved")],
            ),
            _policy(
                "phases",
                rules=[
                    {
                        "state": "Review",
                        "via": "Begin",
                        "complete": {"success": "Approve"},
                        "emit": [
                            {"event": "NOTE"},
                            {"event": "CREDIT", "order": 1},
                            {"event": "STOCK", "order": 1},
                            {"event": "MAIL", "order": 1, "type": "effect"},
                            {"event": "SIGN", "order": 2, "ack": "any"},
                        ],
                    }
                ],
            ),
            _passes_gates,
            (
                "hook NOTE", "hook CREDIT", "hook STOCK", "hook MAIL", "hook SIGN", "complete",
                "Approve → Approved by desk",
            ),
        ),
        Stay(
            _blueprint(
                "suspension", ["New", "Broken", "Whole"], [("New", "Begin", "Broken"), ("Broken", "End", "Whole")]
            ),
            _policy("suspension"),
            _is_suspended,
            ("ACK_SUSPEND", "letter ack", "End → Whole by desk"),
        ),
    )
}  # fmt: skip


# --- what they leave behind -----------------------------------------------------------------------------------------

DONE: Final = """
select 1 where exists (select from holdfast.instances where id = %s and status = 'completed') and not exists (
    select from holdfast.ack_consumers where instance_id = %s and closed_at is null)
"""
HAPPENED: Final = """
with i as (select id from holdfast.instances where business_key = %s)
select case a.kind when 'transition' then a.event || ' → ' || a.state || ' by ' || (a.body ->> 'actor')
    when 'hook' then 'hook ' || a.code else a.kind end
from holdfast.acks a join i on i.id = a.instance_id
union all
select concat_ws(' ', c.name, a.kind, coalesce(a.code, a.event), d.status, d.verdict)
from holdfast.ack_consumers d join i on i.id = d.instance_id
join holdfast.acks a on a.instance_id = d.instance_id and a.id = d.ack_id
join holdfast.consumers c on c.id = d.consumer_id
union all
select n.code from holdfast.notices n join i on i.id = n.instance_id where n.code <> 'ACK_RETRY'
union all
select 'letter ' || l.source from holdfast.dead_letters l join i on i.id = l.instance_id
union all
select concat_ws(' ', s.kind, s.node, s.status, s.outcome) from holdfast.steps s join i on i.id = s.instance_id
"""
EARLY: Final = """
select a.code from holdfast.acks a
join holdfast.instances i on i.id = a.instance_id and i.business_key = %s
join holdfast.acks g on g.instance_id = a.instance_id and g.type = 'gate' and g.mode = 'all'
    and (g.body ->> 'order')::int < (a.body ->> 'order')::int
join holdfast.ack_consumers d on d.instance_id = g.instance_id and d.ack_id = g.id
where d.closed_at is null or d.closed_at > a.created_at
"""


def happened(connection: psycopg.Connection[Any], key: str) -> Counter[str]:
    return Counter(label for (label,) in connection.execute(HAPPENED, (key,)))


def passed_early(connection: psycopg.Connection[Any], key: str) -> list[str]:
    """Hooks that went out before a gate of an earlier phase was done."""
    return [f"{code} went out early" for (code,) in connection.execute(EARLY, (key,))]
