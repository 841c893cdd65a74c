"""What a step costs the database: our share of the raw ceiling, commits per step, statements per commit."""

from __future__ import annotations

import asyncio

from benchmarks.batches import mixed_commit
from benchmarks.bench import Bench
from benchmarks.cases.comparison import FIVE, ours_rate
from benchmarks.children import CEILING, measure
from benchmarks.report import Bar, Row

DATABASE = "bench_commits"
IN_FLIGHT = (10, 100, 1000, 2000)
SIZES = (10, 100, 1000)


def ceiling(bench: Bench) -> list[Row]:
    """Against a script that only writes the same rows, in batches of 200 over one connection."""

    def raw(*, encoded: bool) -> float:
        bench.server.fresh(DATABASE)
        task = {"dsn": bench.server.dsn(DATABASE), "batch": 200, "steps": FIVE, "encoded": encoded}
        return measure(CEILING, {**task, "flows": bench.size(8_000, 1_000)})["rate"] / FIVE

    medians = bench.alternate(
        {
            "raw": lambda: raw(encoded=False),
            "ours": ours_rate(bench, bench.size(20_000, 3_000), 1024),
            "raw, arrays encoded beforehand": lambda: raw(encoded=True),
        }
    )
    ours, driver, server = (medians[name] * FIVE for name in ("ours", "raw", "raw, arrays encoded beforehand"))
    share = ours / driver * 100
    detail = f"{ours:,.0f} of {driver:,.0f} steps/s; with the arrays encoded beforehand {server:,.0f}"
    return [Row("share of the raw ceiling", share, Bar("≥", 100, "%"), detail)]


def statements(bench: Bench) -> list[Row]:
    """Commits as the server counts them in closed loops; statements of one commit over ten to a thousand instances."""
    counted = {width: count(bench, width) for width in IN_FLIGHT}
    for width, (per_step, per_commit) in counted.items():
        bench.say(f"{width:>5,} in flight: {per_step:.4f} commits per step, {per_commit:.1f} statements per commit")
    bench.ours("prepare", DATABASE, flows=0)
    sent = {size: asyncio.run(mixed_commit(bench.server.dsn(DATABASE), size)) for size in SIZES}
    return [
        Row(
            "commits per step, 1,000 in flight",
            counted[1000][0],
            Bar("≤", 0.05, ""),
            "every transaction of the database counted",
        ),
        Row(
            "statements per commit, a batch of 1,000 against one of 10",
            max(sent.values()) / sent[SIZES[0]],
            Bar("=", 1),
            ", ".join(f"{size:,}: {number}" for size, number in sent.items()),
        ),
    ]


def count(bench: Bench, in_flight: int) -> tuple[float, float]:
    """The same flows once and twice: the difference leaves out connecting, publishing and warming up."""
    flows = max(bench.size(5_000, 500), in_flight)
    bench.server.fresh(DATABASE)
    bench.ours("prepare", DATABASE, fresh=False, flows=0)  # the first to come makes the schema
    first = run(bench, in_flight, flows)
    second = run(bench, in_flight, flows * 2)
    commits, calls = second[0] - first[0], second[1] - first[1]
    assert 0 < commits < calls, f"counted {first} and then {second}: that cannot be"
    return commits / (flows * FIVE), calls / commits


def run(bench: Bench, in_flight: int, flows: int) -> tuple[int, int]:
    before = bench.server.activity(DATABASE)
    bench.ours("load", DATABASE, fresh=False, flows=flows, in_flight=in_flight, steps=FIVE)
    activity = bench.server.activity(DATABASE).since(before)
    return activity.commits, activity.statements
