"""Populations of machines, copied from ones that were really moved."""

from __future__ import annotations

from typing import Any, Final

from psycopg import sql

from benchmarks.bench import Bench
from benchmarks.children import MACHINES, measure
from benchmarks.history import SAMPLE, Population, fill

FACTS: Final = 10  # of each machine that was moved
STALE_AFTER: Final = 300.0
DOWN: Final = "archive"

_BODY: Final = sql.SQL(
    "t.body || jsonb_build_object('ack_guid', md5(m.id::text || t.id::text)::uuid, 'instance', m.id,"
    " 'external_ref', t.external_ref || '-' || m.number)"
)
# What triggers, claims and acknowledgements read of others: the rest of the past is the subject of other cases.
BEHIND: Final = Population("running", ("instances", "acks", "ack_consumers"), {("acks", "body"): _BODY})
# Rests that began long ago were told of often enough that they are looked at once a day, each at its own moment.
RESTING: Final = Population(
    "running",
    ("instances", "steps", "step_receipts", "outbox_receipts", "events", "acks", "ack_consumers", "stale_checks"),
    {
        ("acks", "body"): _BODY,
        ("stale_checks", "told"): sql.SQL("30"),
        ("stale_checks", "step_id"): sql.SQL(
            "(select encode(decode(i.state #>> '{{tokens,0,step}}', 'base64'), 'hex')::uuid"
            " from sample_instances i where i.id = m.source)"
        ),
        ("stale_checks", "due_at"): sql.SQL("clock_timestamp() + random() * interval '1 day'"),
    },
)


def run(bench: Bench, mode: str, database: str, **task: Any) -> dict[str, Any]:
    """One measurement on the database as it is."""
    return measure(MACHINES, {"mode": mode, "dsn": bench.server.dsn(database), **task}, timeout=1800)


def records(bench: Bench, database: str, open: int) -> None:
    """Make a database in which a consumer that is down has that many open records, besides those of the sample."""
    bench.server.fresh(database)
    run(bench, "prepare", database, consumers=[DOWN], machines=SAMPLE, moves=FACTS)
    bench.say(f"filling {database}")
    fill(bench.server.dsn(database), SAMPLE + open // FACTS, bench.say, BEHIND)


def resting(bench: Bench, database: str, machines: int) -> None:
    """Make a database of machines that rest, of whose transition their consumer has processed the fact."""
    bench.server.fresh(database)
    run(bench, "converse", database, consumers=["billing"], callers=SAMPLE, moves=0, stale_after=STALE_AFTER)
    bench.say(f"filling {database}")
    fill(bench.server.dsn(database), machines, bench.say, RESTING)
