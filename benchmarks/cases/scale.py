"""Beyond one busy process: several workers, waiting handlers, memory, and starts that share a key."""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg

from benchmarks.bench import Bench
from benchmarks.children import OURS, begin
from benchmarks.report import Bar, Row

DATABASE = "bench_scale"
UNFINISHED = "select exists (select from holdfast.signals) or exists (select from holdfast.work)"
MIB = 2**20


def processes(bench: Bench) -> list[Row]:
    """The same queue of started flows, drained by one, two and four worker processes."""
    flows = bench.size(24_000, 2_000)
    medians = bench.alternate({str(number): lambda number=number: drain(bench, flows, number) for number in (1, 2, 4)})
    one = medians["1"]
    return [
        Row(
            f"steps/s of {word} worker processes against one",
            medians[str(number)] / one,
            Bar("≥", limit),
            f"{medians[str(number)]:,.0f} against {one:,.0f} steps/s",
        )
        for word, number, limit in (("two", 2, 1.0), ("four", 4, 0.9))
    ]


def drain(bench: Bench, flows: int, processes: int) -> float:
    bench.ours("prepare", DATABASE, flows=flows)
    dsn = bench.server.dsn(DATABASE)
    with ExitStack() as stack:
        task = {"mode": "work", "dsn": dsn, "in_flight": 1024}
        workers = [stack.enter_context(begin(OURS, task)) for _ in range(processes)]
        for worker in workers:
            worker.hear()
        with psycopg.connect(dsn, autocommit=True) as connection:
            start = time.perf_counter()
            for worker in workers:
                worker.say("go")
            await_idle(connection)
            seconds = time.perf_counter() - start
            check_finished(connection, flows)
        for worker in workers:
            worker.close_input()
            worker.finish(60)
    return flows * 5 / seconds


def await_idle(connection: psycopg.Connection) -> None:
    """Watches the two small tables: counting instances would scan what is being measured."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        row = connection.execute(UNFINISHED).fetchone()
        if row is not None and not row[0]:
            return
        time.sleep(0.02)
    raise TimeoutError("the workers did not finish the queue within five minutes")


def check_finished(connection: psycopg.Connection, flows: int) -> None:
    row = connection.execute("select count(*) from holdfast.instances where status = 'completed'").fetchone()
    assert row is not None
    assert row[0] == flows, f"{row[0]} flows are completed instead of {flows}"


def awaiting(bench: Bench) -> list[Row]:
    """1,000 flows in flight, every handler awaits 100 ms: at best 10,000 steps a second."""
    flows, ideal = bench.size(16_000, 6_000), 10_000

    def rate() -> float:
        answer = bench.ours("awaiting", flows=flows, in_flight=1000, settle=1.0)
        return answer["flows"] * 5 / answer["seconds"]

    steps = bench.alternate({"steps/s": rate})["steps/s"]
    detail = f"{steps:,.0f} of {ideal:,} steps/s"
    return [Row("share of the ideal rate, 1,000 in flight awaiting 100 ms", steps / ideal, Bar("≥", 0.85), detail)]


def memory(bench: Bench) -> list[Row]:
    """The resident size of a worker at its highest, with 10,000 flows in flight at one moment."""
    answer = bench.ours("memory", flows=10_000)
    peak, base = answer["peak"] / MIB, answer["base"] / MIB
    detail = f"{base:.0f} MiB before the first flow"
    return [Row("worker memory with 10,000 flows in flight", peak, Bar("≤", 200, "MiB"), detail)]


def keys(bench: Bench) -> list[Row]:
    """1,000 concurrent starts with 100 keys from 8 processes."""
    processes, starts, distinct = 8, 125, 100
    bench.ours("prepare", DATABASE, flows=0)
    dsn = bench.server.dsn(DATABASE)
    with ExitStack() as stack:
        task = {"mode": "keys", "dsn": dsn, "starts": starts, "keys": distinct}
        clients = [stack.enter_context(begin(OURS, task)) for _ in range(processes)]
        for client in clients:
            client.hear()
        for client in clients:
            client.say("go")
        answers = [tuple(pair) for client in clients for pair in client.finish(60)["started"]]
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from holdfast.instances").fetchone()
    assert row is not None
    pairs = len(set(answers))
    detail = f"{len(answers):,} starts from {processes} processes; {pairs} pairs of key and instance were answered"
    return [
        Row("instances of 1,000 concurrent starts with 100 keys", max(row[0], pairs), Bar("=", distinct, ""), detail)
    ]
