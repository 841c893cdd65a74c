"""What a worker process counts, offered to Prometheus: read when somebody scrapes, free when nobody does.

Timeouts are counted by flow and kind, of so many flows at most. No other metric has labels: nodes and tenants are
unbounded, and the scraper already knows which process it asks.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a worker. Counters rise from the start of the process, the rest is how things are now."""

    commits: int = 0
    steps_closed: int = 0
    batches_retried: int = 0
    results_rejected: int = 0
    hook_failures: int = 0
    hook_notices_dropped: int = 0
    default_partition_rows: int = 0
    handlers_running: int = 0
    jobs_queued: int = 0
    results_buffered: int = 0
    instances_cached: int = 0
    lease_seconds_left: float = 0.0
    steps_unserved: int = 0
    signals_queued: int = 0
    effects_pending: int = 0
    dead_letters_open: int = 0
    timeouts: Mapping[tuple[str, str], int] = {}  # by flow, and what ran out of time: step or workflow


class Counted(Protocol):
    def stats(self) -> Stats: ...


class Meaning(NamedTuple):
    is_counter: bool
    text: str


METRICS: Final[dict[str, Meaning]] = {
    "commits": Meaning(True, "Transactions committed by the apply lanes."),
    "steps_closed": Meaning(True, "Steps closed, whatever their outcome."),
    "batches_retried": Meaning(True, "Batches applied again because another writer was faster or the server asked."),
    "results_rejected": Meaning(True, "Handler results refused because their lease had passed to somebody else."),
    "hook_failures": Meaning(True, "Hooks that were told something and raised."),
    "hook_notices_dropped": Meaning(True, "Changes of flows that hooks were too slow to be told of."),
    "default_partition_rows": Meaning(True, "Rows the upkeep found in a default partition: their month had none."),
    "handlers_running": Meaning(False, "Handlers running now."),
    "jobs_queued": Meaning(False, "Steps leased to this process that wait for a free slot."),
    "results_buffered": Meaning(False, "Results and signals waiting for their commit."),
    "instances_cached": Meaning(False, "Instance snapshots kept in memory."),
    "lease_seconds_left": Meaning(False, "Seconds until this worker's lease ends unless it is renewed."),
    "steps_unserved": Meaning(False, "Steps anywhere that wait for a handler no live worker has, as of the last look."),
    "signals_queued": Meaning(False, "Signals anywhere that wait to be decided upon, as of the last look."),
    "effects_pending": Meaning(False, "Effects anywhere that wait for their next delivery, as of the last look."),
    "dead_letters_open": Meaning(False, "Dead letters anywhere that nobody has answered, as of the last look."),
    "timeouts": Meaning(True, "Steps and workflows that ran out of time, told by the process that went on with them."),
}


class MetricsCollector:
    """`registry.register(MetricsCollector(engine))`. `engine.stats()` is called from the scraper's thread."""

    def __init__(self, engine: Counted) -> None:
        require_prometheus()
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Names only: registering a collector must not need a running engine."""
        return (_family(name) for name in METRICS)

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        return (_family(name, getattr(stats, name)) for name in METRICS)


def _family(name: str, value: float | Mapping[tuple[str, str], int] | None = None) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    meaning = METRICS[name]
    if isinstance(value, Mapping):
        counted = CounterMetricFamily(f"holdfast_{name}", meaning.text, labels=("flow", "kind"))
        for labels, count in value.items():
            counted.add_metric(labels, count)
        return counted
    family = CounterMetricFamily if meaning.is_counter else GaugeMetricFamily
    return family(f"holdfast_{name}", meaning.text, value=value)


def require_prometheus() -> None:
    try:
        importlib.import_module("prometheus_client")
    except ModuleNotFoundError as missing:
        raise HoldfastError(
            "Metrics for Prometheus need the package prometheus-client, which is not installed.",
            code="EXTRA_MISSING",
            hint="Install the extra: holdfast[prometheus].",
            extra="prometheus",
        ) from missing
