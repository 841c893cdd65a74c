"""Metrics of a process for Prometheus: read at a scrape, free without one.

Failures and timeouts are counted by flow, failed calls by flow and step: by name for the tenant that asks, so
many at most, together those of all others (`flow_counts.py`). No other metric has labels: instances and tenants
are unbounded, and the scraper already knows which process it asks. An unknown figure has no sample, for an alarm must
not take it for zero.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Counts = Mapping[tuple[str, ...], int]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a process. Counters rise from its start, the rest is how things are now; None is not known here."""

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
    lease_seconds_left: float | None = None
    steps_unserved: int | None = None
    consumer_open_facts: Counts | None = None  # by environment and consumer
    consumer_seconds_behind: Counts | None = None
    signals_queued: int | None = None
    effects_pending: int | None = None
    dead_letters_open: int | None = None
    instances_suspended: int | None = None
    instances_in_dlq: int | None = None
    steps_taken_over: int = 0
    leases_lost: int = 0
    calls_failed: Counts = {}  # by flow and step
    instances_stopped: Counts = {}  # by flow and status
    dead_letters: Counts = {}  # by flow
    notices: Counts = {}  # by code
    timeouts: Counts = {}  # by flow, and what ran out of time: step or workflow


class Counted(Protocol):
    def stats(self) -> Stats: ...


class Meaning(NamedTuple):
    is_counter: bool
    text: str
    labels: tuple[str, ...] = ()


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
    "consumer_open_facts": Meaning(
        False, "Facts that are open for a consumer, as of the last look.", ("environment", "consumer")
    ),
    "consumer_seconds_behind": Meaning(
        False, "Seconds since the oldest open fact of a consumer, as of the last look.", ("environment", "consumer")
    ),
    "signals_queued": Meaning(False, "Signals anywhere that wait to be decided upon, as of the last look."),
    "effects_pending": Meaning(False, "Effects anywhere that wait for their next delivery, as of the last look."),
    "dead_letters_open": Meaning(False, "Dead letters anywhere that nobody has answered, as of the last look."),
    "instances_suspended": Meaning(False, "Instances anywhere that stand still until a resume, as of the last look."),
    "instances_in_dlq": Meaning(False, "Instances anywhere that wait for dead letters, as of the last look."),
    "steps_taken_over": Meaning(True, "Steps this process took from a worker that was lost, or from a late attempt."),
    "leases_lost": Meaning(True, "Leases of this process that ran out before they were renewed."),
    "calls_failed": Meaning(True, "Calls and deliveries that failed, retried or not.", ("flow", "step")),
    "instances_stopped": Meaning(
        True, "Instances that failed, or that the engine suspended or put aside.", ("flow", "status")
    ),
    "dead_letters": Meaning(True, "Dead letters that this process opened.", ("flow",)),
    "notices": Meaning(True, "Notices that this process wrote.", ("code",)),
    "timeouts": Meaning(
        True, "Steps and workflows that ran out of time, told by the process that went on with them.", ("flow", "kind")
    ),
}


class MetricsCollector:
    """`registry.register(MetricsCollector(engine))`. `engine.stats()` is called from the scraper's thread."""

    def __init__(self, engine: Counted) -> None:
        require_prometheus()
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Describe the metrics by name only: registering a collector must not need a running engine."""
        return (_family(name) for name in METRICS)

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        return (_family(name, getattr(stats, name)) for name in METRICS)


def _family(name: str, value: float | Counts | None = None) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    meaning = METRICS[name]
    kind = CounterMetricFamily if meaning.is_counter else GaugeMetricFamily
    family = kind(f"holdfast_{name}", meaning.text, labels=meaning.labels)
    samples = value if isinstance(value, Mapping) else {} if value is None else {(): value}
    for labels, count in samples.items():
        family.add_metric(labels, count)
    return family


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
