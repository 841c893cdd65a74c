"""A caller that lives through faults: it asks again under the same key or id until it knows that it was heard."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from faults import flows
from holdfast import Engine
from holdfast.errors import Busy, StoreError

T = TypeVar("T")
SPACE = uuid.UUID("6b7f0c2e-5f0e-4c7a-9a51-000000000000")


class Client:
    """Every call ends as ok, or is unknown and repeated; `unknown` counts the repetitions."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.started: dict[str, str] = {}  # key → instance, as it was answered
        self.unknown = 0
        self._sent: set[str] = set()

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except (StoreError, Busy):
                self.unknown += 1
                await asyncio.sleep(0.05)

    async def publish(self, *definitions: Any) -> None:
        for definition in definitions:
            await self.insist(lambda definition=definition: self.engine.publish(definition))

    async def start(self, flow: str, numbers: range, prefix: str = "k") -> None:
        """One instance per number, whose key is also the key of the event it waits for."""
        keys = [f"{prefix}-{n}" for n in numbers]
        inputs = [{"n": n, "key": key} for n, key in zip(numbers, keys, strict=True)]
        found = await self.insist(lambda: self.engine.start_many(flow, inputs, keys=keys))
        self.started.update({key: str(instance.id) for key, instance in zip(keys, found, strict=True)})

    async def go(self, numbers: range, prefix: str = "k") -> None:
        """The event that instances of `kinds` wait for; sent early or late, it counts once."""

        async def one(key: str) -> None:
            id = uuid.uuid5(SPACE, key)
            await self.insist(lambda: self.engine.signal_key("go", key, {"for": key}, id=id))

        await asyncio.gather(*(one(f"{prefix}-{n}") for n in numbers))

    async def publish_kinds(self) -> None:
        await self.publish(flows.CHILD, flows.KINDS)
