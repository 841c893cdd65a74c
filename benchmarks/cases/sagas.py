"""What compensation costs when nothing fails and when everything does; wide flows; how fast a cancel is heard."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.bench import Bench, median_ms
from benchmarks.children import SAGAS, measure
from benchmarks.report import Bar, Row

DATABASE = "bench_sagas"
STEPS = 5
WIDTHS = (10, 100, 1_000)
KB = 1_000
MIB = 2**20


def run(bench: Bench, mode: str, **task: Any) -> dict[str, Any]:
    bench.server.fresh(DATABASE)
    return run_on(bench, mode, **task)


def run_on(bench: Bench, mode: str, **task: Any) -> dict[str, Any]:
    """On the database as it is."""
    return measure(SAGAS, {"mode": mode, "dsn": bench.server.dsn(DATABASE), **task})


def throughput(bench: Bench) -> list[Row]:
    """The same five steps: without compensations, with one each, and with all of them taken back."""
    flows = bench.size(10_000, 1_000)
    logged: dict[str, float] = {}  # bytes for each flow

    def rate(flow: str, ends: str) -> float:
        bench.server.fresh(DATABASE)
        before = bench.server.activity(DATABASE)
        seconds = run_on(bench, "load", flow=flow, ends=ends, flows=flows, in_flight=1024)["seconds"]
        logged[flow] = bench.server.activity(DATABASE).since(before).wal_bytes / flows
        return flows / seconds

    figures = bench.round_by_round(
        {
            "plain": lambda: rate("plain", "completed"),
            "saga": lambda: rate("saga", "completed"),
            "broken": lambda: rate("broken", "failed"),
        },
        times=3,  # what the way back costs is a small difference of two shaky figures
    )
    plain, saga, broken = (statistics.median(figures[name]) for name in ("plain", "saga", "broken"))
    # Within each round, because the machine may become a third faster between two of them: then a median of the one may
    # be of the slow half and that of the other of the fast one.
    back = [forward / both - 1 for forward, both in zip(figures["saga"], figures["broken"], strict=True)]
    return [
        Row(
            "steps/s with a compensation on every step against none",
            saga / plain,
            Bar("≥", 0.9),
            f"{saga * STEPS:,.0f} against {plain * STEPS:,.0f} steps/s",
        ),
        Row(
            "cost of taking five steps back against running them",
            statistics.median(back),
            Bar("≤", 1.5),
            f"rounds {min(back):.2f} to {max(back):.2f}; {saga:,.0f} flows/s forward, {broken:,.0f} there and back; "
            f"{logged['saga'] / KB:,.1f} and {logged['broken'] / KB:,.1f} KB of log for each",
        ),
    ]


def alone(bench: Bench) -> list[Row]:
    """One flow at a time: how long it takes to run five steps, and how long to take them back."""
    flows = bench.size(300, 50)

    def median(flow: str, ends: str) -> float:
        return median_ms(run(bench, "alone", flow=flow, ends=ends, flows=flows))

    medians = bench.alternate(
        {"saga": lambda: median("saga", "completed"), "broken": lambda: median("broken", "failed")}
    )
    there, both = medians["saga"], medians["broken"]
    detail = f"{there:.2f} ms there, {both - there:.2f} ms back"
    return [Row("time of taking five steps back against running them", (both - there) / there, Bar("≤", 1.5), detail)]


def branches(bench: Bench) -> list[Row]:
    """One flow with 10, 100 and 1,000 parallel branches: what a branch costs must not depend on how many there are."""
    figures = {
        width: [run(bench, "branches", width=width, flows=3) for _ in range(bench.rounds)] for width in WIDTHS
    }  # fmt: skip
    seconds = {width: statistics.median(f["seconds"] for f in found) for width, found in figures.items()}
    grown = {width: statistics.median(f["grown"] for f in found) for width, found in figures.items()}
    each = ", ".join(f"{width}: {seconds[width] * 1000:,.0f} ms" for width in WIDTHS)
    memory = ", ".join(f"{width}: {grown[width] / MIB:,.1f} MiB" for width in WIDTHS)
    return [
        Row("time of a branch, 1,000 in one flow against 100", seconds[1000] / seconds[100] / 10, Bar("≤", 1.5), each),
        Row("memory a flow of 1,000 branches takes", grown[1000] / MIB, Bar("≤", 64, "MiB"), memory),
    ]


def branches_back(bench: Bench) -> list[Row]:
    """The same flows with every branch taken back: what that costs must not depend on how many there are, either."""
    seconds = {
        width: statistics.median(
            run(bench, "branches_back", width=width, flows=3)["seconds"] for _ in range(bench.rounds)
        )
        for width in WIDTHS
    }
    each = ", ".join(f"{width}: {seconds[width] * 1000:,.0f} ms" for width in WIDTHS)
    name = "time of taking a branch back, 1,000 in one flow against 100"
    return [Row(name, seconds[1000] / seconds[100] / 10, Bar("≤", 1.5), each)]


def cancel(bench: Bench) -> list[Row]:
    """1,000 running branches are cancelled by another client: the last handler hears of it within a second."""
    took = [run(bench, "cancel", width=1_000)["seconds"] for _ in range(bench.rounds)]
    return [Row("from the call of a cancel to the last of 1,000 handlers", max(took), Bar("≤", 1.0, "s"))]
