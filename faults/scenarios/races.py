"""S12: a signal and the deadline of its wait meet within some milliseconds: one of them wins, and only one.

Every trial sends its signal at the deadline, give or take five milliseconds, measured by the clock of the database. The
caller's answer must agree with the history: accepted means the event's way was taken, refused means the deadline's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from faults import cluster, scene
from faults.check import judge
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine
from holdfast.errors import Busy, HoldfastError

DEADLINE = 0.4
SPREAD = 0.005
AT_ONCE = 40
WAYS = "select instance_id::text, array_agg(node) from holdfast.steps where node in ('won', 'late') group by 1"
LEFT = "select from holdfast.signals union all select from holdfast.timers limit 1"
RACE: dict[str, Any] = {
    "name": "race",
    "entry": "wait",
    "nodes": [
        {"id": "wait", "kind": "wait_event", "wait": {"event": "go"}, "deadline": DEADLINE},
        {"id": "won", "kind": "end"},
        {"id": "late", "kind": "end"},
    ],
    "edges": [
        {"id": "won", "source": "wait", "target": "won"},
        {"id": "late", "source": "wait", "target": "late", "on": "timeout"},
    ],
}


def run(profile: Profile, seed: int) -> list[Figure]:
    trials = profile.size(full=5000, short=120)
    with scene.prepared() as stage:
        answers = asyncio.run(_race(stage, trials, random.Random(seed)))
        ways = dict(cluster.ask(stage.dsn, WAYS))
        verdict = judge(stage.dsn, [])
    wrong = [id for id, accepted in answers.items() if ways.get(id) != [("won" if accepted else "late")]]
    for id in wrong[:5]:
        print(f"    {id}: the caller was told {answers[id]}, the history says {ways.get(id)}", flush=True)
    won = Counter(answers.values())[True]
    told = f"{trials:,} trials: {won:,} won by the signal, {trials - won:,} by the deadline"
    is_close = 0.02 * trials < won < 0.98 * trials
    return [
        Figure("S12: races without exactly one winner", len(wrong), NONE, seed, told, is_close),
        Figure("S12: invariants broken", verdict.broken(), NONE, seed, f"{verdict.counts['replayed']:,} replayed"),
        Figure("S12: races", len(answers), Bar("≥", trials), seed, f"within {SPREAD * 1000:.0f} ms of the deadline"),
    ]


async def _race(stage: Stage, trials: int, luck: random.Random) -> dict[str, bool]:
    answers: dict[str, bool] = {}
    numbers = iter(range(trials))
    async with Engine(stage.dsn) as engine, Engine(stage.dsn) as caller:
        await engine.publish(RACE)
        async with engine.worker(lease=10):
            head_start = await _head_start(caller, engine)
            await asyncio.gather(*(_runner(engine, caller, numbers, answers, luck, head_start) for _ in range(AT_ONCE)))
            await scene.until(lambda: not stage.unfinished(), 30, "every race is decided")
            # What lost the last races may still be on its way to be refused.
            await scene.until(lambda: not cluster.ask(stage.dsn, LEFT), 30, "the queue is empty")
    return answers


async def _head_start(caller: Engine, engine: Engine) -> float:
    """How long a signal takes until it is decided, so that it is sent that much earlier."""
    found: list[float] = []
    for _ in range(10):
        instance = await engine.start("race")
        begin = time.monotonic()
        await caller.signal(instance.id, "go")
        found.append(time.monotonic() - begin)
    return sorted(found)[len(found) // 2] / 2


async def _runner(
    engine: Engine,
    caller: Engine,
    numbers: Iterator[int],
    answers: dict[str, bool],
    luck: random.Random,
    head_start: float,
) -> None:
    for _ in numbers:
        await asyncio.sleep(luck.random() * DEADLINE / 4)
        instance = await engine.start("race")
        due = instance.waiting_until or (await engine.get(instance.id)).waiting_until
        if due is not None:  # None: this machine is so busy that the deadline has passed already
            moment = due.timestamp() + luck.uniform(-SPREAD, SPREAD) - head_start
            await asyncio.sleep(max(0.0, moment - time.time()))
        answers[str(instance.id)] = await _is_accepted(caller, str(instance.id))


async def _is_accepted(caller: Engine, id: str) -> bool:
    while True:
        try:
            await caller.signal(id, "go")
        except Busy:
            continue
        except HoldfastError as refusal:
            if refusal.code not in ("INSTANCE_OVER", "EVENT_NOT_EXPECTED"):
                raise
            return False
        return True
