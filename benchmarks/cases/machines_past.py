"""Does the cost of machines grow with what is open, with what rests, or with how long one has lived?"""

from __future__ import annotations

import statistics
import time

import psycopg

from benchmarks.bench import Bench
from benchmarks.cases.machines import IN_FLIGHT, conversations, conversations_on
from benchmarks.children import MACHINE_CLAIMS, MACHINES, begin, measure
from benchmarks.history import SAMPLE
from benchmarks.machines import populations
from benchmarks.machines.populations import DOWN, STALE_AFTER, run
from benchmarks.report import Bar, Row

DATABASE = "bench_machines_past"
LIVING = ["billing", "shipping"]
LIMIT = 50
KB = 1_000
# Copies wait for their resend, as if they had just been sent; only the sample is due.
SENT = """
    update holdfast.ack_consumers d set next_due = clock_timestamp() + interval '1 day'
    where d.next_due is not null and d.instance_id not in (
        select i.id from holdfast.instances i where i.business_key ~ '^sample-[0-9]+$'
    )
"""
# What lies behind an old machine is processed: taken one by one it would last as long as the machine has lived.
CLOSE = """
    update holdfast.ack_consumers set status = 'processed', next_due = null, attempts = 1, closed_at = clock_timestamp()
    where closed_at is null
"""
NOTICES = "select count(*) from holdfast.notices"


def backlog(bench: Bench) -> list[Row]:
    """All facts of the backlog are older than its consumer's return; without one, facts are processed as they come."""
    facts, moves = bench.size(100_000, 5_000), bench.size(10, 2)

    def behind() -> float:
        populations.records(bench, DATABASE, facts)
        answer = run(bench, "catch_up", DATABASE, consumer=DOWN, in_flight=IN_FLIGHT)
        assert answer["handled"] >= facts, answer
        return answer["handled"] / answer["seconds"]

    medians = bench.alternate(
        {"without": lambda: conversations(bench, [DOWN], moves), f"{facts:,} behind": behind},
    )
    catching, usual = medians[f"{facts:,} behind"], medians["without"]
    detail = f"{catching:,.0f} against {usual:,.0f} facts/s"
    return [Row(f"facts/s of a consumer {facts:,} facts behind against none", catching / usual, Bar("≥", 0.5), detail)]


def down(bench: Bench) -> list[Row]:
    """Records of a consumer that is down, beside living ones; then the same records as sent and not due, and claims."""
    many, few = bench.size(1_000_000, 20_000), 1_000
    full, small = f"bench_open_{many}", f"bench_open_{few}"
    populations.records(bench, full, many)
    populations.records(bench, small, few)
    moves = bench.size(6, 2)

    def beside() -> float:
        bench.server.settle()
        return conversations_on(bench, full, LIVING, moves)

    medians = bench.alternate({"without": lambda: conversations(bench, LIVING, moves), f"{many:,}": beside})
    living, usual = medians[f"{many:,}"], medians["without"]
    rows = [
        Row(
            f"facts/s of living consumers beside a down one with {many:,} records against none",
            living / usual,
            Bar("≥", 0.85),
            f"{living * len(LIVING):,.0f} against {usual * len(LIVING):,.0f} facts/s of {len(LIVING)} consumers;"
            " what the down one is owed is written, too",
        )
    ]
    rows += claims(bench, full, small, f"{many:,} open records not due against {few:,}")
    for database in (full, small):
        bench.server.drop(database)
    return rows


def claims(bench: Bench, full: str, small: str, title: str) -> list[Row]:
    for database in (full, small):
        with psycopg.connect(bench.server.dsn(database), autocommit=True) as connection:
            connection.execute(SENT)
            connection.execute("vacuum (analyze)")
            connection.execute("checkpoint")

    def p95(database: str) -> float:
        task = {"dsn": bench.server.dsn(database), "consumer": DOWN, "limit": LIMIT}
        return measure(MACHINE_CLAIMS, {**task, "claims": bench.size(300, 100)})["p95"] * 1000

    medians = bench.alternate({"few, ms": lambda: p95(small), "many, ms": lambda: p95(full)}, times=2)
    many, few = medians["many, ms"], medians["few, ms"]
    detail = f"{many:.2f} against {few:.2f} ms for {LIMIT} of {SAMPLE} due facts"
    return [Row(f"p95 of a claim of due facts, {title}", many / few, Bar("≤", 2), detail)]


