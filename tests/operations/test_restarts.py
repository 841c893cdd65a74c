"""The four restart cases: one worker down, all workers down, the database down, both. Nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.errors import Busy, Conflict, StoreError
from holdfast.store import embedded
from running import PATIENCE, Evidence, until, worker_process

pytestmark = pytest.mark.anyio

LEASE = 1.5
FLOWS = 40


def journey(delay: float = 1.0) -> dict[str, Any]:
    """A step, a pause, something to wait for, another step: each kind of thing that has to survive."""
    return {
        "name": "journey",
        "entry": "one",
        "nodes": [
            {"id": "one", "kind": "task", "handler": "note", "retry": {"calls": 5}},
            {"id": "pause", "kind": "wait_timer", "delay": delay},
            {"id": "wait", "kind": "wait_event", "wait": {"event": "signed", "early": True}},
            {"id": "two", "kind": "task", "handler": "note", "retry": {"calls": 5}},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "a", "source": "one", "target": "pause"},
            {"id": "b", "source": "pause", "target": "wait"},
            {"id": "c", "source": "wait", "target": "two"},
            {"id": "d", "source": "two", "target": "end"},
        ],
    }


HELD = {
    "name": "held",
    "entry": "hold",
    "nodes": [{"id": "hold", "kind": "task", "handler": "hold", "retry": {"calls": 5}}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "a", "source": "hold", "target": "end"}],
}


def kill(process: subprocess.Popen[str]) -> float:
    process.send_signal(signal.SIGKILL)
    process.wait()
    return time.monotonic()


def completed(evidence: Evidence, count: int) -> bool:
    return evidence.ask("select count(*) from holdfast.instances where status = 'completed'") == count


def nothing_lost_or_doubled(evidence: Evidence, calls: int = 2) -> None:
    """One row and one receipt per visit; whatever was called again was under way when something died."""
    assert evidence.ask("select count(*) from holdfast.steps") == evidence.ask(
        "select count(*) from holdfast.step_receipts"
    )
    assert evidence.ask(
        "select count(*) from (select from holdfast.steps group by instance_id, node having count(*) > 1) x"
    ) == 0  # fmt: skip
    for table in ("work", "signals", "timers", "dead_letters", "inbox"):
        assert evidence.ask(f"select count(*) from holdfast.{table}") == 0, table
    assert evidence.ask("select max(calls) from holdfast.steps") <= calls


async def test_one_worker_down(engine: Engine, evidence: Evidence) -> None:
    """Its sibling takes over within the lease and two seconds."""
    await engine.publish(HELD)
    await engine.start_many("held", [{"n": n} for n in range(10)])
    with worker_process(engine.dsn, ["hold"], lease=LEASE) as victim:
        await until(lambda: evidence.calls("hold") == 10)
        with worker_process(engine.dsn, ["hold"], lease=LEASE) as heir:
            died = kill(victim)
            evidence.open_gate("later")  # whoever is called from now on may finish
            await until(lambda: evidence.ask("select count(*) from public.calls where pid = %s", heir.pid) == 10)
            assert time.monotonic() - died <= LEASE + 2
            await until(lambda: completed(evidence, 10))
    nothing_lost_or_doubled(evidence)
    assert evidence.rows("select attempt, count(*) from public.calls group by 1 order by 1") == [(1, 10), (2, 10)]


async def test_all_workers_down_and_the_database_up(engine: Engine, evidence: Evidence) -> None:
    """Starts, signals and timers wait in the tables until a worker is there again."""
    await engine.publish(journey())
    with (
        worker_process(engine.dsn, ["note"], lease=LEASE) as one,
        worker_process(engine.dsn, ["note"], lease=LEASE) as two,
    ):
        ids = [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])]
        await until(lambda: evidence.calls("one") >= FLOWS // 4)
        for process in (one, two):
            kill(process)
    begun = evidence.calls()
    ids += [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])]
    due = "select count(*) from holdfast.timers where due_at <= clock_timestamp()"
    await until(lambda: evidence.ask(due))
    assert evidence.calls() == begun
    with worker_process(engine.dsn, ["note"], lease=LEASE):
        await sign_patiently(engine, ids)
        await until(lambda: completed(evidence, 2 * FLOWS), 2 * PATIENCE)
    nothing_lost_or_doubled(evidence)


async def sign_patiently(engine: Engine, ids: list[str]) -> None:
    """An instance that was stored and not begun yet takes no signal; the database may be away."""
    for id in ids:
        while True:
            try:
                await engine.signal(id, "signed", id=id)
                break
            except (StoreError, Conflict, Busy) as failure:
                if failure.code not in ("INSTANCE_PENDING", "STORE_UNREACHABLE", "INSTANCE_BUSY"):
                    raise
                await asyncio.sleep(0.05)


async def test_the_database_down(own_server: tuple[Path, str]) -> None:
    """Nobody is restarted: workers and callers find their way back by themselves."""
    directory, dsn = own_server
    async with Engine(dsn) as engine:
        evidence = Evidence(dsn)
        await engine.publish(journey())
        with (
            worker_process(dsn, ["note"], lease=LEASE) as one,
            worker_process(dsn, ["note"], lease=LEASE) as two,
        ):
            ids = [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])]
            await until(lambda: evidence.calls("one") >= FLOWS // 4)
            evidence.close()
            await asyncio.to_thread(embedded.stop, directory, "immediate")
            with pytest.raises(StoreError) as refusal:
                await engine.start("journey")
            assert refusal.value.code == "STORE_UNREACHABLE"
            await asyncio.to_thread(embedded.start, directory)
            evidence = Evidence(dsn)
            await sign_patiently(engine, ids)
            await until(lambda: completed(evidence, FLOWS), 2 * PATIENCE)
            assert (one.poll(), two.poll()) == (None, None)
        nothing_lost_or_doubled(evidence, calls=5)  # the handlers themselves need the database
        evidence.close()


async def test_workers_and_database_down(own_server: tuple[Path, str]) -> None:
    directory, dsn = own_server
    evidence = Evidence(dsn)
    async with Engine(dsn) as engine:
        await engine.publish(journey())
        with worker_process(dsn, ["note"], lease=LEASE) as victim:
            ids = [i.id for i in await engine.start_many("journey", [{"n": n} for n in range(FLOWS)])]
            await until(lambda: evidence.calls("one") >= FLOWS // 4)
            server = embedded.status(directory)
            assert server is not None
            os.kill(server.pid, signal.SIGKILL)
            kill(victim)
        evidence.close()
        await asyncio.to_thread(embedded.start, directory)
        evidence = Evidence(dsn)
        unfinished = evidence.ask("select count(*) from holdfast.instances where completed_at is null")
        assert unfinished == FLOWS
        with worker_process(dsn, ["note"], lease=LEASE):
            await sign_patiently(engine, ids)
            await until(lambda: completed(evidence, FLOWS), 2 * PATIENCE)
    nothing_lost_or_doubled(evidence)
    evidence.close()
