"""A worker process of the fleet: `python -m faults.worker <task as JSON>`.

Every call of a handler is told to the witness before it answers. The process says `{"ready": true}` when it works,
answers the line `stats` on its standard input, and leaves in order on SIGTERM. What happens to it otherwise is the
fleet's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from faults.sink import Teller
from holdfast import Context, Engine
from holdfast.errors import StoreError
from holdfast.payloads import canonical
from holdfast.runtime.effects.delivery import Delivery


@dataclass
class Task:
    """What a worker process is asked to be."""

    dsn: str
    sink: int  # the witness's port
    worker: dict[str, Any] = field(default_factory=dict)  # options of engine.worker
    engine: dict[str, Any] = field(default_factory=dict)  # options of Engine
    nap: float = 0.02  # seconds a handler takes at most
    gate: str = ""  # the file whose existence lets held calls go on
    # Modules whose `apply()` runs before anything else: those of a whole run, unless a task says otherwise.
    patches: list[str] = field(default_factory=lambda: os.environ.get("FAULTS_PATCHES", "").split())
    extras: list[str] = field(default_factory=list)  # "module:function", called with (engine, hands)
    works: bool = True  # False: an engine without a worker
    chores: list[str] = field(default_factory=list)  # "module:coroutine", which run as long as the process does


class Hands:
    """The handlers. A call becomes an effect in the outside world: the witness has it before the engine does."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.teller = Teller(task.sink)
        self.trap: Any = None  # of a victim with a story
        self.crew: Any = None

    async def witness(self, ctx: Context, data: Any) -> dict[str, Any]:
        result = os.urandom(8).hex()
        await self.teller.tell(
            {
                "tenant": ctx.org,
                "instance": ctx.instance,
                "step": ctx.step,
                "step_id": str(ctx.step_id),
                "attempt": ctx.attempt,
                "fence": ctx._job.fence,
                "idempotency_key": ctx.idempotency_key,
                "payload_hash": sha256(canonical(data)).hexdigest(),
                "result": result,
                "pid": os.getpid(),
            }
        )
        return {"result": result}

    async def deliver(self, delivery: Delivery, data: Any) -> None:
        """An effect out of the outbox, for the witness as well."""
        await self.teller.tell(
            {
                "tenant": delivery.org,
                "instance": delivery.instance,
                "step": delivery.token,
                "step_id": delivery.id,
                "attempt": delivery.attempt,
                "fence": 0,
                "idempotency_key": delivery.key,
                "payload_hash": sha256(canonical(data)).hexdigest(),
                "result": "",
                "pid": os.getpid(),
                "kind": "effect",
            }
        )

    async def work(self, ctx: Context, data: Any) -> Any:
        await asyncio.sleep(random.random() * self.task.nap)
        return await self.witness(ctx, data)

    async def flaky(self, ctx: Context, data: Any) -> Any:
        """Fails on its first call, whoever makes it."""
        if ctx.attempt == 1:
            raise ConnectionError("the first call fails")
        return await self.work(ctx, data)

    async def hold(self, ctx: Context, data: Any) -> Any:
        """The first call is out in the world until the gate opens; later ones come back at once."""
        answer = await self.witness(ctx, data)
        while ctx.attempt == 1 and not os.path.exists(self.task.gate):  # noqa: ASYNC240 - a glance costs nothing
            await asyncio.sleep(0.01)
        return answer

    def register(self, engine: Engine) -> None:
        for handler in (self.work, self.flaky, self.hold):
            engine.register(handler.__name__, handler)
        engine.effect("witness")(self.deliver)
        for extra in self.task.extras:
            named(extra)(engine, self)


def named(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


async def serve(task: Task) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    hands = Hands(task)
    asked: asyncio.Queue[str] = asyncio.Queue()
    listening = asyncio.create_task(listen(asked))
    engine = await opened(task, hands)
    try:
        async with engine.worker(**task.worker) if task.works else contextlib.nullcontext():
            print(json.dumps({"ready": True}), flush=True)
            answering = asyncio.create_task(answer(engine, asked))
            leaving = asyncio.create_task(stopped.wait())
            chores = [asyncio.create_task(named(chore)(engine, hands)) for chore in task.chores]
            ended, _ = await asyncio.wait({leaving, *chores}, return_when=asyncio.FIRST_COMPLETED)
            for chore in ended:
                chore.result()  # one that failed ends its process
        for chore in (listening, answering, *chores):
            chore.cancel()
        await asyncio.gather(listening, answering, *chores, return_exceptions=True)
    finally:
        await engine.close()


async def opened(task: Task, hands: Hands) -> Engine:
    """As a supervisor would: a server that is away is asked again."""
    while True:
        engine = Engine(task.dsn, **task.engine)
        hands.register(engine)
        try:
            await engine.open()
        except StoreError:
            await engine.close()
            await asyncio.sleep(0.05)
        else:
            return engine


async def listen(asked: asyncio.Queue[str]) -> None:
    """Nobody may outlive the harness: when its end of the pipe is gone, so is this process."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while text := await reader.readline():
        asked.put_nowait(text.decode().strip())
    os._exit(1)


async def answer(engine: Engine, asked: asyncio.Queue[str]) -> None:
    while True:
        if await asked.get() == "stats":
            stats = engine.stats()
            print(json.dumps({"rejected": stats.results_rejected, "retried": stats.batches_retried}), flush=True)


def main(wishes: dict[str, Any]) -> None:
    task = Task(**wishes)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    if os.environ.get("HOLDFAST_FAILPOINT"):
        from holdfast.testing.failpoints import install_failpoints

        install_failpoints()
    for patch in task.patches:
        importlib.import_module(patch).apply()
    asyncio.run(serve(task))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
