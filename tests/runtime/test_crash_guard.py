"""Signals after a worker was lost: one at a time, counted before they are decided upon, buried when they kill again."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from letters import counter, send

from holdfast import Engine
from holdfast.runtime.commit.crash_guard import Caution
from holdfast.runtime.commit.failures import MAX_ATTEMPTS
from holdfast.testing import failpoint
from running import Evidence, until

pytestmark = pytest.mark.anyio


async def run_fragile_worker(dsn: str) -> int:
    """Until it has nothing left to do, or dies: its exit code."""
    script = str(Path(__file__).with_name("fragile_worker.py"))
    process = await asyncio.create_subprocess_exec(sys.executable, script, dsn, stderr=asyncio.subprocess.DEVNULL)
    try:
        return await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def lose_a_worker(evidence: Evidence, ago: str = "1 second") -> None:
    evidence.connection.execute(
        """insert into holdfast.workers (id, host, pid, version, queues, started_at, lease_until)
        values (%s, 'elsewhere', 1, '0', '{}', now() - interval '1 hour', clock_timestamp() - %s::interval)""",
        (uuid4(), ago),
    )


def ticks(evidence: Evidence, id: str) -> int:
    return evidence.ask("select count(*) from holdfast.steps where instance_id = %s and outcome = 'tick'", id)


async def test_a_signal_that_kills_whoever_decides_upon_it_is_buried(engine: Engine, evidence: Evidence) -> None:
    first, deadly, last = [await counter(engine) for _ in range(3)]
    send(evidence, first, "tick", {"n": 1})
    killer = send(evidence, deadly, "tick", {"deadly": 1})
    send(evidence, last, "tick", {"n": 1})
    assert await run_fragile_worker(engine.dsn) == -signal.SIGKILL
    assert (ticks(evidence, first), ticks(evidence, last)) == (0, 0)  # taken along
    assert evidence.ask("select sum(attempts) from holdfast.signals") == 0
    await until(lambda: evidence.ask("select bool_and(lease_until < clock_timestamp()) from holdfast.workers"))
    for n in range(MAX_ATTEMPTS):
        assert await run_fragile_worker(engine.dsn) == -signal.SIGKILL
        assert evidence.ask("select attempts from holdfast.signals where id = %s", killer) == n + 1
    assert await run_fragile_worker(engine.dsn) == 0
    assert (ticks(evidence, first), ticks(evidence, last)) == (1, 1)
    [letter] = await engine.dead_letters()
    assert (letter.reason, letter.attempts, letter.envelope["id"]) == ("ATTEMPTS_EXHAUSTED", MAX_ATTEMPTS, killer)
    assert (await engine.signal(deadly, "stop")).status == "completed"


async def test_care_is_taken_only_after_a_worker_was_lost(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Caution] = []
    begin = Caution.begin

    def told(self: Caution) -> None:
        begun.append(self)
        begin(self)

    monkeypatch.setattr(Caution, "begin", told)
    await counter(engine)
    async with engine.worker():  # the one before left in order
        assert begun == []
    lose_a_worker(evidence, ago="1 day")
    async with engine.worker():
        assert begun == []
    lose_a_worker(evidence)
    async with engine.worker():
        assert begun == [engine.committer.caution]
        await until(lambda: engine.committer.caution.left == 0)  # nothing is there that could have killed it


async def test_care_changes_nothing_but_the_pace(engine: Engine, evidence: Evidence) -> None:
    """Order within an instance, refusals and results that come meanwhile."""
    ids = [await counter(engine) for _ in range(3)]
    for n in range(4):
        for id in ids:
            send(evidence, id, "tick", {"n": n})
    send(evidence, ids[0], "nothing_like_that")
    lose_a_worker(evidence)
    before = engine.stats().commits
    await engine.drain(timeout=30)
    for id in ids:
        assert [s.output for s in await engine.steps(id) if s.outcome == "tick"] == [{"n": n} for n in range(4)]
    [letter] = await engine.dead_letters()
    assert letter.reason == "EVENT_NOT_EXPECTED"
    assert engine.stats().commits - before >= 13


async def test_trouble_that_the_process_survives_is_counted_once(engine: Engine, evidence: Evidence) -> None:
    id = await counter(engine)
    sent = send(evidence, id, "tick", {"n": 1})
    lose_a_worker(evidence)
    with failpoint("statement.before.delete_signals", "error", times=2 * MAX_ATTEMPTS) as point:
        async with engine.worker():
            await until(lambda: point.fired > MAX_ATTEMPTS)
            assert evidence.ask("select attempts from holdfast.signals where id = %s", sent) == 1
            await until(lambda: ticks(evidence, id))
    assert point.fired == 2 * MAX_ATTEMPTS
    assert await engine.dead_letters() == []
