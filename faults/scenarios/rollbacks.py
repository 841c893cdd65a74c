"""S25: a worker is killed, or loses its connection, at every point of a rollback, and the saga ends as without it.

For each shape of saga an undisturbed run is the model. Then one run per point, from the moment the rollback begins: the
process dies before its n-th statement, after its n-th COMMIT, before or after a handler; another one finishes. What is
left behind must be what the model left. Then the process lives and its connection is cut at the n-th statement, the
n-th COMMIT gets lost on the way, or only the answer to it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import psycopg

from faults import crew, sagas
from faults.check import judge
from faults.portrait import Portrait, counted, differences, portray
from faults.profile import Profile
from faults.proxy import Fate, door
from faults.report import NONE, Bar, Figure
from faults.sagas import SAGAS, Saga
from faults.scenarios.crash_points import FAR, KILLED, points, staged
from faults.scene import Stage
from faults.victim import Life, Nursery, nursery
from holdfast import Engine
from holdfast.core.model.status import TERMINAL

LANES: Final = 2
WORKER: Final = {"lease": 20.0, "scan": 5.0}
SURE_COMMITS: Final = 24  # every rollback has as many


@dataclass
class Tally:
    kills: dict[str, int] = field(default_factory=dict)
    cuts: int = 0
    lost: int = 0
    violations: int = 0

    def blame(self, what: str, found: list[str]) -> None:
        if found:
            self.violations += 1
            print(f"    {what}: {'; '.join(found)}", flush=True)


@dataclass(frozen=True)
class Share:
    """Which points are tried: one of so many, or a few of them."""

    strides: tuple[int, int, int]  # kills, cuts, lost COMMITs
    few: int = 0

    def of(self, kind: int, points: int, luck: random.Random) -> Sequence[int]:
        if self.few:
            return sorted(luck.sample(range(points), min(self.few, points)))
        stride = self.strides[kind]
        return range(luck.randrange(min(stride, points)), points, stride)


WHOLE: Final = Share((1, 9, 6))
FEW: Final = Share((1, 1, 1), few=1)
SHORT: Final = ("fork", "cancel", "too_late", "repaired")


def run(profile: Profile, seed: int) -> list[Figure]:
    names = list(SHORT if profile.is_short else SAGAS)
    share = FEW if profile.is_short else WHOLE
    with ThreadPoolExecutor(LANES) as lanes:
        ways = [(names[lane::LANES], random.Random(f"{seed} {lane}")) for lane in range(LANES)]
        tallies = list(lanes.map(lambda way: _lane(*way, share), ways))
    kills = {name: tally.kills[name] for name in names for tally in tallies if name in tally.kills}
    told = ", ".join(f"{name} {count}" for name, count in kills.items())
    killed, cut = sum(kills.values()), sum(tally.cuts for tally in tallies)
    lost = sum(tally.lost for tally in tallies)
    wrong = sum(tally.violations for tally in tallies)
    return [
        Figure("S25: rollbacks that ended otherwise", wrong, NONE, seed,
               f"of {killed} kills, {cut} cut connections, {lost} lost COMMITs and answers"),
        Figure("S25: crash points of rollbacks", killed, Bar("≥", profile.size(1000, 3)), seed, told),
    ]  # fmt: skip


def _lane(names: list[str], luck: random.Random, share: Share) -> Tally:
    tally = Tally()
    with staged() as stage:
        asyncio.run(_publish(stage))
        task = stage.task(nap=0.0, worker=WORKER, extras=[f"{crew.__name__}:register"])
        with nursery(task) as births:
            for name in names:
                Shape(stage, births, SAGAS[name], tally).enumerate(share, luck)
        verdict = judge(stage.dsn, stage.witness.entries(), ends=TERMINAL, letters=True)
        tally.blame("all of them", verdict.report().splitlines())
    return tally


async def _publish(stage: Stage) -> None:
    async with Engine(stage.dsn) as engine:
        await sagas.publish(engine)


class Shape:
    """All runs of one saga."""

    def __init__(self, stage: Stage, births: Nursery, saga: Saga, tally: Tally) -> None:
        self._stage = stage
        self._births = births
        self._saga = saga
        self._tally = tally
        self._passed = 0

    def enumerate(self, share: Share, luck: random.Random) -> None:
        model = self._run("model", f"{points()}:kill:after={FAR}", burnt=None)
        assert model is not None
        self._model = model
        self._kill(share.of(0, self._passed, luck))
        if not share.few:
            self._kill_the_rest()
        self._cut(share.of(1, self._passed, luck))
        self._lose(share.of(2, SURE_COMMITS, luck))

    def _kill(self, chosen: Iterable[int]) -> None:
        for n in chosen:
            self._dies_at(n)

    def _kill_the_rest(self) -> None:
        """No two runs have quite as many points: until one comes through."""
        for n in itertools.count(self._passed):
            if not self._dies_at(n):
                return

    def _dies_at(self, n: int) -> bool:
        died = self._run(f"kill {n}", f"{points()}:kill:after={n}", burnt=1) is not None
        self._tally.kills[self._saga.name] = self._tally.kills.get(self._saga.name, 0) + died
        return died

    def _cut(self, chosen: Iterable[int]) -> None:
        statements = [point for point in points().split("+") if point.startswith("statement.before.")]
        places = "+".join((*statements, "commit.after_commit"))
        for n in chosen:
            self._run(f"cut {n}", f"{places}:disconnect:after={n}", burnt=0)
            self._tally.cuts += 1

    def _lose(self, chosen: Iterable[int]) -> None:
        """The n-th COMMIT since the rollback began, or the answer to it."""
        fates: tuple[Fate, ...] = ("commit", "answer")
        for n, fate in itertools.product(chosen, fates):
            mark = self._stage.place / f"{self._saga.name}-{fate}-{n}"
            losing = Losing(fate, n, mark.exists)
            with door(self._stage.dsn, losing) as (_, through):
                self._run(f"{fate} {n}", "", burnt=0, dsn=through, mark=str(mark))
            self._tally.lost += losing.is_done

    def _run(self, what: str, failpoint: str, *, burnt: int | None, dsn: str = "", mark: str = "") -> Portrait | None:
        """What is left behind; None when a process that was to be killed came through. The model has no `burnt`."""
        name = self._saga.name
        key = f"{name}: {what}"
        with self._looking() as connection:
            before = counted(connection)
        story = f"{crew.__name__}:tell"
        ended = self._births.live(Life(name, key, failpoint, story=story, dsn=dsn, mark=mark))
        if burnt and ended["code"] == 0:
            return None
        if burnt and ended["code"] == KILLED:
            self._births.bury()
            ended = self._births.live(Life(name, key, story=story))
        elif burnt is None:
            self._passed = ended["passed"][0]
        if ended["code"]:
            self._tally.blame(key, [f"a process ended with {ended['code']}"])
        with self._looking() as connection:
            found = portray(connection, self._saga, key, self._stage.witness.entries(), before)
        if burnt is not None:
            self._tally.blame(key, differences(self._model, found, self._saga, burnt))
        else:
            self._tally.blame(key, found.wrong)
        return found

    def _looking(self) -> psycopg.Connection[tuple[object, ...]]:
        connection = psycopg.connect(self._stage.dsn)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return connection


class Losing:
    """The fate of one COMMIT, the n-th after the mark."""

    def __init__(self, fate: Fate, n: int, is_marked: Callable[[], bool]) -> None:
        self._fate: Fate = fate
        self._left = n
        self._is_marked = is_marked
        self.is_done = False

    def __call__(self) -> Fate:
        if self.is_done or not self._is_marked():
            return "pass"
        self._left -= 1
        self.is_done = self._left < 0
        return self._fate if self.is_done else "pass"
