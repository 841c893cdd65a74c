"""A shop whose handlers write down what they did, and the story of an instance as a test reads it.

All steps and compensations call the handler `do`; what happens is decided by the name of the step. `fails` says how
often a step fails before it succeeds, `raises` what it raises instead, `hold` lets it stand still until it is let go.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import Any, Final

from holdfast import Context, Engine, Flow
from holdfast.errors import HoldfastError
from holdfast.runtime.engine import reading
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.reads.instances import Event, Instance, Step
from holdfast.testing import advance
from running import until

ALWAYS: Final = 10**9
LONGEST_NAME: Final = 120
OVER: Final = frozenset(map(str, reading.TERMINAL))


class House:
    """The engine of a chapter, and whose flow is whose."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shops: dict[str, Shop] = {}
        engine.register("do", self.do)
        engine.register("do_plainly", self.do_plainly)

    def shop(self, name: str) -> Shop:
        name = f"{re.sub(r'[^0-9A-Za-z]+', '_', name)[:LONGEST_NAME]}-{len(self.shops)}"
        self.shops[name] = Shop(self.engine, name)
        return self.shops[name]

    async def do(self, ctx: Context, data: Any) -> Any:
        return await self.shops[ctx.flow.partition(".")[0]].do(ctx, data)

    def do_plainly(self, ctx: Context, data: Any) -> Any:
        return self.shops[ctx.flow.partition(".")[0]].do_plainly(ctx, data)


class Story:
    """What became of an instance."""

    def __init__(self, instance: Instance, steps: list[Step], events: list[Event], letters: list[DeadLetter]) -> None:
        self.instance = instance
        self.id = instance.id
        self.status = instance.status
        self.rows = steps
        self.events = events
        self.letters = letters

    def __getitem__(self, name: str) -> str:
        """The status of a step; of its last run, if there were several."""
        return self.step(name).status

    def step(self, name: str) -> Step:
        return [row for row in self.rows if row.name == name][-1]

    def runs(self, name: str) -> list[str]:
        return [row.status for row in self.rows if row.name == name]

    def __contains__(self, name: str) -> bool:
        return any(row.name == name for row in self.rows)

    @property
    def statuses(self) -> dict[str, str]:
        return {row.name: row.status for row in self.rows}

    def noted(self, type: str) -> list[Event]:
        return [event for event in self.events if event.type == type]

    def about(self, name: str) -> list[str]:
        return [event.type for event in self.events if event.node == name]


class Shop:
    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.log: list[str] = []  # every call, by step, in the order they began
        self.done: list[str] = []  # those that came to their end
        self.data: dict[str, Any] = {}
        self.keys: defaultdict[str, list[str]] = defaultdict(list)
        self.told: list[str] = []
        self.fails: dict[str, int] = {}
        self.raises: dict[str, BaseException] = {}
        self.answers: dict[str, Any] = {}
        self._gates: dict[str, asyncio.Event] = {}

    # --- what the handlers do ---------------------------------------------------------------------------------------

    async def do(self, ctx: Context, data: Any) -> Any:
        self._begin(ctx, data)
        gate = self._gates.get(ctx.step)
        if gate is not None:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                self.told.append(ctx.step)
                raise
        return self._end(ctx)

    def do_plainly(self, ctx: Context, data: Any) -> Any:
        """In a thread, where only the flag tells of a stop."""
        self._begin(ctx, data)
        gate = self._gates.get(ctx.step)
        while gate is not None and not gate.is_set() and not ctx.cancelled:
            pass
        if ctx.cancelled:
            self.told.append(ctx.step)
        return self._end(ctx)

    def _begin(self, ctx: Context, data: Any) -> None:
        self.log.append(ctx.step)
        self.data[ctx.step] = data
        self.keys[ctx.step].append(ctx.idempotency_key)

    def _end(self, ctx: Context) -> Any:
        if ctx.step in self.raises:
            raise self.raises[ctx.step]
        if self.fails.get(ctx.step, 0):
            self.fails[ctx.step] -= 1
            raise RuntimeError(f"{ctx.step} does not work")
        self.done.append(ctx.step)
        return self.answers.get(ctx.step, {"by": ctx.step})

    def hold(self, *steps: str) -> None:
        for step in steps:
            self._gates[step] = asyncio.Event()

    def let_go(self, *steps: str) -> None:
        for step in steps:
            self._gates[step].set()

    # --- what a test does -------------------------------------------------------------------------------------------

    def flow(self, **options: Any) -> Flow:
        return Flow(self.name, **options)

    async def start(self, flow: Flow | None = None, input: Any = None) -> str:
        if flow is not None:
            await self.engine.publish(flow.build())
        return (await self.engine.start(self.name, input)).id

    async def run(self, flow: Flow | None = None, input: Any = None) -> Story:
        """Start an instance and let everything happen that is due."""
        id = await self.start(flow, input)
        await self.settle()
        return await self.look(id)

    async def settle(self) -> None:
        await self.engine.drain(timeout=30)

    async def begun(self, *steps: str) -> None:
        """All these handlers are being called."""
        await until(lambda: set(steps) <= set(self.log))

    async def until_status(self, id: str, *wanted: str) -> Story:
        async def is_so() -> bool:
            return (await self.engine.get(id)).status in wanted

        await until(is_so)
        return await self.look(id)

    async def over(self, id: str) -> Story:
        return await self.until_status(id, *OVER)

    async def look(self, id: str) -> Story:
        engine = self.engine
        return Story(
            await engine.get(id), await engine.steps(id), await engine.events(id), await engine.dead_letters(id)
        )

    async def pass_time(self, seconds: float) -> None:
        await advance(self.engine, seconds=seconds)
        await self.settle()

    async def task(self, id: str, node: str | None = None) -> str:
        """The one open task of an instance."""
        [task] = [t for t in await self.engine.tasks(id) if t.closed_at is None and node in (None, t.node)]
        return task.id


async def refusal(action: Any) -> str:
    """The code an action is refused with."""
    try:
        await action
    except HoldfastError as refused:
        return refused.code
    raise AssertionError("it was not refused")
