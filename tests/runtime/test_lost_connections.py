"""When the connection goes: a COMMIT or its answer lost on the way, a server that dies and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from runtime_proxy import lossy_door

from holdfast import Context, DoNotRetry, Engine, Flow
from holdfast.errors import StoreError
from holdfast.store import embedded
from holdfast.store.pg.session import Session
from holdfast.store.queue import work as queue
from running import STEPS, Evidence, counting, journey, until

pytestmark = pytest.mark.anyio

FLOWS = 40


def each_step_once(evidence: Evidence) -> None:
    """One row and one receipt per step, nothing leased, nothing queued."""
    assert set(evidence.rows("select status, count(*) from holdfast.instances group by 1")) == {("completed", FLOWS)}
    rows = evidence.rows(
        "select instance_id, node, count(*), max(calls) from holdfast.steps where behaviour = 'work' group by 1, 2"
    )
    assert len(rows) == FLOWS * len(STEPS)
    assert {(count, calls) for _, _, count, calls in rows} == {(1, 1)}
    assert evidence.ask("select count(*) from holdfast.steps") == evidence.ask(
        "select count(*) from holdfast.step_receipts"
    )
    for table in ("work", "signals"):
        assert evidence.ask(f"select count(*) from holdfast.{table}") == 0


@pytest.mark.parametrize("lose", ["commit", "answer"])
async def test_a_lost_commit_neither_doubles_nor_loses_a_step(
    holdfast_dsn: str, evidence: Evidence, lose: Literal["commit", "answer"]
) -> None:
    """Whatever the commit was for: starts, claims, results. Steps may be called once only, and are."""
    which = set(range(12, 200, 7))
    with lossy_door(holdfast_dsn, lose, which) as (door, dsn):
        async with Engine(dsn) as engine:
            calls = counting(engine)
            await engine.publish(journey())
            async with engine.worker():
                started = await asyncio.gather(*(engine.start("journey", {"n": n}) for n in range(FLOWS // 2)))
                started += await engine.start_many("journey", [{"n": n} for n in range(FLOWS // 2)])
                ids = {i.id for i in started}
                await until(
                    lambda: evidence.ask("select count(*) = 0 from holdfast.instances where completed_at is null")
                )
                which.clear()
    assert door.lost >= 3
    assert calls == {(id, step): 1 for id in ids for step in STEPS}
    each_step_once(evidence)


async def test_an_answer_that_is_lost_while_strays_are_looked_for_is_looked_for_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its commit leased came too late for that look, and a worker that lives keeps its leases."""
    looks, again = 0, asyncio.Event()
    list_leased = queue.list_leased

    async def observed(session: Session, worker: bytes) -> Any:
        nonlocal looks
        leased = await list_leased(session, worker)
        looks += 1
        if looks == 1:
            engine.committer.port.reconnected()
        else:
            again.set()
        return leased

    counting(engine)
    async with engine.worker():
        monkeypatch.setattr(queue, "list_leased", observed)
        engine.committer.port.reconnected()
        async with asyncio.timeout(10):
            await again.wait()


async def test_a_lost_answer_does_not_apply_a_signal_twice(holdfast_dsn: str, evidence: Evidence) -> None:
    """The engine repeats a signal whose commit was not answered; that it was received before is found out."""
    which: set[int] = set()
    graph = {
        "name": "counter",
        "entry": "count",
        "nodes": [{"id": "count", "kind": "state"}, {"id": "end", "kind": "end"}],
        "edges": [
            {"id": "tick", "source": "count", "target": "count", "on": "tick"},
            {"id": "stop", "source": "count", "target": "end", "on": "stop"},
        ],
    }
    with lossy_door(holdfast_dsn, "answer", which) as (door, dsn):
        async with Engine(dsn) as engine:
            await engine.publish(graph)
            ids = [i.id for i in await engine.start_many("counter", [None] * 4)]
            await engine.drain(timeout=30)
            which.update(range(door.commits + 3, door.commits + 200, 5))
            for _ in range(5):
                await asyncio.gather(*(engine.signal(id, "tick") for id in ids for _ in range(2)))
            which.clear()
            assert door.lost >= 3
            ended = [await engine.signal(id, "stop") for id in ids]
    assert {i.status for i in ended} == {"completed"}
    assert evidence.rows(
        "select distinct count(*) filter (where outcome = 'tick') from holdfast.steps group by instance_id"
    ) == [(10,)]


