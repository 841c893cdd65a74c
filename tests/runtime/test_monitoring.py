"""The alarms and the dashboard of `docs/monitoring`, held against scrapes of processes that run.

Rules are evaluated by the little of PromQL that they use: a counter's `increase` and `rate` are what it has grown by
since it was zero.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from holdfast import DoNotRetry, Engine, Flow
from holdfast.runtime.telemetry.backlog import Backlog
from holdfast.runtime.telemetry.metrics import METRICS, MetricsCollector, Stats
from holdfast.runtime.telemetry.scrape import exposed
from holdfast.store.pg.session import Disconnected
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

DOCS: Final = Path(__file__).parents[2] / "docs"
RULES: Final[dict[str, str]] = {
    rule["alert"]: rule["expr"]
    for group in YAML(typ="safe").load((DOCS / "monitoring/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
DASHBOARD: Final[dict[str, Any]] = json.loads((DOCS / "monitoring/dashboard.json").read_text())
QUERIES: Final[dict[str, str]] = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, ">": operator.gt, "<": operator.lt
}  # fmt: skip
SELECTOR: Final = re.compile(r"\b(up|holdfast_\w+)(?:\{([^}]*)\})?")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """What Prometheus knows after it asked these processes; one that does not answer is None."""

    def __init__(self, pages: dict[str, str | None]) -> None:
        self.types: dict[str, str] = {"up": "gauge"}
        self.samples: list[Sample] = []
        for instance, page in pages.items():
            about = {"job": "holdfast", "instance": instance}
            self.samples.append(Sample("up", about, float(page is not None)))
            for family in text_string_to_metric_families(page or ""):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                self.types[name] = family.type
                self.samples += [Sample(one.name, one.labels | about, one.value) for one in family.samples]

    def select(self, selector: str) -> list[Sample]:
        found = SELECTOR.match(selector)
        assert found, selector
        wanted = re.findall(r'(\w+)(=~?)"([^"]*)"', found[2] or "")
        return [
            one
            for one in self.samples
            if one.name == found[1]
            and all(
                re.fullmatch(value if how == "=~" else re.escape(value), one.labels.get(label, ""))
                for label, how, value in wanted
            )
        ]

    def fires(self, expression: str) -> list[dict[str, str]]:
        """The labels of what an alarm would be raised for."""
        return [labels for part in expression.split(" or ") for labels in self._part(part.strip())]

    def _part(self, part: str) -> Iterator[dict[str, str]]:
        if inner := re.fullmatch(r"absent\((.+)\)", part):
            if not self.select(inner[1]):
                yield {}
            return
        if blind := re.fullmatch(r"(.+) unless on \(job, instance\) (\S+)", part):
            seen = {one.labels["instance"] for one in self.select(blind[2])}
            yield from (labels for labels in self._part(blind[1]) if labels["instance"] not in seen)
            return
        compared = re.fullmatch(r"(.+) (==|>|<) ([0-9.]+)", part)
        assert compared, part
        values = self._values(compared[1])
        yield from (dict(at) for at, value in values.items() if OPERATORS[compared[2]](value, float(compared[3])))

    def _values(self, vector: str) -> dict[tuple[tuple[str, str], ...], float]:
        grouped = re.fullmatch(r"(sum|max) by \(([^)]*)\) \((.+)\)", vector)
        how, labels, inner = (grouped[1], grouped[2].split(", "), grouped[3]) if grouped else ("sum", None, vector)
        inner = re.sub(r" unless .+ offset \w+", "", inner)  # nothing was there before
        inner = re.sub(r"(?:increase|rate|min_over_time)\((.+)\[\w+\]\)", r"\1", inner)
        found: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for one in self.select(inner):
            at = tuple((name, one.labels[name]) for name in (one.labels if labels is None else labels))
            found.setdefault(at, []).append(one.value)
        return {at: sum(values) if how == "sum" else max(values) for at, values in found.items()}


async def decline(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("the card is declined")


async def _scrape(*urls: str) -> Scrape:
    async with httpx2.AsyncClient() as client:
        return Scrape({url: (await client.get(url)).text for url in urls})


@pytest.fixture
async def page(engine: Engine) -> AsyncIterator[str]:
    async with exposed(engine, "127.0.0.1", 0) as url:
        yield url


async def test_nothing_is_wrong_where_nothing_is(engine: Engine, page: str) -> None:
    async with engine.worker():
        scrape = await _scrape(page)
        assert {name: at for name, rule in RULES.items() if (at := scrape.fires(rule))} == {}


async def test_each_trouble_raises_its_alarm(engine: Engine, page: str) -> None:
    await engine.publish(Flow("order").step("pay", decline).build())
    await engine.publish(Flow("kept", dlq=True).step("keep", decline).build())
    await engine.publish(Flow("slow", timeout=60).sleep("rest", 3600).build())
    await engine.publish(Flow("nobody").step("lift", "lift").build())
    for flow in ("order", "kept", "slow", "nobody"):
        await engine.start(flow, {})
    async with engine.worker():
        await engine.drain()
        await advance(engine, minutes=2)
        await engine.drain()
        scrape = await _scrape(page)
    raised = {name: at for name, rule in RULES.items() if (at := scrape.fires(rule))}
    assert {at["flow"] for at in raised["HoldfastInstancesFail"]} == {"order", "slow"}
    assert {at["flow"] for at in raised["HoldfastInstancesStandStill"]} == {"kept"}
    assert {(at["flow"], at["kind"]) for at in raised["HoldfastTimeouts"]} == {("slow", "workflow")}
    assert {(at["flow"], at["step"]) for at in raised["HoldfastCallsFail"]} == {("order", "pay"), ("kept", "keep")}
    assert raised.keys() == {
        "HoldfastInstancesFail", "HoldfastInstancesStandStill", "HoldfastTimeouts", "HoldfastCallsFail",
        "HoldfastDeadLetters", "HoldfastStepsUnserved",
    }  # fmt: skip


async def test_a_process_that_is_away_blind_or_alone(
    engine: Engine, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off(_: Backlog) -> None:
        raise Disconnected("the server is away")

    monkeypatch.setattr(Backlog, "look", cut_off)
    async with httpx2.AsyncClient() as client:
        scrape = Scrape({page: (await client.get(page)).text, "elsewhere": None})
    raised = {name: at for name, rule in RULES.items() if (at := scrape.fires(rule))}
    assert [at["instance"] for at in raised["HoldfastProcessDown"]] == ["elsewhere"]
    assert [at["instance"] for at in raised["HoldfastBlind"]] == [page]
    assert raised["HoldfastNoWorker"] == [{}]


class Told(NamedTuple):
    now: Stats

    def stats(self) -> Stats:
        return self.now


@pytest.mark.parametrize(
    ("now", "alarm"),
    [
        (Stats(lease_seconds_left=2.0), "LeaseRunsOut"),
        (Stats(leases_lost=1), "LeaseLost"),
        (Stats(results_rejected=11), "ResultsRejected"),
        (Stats(signals_queued=1001), "QueueGrows"),
        (Stats(effects_pending=1001), "QueueGrows"),
        (Stats(jobs_queued=1), "JobsWait"),
        (Stats(default_partition_rows=1), "DefaultPartition"),
    ],
)
async def test_figures_out_of_bounds_raise_an_alarm(now: Stats, alarm: str) -> None:
    """The same, from figures that no test can bring about in a moment."""
    sound = {"lease_seconds_left": 12.0, "dead_letters_open": 0}
    told = msgspec.structs.replace(now, **{k: v for k, v in sound.items() if getattr(now, k) is None})
    registry = CollectorRegistry()
    registry.register(MetricsCollector(Told(told)))
    scrape = Scrape({"here": generate_latest(registry).decode()})
    assert [name for name, rule in RULES.items() if scrape.fires(rule)] == [f"Holdfast{alarm}"]


@pytest.mark.parametrize("name", [*RULES, *QUERIES])
async def test_every_query_asks_for_what_there_is(engine: Engine, page: str, name: str) -> None:
    scrape, query = await _scrape(page), (RULES | QUERIES)[name]
    asked = SELECTOR.findall(query)
    assert asked
    for metric, matchers in asked:
        assert metric in scrape.types, f"no process has {metric}"
        known = {"job", "instance"} | set(METRICS[_plain(metric)].labels if metric != "up" else ())
        assert set(re.findall(r"(\w+)=", matchers)) <= known
        assert 'job="holdfast"' in matchers
        for by in re.findall(r"by \(([^)]*)\)", query):
            assert set(by.split(", ")) <= known
    for metric in re.findall(r"(?:increase|rate)\((\w+)", query):
        assert scrape.types[metric] == "counter"


def _plain(metric: str) -> str:
    return metric.removeprefix("holdfast_").removesuffix("_total")


def test_the_docs_list_every_alarm() -> None:
    table = re.findall(r"^\| `(Holdfast\w+)` \|", (DOCS / "telemetry.md").read_text(), re.MULTILINE)
    assert table == list(RULES)


def test_every_panel_of_the_dashboard_has_a_place_of_its_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
