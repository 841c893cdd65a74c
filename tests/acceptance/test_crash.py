"""kill -9 of a worker in the middle of its work: an heir takes over, nothing is lost, nothing is recorded twice."""

from __future__ import annotations

import os
import signal

import pytest

from holdfast import Engine, Flow
from running import Evidence, until, worker_process

pytestmark = pytest.mark.anyio

FLOWS, STEPS = 300, 4


async def test_an_heir_finishes_what_a_killed_worker_began(holdfast_dsn: str, evidence: Evidence) -> None:
    flow = Flow("order")
    for number in range(STEPS):
        flow = flow.step(f"step_{number}", "note", retries=5)
    flow = flow.step("last", "hold", retries=5)  # the victim dies with leases in its hands
    async with Engine(holdfast_dsn) as engine:
        await engine.publish(flow.build())
        await engine.start_many("order", [{"n": n} for n in range(FLOWS)])

        with worker_process(holdfast_dsn, ["note", "hold"], lease=2.0) as victim:
            await until(lambda: evidence.calls("last") >= FLOWS // 4)
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
        held = evidence.ask("select count(*) from holdfast.work where worker is not null")
        assert held > 0, "the kill must hit held leases"

        with worker_process(holdfast_dsn, ["note", "hold"], lease=2.0):
            evidence.open_gate()
            over = "select count(*) from holdfast.instances where status = 'completed'"
            await until(lambda: evidence.ask(over) == FLOWS, timeout=60)

    assert evidence.ask("select count(*) from holdfast.work") == 0
    assert evidence.ask("select count(*) from holdfast.signals") == 0
    per_flow = "select count(*) from (select instance_id from holdfast.{} group by 1 having count(*) <> %s) t"
    assert evidence.ask(per_flow.format("steps"), STEPS + 2) == 0  # and the row of the end
    assert evidence.ask(per_flow.format("step_receipts"), STEPS + 2) == 0
    again = evidence.ask("select coalesce(sum(calls - 1), 0) from holdfast.steps where behaviour = 'work'")
    assert 0 < again <= held, "only what was leased at the kill is called again"
