"""The handlers of the sagas that go backwards, and the story of each of them, for victims.

A story drives one instance to its end, from wherever it finds it: the process that begins it may die on the way, and
the one that comes after tells the same story. Everything up to the failure, the cancel or the requeue passes without a
fault; there the trap is set.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any, Final, TypeVar

import psycopg

from faults.sagas import SAGAS, Saga
from faults.victim import PATIENCE, PERSON, Life
from faults.worker import Hands
from holdfast import Context, DoNotRetry, Engine
from holdfast.core.model.status import TERMINAL
from holdfast.errors import Busy, Conflict, StoreError

TURNED: Final = """
select 1 from holdfast.instances i where i.id = %s and (
    i.status = 'rolling_back' or exists (select from holdfast.dead_letters d where d.instance_id = i.id))
"""
QUIET: Final = """
select 1 where not exists (
    select from holdfast.steps
    where instance_id = %s and behaviour = 'work' and closed_at is null and node <> all(%s))
"""
LATE: Final = "select 1 from holdfast.steps where instance_id = %s and node = '@late'"
REPAIRED: Final = {"repaired": True}
PAUSE: Final = 0.005
T = TypeVar("T")


class Crew:
    """Every call is told to the witness when it begins."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._loop = asyncio.get_running_loop()

    async def begin(self, ctx: Context, data: Any) -> dict[str, Any]:
        answer = await self._hands.witness(ctx, data)
        self._begun[ctx.step].set()
        return {"by": ctx.step, **answer}

    async def are_out(self, saga: Saga, instance: str, *others: str) -> None:
        """Those who shall be out are, and nobody else but these others."""
        for step in saga.out:
            await self._begun[step].wait()
        await self._see(QUIET, instance, [*saga.out, *saga.pending, *others])

    async def _see(self, question: str, *values: Any) -> None:
        """Until the database has an answer. A connection of its own, which no failpoint counts."""
        async with await psycopg.AsyncConnection.connect(self._hands.task.dsn, autocommit=True) as eyes:
            while not await (await eyes.execute(question, values)).fetchone():
                await asyncio.sleep(PAUSE)

    async def do(self, ctx: Context, data: Any) -> Any:
        return await self.begin(ctx, data)

    undo = do

    async def fail(self, ctx: Context, data: Any) -> Any:
        """For good, but not before those who shall be out are out. A later call comes after a death and finds none."""
        await self.begin(ctx, data)
        if ctx.attempt == 1:
            await self.are_out(SAGAS[ctx.flow], ctx.instance, ctx.step)
            if ctx.flow == "late":
                await self._see(LATE, ctx.instance)
        if SAGAS[ctx.flow].story != is_undone_again.__name__:
            self._hands.trap.set()
        raise DoNotRetry("it cannot be done")

    async def linger(self, ctx: Context, data: Any) -> Any:
        """Comes back when the rollback has begun without it, or somebody has to look after a dead letter."""
        answer = await self.begin(ctx, data)
        await self._see(TURNED, ctx.instance)
        return answer

    async def wait_for_ever(self, ctx: Context, data: Any) -> Any:
        await self.begin(ctx, data)
        await asyncio.Event().wait()

    def wait_in_a_thread(self, ctx: Context, data: Any) -> Any:
        asyncio.run_coroutine_threadsafe(self.begin(ctx, data), self._loop).result()
        while not ctx.cancelled:
            Event().wait(PAUSE)
        raise RuntimeError("stopped when told")

    async def overtake(self, ctx: Context, data: Any) -> Any:
        """Wins a race that the other one has entered."""
        answer = await self.begin(ctx, data)
        await self._begun["slow"].wait()
        return answer

    async def finish_when_told(self, ctx: Context, data: Any) -> Any:
        """Told to stop, it succeeds all the same: at once, or when the rollback has begun."""
        answer = await self.begin(ctx, data)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ctx.flow != "late":
                await self._see(TURNED, ctx.instance)
        return answer

    async def undo_shakily(self, ctx: Context, data: Any) -> Any:
        answer = await self.begin(ctx, data)
        if ctx.attempt <= 2:
            raise ConnectionError("the first two calls fail")
        return answer

    async def do_if_repaired(self, ctx: Context, data: Any) -> Any:
        answer = await self.begin(ctx, data)
        if data != REPAIRED:
            if ctx.attempt == 1:
                await self.are_out(SAGAS[ctx.flow], ctx.instance, ctx.step)
            self._hands.trap.set()
            raise DoNotRetry("not with this input")
        return answer

    async def undo_if_repaired(self, ctx: Context, data: Any) -> Any:
        answer = await self.begin(ctx, data)
        if data != REPAIRED:
            raise ValueError("not with this input")
        return answer