@pytest.mark.parametrize("verb", ["suspend", "cancel", "abort", "force_fail", "requeue"])
async def test_a_lost_answer_does_not_put_a_person_in_conflict_with_themselves(holdfast_dsn: str, verb: str) -> None:
    """What was done by the commit whose answer was lost is answered as done, and is done once."""
    which: set[int] = set()
    flow = Flow("fragile", dlq=True).step("break", "break").build()
    with lossy_door(holdfast_dsn, "answer", which) as (door, dsn):
        async with Engine(dsn) as engine:

            @engine.handler("break")
            def fail(ctx: Context, data: Any) -> Any:
                raise DoNotRetry("No.")

            await engine.publish(flow)
            for lost in range(1, 5):  # a verb reads before it writes, in transactions of their own
                instance = await engine.start("fragile")
                await engine.drain(timeout=30)
                [letter] = await engine.dead_letters(instance.id)
                which.add(door.commits + lost)
                if verb == "requeue":
                    assert (await engine.requeue(letter.id, by="ops")).resolution == "replayed"
                else:
                    await getattr(engine, verb)(instance.id, by="ops", reason="test")
                which.clear()
                told = [event.type for event in await engine.events(instance.id) if event.actor == "ops"]
                assert len(told) == len(set(told)) >= 1
            assert door.lost >= 2


async def test_reads_and_requests_find_a_new_connection(holdfast_dsn: str, evidence: Evidence) -> None:
    async with Engine(holdfast_dsn) as engine:
        await engine.publish(journey())
        instance = await engine.start("journey")
        for round in range(2):
            evidence.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            assert (await engine.get(instance.id)).status == "pending"
            assert len((await engine.list()).items) == 1 + round
            assert (await engine.start("journey", key=f"k{round}")).key == f"k{round}"
        assert (await engine.abort(instance.id)).status == "aborted"


async def test_everything_completes_when_the_server_dies_and_comes_back(own_server: tuple[Path, str]) -> None:
    directory, dsn = own_server
    async with Engine(dsn) as engine:
        calls = counting(engine)
        await engine.publish(journey(retries=3))
        async with engine.worker():
            started = [await engine.start("journey", {"n": n}) for n in range(FLOWS // 2)]
            started += await engine.start_many("journey", [{"n": n} for n in range(FLOWS // 2)])
            await until(lambda: len(calls) > FLOWS // 2)
            await asyncio.to_thread(embedded.stop, directory, "immediate")
            with pytest.raises(StoreError) as refusal:
                await engine.get(started[0].id)
            assert refusal.value.code == "STORE_UNREACHABLE"
            await asyncio.to_thread(embedded.start, directory)
            ended = await asyncio.gather(*(_patient_wait(engine, i.id) for i in started))
        evidence = Evidence(dsn)
        assert {i.status for i in ended} == {"completed"}
        each_step_once(evidence)
        assert set(calls.values()) == {1}
        evidence.close()


async def _patient_wait(engine: Engine, id: str) -> Any:
    """A wait that began while the server was away is told so."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await engine.wait(id)
            except StoreError:
                await asyncio.sleep(0.1)


async def test_a_worker_leaves_in_time_when_the_server_is_gone(own_server: tuple[Path, str]) -> None:
    directory, dsn = own_server
    engine = Engine(dsn)
    await engine.open()
    calls = counting(engine)
    await engine.publish(journey())
    async with asyncio.timeout(25):  # the committer alone waits five seconds for the server
        async with engine.worker(grace=0.5):
            await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])
            await until(lambda: calls)
            await asyncio.to_thread(embedded.stop, directory, "immediate")
        await engine.close()
