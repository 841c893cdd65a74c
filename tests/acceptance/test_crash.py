"""A worker process is killed in the middle of some hundred flows: its heir finishes them, and nothing is doubled."""

from __future__ import annotations

import signal

import pytest

from holdfast import Engine, Flow, Retry
from running import Evidence, until, worker_process

pytestmark = pytest.mark.anyio

FLOWS = 300
STEPS = ("one", "two", "three", "four")
LEASE = 3.0  # so long that a busy machine does not take it from the heir, too


async def test_kill_dash_nine_loses_and_doubles_nothing(engine: Engine, evidence: Evidence) -> None:
    flow = Flow("journey")
    for name in STEPS:
        flow = flow.step(name, "note", retry=Retry(attempts=2))
    await engine.publish(flow.build())
    await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])

    with worker_process(engine.dsn, ["note"], lease=LEASE) as victim:
        await until(lambda: evidence.calls() > FLOWS)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    open_steps = set(
        evidence.rows(
            "select w.instance_id::text, s.node from holdfast.work w"
            " join holdfast.steps s on s.instance_id = w.instance_id and s.id = w.step_id where w.worker is not null"
        )
    )
    assert open_steps, "the victim held no lease when it died"

    with worker_process(engine.dsn, ["note"], lease=LEASE):
        await until(
            lambda: evidence.ask("select count(*) from holdfast.instances where status = 'completed'") == FLOWS, 60
        )

    per_step = (
        "select count(*), count(distinct instance_id) from holdfast.steps where node = %s and status = 'completed'"
    )
    for name in STEPS:
        assert evidence.rows(per_step, name) == [(FLOWS, FLOWS)]
    assert evidence.rows(
        "select count(*), count(distinct (instance_id, token, kind, run)) from holdfast.step_receipts"
    ) == [(FLOWS * (len(STEPS) + 1), FLOWS * (len(STEPS) + 1))]
    again = evidence.rows("select instance, step from public.calls group by 1, 2 having count(*) > 1")
    assert set(again) <= open_steps
    called = evidence.ask("select count(distinct (instance, step)) from public.calls")
    assert called == FLOWS * len(STEPS)
    assert evidence.ask("select max(calls) from holdfast.steps") <= 2
    retried = evidence.rows("select instance_id::text, node from holdfast.steps where calls = 2")
    assert set(retried) <= open_steps
    for table in ("work", "signals", "timers", "dead_letters"):
        assert evidence.ask(f"select count(*) from holdfast.{table}") == 0