def resting(bench: Bench) -> list[Row]:
    """Plain steps beside machines that rest, and what an idle minute with them writes."""
    machines, flows = bench.size(1_000_000, 5_000), bench.size(20_000, 2_000)
    populations.resting(bench, DATABASE, machines)
    idle = minute(bench, bench.size(60, 5))

    def steps(database: str, *, fresh: bool) -> float:
        if not fresh:
            bench.server.settle()
        return flows * 5 / bench.ours("load", database, fresh=fresh, flows=flows, in_flight=1024, steps=5)["seconds"]

    medians = bench.alternate(
        {"empty": lambda: steps("bench_empty", fresh=True), f"{machines:,}": lambda: steps(DATABASE, fresh=False)}
    )
    for database in (DATABASE, "bench_empty"):
        bench.server.drop(database)
    beside, empty = medians[f"{machines:,}"], medians["empty"]
    return [
        Row(
            f"steps/s beside {machines:,} resting machines against none",
            beside / empty,
            Bar("≥", 0.9),
            f"{beside:,.0f} against {empty:,.0f} steps/s; {idle}",
        )
    ]


def minute(bench: Bench, seconds: float) -> str:
    """What is written while nothing happens: each rest is looked at once a day by then, and told of."""
    with begin(MACHINES, {"mode": "rest", "dsn": bench.server.dsn(DATABASE), "settle": 10.0}) as worker:
        worker.hear()
        before, told, begun = bench.server.activity(DATABASE), notices(bench), time.monotonic()
        time.sleep(seconds)
        spent, told = time.monotonic() - begun, notices(bench) - told
        written = bench.server.activity(DATABASE).since(before)
        worker.close_input()
        worker.finish()
    return (
        f"idle for {spent:.0f} s: {written.commits:,} commits, {written.wal_bytes / KB:,.0f} KB of log,"
        f" {told:,} notices of rests (told after {STALE_AFTER:.0f} s, by now once a day)"
    )


def notices(bench: Bench) -> int:
    with psycopg.connect(bench.server.dsn(DATABASE)) as connection:
        row = connection.execute(NOTICES).fetchone()
    assert row is not None
    return int(row[0])


def lives(bench: Bench) -> list[Row]:
    """One old machine beside a new one: the next trigger, and the timeline of many entries beside one of few."""
    transitions, long, short = bench.size(100_000, 2_000), bench.size(10_000, 1_000), bench.size(1_000, 100)
    bench.server.fresh(DATABASE)
    run(bench, "prepare", DATABASE, consumers=["billing"], machines=0, moves=0)
    aged = {"old": transitions, "long": long, "short": short, "fresh": 1}
    bench.say(f"moving a machine {transitions:,} times")
    run(bench, "age", DATABASE, callers=64, machines=aged)
    with psycopg.connect(bench.server.dsn(DATABASE), autocommit=True) as connection:
        connection.execute(CLOSE)
        connection.execute("vacuum (analyze)")
    calls = bench.size(300, 50)
    old, fresh = medians(bench, "alone", ("old", "fresh"), machines=["old", "fresh"], calls=calls)
    entries = {"long": long, "short": short}
    most, few = medians(bench, "timelines", ("long", "short"), machines=entries, reads=bench.size(20, 5))
    statements = run(bench, "timelines", DATABASE, machines=entries, reads=5)["statements"]
    bench.server.drop(DATABASE)
    return [
        Row(
            f"p50 of a trigger after {transitions:,} transitions against a fresh machine",
            old / fresh,
            Bar("≤", 1.3),
            f"{old:.2f} against {fresh:.2f} ms",
        ),
        Row(
            f"timeline of {long:,} entries against {short:,}",
            most / few,
            Bar("≤", 15),
            f"{most:.1f} against {few:.1f} ms",
        ),
        Row("statements of a timeline", statements, Bar("=", 1, "")),
    ]


def medians(bench: Bench, mode: str, refs: tuple[str, str], **task: object) -> list[float]:
    """The medians of both machines in ms over all rounds; they take turns in one process."""
    rounds = [run(bench, mode, DATABASE, **task)["latencies"] for _ in range(bench.rounds)]
    found = [[statistics.median(latencies[ref]) * 1000 for latencies in rounds] for ref in refs]
    for number, figures in enumerate(zip(*found, strict=True), 1):
        bench.say(f"round {number}: " + ", ".join(f"{ref} {ms:.4g} ms" for ref, ms in zip(refs, figures, strict=True)))
    return [statistics.median(figures) for figures in found]