HANDLERS: Final = (
    "do", "undo", "fail", "linger", "wait_for_ever", "wait_in_a_thread", "overtake", "finish_when_told", "undo_shakily",
    "do_if_repaired", "undo_if_repaired",
)  # fmt: skip


def register(engine: Engine, hands: Hands) -> None:
    hands.crew = Crew(hands)
    for name in HANDLERS:
        engine.register(name, getattr(hands.crew, name))


# --- stories ------------------------------------------------------------------------------------------------------


async def tell(engine: Engine, hands: Hands, life: Life) -> None:
    """The story of the life's flow, until nothing is left to do."""
    saga = SAGAS[life.flow]
    async with asyncio.timeout(PATIENCE):
        given = {"key": life.key, "amount": 200}
        id = str((await _insist(lambda: engine.start(life.flow, given, key=life.key))).id)
        await globals()[saga.story](engine, hands, saga, id)
        await engine.drain()


async def runs_by_itself(engine: Engine, hands: Hands, saga: Saga, id: str) -> None:
    await engine.wait(id)


async def is_cancelled(engine: Engine, hands: Hands, saga: Saga, id: str) -> None:
    if (await engine.get(id)).status not in (*TERMINAL, "rolling_back"):
        await hands.crew.are_out(saga, id)
        hands.trap.set()
        await _insist(lambda: engine.cancel(id, by=PERSON, reason="not wanted any more"))
    await engine.wait(id)


async def is_repaired(engine: Engine, hands: Hands, saga: Saga, id: str) -> None:
    await _reached(engine, id, "dlq")
    hands.trap.set()
    await _requeue_all(engine, id)
    await engine.wait(id)


async def is_undone_again(engine: Engine, hands: Hands, saga: Saga, id: str) -> None:
    await engine.wait(id)
    hands.trap.set()
    await _requeue_all(engine, id)


async def is_decided(engine: Engine, hands: Hands, saga: Saga, id: str) -> None:
    while not (tasks := await engine.tasks(id)):
        await asyncio.sleep(PAUSE)
    if tasks[0].closed_at is None:
        await engine.claim(tasks[0].id, by=PERSON)
        await engine.decide(tasks[0].id, by=PERSON, decision="confirmed")
    await engine.wait(id)


async def _reached(engine: Engine, id: str, status: str) -> None:
    while (await engine.get(id)).status not in (*TERMINAL, status):
        await asyncio.sleep(PAUSE)


async def _requeue_all(engine: Engine, id: str) -> None:
    for letter in await engine.dead_letters(id):
        if letter.resolved_at is None:
            await _insist(lambda letter=letter: engine.requeue(letter.id, REPAIRED, by=PERSON, reason="repaired"))


async def _insist(call: Callable[[], Awaitable[T]]) -> T | None:
    """Again until it is known to have been heard: a refusal after that says so as well."""
    is_asked = False
    while True:
        try:
            return await call()
        except (StoreError, Busy):
            is_asked = True
        except Conflict:
            if is_asked:
                return None
            raise
