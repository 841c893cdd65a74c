"""The background of a call: facts about its instance, read on demand. Most calls ask for none, and those cost nothing.

The engine's session belongs to the engine's loop. An async handler runs there and must await the read; a plain function
runs in a thread, which alone waits while the loop reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, Final

import msgspec

from holdfast.errors import Conflict, NotFound, StoreError
from holdfast.store.pg.session import Session
from holdfast.store.reads.background import Background, read_background

_GLANCE: Final = 1.0  # seconds after which a thread that waits asks whether the loop still runs


class NoResult(KeyError):
    """The error for a name without a completed step."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would quote the sentence


class Results(Mapping[str, Any]):
    """The results of completed steps, by step name. Every look decodes a copy, so no caller can damage another's."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        self._stored = stored

    def __getitem__(self, step: str) -> Any:
        try:
            stored = self._stored[step]
        except KeyError:
            there = ", ".join(map(repr, self._stored)) or "none yet"
            raise NoResult(f"No step {step!r} has completed with an answer; those that have: {there}.") from None
        return msgspec.json.decode(stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        return f"Results({dict(self)!r})"


class Reader:
    """A reader of backgrounds on the loop it was made on, for any thread."""

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session  # raises once the engine is closed
        self._loop = asyncio.get_running_loop()

    @property
    def is_here(self) -> bool:
        """Check whether this code runs on the loop and must not wait for it."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def read(self, org: str, instance: bytes) -> Background:
        found = await read_background(self._session(), org, instance)
        if found is None:
            raise NotFound("The instance of this call is gone.", code="INSTANCE_UNKNOWN")
        return found

    def read_from_thread(self, org: str, instance: bytes) -> Background:
        if self.is_here:
            raise Conflict(
                "What this call asks about its instance is not read yet, and an async handler must await the read.",
                code="CONTEXT_NOT_LOADED",
                hint="Write `await ctx.load()` before you use it.",
            )
        work = self.read(org, instance)
        try:
            reading = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise _closed() from None
        while True:
            try:
                return reading.result(_GLANCE)
            except TimeoutError:
                if reading.done():
                    raise
                if not self._loop.is_running():
                    raise _closed() from None
            except CancelledError:
                raise _closed() from None

    def check_awaitable(self) -> None:
        if not self.is_here:
            raise Conflict(
                "`ctx.load()` is for async handlers, on the engine's loop.",
                code="CONTEXT_LOAD_MISPLACED",
                hint="In a plain function leave it out: `ctx.input` and the others are read when you use them.",
            )


def _closed() -> StoreError:
    return StoreError("The engine was closed.", code="ENGINE_CLOSED")
