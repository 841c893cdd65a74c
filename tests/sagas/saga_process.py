"""A worker process for random sagas: `python saga_process.py <dsn> <options as JSON>`.

Every call is written into the table `public.tale` before anything else happens, and so is its end. What a handler does
depends on the names of its flow and step and on the attempt only, so that the same saga meets the same luck again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from random import Random
from typing import Any, Final

import psycopg

from holdfast import Context, DoNotRetry, Engine

TABLE: Final = """
create table if not exists public.tale (
    seq bigint generated always as identity, instance text, step text, attempt int, what text, pid int)
"""
NOTE: Final = "insert into public.tale (instance, step, attempt, what, pid) values (%s, %s, %s, %s, %s)"
HANGS_EVERY: Final = 7  # steps with such a number have a time limit, so their handlers may hang
SHORT: Final = 0.15  # that limit, in seconds


def may_hang(step: str) -> bool:
    number = "".join(filter(str.isdigit, step))
    return bool(number) and int(number) % HANGS_EVERY == 0


class Diary:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = asyncio.Lock()
        self._thread_lock = threading.Lock()
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._plain = psycopg.connect(dsn, autocommit=True)

    async def note(self, ctx: Context, what: str) -> None:
        async with self._lock:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
            await self._connection.execute(NOTE, (ctx.instance, ctx.step, ctx.attempt, what, os.getpid()))

    def note_plainly(self, ctx: Context, what: str) -> None:
        with self._thread_lock:
            self._plain.execute(NOTE, (ctx.instance, ctx.step, ctx.attempt, what, os.getpid()))

    # --- the handlers -----------------------------------------------------------------------------------------------

    async def work(self, ctx: Context, data: Any) -> Any:
        await self.note(ctx, "begun")
        luck = Random(f"{ctx.flow}|{ctx.step}|{ctx.attempt}")
        try:
            answer = await self._try(ctx, data, luck)
        except asyncio.CancelledError:
            if not ctx.cancelled:
                raise
            await asyncio.shield(self.note(ctx, tidied := luck.choice(["stopped", "done"])))
            if tidied == "stopped":
                raise
            return {"n": 1}
        await self.note(ctx, "done")
        return answer

    async def _try(self, ctx: Context, data: Any, luck: Random) -> Any:
        mood = 0.0 if _is_lucky(data) else luck.random()
        await asyncio.sleep(luck.random() * 0.02)
        if mood > 0.96 and may_hang(ctx.step):
            await asyncio.Event().wait()
        if mood > 0.95:
            raise DoNotRetry("another call would not help")
        if mood > 0.92:
            raise asyncio.CancelledError
        if mood > 0.89:
            raise StopIteration
        if mood > 0.78:
            raise RuntimeError("bad luck")
        return luck.choice([{}, {"n": 2, "ok": True}, {"n": 9, "kind": "b"}, {"kind": "a"}, 7, None])

    def undo(self, ctx: Context, data: Any) -> None:
        """A plain function: in a thread."""
        self.note_plainly(ctx, "begun")
        if not _is_lucky(data) and Random(f"{ctx.flow}|{ctx.step}|{ctx.attempt}").random() > 0.8:
            raise RuntimeError("bad luck")
        self.note_plainly(ctx, "done")

    async def close(self) -> None:
        self._plain.close()
        if self._connection is not None:
            await self._connection.close()


def _is_lucky(data: Any) -> bool:
    return isinstance(data, dict) and bool(data.get("lucky"))


async def serve(dsn: str, options: dict[str, Any]) -> None:
    diary = Diary(dsn)
    async with Engine(dsn) as engine:
        engine.register("work", diary.work)
        engine.register("undo", diary.undo)
        async with engine.worker(**options):
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], json.loads(sys.argv[2])))
