"""The engine through a transaction pooler with fewer connections than the engine alone has sessions."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from pools import Pooled, kinds, through
from servers import left_behind
from witness import Witness, witnessed_worker

from holdfast import Context, Engine, Flow, Retry
from holdfast.store import embedded
from running import STEPS, Evidence, counting, journey, until

pytestmark = pytest.mark.anyio

FLOWS = 60


def each_step_once(evidence: Evidence) -> None:
    assert evidence.rows("select status, count(*) from holdfast.instances group by 1") == [("completed", FLOWS)]
    assert evidence.rows(
        "select count(*), count(distinct (instance_id, node)), max(calls) from holdfast.steps where behaviour = 'work'"
    ) == [(FLOWS * len(STEPS), FLOWS * len(STEPS), 1)]
    for table in ("work", "signals"):
        assert evidence.ask(f"select count(*) from holdfast.{table}") == 0


async def test_every_step_happens_once_and_nothing_stays_on_the_servers(pooled: Pooled, evidence: Evidence) -> None:
    async with pooled.engine() as engine, pooled.engine() as other:
        calls = [counting(engine), counting(other)]
        await engine.publish(journey())
        async with engine.worker(), other.worker():
            started = await asyncio.gather(*(engine.start("journey", {"n": n}) for n in range(FLOWS // 2)))
            started += await other.start_many("journey", [{"n": n} for n in range(FLOWS // 2)])
            ended = await asyncio.gather(*(engine.wait(i.id, timeout=60) for i in started))
    assert {i.status for i in ended} == {"completed"}
    assert calls[0] + calls[1] == {(i.id, step): 1 for i in started for step in STEPS}
    each_step_once(evidence)
    assert left_behind(pooled) == []


async def test_what_a_call_sets_ends_with_its_transaction(pooled: Pooled, evidence: Evidence) -> None:
    """A function of the user's that sets something for its session would set it for everybody's."""
    graph = {
        "name": "booking",
        "kind": "saga",
        "entry": "book",
        "policy": {"on_error": "fail"},
        "nodes": [{"id": "book", "kind": "action", "handler": "book"}, {"id": "end", "kind": "end"}],
        "edges": [{"id": "book>end", "source": "book", "target": "end"}],
    }
    evidence.connection.execute("create table public.bookings (instance text primary key)")
    async with pooled.engine() as engine:

        @engine.call("book")
        async def book(ctx: Context, data: Any) -> Any:
            await ctx.conn.execute("set work_mem = '7MB'")
            await ctx.conn.execute("set holdfast.org = 'somebody'")
            await ctx.conn.execute("insert into public.bookings values (%s)", (ctx.instance,))
            return data

        await engine.publish(graph)
        await engine.start_many("booking", [None] * 12)
        await engine.drain(timeout=60)
    assert evidence.ask("select count(*) from public.bookings") == 12
    assert evidence.rows("select status, count(*) from holdfast.instances group by 1") == [("completed", 12)]
    assert left_behind(pooled) == []


async def test_hints_come_by_the_direct_address(pooled: Pooled) -> None:
    """Nobody scans for a minute, so only a notification can have told the worker."""
    async with pooled.engine() as sender, pooled.engine() as receiver:
        calls = counting(receiver)
        await sender.publish(journey())
        async with receiver.worker(scan=60, lease=180):
            for round in range(1, 4):
                instance = await sender.start("journey")
                await sender.wait(instance.id, timeout=20)
                assert len(calls) == round * len(STEPS)


async def test_without_a_direct_address_the_scan_finds_the_work(
    pooled: Pooled, caplog: pytest.LogCaptureFixture
) -> None:
    async with pooled.engine(listening=False) as sender, pooled.engine(listening=False) as receiver:
        counting(receiver)
        await sender.publish(journey())
        with caplog.at_level(logging.WARNING, "holdfast.listen"):
            async with receiver.worker(scan=0.1):
                instance = await sender.start("journey")
                assert (await sender.wait(instance.id, timeout=20)).status == "completed"
    assert [record.message for record in caplog.records if "HOLDFAST_DIRECT_DSN" in record.message]
    assert left_behind(pooled) == []


async def test_the_lease_is_kept_through_the_pool(pooled: Pooled, evidence: Evidence) -> None:
    """More renewals than a driver needs to start preparing them, and the worker is still the one it was."""
    moments: set[Any] = set()

    def renewed() -> bool:
        moments.add(evidence.ask("select max(lease_until) from holdfast.workers"))
        return len(moments) > 12

    async with pooled.engine() as engine:
        calls = counting(engine)
        await engine.publish(journey())
        async with engine.worker(lease=0.6) as worker:
            id = worker.lease.id
            await until(renewed)
            instance = await engine.start("journey")
            await engine.wait(instance.id, timeout=20)
            assert worker.lease.id == id
    assert set(calls.values()) == {1}
    assert evidence.ask("select count(*) from holdfast.workers") == 1


async def test_the_work_of_a_killed_process_is_taken_over(pooled: Pooled, evidence: Evidence, tmp_path: Path) -> None:
    record = tmp_path / "calls"
    witness, address = Witness(record), {"dsn": pooled.dsn, "direct_dsn": pooled.direct}
    async with pooled.engine() as engine:
        await engine.publish(Flow("stay").step("hold", "hold", retry=Retry(attempts=3)).step("after", "step").build())
        with witnessed_worker(record, address, lease=1.0) as doomed:
            ids = [i.id for i in await engine.start_many("stay", [None] * 8)]
            await until(lambda: len(witness.calls) == 8)
            doomed.kill()
            doomed.wait()
        witness.open_gate()
        with witnessed_worker(record, address, lease=1.0):
            ended = await asyncio.gather(*(engine.wait(id, timeout=60) for id in ids))
    assert {i.status for i in ended} == {"completed"}
    assert witness.calls == {(id, step): calls for id in ids for step, calls in (("hold", 2), ("after", 1))}
    assert evidence.rows("select count(*), max(calls) from holdfast.steps where node = 'hold'") == [(8, 2)]
    assert left_behind(pooled) == []


@pytest.mark.parametrize("kind", kinds())
async def test_a_server_that_dies_behind_the_pooler_is_waited_for(kind: str, own_server: tuple[Path, str]) -> None:
    directory, direct = own_server
    with through(kind, direct) as address:
        async with Engine(address, direct_dsn=direct) as engine:
            calls = counting(engine)
            await engine.publish(journey(retries=3))
            async with engine.worker():
                await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])
                await until(lambda: len(calls) > FLOWS // 2)
                await asyncio.to_thread(embedded.stop, directory, "immediate")
                await asyncio.to_thread(embedded.start, directory)
                evidence = Evidence(direct)
                await until(
                    lambda: evidence.ask("select count(*) = 0 from holdfast.instances where completed_at is null")
                )
        each_step_once(evidence)
        evidence.close()
    assert set(calls.values()) == {1}


async def test_a_pooled_session_works_without_a_pooler_too(holdfast_dsn: str, evidence: Evidence) -> None:
    async with Engine(holdfast_dsn, pooled=True) as engine:
        counting(engine)
        await engine.publish(journey())
        await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])
        await engine.drain(timeout=60)
    each_step_once(evidence)
