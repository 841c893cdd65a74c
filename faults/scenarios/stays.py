"""S28: three engines share an instance of a machine, and each dies at its first point, its second, its third …

Timeouts, phases of gates with their completion, and a suspension after a critical delivery is out of attempts: in each
of them every engine is killed at its n-th point, for n = 1, 2, 3 … until all three come through alive. The points are
around and inside the commits of instances: before they lock, before each statement that writes, and after the COMMIT.
If no engine came through, another one finishes. Afterwards everything has happened as often as without a kill: once.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from faults import stays
from faults.check import judge
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scenarios.crash_points import KILLED
from faults.scene import Stage, prepared
from faults.stays import STAYS, Stay
from faults.victim import Life, Nursery, nursery
from faults.worker import Hands
from holdfast import Engine

ENGINES = 3
WORKER = {"lease": 20.0, "scan": 0.5}
WRITES = (
    "ensure_instances", "lock_instances", "update_instances", "close_steps", "open_steps", "insert_acks",
    "insert_deliveries", "pass_gates", "close_deliveries", "bury_deliveries", "rearm_deliveries", "promote_deliveries",
    "release_deliveries", "insert_timers", "delete_timers", "insert_notices", "resolve_ack_letters", "move_deliveries",
)  # fmt: skip
POINTS = "+".join(["commit.before_acting", *(f"statement.before.{name}" for name in WRITES)])


@dataclass
class Tally:
    rounds: int = 0
    kills: int = 0
    violations: int = 0


def run(profile: Profile, seed: int) -> list[Figure]:
    luck = random.Random(seed)
    with prepared() as stage, ExitStack() as stack:
        asyncio.run(_prepare(stage))
        task = stage.task(nap=0.0, worker=WORKER, extras=["faults.stays:register"])
        engines = [stack.enter_context(nursery(task, stays.HASTE)) for _ in range(ENGINES)]
        found: dict[str, Tally] = {}
        for stay in STAYS.values():
            points = iter([luck.randrange(3), luck.randrange(3, 9)]) if profile.is_short else itertools.count()
            found[stay.name] = enumerate_stay(stage, engines, stay, points)
    told = ", ".join(f"{name} {tally.rounds}" for name, tally in found.items())
    kills = sum(tally.kills for tally in found.values())
    return [
        Figure("S28: what did not happen exactly once", sum(tally.violations for tally in found.values()), NONE, seed,
               f"{kills} kills of {ENGINES} engines that shared an instance; points: {told}"),
        Figure("S28: kills of engines that shared an instance", kills, Bar("≥", profile.size(full=100, short=6)), seed,
               f"points: {told}"),
    ]  # fmt: skip


def enumerate_stay(stage: Stage, engines: list[Nursery], stay: Stay, points: Iterator[int]) -> Tally:
    tally, model = Tally(), _model(stage, engines, stay)
    for n in points:
        if not _kill_and_compare(stage, engines, stay, n, model, tally):
            break
    return tally


async def _prepare(stage: Stage) -> None:
    with psycopg.connect(stage.dsn) as connection:
        connection.execute(stays.REPAIRED)
    async with Engine(stage.dsn) as engine:
        for stay in STAYS.values():
            await engine.import_machine(stay.machine)
        stays.register(engine, Hands(stage.task()))
        await engine.drain(timeout=30)  # which registers the consumers


def _model(stage: Stage, engines: list[Nursery], stay: Stay) -> Counter[str]:
    """What happens when nobody dies."""
    key = f"{stay.name}-model"
    codes = _live(engines, stay, key)
    with psycopg.connect(stage.dsn) as connection:
        model = stays.happened(connection, key)
    assert not any(codes), codes
    assert all(model[label] == 1 for label in stay.once), model
    return model


def _live(engines: list[Nursery], stay: Stay, key: str, failpoint: str = "") -> list[int]:
    """All of them at once; how each ended."""
    life = Life(stay.name, key, failpoint, story="faults.stays:tell")
    with ThreadPoolExecutor(len(engines)) as lanes:
        return list(lanes.map(lambda births: births.live(life)["code"], engines))


def _kill_and_compare(
    stage: Stage, engines: list[Nursery], stay: Stay, n: int, model: Counter[str], tally: Tally
) -> bool:
    """False: all of them came through, there are no more points."""
    key = f"{stay.name}-{n}"
    codes = _live(engines, stay, key, f"{POINTS}:kill:after={n}")
    if strange := [code for code in codes if code not in (0, KILLED)]:
        raise RuntimeError(f"{key} ended with {strange} instead of being killed")
    if KILLED not in codes:
        return False
    tally.rounds += 1
    tally.kills += codes.count(KILLED)
    engines[0].bury()
    found = []
    if 0 not in codes:
        found += [f"the heir ended with {code}" for code in _live(engines[:1], stay, key) if code]
    found += _differences(stage, stay, key, model)
    if found:
        tally.violations += 1
        print(f"    {stay.name}, killed at point {n}: {'; '.join(found)}", flush=True)
    return True


def _differences(stage: Stage, stay: Stay, key: str, model: Counter[str]) -> list[str]:
    with psycopg.connect(stage.dsn) as connection:
        what, early = stays.happened(connection, key), stays.passed_early(connection, key)
    labels = sorted(label for label in model.keys() | what.keys() if model[label] != what[label])
    found = [f"{label}: {what[label]} times instead of {model[label]}" for label in labels]
    return found + early + judge(stage.dsn, stage.witness.entries(), letters=True).report().splitlines()
