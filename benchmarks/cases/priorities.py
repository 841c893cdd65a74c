"""The order of the queue: what a claim costs however much is queued, and how long the least urgent waits."""

from __future__ import annotations

import psycopg

from benchmarks.bench import Bench
from benchmarks.children import PRIORITIES, measure
from benchmarks.report import Bar, Row

SHORT, LONG = 1_000, 1_000_000
LIMIT = 32
AGING = 50.0
SHARE = 0.9

ID = "(lpad(to_hex(1700000000000 + n), 12, '0') || '7abc8' || substr(md5(n::text), 1, 13) || '00')::uuid"
FILL = (
    f"""
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data,
        input, created_at, updated_at)
    select {ID}, 0, 'default', '00000000-0000-0000-0000-000000000000', 'bench', 1, 'running', 1, '{{}}', '{{}}', '{{}}',
        now(), now()
    from generate_series(%(first)s::bigint, %(last)s) n
    """,
    f"""
    insert into holdfast.steps (instance_id, bucket, created_at, id, org_id, node, behaviour, path, hop, kind, run,
        entity_version, receipt_key, opened_version, opened_ordinal, cause, status, input)
    select {ID}, 0, date_trunc('month', now()), {ID}, 'default', 'step', 'work', '0', 0, 'forward', 0, 0, '\\x00', 1, 0,
        'started', 'running', '{{}}'
    from generate_series(%(first)s::bigint, %(last)s) n
    """,
    # One step every millisecond, in five classes of priority at half a point a second.
    f"""
    insert into holdfast.work (instance_id, path, bucket, org_id, step_id, step_created_at, queue, target, fence,
        ripe_at)
    select {ID}, '0', 0, 'default', {ID}, date_trunc('month', now()), 'bench', 'bench', 1,
        holdfast.clock() + n * interval '1 millisecond' + (n * 7 %% 5) * interval '50 seconds'
    from generate_series(%(first)s::bigint, %(last)s) n
    """,
)


def claims(bench: Bench) -> list[Row]:
    """The same claim out of a thousand and out of a million queued steps, both of steady length."""
    long = bench.size(LONG, 20_000)
    for database, size in (("bench_short", SHORT), ("bench_long", long)):
        bench.ours("prepare", database, flows=0)
        fill(bench, database, size)

    def p95(database: str, queued: int) -> float:
        task = {"mode": "claims", "dsn": bench.server.dsn(database), "queued": queued, "limit": LIMIT}
        return measure(PRIORITIES, {**task, "claims": bench.size(1000, 100)})["p95"] * 1000

    names = (f"{SHORT:,} queued, ms", f"{long:,} queued, ms")
    medians = bench.alternate({names[0]: lambda: p95("bench_short", SHORT), names[1]: lambda: p95("bench_long", long)})
    bench.server.drop("bench_long")
    few, many = (medians[name] for name in names)
    return [
        Row(
            f"p95 of a claim, {long:,} steps queued against {SHORT:,}",
            many / few,
            Bar("≤", 1.5),
            f"{many:.2f} against {few:.2f} ms for {LIMIT} steps of mixed priority",
        )
    ]


def fill(bench: Bench, database: str, size: int) -> None:
    with psycopg.connect(bench.server.dsn(database), autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")  # only for the filling: nothing here is measured
        for first in range(1, size + 1, 100_000):
            for statement in FILL:
                connection.execute(statement, {"first": first, "last": min(first + 99_999, size)})
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


def starvation(bench: Bench) -> list[Row]:
    """Steps of priority 100 at 90 % of what a worker can do, without a pause; steps of priority 0 in between."""
    bench.ours("prepare", "bench_starving", flows=0)
    task = {"mode": "starving", "dsn": bench.server.dsn("bench_starving"), "aging": AGING, "share": SHARE}
    answer = measure(PRIORITIES, {**task, "seconds": bench.size(30, 5)})
    waits = answer["waits"]
    return [
        Row(
            f"longest wait of priority 0 under priority-100 load at {SHARE:.0%} of capacity",
            max(waits),
            Bar("≤", 100 / AGING, "s"),
            f"{len(waits)} steps, mean {sum(waits) / len(waits):.2f} s, {answer['rate'] * SHARE:,.0f} of"
            f" {answer['rate']:,.0f} steps/s, aging by {AGING:.0f} points a second",
        )
    ]
