"""Machines under load: triggers, facts on their way to consumers, and how soon those hear of them."""

from __future__ import annotations

import statistics

from benchmarks.bench import Bench
from benchmarks.cases.past import p95
from benchmarks.children import MACHINES, begin
from benchmarks.machines.populations import run
from benchmarks.report import Bar, Row

DATABASE = "bench_machines"
IN_FLIGHT = 1024


def triggers(bench: Bench) -> list[Row]:
    """64 callers that move instances of the same graph: with a consumer that takes every fact, and without any."""
    callers, calls = 64, bench.size(150, 20)

    def rate(mode: str) -> float:
        bench.server.fresh(DATABASE)
        return callers * calls / run(bench, mode, DATABASE, callers=callers, calls=calls)["seconds"]

    medians = bench.alternate({"signals/s": lambda: rate("signals"), "triggers/s": lambda: rate("triggers")}, times=2)
    told, plain = medians["triggers/s"], medians["signals/s"]
    detail = f"{told:,.0f} triggers/s against {plain:,.0f} signals/s"
    return [Row("triggers/s with a consumer against events of the same graph", told / plain, Bar("≥", 0.6), detail)]


def facts(bench: Bench) -> list[Row]:
    """From the trigger to the stored acknowledgement, beside plain steps; then the same facts for three consumers."""
    flows, moves = bench.size(20_000, 2_000), bench.size(10, 2)

    def steps() -> float:
        return flows * 5 / bench.ours("load", flows=flows, in_flight=IN_FLIGHT, steps=5)["seconds"]

    medians = bench.alternate(
        {
            "steps/s": steps,
            "one": lambda: conversations(bench, ["billing"], moves),
            "three": lambda: conversations(bench, ["billing", "shipping", "audit"], moves),
        }
    )
    plain, one, three = medians["steps/s"], medians["one"], medians["three"]
    return [
        Row(
            "trigger, handler and acknowledgement against plain steps/s, 1,024 in flight",
            one / plain,
            Bar("≥", 0.08),
            f"{one:,.0f} processed facts/s against {plain:,.0f} steps/s",
        ),
        Row(
            "time of a fact for three consumers against one",
            one / three,
            Bar("≤", 2.5),
            f"{three:,.0f} against {one:,.0f} triggers/s until all have processed them",
        ),
    ]


def conversations(bench: Bench, consumers: list[str], moves: int) -> float:
    """Triggers a second that all consumers have processed, on a new database."""
    bench.server.fresh(DATABASE)
    return conversations_on(bench, DATABASE, consumers, moves)


def conversations_on(bench: Bench, database: str, consumers: list[str], moves: int) -> float:
    answer = run(bench, "converse", database, consumers=consumers, callers=IN_FLIGHT, moves=moves)
    return IN_FLIGHT * moves / answer["seconds"]


def told(bench: Bench) -> list[Row]:
    """Somebody triggers, or starts, at an even pace; handlers are in another process, with one clock for both."""
    pace, calls = 100, bench.size(1_000, 100)

    def p95_ms(what: str) -> float:
        bench.server.fresh(DATABASE)
        dsn = bench.server.dsn(DATABASE)
        with begin(MACHINES, {"mode": "handle", "dsn": dsn}) as handling:
            handling.hear()
            run(bench, "send", DATABASE, what=what, pace=pace, calls=calls, machines=64)
            handling.close_input()
            waits = handling.finish()["waits"]
        assert len(waits) == calls, len(waits)
        spread.setdefault(what, []).append(statistics.median(waits) * 1000)
        return p95(waits) * 1000

    spread: dict[str, list[float]] = {}
    medians = bench.alternate({what: lambda what=what: p95_ms(what) for what in ("start", "trigger")}, times=2)
    fact, step = medians["trigger"], medians["start"]
    halves = {what: statistics.median(found) for what, found in spread.items()}
    return [
        Row(
            "p95 from a trigger to its handler in another process against a start to its step",
            fact / step,
            Bar("≤", 3),
            f"{fact:.2f} against {step:.2f} ms; p50 {halves['trigger']:.2f} against {halves['start']:.2f} ms;"
            f" {pace} a second",
        )
    ]
