"""Statistics as they are read: per flow and version, and per step, with percentiles out of the histogram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from holdfast.store.reads.statistics import FLOW, NO_BAR, STARTED, Sum, edge_of

SECOND: Final = 1_000_000
_SUCCESSES: Final = ("completed", "confirmed", "rejected")  # a rejection is an answer, not a failure
_FAILURES: Final = ("failed", "paused")


class Durations(msgspec.Struct, frozen=True):
    """Seconds. Percentiles come from bars a quarter of a doubling wide; all else is exact. None: nothing was timed."""

    count: int = 0
    total: float = 0.0
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class StepStatistics(msgspec.Struct, frozen=True):
    """One step, or one compensation: what became of its visits. `durations` count from its opening to its end."""

    name: str
    calls: int  # results that came back: every success, every failure, every one that led to another call
    completed: int
    failed: int
    retried: int
    skipped: int
    cancelled: int
    compensated: int
    failure_rate: float  # failed ÷ (completed + failed)
    durations: Durations

    @property
    def mean(self) -> float | None:
        return self.durations.mean

    @property
    def p50(self) -> float | None:
        return self.durations.p50

    @property
    def p95(self) -> float | None:
        return self.durations.p95

    @property
    def p99(self) -> float | None:
        return self.durations.p99

    @property
    def max(self) -> float | None:
        return self.durations.max


class FlowStatistics(msgspec.Struct, frozen=True):
    """Statistics of one version of a flow. `durations` run from the start of an instance to its end, whatever the
    outcome.
    """

    flow: str
    version: int
    started: int
    completed: int
    failed: int
    cancelled: int
    aborted: int
    rolled_back: int  # of the failed and cancelled ones: those that ran their compensations to the end
    failure_rate: float  # failed ÷ all that ended
    durations: Durations
    steps: list[StepStatistics]

    def step(self, name: str) -> StepStatistics | None:
        return next((step for step in self.steps if step.name == name), None)


def by_flow(sums: Sequence[Sum]) -> list[FlowStatistics]:
    """The sums come ordered by flow, version and node."""
    return [
        _flow(flow, version, list(group)) for (flow, version), group in groupby(sums, key=lambda s: (s.flow, s.version))
    ]


def _flow(flow: str, version: int, sums: list[Sum]) -> FlowStatistics:
    nodes = {node: list(group) for node, group in groupby(sums, key=lambda s: s.node)}
    whole = nodes.pop(FLOW, [])
    counts = _counts(whole)
    ended = sum(counts.get(status, 0) for status in ("completed", "failed", "cancelled", "aborted"))
    failed = counts.get("failed", 0)
    return FlowStatistics(
        flow=flow,
        version=version,
        started=counts.get(STARTED, 0),
        completed=counts.get("completed", 0),
        failed=failed,
        cancelled=counts.get("cancelled", 0),
        aborted=counts.get("aborted", 0),
        rolled_back=counts.get("rolled_back", 0),
        failure_rate=failed / ended if ended else 0.0,
        durations=durations_of(whole),
        steps=[_step(node, found) for node, found in nodes.items()],
    )


def _step(name: str, sums: list[Sum]) -> StepStatistics:
    counts = _counts(sums)
    completed = sum(counts.get(status, 0) for status in _SUCCESSES)
    failed = sum(counts.get(status, 0) for status in _FAILURES)
    retried = counts.get("retried", 0)
    return StepStatistics(
        name=name,
        calls=completed + failed + retried,
        completed=completed,
        failed=failed,
        retried=retried,
        skipped=counts.get("skipped", 0),
        cancelled=counts.get("cancelled", 0),
        compensated=counts.get("rolled_back", 0),
        failure_rate=failed / (completed + failed) if completed + failed else 0.0,
        durations=durations_of(sums),
    )


def _counts(sums: Iterable[Sum]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for s in sums:
        counts[s.outcome] = counts.get(s.outcome, 0) + s.count
    return counts


def durations_of(sums: Iterable[Sum]) -> Durations:
    timed = sorted((s for s in sums if s.bar != NO_BAR), key=lambda s: s.bar)
    count = sum(s.count for s in timed)
    if not count:
        return Durations()
    total = sum(s.total for s in timed)
    least, most = min(s.least for s in timed), max(s.most for s in timed)
    p50, p95, p99 = (_percentile(timed, count * share) / SECOND for share in (0.50, 0.95, 0.99))
    return Durations(count, total / SECOND, total / count / SECOND, least / SECOND, p50, p95, p99, most / SECOND)


def _percentile(timed: Sequence[Sum], rank: float) -> float:
    """Estimate a percentile: within its bar a duration lies as far along as its rank; a bar knows its least and
    most.
    """
    seen = 0
    for s in timed:
        if seen + s.count >= rank:
            low, high = max(edge_of(s.bar), s.least), min(edge_of(s.bar + 1), s.most)
            return low + (high - low) * (rank - seen) / s.count
        seen += s.count
    return float(timed[-1].most)
