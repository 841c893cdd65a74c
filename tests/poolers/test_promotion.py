"""A standby becomes the primary while workers are busy: whatever was answered is still there, and everything ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, Pair, streaming_pair
from witness import Witness, witnessed_worker

from holdfast import Engine, Flow, Retry
from holdfast.errors import StoreError
from running import Evidence, until

pytestmark = pytest.mark.anyio

STEPS = ("one", "two", "three", "four")


def journey() -> Any:
    flow = Flow("journey")
    for name in STEPS:
        flow = flow.step(name, "step", retry=Retry(attempts=10))
    return flow.build()


async def keep_starting(engine: Engine, answered: list[str], over: asyncio.Event) -> None:
    """Until told to stop, also while no server takes writes."""
    while not over.is_set():
        try:
            answered += [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(5)])]
        except StoreError:
            await asyncio.sleep(0.05)


def check(cluster: Cluster, witness: Witness, ids: list[str]) -> None:
    """Every instance has ended, every step has one row and one receipt, and each was called at least once."""
    evidence = Evidence(cluster.dsn)
    try:
        found = dict(evidence.rows("select id::text, status from holdfast.instances"))
        assert set(ids) <= set(found)
        assert set(found.values()) == {"completed"}
        rows = evidence.rows(
            "select instance_id::text, node, count(*) from holdfast.steps where behaviour = 'work' group by 1, 2"
        )
        assert {(id, node): count for id, node, count in rows} == {(id, step): 1 for id in found for step in STEPS}
        receipts = "select count(*), count(distinct step_id) from holdfast.step_receipts"
        assert evidence.rows(receipts) == [(evidence.ask("select count(*) from holdfast.steps"),) * 2]
        assert {(id, step) for id in found for step in STEPS} <= set(witness.calls)
        for table in ("work", "signals"):
            assert evidence.ask(f"select count(*) from holdfast.{table}") == 0
    finally:
        evidence.close()


async def test_nothing_answered_is_lost_when_a_synchronous_standby_takes_over(tmp_path: Path) -> None:
    record = tmp_path / "calls"
    witness, answered, over = Witness(record), list[str](), asyncio.Event()
    with streaming_pair(synchronous=True) as pair:
        async with Engine(pair.dsn) as engine:
            witness.register(engine)
            await engine.publish(journey())
            address = {"dsn": pair.dsn}
            with witnessed_worker(record, address, lease=3.0), witnessed_worker(record, address, lease=3.0):
                async with engine.worker(lease=3.0):
                    starting = asyncio.create_task(keep_starting(engine, answered, over))
                    await until(lambda: len(witness.calls) > 200)
                    await asyncio.to_thread(pair.primary.kill)
                    assert await asyncio.to_thread(open_instances, pair.standby) > 0
                    await asyncio.to_thread(pair.standby.promote)
                    before = len(answered)
                    await until(lambda: len(answered) >= before + 50)
                    over.set()
                    await starting
                    await until(lambda: open_instances(pair.standby) == 0, 60)
        check(pair.standby, witness, answered)


def open_instances(cluster: Cluster) -> int:
    return cluster.ask("select count(*) from holdfast.instances where completed_at is null")


async def test_an_asynchronous_standby_may_lack_the_last_answers_and_the_rest_still_ends(tmp_path: Path) -> None:
    """The standby stops receiving, the primary answers on, then dies: what was answered meanwhile is gone. Workers know
    of steps the database has never heard of, and drop them."""
    record = tmp_path / "calls"
    witness = Witness(record)
    with streaming_pair(synchronous=False) as pair:
        async with Engine(pair.dsn) as engine:
            witness.register(engine)
            engine.register("late", witness.step)
            await engine.publish(journey())
            await engine.publish(
                Flow("stay").step("hold", "hold", retry=Retry(attempts=10)).step("after", "step").build()
            )
            async with engine.worker(lease=3.0):
                kept = [i.id for i in await engine.start_many("stay", [None] * 10)]
                await until(lambda: len(witness.calls) == 10)
                pair.primary.until(
                    "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication where state = 'streaming'"
                )
                await asyncio.to_thread(cut_off, pair)
                lost = [i.id for i in await engine.start_many("stay", [None] * 10)]
                ended = [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(10)])]
                for id in ended:
                    await engine.wait(id, timeout=30)
                await until(lambda: len(witness.calls) >= 20 + 10 * len(STEPS))
                await asyncio.to_thread(pair.fail_over)
                witness.open_gate()
                for id in kept:
                    assert (await patiently(engine, id)).status == "completed"
                fresh = [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(10)])]
                for id in fresh:
                    assert (await patiently(engine, id)).status == "completed"
                await until(lambda: open_instances(pair.standby) == 0)
        evidence = Evidence(pair.standby.dsn)
        assert {row[0] for row in evidence.rows("select id::text from holdfast.instances")} == {*kept, *fresh}
        assert not {*lost, *ended} & {*kept, *fresh}
        steps = "select count(*), count(distinct (instance_id, node)) from holdfast.steps where behaviour = 'work'"
        assert evidence.rows(steps) == [(10 * 2 + 10 * len(STEPS),) * 2]
        assert evidence.ask("select count(*) from holdfast.work") == 0
        evidence.close()


def cut_off(pair: Pair) -> None:
    """The standby goes on without its source, as with a network between them that broke."""
    pair.standby.ask("alter system set primary_conninfo = ''")
    pair.standby.ask("select pg_reload_conf()")
    pair.primary.until("select count(*) = 0 from pg_stat_replication")


async def patiently(engine: Engine, id: str) -> Any:
    async with asyncio.timeout(60):
        while True:
            try:
                return await engine.wait(id)
            except StoreError:
                await asyncio.sleep(0.05)


async def test_a_standby_is_recognised_and_its_promotion_awaited(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "calls")
    with streaming_pair(synchronous=True) as pair:
        async with Engine(pair.dsn) as engine:
            await engine.publish(journey())
            instance = await engine.start("journey")
        with pytest.raises(StoreError) as refusal:
            async with Engine(pair.standby.dsn):
                pass
        assert refusal.value.code == "STORE_READ_ONLY"
        assert "target_session_attrs" in refusal.value.hint
        pair.primary.kill()
        with pytest.raises(StoreError) as refusal:
            async with Engine(pair.dsn):
                pass
        assert refusal.value.code == "STORE_READ_ONLY"
        pair.standby.promote()
        async with Engine(pair.dsn) as engine:
            witness.register(engine)
            async with engine.worker():
                assert (await engine.wait(instance.id, timeout=30)).status == "completed"


async def test_a_primary_that_stops_taking_writes_is_left_for_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fenced before its standby is promoted: connections stay open, commits are refused, results are kept."""
    witness = Witness(tmp_path / "calls")
    with streaming_pair(synchronous=True) as pair:
        async with Engine(pair.dsn) as engine:
            witness.register(engine)
            await engine.publish(Flow("stay").step("hold", "hold").step("after", "step").build())
            async with engine.worker(lease=20):
                ids = [i.id for i in await engine.start_many("stay", [None] * 10)]
                await until(lambda: len(witness.calls) == 10)
                fence(pair.primary)
                witness.open_gate()
                await until(lambda: any("takes no writes" in r.message for r in caplog.records))
                with pytest.raises(StoreError) as refusal:
                    await engine.start_many("stay", [None])
                assert refusal.value.code == "STORE_READ_ONLY"
                await asyncio.to_thread(pair.fail_over)
                ended = [await patiently(engine, id) for id in ids]
        assert {i.status for i in ended} == {"completed"}
        assert witness.calls == {(id, step): 1 for id in ids for step in ("hold", "after")}


def fence(cluster: Cluster) -> None:
    cluster.ask("alter system set default_transaction_read_only = on")
    cluster.ask("select pg_reload_conf()")
    cluster.until("select current_setting('default_transaction_read_only') = 'on'")
