"""Side by side with the peers: flows under load, starts, and one flow alone."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import contenders
from benchmarks.bench import Bench, median_ms
from benchmarks.contenders import Mode
from benchmarks.report import Bar, Row

FIVE = 5


def throughput(bench: Bench) -> list[Row]:
    """Steps per second of five-step flows. Our figure includes the starts; a peer's queue was filled beforehand."""
    flows = bench.size(600, 100)
    dbos = contenders.best_rate(bench, contenders.DBOS_FLOWS, bench.size(300, 60), FIVE)
    absurd = contenders.best_rate(bench, contenders.ABSURD_FLOWS, bench.size(1000, 200), FIVE)
    medians = bench.alternate(
        {
            **contenders.rates(bench, dbos, flows, FIVE),
            "ours, 1,024": ours_rate(bench, bench.size(20_000, 3_000), 1024),
            **contenders.rates(bench, absurd, flows * 4, FIVE),
            "ours, 64": ours_rate(bench, bench.size(10_000, 1_000), 64),
        },
        times=2,
    )
    many, few = medians["ours, 1,024"], medians["ours, 64"]
    return [
        ratio("steps/s against DBOS, 1,024 in flight", many, dbos, medians, Bar("≥", 50), FIVE),
        ratio("steps/s against DBOS, 64 in flight", few, dbos, medians, Bar("≥", 25), FIVE),
        ratio("steps/s against Absurd, 1,024 in flight", many, absurd, medians, Bar("≥", 8), FIVE),
    ]


def one_step(bench: Bench) -> list[Row]:
    """Flows per second of a one-step flow, its start included on both sides."""
    dbos = contenders.best_rate(bench, contenders.DBOS_FLOWS_WITH_STARTS, bench.size(600, 100), 1)
    medians = bench.alternate(
        {
            **contenders.rates(bench, dbos, bench.size(1500, 200), 1),
            "ours": ours_rate(bench, bench.size(30_000, 3_000), 1024, steps=1),
        }
    )
    return [ratio("one-step flows/s against DBOS", medians["ours"], dbos, medians, Bar("≥", 40), unit="flows/s")]


def starts(bench: Bench) -> list[Row]:
    """Starts per second, committed but not run: single calls against single calls, the batch against DBOS's best."""
    tried = bench.size(600, 100)
    single = contenders.best_rate(bench, contenders.DBOS_ENQUEUE, tried, FIVE)
    batch = contenders.best_rate(bench, contenders.DBOS_ENQUEUE_MANY, tried, FIVE)
    enqueued = bench.size(2000, 200)
    calls, size, repeats = bench.size(20_000, 2_000), 1000, bench.size(20, 3)
    medians = bench.alternate(
        {
            **contenders.rates(bench, single, enqueued, FIVE),
            **contenders.rates(bench, batch, enqueued, FIVE),
            "32 × start": lambda: calls / bench.ours("starts", calls=calls, callers=32)["seconds"],
            "start_many(1000)": lambda: (
                repeats * size / bench.ours("start_many", repeats=repeats, size=size)["seconds"]
            ),
        }
    )
    return [
        ratio(
            "starts/s, 32 concurrent start calls, against DBOS enqueue",
            medians["32 × start"],
            single,
            medians,
            Bar("≥", 30),
            unit="starts/s",
        ),
        ratio(
            "starts/s, start_many of 1,000, against DBOS enqueue",
            medians["start_many(1000)"],
            batch,
            medians,
            Bar("≥", 60),
            unit="starts/s",
        ),
    ]


def alone(bench: Bench) -> list[Row]:
    """One five-step flow at a time, start to result: the median."""
    flows = bench.size(300, 40)
    dbos = contenders.best_latency(bench, contenders.DBOS_ALONE, bench.size(100, 20), FIVE)
    absurd = contenders.ABSURD_ALONE
    medians = bench.alternate(
        {
            **contenders.latencies(bench, dbos, flows, FIVE),
            "ours": lambda: median_ms(bench.ours("alone", flows=flows)),
            **contenders.latencies(bench, absurd, flows, FIVE),
        },
        times=2,
    )
    return [
        share("p50 of one flow alone against DBOS", medians["ours"], dbos, medians, Bar("≤", 0.3)),
        share("p50 of one flow alone against Absurd", medians["ours"], absurd, medians, Bar("≤", 0.8)),
    ]


def ours_rate(bench: Bench, flows: int, in_flight: int, *, steps: int = FIVE) -> Callable[[], float]:
    """Flows per second of a closed loop: as many callers as flows in flight, each starts, waits, starts again."""
    return lambda: flows / bench.ours("load", flows=flows, in_flight=in_flight, steps=steps)["seconds"]


def ratio(
    name: str,
    ours: float,
    modes: tuple[Mode, ...],
    medians: dict[str, float],
    bar: Bar,
    factor: int = 1,
    unit: str = "steps/s",
) -> Row:
    rival = max(modes, key=lambda mode: medians[mode.title])
    theirs = medians[rival.title]
    detail = f"{ours * factor:,.0f} against {theirs * factor:,.0f} {unit} ({rival.label})"
    return Row(name, ours / theirs, bar, detail)


def share(name: str, ours: float, modes: tuple[Mode, ...], medians: dict[str, float], bar: Bar) -> Row:
    rival = min(modes, key=lambda mode: medians[mode.title])
    theirs = medians[rival.title]
    return Row(name, ours / theirs, bar, f"{ours:.2f} against {theirs:.2f} ms ({rival.label})")
