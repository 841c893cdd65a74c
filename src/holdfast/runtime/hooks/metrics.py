"""Counts and times per flow and step for Prometheus. Labels are names out of definitions and outcomes, never data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from holdfast.runtime.hooks.middleware import Call, Middleware
from holdfast.runtime.hooks.notices import FlowContext
from holdfast.runtime.telemetry.flow_counts import OTHERS
from holdfast.runtime.telemetry.metrics import require_prometheus
from holdfast.runtime.worker.context import Context, job_of
from holdfast.runtime.worker.failures import ending

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class Metrics(Middleware):
    """Metrics by flow: `engine.use(Metrics())`, with a registry of its own if given. `MetricsCollector` counts the
    process.

    With `orgs`, only flows of these tenants are counted by name; those of all others are counted together.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, orgs: Collection[str] | None = None) -> None:
        require_prometheus()
        from prometheus_client import REGISTRY, Counter, Histogram

        self._orgs = None if orgs is None else frozenset(orgs)
        home = REGISTRY if registry is None else registry
        self._flows = Counter(
            "holdfast_flow_changes", "What this process committed about flows.", ["flow", "outcome"], registry=home
        )
        self._calls = Counter(
            "holdfast_step_calls", "Calls of steps in this process.", ["flow", "step", "outcome"], registry=home
        )
        self._seconds = Histogram(
            "holdfast_step_call_seconds", "How long calls of steps took.", ["flow", "step", "outcome"],
            registry=home, buckets=BUCKETS,
        )  # fmt: skip

    async def step(self, ctx: Context, data: Any, call: Call) -> None:
        begun, outcome = time.perf_counter(), "failed"
        try:
            await call()
            outcome = "completed"
        except asyncio.CancelledError as failure:
            outcome = "failed" if ending(job_of(ctx), failure) else "stopped"
            raise
        finally:
            place = self._told(ctx.org, ctx.flow, ctx.step)
            self._calls.labels(*place, outcome).inc()
            self._seconds.labels(*place, outcome).observe(time.perf_counter() - begun)

    async def step_postponed(self, ctx: Context, seconds: float) -> None:
        self._calls.labels(*self._told(ctx.org, ctx.flow, ctx.step), "postponed").inc()

    async def flow_started(self, ctx: FlowContext) -> None:
        self._count(ctx, "started")

    async def flow_completed(self, ctx: FlowContext) -> None:
        self._count(ctx, "completed")

    async def flow_failed(self, ctx: FlowContext) -> None:
        self._count(ctx, "failed")

    async def flow_cancelled(self, ctx: FlowContext) -> None:
        self._count(ctx, "cancelled")

    async def flow_aborted(self, ctx: FlowContext) -> None:
        self._count(ctx, "aborted")

    async def flow_suspended(self, ctx: FlowContext) -> None:
        self._count(ctx, str(ctx.status))

    async def flow_resumed(self, ctx: FlowContext) -> None:
        self._count(ctx, "resumed")

    async def rollback_started(self, ctx: FlowContext) -> None:
        self._count(ctx, "rollback_started")

    async def rollback_completed(self, ctx: FlowContext) -> None:
        self._count(ctx, "rollback_completed")

    def _count(self, ctx: FlowContext, outcome: str) -> None:
        self._flows.labels(*self._told(ctx.org, ctx.flow), outcome).inc()

    def _told(self, org: str, *names: str) -> tuple[str, ...]:
        return names if self._orgs is None or org in self._orgs else (OTHERS,) * len(names)
