"""S13: an event in the gap between looking for it and waiting for it; and no NOTIFY at all.

The gate is deterministic: a commit that opens a wait is held up right after it has looked for early events, and the
event is sent in that moment. Then every hint is lost on its way: what is started must be found by the safety scan, no
later than its interval.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from uuid import uuid4

from faults import scene
from faults.check import judge
from faults.fleet import Fleet
from faults.flows import journey
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine
from holdfast.errors import Busy, Refused
from holdfast.testing import failpoint
from holdfast.testing.injection import Failpoint

GAP = 0.03
SCAN = 1.0
EPSILON = 0.75  # a claim, a handler and a commit on a busy machine
SILENT = "statement.before.notify_workers:error:times=0"
KEYED = {"event": "go", "key": "context.key"}
EARLY = {"event": "go", "early": True}
BEGUN = """
select extract(epoch from s.created_at)::float8, extract(epoch from i.created_at)::float8
from holdfast.instances i left join holdfast.steps s on s.instance_id = i.id and s.node = 'step_0' where i.id = %s
"""


def graph(name: str, wait: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "entry": "wait",
        "nodes": [{"id": "wait", "kind": "wait_event", "wait": wait}, {"id": "end", "kind": "end"}],
        "edges": [{"id": "e", "source": "wait", "target": "end"}],
    }


def run(profile: Profile, seed: int) -> list[Figure]:
    return [*gate(profile.size(full=200, short=20), seed), *silence(profile.size(full=100, short=6), seed)]


def gate(rounds: int, seed: int) -> list[Figure]:
    """Half of the events are addressed by key, half to the instance."""
    with scene.prepared() as stage:
        hit, lost = asyncio.run(_through_the_gate(stage, rounds))
        verdict = judge(stage.dsn, [], left_over=("work", "signals", "timers", "key_waits", "inbox"))
    told = f"{rounds} events sent in the gap, {hit} of them while the commit was held up"
    return [
        Figure("S13: events lost in the gap", lost, NONE, seed, told, hit >= 0.9 * rounds),
        Figure(
            "S13: invariants broken at the gate", verdict.broken(), NONE, seed, f"{verdict.counts['replayed']} replayed"
        ),
    ]


async def _through_the_gate(stage: Stage, rounds: int) -> tuple[int, int]:
    async with Engine(stage.dsn) as engine, Engine(stage.dsn) as sender:
        await engine.publish(graph("keyed", KEYED))
        await engine.publish(graph("early", EARLY))
        hit = 0
        async with engine.worker(lease=10):
            for number in range(rounds):
                hit += await (_keyed if number % 2 else _early)(engine, sender, number)
            lost = await _left_behind(stage)
    return hit, lost


async def _keyed(engine: Engine, sender: Engine, number: int) -> bool:
    key = f"k{number}"
    with failpoint("statement.after.read_key_events", "delay", seconds=GAP) as gap:
        starting = asyncio.create_task(engine.start("keyed", {"key": key}))
        await _reached(gap, starting)
        in_time = not starting.done()
        await sender.signal_key("go", key)
        await starting
    return in_time and gap.fired == 1


async def _early(engine: Engine, sender: Engine, number: int) -> bool:
    """The start is stored first, so that there is an instance to send to. The worker's commit has decided that nothing
    came early and that the instance waits, and is held up before it writes that down."""
    with failpoint("statement.before.update_instances", "delay", seconds=GAP) as gap:
        instance = await sender.start("early", key=f"e{number}-{uuid4().hex}")
        await _reached(gap, None)
        await _insist(sender, str(instance.id))
    return gap.fired == 1


async def _insist(sender: Engine, id: str) -> None:
    while True:
        try:
            await sender.signal(id, "go")
            return
        except (Busy, Refused) as refusal:
            if refusal.code not in ("INSTANCE_BUSY", "INSTANCE_PENDING"):
                raise
            await asyncio.sleep(0.002)


async def _reached(gap: Failpoint, other: asyncio.Task[Any] | None) -> None:
    deadline = time.monotonic() + 3
    while not gap.fired and time.monotonic() < deadline and not (other is not None and other.done()):
        await asyncio.sleep(0.001)


async def _left_behind(stage: Stage) -> int:
    try:
        await scene.until(lambda: not stage.unfinished(), 5, "every event arrived")
    except scene.TooLate:
        return stage.unfinished()
    return 0


def silence(starts: int, seed: int) -> list[Figure]:
    """Every process has lost its voice: no hint leaves, no hint is heard."""
    luck = random.Random(seed)
    with scene.prepared() as stage:
        task = stage.task(nap=0.0, worker={"lease": 10.0, "scan": SCAN})
        with Fleet(task, stage.place, environment={"HOLDFAST_FAILPOINT": SILENT}) as fleet:
            fleet.grow(1)
            waits, lost = asyncio.run(_in_silence(stage, starts, luck))
    told = f"{starts} starts, none announced; scan every {SCAN:g} s, p50 {sorted(waits)[len(waits) // 2]:.2f} s"
    valid = max(waits) > SCAN / 4
    return [
        Figure("S13: starts lost without NOTIFY", lost, NONE, seed, told),
        Figure("S13: pickup without NOTIFY, worst", max(waits), Bar("≤", SCAN + EPSILON, "s"), seed, told, valid),
    ]


async def _in_silence(stage: Stage, starts: int, luck: random.Random) -> tuple[list[float], int]:
    ids: list[str] = []
    with failpoint("statement.before.notify_workers", "error", times=0):
        async with Engine(stage.dsn) as engine:
            await engine.publish(journey("quiet", 1))
            for _ in range(starts):
                ids.append(str((await engine.start("quiet")).id))
                await asyncio.sleep(luck.random() * SCAN / 2)
            await _settled(stage)
    waits: list[float] = []
    lost = 0
    for id in ids:
        with_step = scene.cluster.ask(stage.dsn, BEGUN, id)[0]
        if with_step[0] is None:
            lost += 1
            waits.append(60.0)
        else:
            waits.append(with_step[0] - with_step[1])
    return waits, lost


async def _settled(stage: Stage) -> None:
    """What is not over after many scans is lost."""
    try:
        await scene.until(lambda: not stage.unfinished(), SCAN * 6, "the scan found everything")
    except scene.TooLate:
        return
