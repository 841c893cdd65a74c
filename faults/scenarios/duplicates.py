"""S11: every signal is sent one to nine times, shuffled, by several senders, before and after its wait exists.

An instance has ten waits in a row for the same event and gets ten signals, so it ends exactly when ten of them were
applied; which ones is read from what each wait was answered with. A third of the sends goes through engines, the rest
through the SQL function in transactions of callers' own. Some are repeated under the same id with another body, which
must be refused as a conflict.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid5

import psycopg

from faults import cluster, scene
from faults.check import Verdict, judge
from faults.client import SPACE
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine
from holdfast.errors import Busy, Conflict, Refused

WAITS = 10
MOST = 9  # sends of one signal; five on average
IN_FLIGHT = 64
TRANSACTION = 4  # sends of the SQL function per commit
REFUSED = "HF"  # how states of the engine's own refusals begin
APPLIED = """
select instance_id::text, output ->> 'signal' from holdfast.steps
where node like 'wait%%' and status = 'completed'
"""


@dataclass
class Tally:
    sends: int = 0
    forged: int = 0  # sends under a known id with another body
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def graph() -> dict[str, Any]:
    waits = [f"wait{n}" for n in range(WAITS)]
    way = ["begin", *waits, "end"]
    return {
        "name": "collect",
        "entry": "begin",
        "nodes": [
            {"id": "begin", "kind": "wait_timer", "delay": 0.3},
            *({"id": id, "kind": "wait_event", "wait": {"event": "add", "early": True}} for id in waits),
            {"id": "end", "kind": "end"},
        ],
        "edges": [{"id": f"{a}>{b}", "source": a, "target": b} for a, b in pairwise(way)],
    }


def run(profile: Profile, seed: int) -> list[Figure]:
    return measure(profile.size(full=1000, short=30), seed)


def measure(instances: int, seed: int) -> list[Figure]:
    signals = instances * WAITS
    with scene.prepared() as stage:
        tally = asyncio.run(_send_all(stage, instances, random.Random(seed)))
        wrong = [*tally.wrong, *_misapplied(stage, instances)]
        verdict = judge(stage.dsn, [])
    _tell(wrong, verdict)
    finished = verdict.counts["finished"] / instances
    sends = f"{tally.sends:,} sends of {signals:,} signals to {instances:,} instances"
    return [
        Figure("S11: signals not applied exactly once", len(wrong), NONE, seed, sends, finished >= 0.95),
        Figure("S11: invariants broken", verdict.broken(), NONE, seed, f"{verdict.counts['replayed']:,} replayed"),
        Figure(
            "S11: another body under a known id accepted", tally.forged - tally.refused, NONE, seed,
            f"{tally.forged:,} sent", tally.forged > 0,
        ),
        Figure("S11: sends", tally.sends, Bar("≥", signals * 4.5), seed, sends),
    ]  # fmt: skip


def _tell(wrong: list[str], verdict: Verdict) -> None:
    for line in [*wrong[:5], *verdict.report(3).splitlines()]:
        print(f"    {line}", flush=True)


async def _send_all(stage: Stage, instances: int, luck: random.Random) -> Tally:
    tally = Tally()
    async with Engine(stage.dsn) as engine, Engine(stage.dsn) as second, Engine(stage.dsn) as third:
        await engine.publish(graph())
        async with engine.worker(lease=10):
            started = await engine.start_many("collect", [{"n": n} for n in range(instances)])
            sends = [
                (id, uuid5(SPACE, f"{id}/{n}"), n)
                for id in (str(i.id) for i in started)
                for n in range(WAITS)
                for _ in range(luck.randint(1, MOST))
            ]
            luck.shuffle(sends)
            tally.sends = len(sends)
            third_part = len(sends) // 3
            await asyncio.gather(
                _by_engine((engine, second, third), iter(sends[:third_part]), luck, tally),
                *(asyncio.to_thread(_by_sql, stage.dsn, sends[third_part + n :: 2], tally) for n in range(2)),
            )
            await scene.until(lambda: not stage.unfinished(), 60, "every instance got its signals")
    return tally


async def _by_engine(
    engines: tuple[Engine, ...], sends: Iterator[tuple[str, UUID, int]], luck: random.Random, tally: Tally
) -> None:
    async def sender() -> None:
        for id, signal, n in sends:
            engine = luck.choice(engines)
            await _insist(engine, id, signal, n, tally)
            if luck.random() < 0.02:
                await _forge(engine, id, signal, tally)

    await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))


async def _insist(engine: Engine, id: str, signal: UUID, n: int, tally: Tally) -> None:
    while True:
        try:
            await engine.signal(id, "add", {"signal": n}, id=signal)
            return
        except Busy:
            await asyncio.sleep(0.01)
        except (Conflict, Refused) as refusal:
            if refusal.code != "INSTANCE_PENDING":  # not begun yet: a caller tries again in a moment
                tally.wrong.append(f"a repeated signal of {id} was refused: {refusal}")
                return
            await asyncio.sleep(0.01)


async def _forge(engine: Engine, id: str, signal: UUID, tally: Tally) -> None:
    tally.forged += 1
    while True:
        try:
            await engine.signal(id, "add", {"signal": "forged"}, id=signal)
        except Busy:
            await asyncio.sleep(0.01)
            continue
        except Conflict as refusal:
            tally.refused += refusal.code == "SIGNAL_ID_REUSED"
        return


def _by_sql(dsn: str, sends: list[tuple[str, UUID, int]], tally: Tally) -> None:
    """Each transaction in sorted order; two callers with the same signals may still be told to run theirs again."""
    with psycopg.connect(dsn) as connection:
        for first in range(0, len(sends), TRANSACTION):
            together = sorted(sends[first : first + TRANSACTION], key=lambda send: send[1])
            while not _transaction(connection, together, tally):
                connection.rollback()


def _transaction(connection: psycopg.Connection, sends: list[tuple[str, UUID, int]], tally: Tally) -> bool:
    try:
        for id, signal, n in sends:
            connection.execute(
                "select holdfast.signal(%s, 'add', jsonb_build_object('signal', %s::int), id => %s)", (id, n, signal)
            )
        connection.commit()
    except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
        return False
    except psycopg.Error as refusal:
        if not (refusal.sqlstate or "").startswith(REFUSED):
            raise
        tally.wrong.append(f"a repeated signal was refused in SQL: {refusal}".splitlines()[0])
        connection.rollback()
    return True


def _misapplied(stage: Stage, instances: int) -> list[str]:
    """Each instance, and which of its signals its ten waits were answered with."""
    found: dict[str, Counter[str]] = {}
    for id, signal in cluster.ask(stage.dsn, APPLIED):
        found.setdefault(id, Counter())[signal] += 1
    wanted = Counter({str(n): 1 for n in range(WAITS)})
    wrong = [f"{id} applied {dict(applied - wanted)} too often" for id, applied in found.items() if applied != wanted]
    return [*wrong, *["an instance applied nothing"] * (instances - len(found))]
