"""A network that swallows everything without a word: nobody waits for ever, and all goes on when it is back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from operations_proxy import BlackHole, black_hole

from holdfast import Context, Engine, Flow, Retry
from holdfast.errors import StoreError
from holdfast.store.admin import connection
from holdfast.store.admin.doctor import examine
from holdfast.store.pg import connect, listen, session
from running import Evidence, until

pytestmark = pytest.mark.anyio

FLOWS = 20
LEASE = 2.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((session, "SILENCE"), (listen, "QUIET_SECONDS"), (connect, "ANSWER_SECONDS")):
        monkeypatch.setattr(module, name, 1.0)


async def test_connections_that_went_silent_are_replaced(holdfast_dsn: str, evidence: Evidence) -> None:
    with black_hole(holdfast_dsn) as (hole, dsn):
        async with Engine(dsn) as engine:

            @engine.handler("step")
            async def step(ctx: Context, data: Any) -> Any:
                await asyncio.sleep(0.05)
                return data

            flow = Flow("journey")
            for number in range(20):
                flow = flow.step(f"s{number}", "step", retry=Retry(attempts=5))
            await engine.publish(flow.build())
            async with engine.worker(lease=LEASE, scan=0.5, grace=2):
                started = await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])
                done = "select count(*) from holdfast.steps where status = 'completed'"
                await until(lambda: evidence.ask(done) > FLOWS)
                hole.open_up()
                await until(lambda: hole.swallowed >= 6)
                begun = time.monotonic()
                with pytest.raises(StoreError) as refusal:
                    await engine.get(started[0].id)
                assert refusal.value.code == "STORE_UNREACHABLE"
                assert time.monotonic() - begun < 20
                await until(lambda: engine.stats().lease_seconds_left == 0)  # it knows that it can no longer know
                hole.heal()
                await until(lambda: engine.stats().lease_seconds_left > 0)
                await until(
                    lambda: evidence.ask("select count(*) from holdfast.instances where status = 'completed'") == FLOWS,
                    60,
                )
                assert (await engine.get(started[0].id)).status == "completed"
            assert evidence.ask("select count(*) from holdfast.step_receipts") == FLOWS * 21


async def test_an_errand_ends_in_time(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MARGIN", 0.0)
    with black_hole(holdfast_dsn) as (hole, dsn):
        with connection.Desk(dsn, patience=2) as one:
            begun = await asyncio.to_thread(_ask_into_the_void, one, hole)
            assert time.monotonic() - begun < 10
        report = await asyncio.to_thread(examine, dsn)
        assert [(f.code, f.severity) for f in report.findings] == [("database", "critical")]


def _ask_into_the_void(one: connection.Desk, hole: BlackHole) -> float:
    begun = time.monotonic()
    with pytest.raises(StoreError) as refusal:
        _ask_twice(one, hole)
    assert refusal.value.code == "STORE_UNREACHABLE"
    return begun


def _ask_twice(one: connection.Desk, hole: BlackHole) -> None:
    with one.transaction() as errand:
        errand.one("doctor", "read_notify_usage")
        hole.open_up()
        while hole.swallowed < 2:
            time.sleep(0.01)
        errand.one("doctor", "read_notify_usage")
