"""Counts and durations."""

from __future__ import annotations

from holdfast.server.models.base import Model


class DurationsView(Model):
    """Seconds; null where nothing was timed."""

    count: int
    total: float
    mean: float | None
    min: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


class StepStatisticsView(Model):
    name: str
    calls: int
    completed: int
    failed: int
    retried: int
    skipped: int
    cancelled: int
    compensated: int
    failure_rate: float
    durations: DurationsView


class FlowStatisticsView(Model):
    """One version of a flow."""

    flow: str
    version: int
    started: int
    completed: int
    failed: int
    cancelled: int
    aborted: int
    rolled_back: int
    failure_rate: float
    durations: DurationsView
    steps: list[StepStatisticsView]


class StatisticsView(Model):
    items: list[FlowStatisticsView]
