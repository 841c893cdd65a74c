"""One measurement of claims of due facts: a task as JSON in the first argument, a JSON line out."""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from uuid import UUID

import psycopg

from benchmarks.machines.model import ENV
from benchmarks.priorities import percentile
from holdfast import run
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.store.deliveries import Wanted, claim_deliveries
from holdfast.store.pg.session import Session

WARM = 25
TIDY = 25  # claims between two vacuums: the same few rows are claimed again and again, as no real ones are
CONSUMER = "select id from holdfast.consumers where environment = %s and name = %s"


async def claims(task: dict[str, Any]) -> dict[str, Any]:
    """What is claimed is due again before the next claim, untimed, so that as much is due as before."""
    latencies = list[float]()
    options = ConsumerOptions()
    pending, delivered = (round(s * 1_000_000) for s in (options.pending_resend, options.delivered_resend))
    session = await Session.open(task["dsn"])
    with psycopg.connect(task["dsn"], autocommit=True) as others:
        found = others.execute(CONSUMER, (ENV, task["consumer"])).fetchone()
        assert found is not None
        wanted = [Wanted(found[0].bytes, task["limit"], pending)]
        for number in range(task["claims"] + WARM):
            begin = time.perf_counter()
            claimed = await claim_deliveries(session, wanted, task["limit"], delivered)
            spent = time.perf_counter() - begin
            assert len(claimed) == task["limit"], len(claimed)
            give_back(others, claimed)
            if number % TIDY == 0:
                others.execute("vacuum (index_cleanup on) holdfast.ack_consumers")
            if number >= WARM:
                latencies.append(spent)
    await session.close()
    return {"p50": percentile(latencies, 0.5), "p95": percentile(latencies, 0.95)}


def give_back(others: psycopg.Connection, claimed: list[Any]) -> None:
    keys = [(UUID(bytes=c.key.fact.instance), UUID(bytes=c.key.fact.fact)) for c in claimed]
    others.execute(
        "update holdfast.ack_consumers set attempts = 0, next_due = clock_timestamp()"
        " where instance_id = any(%s) and ack_id = any(%s)",
        ([instance for instance, _ in keys], [fact for _, fact in keys]),
    )


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(json.dumps(run(claims(wanted))), flush=True)
