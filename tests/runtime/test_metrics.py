from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.errors import HoldfastError
from holdfast.runtime.telemetry.metrics import METRICS, MetricsCollector, Stats


class Worker:
    """Counts how often somebody looked."""

    def __init__(self) -> None:
        self.looks = 0
        self.now = Stats(
            commits=7,
            steps_closed=900,
            lease_seconds_left=12.5,
            timeouts={("order", "step"): 3},
            calls_failed={("order", "pay"): 2},
        )

    def stats(self) -> Stats:
        self.looks += 1
        return self.now


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def registry(worker: Worker) -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(worker))
    return registry


def test_every_field_of_stats_is_a_metric() -> None:
    assert tuple(METRICS) == Stats.__struct_fields__


def test_nothing_is_read_until_somebody_scrapes(worker: Worker, registry: CollectorRegistry) -> None:
    assert worker.looks == 0
    generate_latest(registry)
    assert worker.looks == 1


def test_counters_and_gauges_show_the_moment_of_the_scrape(worker: Worker, registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("holdfast_commits_total") == 7
    assert registry.get_sample_value("holdfast_lease_seconds_left") == 12.5
    worker.now = msgspec.structs.replace(worker.now, commits=8, jobs_queued=3)
    assert registry.get_sample_value("holdfast_commits_total") == 8
    assert registry.get_sample_value("holdfast_jobs_queued") == 3


def test_the_exposition_has_one_sample_per_metric(registry: CollectorRegistry) -> None:
    lines = generate_latest(registry).decode().splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    unknown = [name for name in METRICS if getattr(Stats(), name) in (None, {})]
    assert len(samples) == len(METRICS) - len(unknown) + len({"calls_failed", "timeouts", "lease_seconds_left"})
    assert [sample for sample in samples if "{" in sample] == [
        'holdfast_calls_failed_total{flow="order",step="pay"} 2.0',
        'holdfast_timeouts_total{flow="order",kind="step"} 3.0',
    ]
    assert "# TYPE holdfast_steps_closed_total counter" in lines
    assert "# TYPE holdfast_handlers_running gauge" in lines


def test_what_is_not_known_has_no_sample(worker: Worker, registry: CollectorRegistry) -> None:
    worker.now = Stats()
    assert registry.get_sample_value("holdfast_lease_seconds_left") is None
    assert registry.get_sample_value("holdfast_dead_letters_open") is None
    assert registry.get_sample_value("holdfast_handlers_running") == 0


def test_without_the_package_the_error_names_the_extra(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(HoldfastError) as refusal:
        MetricsCollector(worker)
    assert refusal.value.code == "EXTRA_MISSING"
    assert "holdfast[prometheus]" in refusal.value.hint


def test_the_docs_list_every_metric(registry: CollectorRegistry) -> None:
    page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` | {family.type} |" in page
        for label in METRICS[family.name.removeprefix("holdfast_")].labels:
            row = next(line for line in page.splitlines() if f"| `{name}` |" in line)
            assert f"`{label}`" in row
