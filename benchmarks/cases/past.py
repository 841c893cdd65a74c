"""Does cost grow with history? The same load on empty tables, on ten thousand and on a million finished instances."""

from __future__ import annotations

import statistics

import psycopg

from benchmarks import history
from benchmarks.bench import Bench, median_ms
from benchmarks.report import Bar, Row


def million(bench: Bench) -> list[Row]:
    many, few = bench.size(1_000_000, 20_000), bench.size(10_000, 1_000)
    full, small = filled(bench, many), filled(bench, few)
    flows = bench.size(20_000, 2_000)

    def steps(database: str, *, fresh: bool) -> float:
        if not fresh:
            bench.server.settle()
        return flows * 5 / bench.ours("load", database, fresh=fresh, flows=flows, in_flight=1024, steps=5)["seconds"]

    medians = bench.alternate(
        {
            "empty": lambda: steps("bench_empty", fresh=True),
            f"{many:,}": lambda: steps(full, fresh=False),
        }
    )
    bench.server.drop("bench_empty")
    old, young = medians[f"{many:,}"], medians["empty"]
    detail = f"{old:,.0f} against {young:,.0f} steps/s"
    rows = [Row(f"steps/s with {many:,} finished instances against empty tables", old / young, Bar("≥", 0.9), detail)]
    rows += latencies(bench, full, small, f"{many:,} instances against {few:,}")
    for database in (full, small):
        bench.server.drop(database)
    return rows


def latencies(bench: Bench, full: str, small: str, title: str) -> list[Row]:
    """Both kinds of latency come from one run, so each database is measured once per round."""
    found: dict[tuple[str, str], list[float]] = {}

    def measure(database: str) -> float:
        answer = bench.ours("latency", database, fresh=False, flows=bench.size(2_000, 300), in_flight=16)
        for kind in ("advances", "claims"):
            found.setdefault((database, kind), []).append(p95(answer[kind]) * 1000)
        return found[database, "advances"][-1]

    bench.alternate({"advance p95 ms, few": lambda: measure(small), "many": lambda: measure(full)}, times=3)
    rows = []
    for kind, word in (("advances", "advance"), ("claims", "claim")):
        many, few = statistics.median(found[full, kind]), statistics.median(found[small, kind])
        rows.append(Row(f"{word} latency p95, {title}", many / few, Bar("≤", 1.2), f"{many:.2f} against {few:.2f} ms"))
    return rows


def months(bench: Bench) -> list[Row]:
    """One flow alone with three years of monthly partitions, against the few of a new database."""
    years, few = "bench_months", "bench_months_few"
    for database in (years, few):
        bench.ours("prepare", database, flows=0)
    with psycopg.connect(bench.server.dsn(years), autocommit=True) as connection:
        connection.execute("select holdfast.ensure_partitions(35)")
    flows = bench.size(300, 40)
    medians = bench.alternate(
        {
            "few": lambda: median_ms(bench.ours("alone", few, fresh=False, flows=flows)),
            "36": lambda: median_ms(bench.ours("alone", years, fresh=False, flows=flows)),
        },
        times=3,
    )
    for database in (years, few):
        bench.server.drop(database)
    detail = f"{medians['36']:.2f} against {medians['few']:.2f} ms"
    return [
        Row("p50 of one flow alone, 36 months kept against 4", medians["36"] / medians["few"], Bar("≤", 1.1), detail)
    ]


def filled(bench: Bench, instances: int) -> str:
    """A database with that many finished instances, built anew: yesterday's schema would not be today's."""
    database = f"bench_past_{instances}"
    bench.ours("load", database, flows=history.SAMPLE, in_flight=32, steps=5)
    bench.say(f"filling {database}")
    history.fill(bench.server.dsn(database), instances, bench.say)
    return database


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]
