"""A line for everything that happens to flows and for every call of a step: who, what, where, with which outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable
from typing import Any

import msgspec

from holdfast.logs import logger
from holdfast.runtime.hooks.guard import guarded
from holdfast.runtime.hooks.middleware import Call, Middleware
from holdfast.runtime.hooks.notices import FlowContext
from holdfast.runtime.worker.context import Context, job_of
from holdfast.runtime.worker.failures import describe, ending

log = logger("holdfast.audit")

Entry = dict[str, Any]
Sink = Callable[[Entry], Any]


def write_line(entry: Entry) -> None:
    """JSON, and the same as a dictionary in the record's `audit` for handlers that want it."""
    log.info("%s", msgspec.json.encode(entry, enc_hook=str).decode(), extra={"audit": entry})


class Audit(Middleware):
    """Audit log of every change, to the logger `holdfast.audit` or a sink, which may be async. Payloads are never
    written.
    """

    def __init__(self, sink: Sink = write_line) -> None:
        self._sink = sink

    async def step(self, ctx: Context, data: Any, call: Call) -> None:
        begun = time.perf_counter()
        try:
            await call()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:
            await self._ended(ctx, begun, ending(job_of(ctx), failure))
            raise
        await self._called(ctx, begun, "completed")

    async def _ended(self, ctx: Context, begun: float, why: BaseException | None) -> None:
        if why is None:
            await self._called(ctx, begun, "stopped")
        else:
            error = describe(why)
            await self._called(ctx, begun, "failed", error={"code": error.code, "message": error.message})

    async def _called(self, ctx: Context, begun: float, outcome: str, **more: Any) -> None:
        entry: Entry = {"at": datetime.now(UTC).isoformat(), "what": "step_called", "who": "system", **_about(ctx)}
        entry |= {"step": ctx.step, "attempt": ctx.attempt, "outcome": outcome}
        entry |= {"seconds": round(time.perf_counter() - begun, 6), **more}
        await self._write(entry)

    async def flow_started(self, ctx: FlowContext) -> None:
        await self._changed("flow_started", ctx)

    async def flow_completed(self, ctx: FlowContext) -> None:
        await self._changed("flow_completed", ctx)

    async def flow_failed(self, ctx: FlowContext) -> None:
        await self._changed("flow_failed", ctx)

    async def flow_cancelled(self, ctx: FlowContext) -> None:
        await self._changed("flow_cancelled", ctx)

    async def flow_aborted(self, ctx: FlowContext) -> None:
        await self._changed("flow_aborted", ctx)

    async def flow_suspended(self, ctx: FlowContext) -> None:
        await self._changed("flow_suspended", ctx)

    async def flow_resumed(self, ctx: FlowContext) -> None:
        await self._changed("flow_resumed", ctx)

    async def rollback_started(self, ctx: FlowContext) -> None:
        await self._changed("rollback_started", ctx)

    async def rollback_completed(self, ctx: FlowContext) -> None:
        await self._changed("rollback_completed", ctx)

    async def _changed(self, what: str, ctx: FlowContext) -> None:
        entry: Entry = {"at": ctx.at.isoformat(), "what": what, "who": ctx.actor, **_about(ctx)}
        entry |= {"version": ctx.flow_version, "status": str(ctx.status)}
        if ctx.reason is not None:
            entry["reason"] = ctx.reason
        error = ctx.error
        if error is not None:
            entry["error"] = {"code": error.get("code"), "message": error.get("message")}
        await self._write(entry)

    async def _write(self, entry: Entry) -> None:
        """A sink that fails must not fail the step it writes about."""
        with guarded(partial(log.exception, "The audit line could not be written: %s", entry)):
            answer = self._sink(entry)
            if isawaitable(answer):
                await answer


def _about(ctx: Context | FlowContext) -> Entry:
    return {"org": ctx.org, "flow": ctx.flow, "instance": ctx.instance}
