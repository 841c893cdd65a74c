"""A worker process for random sagas: `python saga_process.py <dsn> <options as JSON>`.

Every call is written into the table `public.tale` before anything else happens, and so is its end. What a handler does
depends on its saga, its step and the attempt only, so that the same saga meets the same luck again.
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
FORTUNES: Final = (0.78, 0.9, 1.0, 1.05)  # of sagas: with the first nothing fails, with the last every fourth call
SHORT: Final = 0.15  # that limit, in seconds


def may_hang(step: str) -> bool:
    number = step.removeprefix("step")
    return number.isdigit() and int(number) % HANGS_EVERY == 0


class Diary:
    def __init__(self, dsn: str) -> None:
        self._lock = threading.Lock()
        self._connection = psycopg.connect(dsn, autocommit=True)

    def note(self, ctx: Context, what: str) -> None:
        """Without an await: a handler that is told to stop must not be interrupted between its deed and this."""
        with self._lock:
            self._connection.execute(NOTE, (ctx.instance, ctx.step, ctx.attempt, what, os.getpid()))

    # --- the handlers -----------------------------------------------------------------------------------------------

    async def work(self, ctx: Context, data: Any) -> Any:
        self.note(ctx, "begun")
        luck = Random(f"{_saga(ctx)}|{ctx.step}|{ctx.attempt}")
        try:
            answer = await self._try(ctx, data, luck)
        except asyncio.CancelledError:
            if not ctx.cancelled:
                raise
            self.note(ctx, tidied := luck.choice(["stopped", "done"]))
            if tidied == "stopped":
                raise
            return {"n": 1}
        self.note(ctx, "done")
        return answer

    async def _try(self, ctx: Context, data: Any, luck: Random) -> Any:
        mood = 0.0 if _is_lucky(data) else luck.random() * Random(_saga(ctx)).choice(FORTUNES)
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
        self.note(ctx, "begun")
        if not _is_lucky(data) and Random(f"{_saga(ctx)}|{ctx.step}|{ctx.attempt}").random() > 0.8:
            raise RuntimeError("bad luck")
        self.note(ctx, "done")


def _saga(ctx: Context) -> str:
    """Random flows have one instance each, sub-flows many."""
    return ctx.flow if ctx.flow.startswith("random") else ctx.instance


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
