"""S19: the disk under the database fills up and stays full: what was accepted is kept, what is not is said so.

A cluster of its own lives on a small file system in memory; a file takes the room that is left. Callers go on starting
instances. After a while the room comes back and the server is started again. Every start that was answered must end;
every other one must have been refused with an error that says the store is unavailable, and the workers must have
complained. Mounting a file system needs root: elsewhere a full run reports the figure as failed, because it was not
measured, and a short one says so and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faults import scene, sink
from faults.check import Verdict, judge
from faults.cluster import Cluster
from faults.fleet import Fleet
from faults.flows import journey
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from holdfast import Engine
from holdfast.errors import HoldfastError, StoreError

MEGABYTES = 220
SETTINGS = {"max_wal_size": "64MB", "min_wal_size": "32MB", "shared_buffers": "16MB", "max_connections": "60"}
COMPLAINTS = ("run out of", "No space left", "The database is away", "could not be renewed", "scan failed")


class CannotMount(Exception):
    """This account may not mount a file system."""


def run(profile: Profile, seed: int) -> list[Figure]:
    seconds = profile.seconds(full=30.0, short=3.0)
    try:
        with _small_disk() as place:
            return _figures(place, seconds, seed)
    except CannotMount as reason:
        print(f"    not measured: {reason}", flush=True)
        return [] if profile.is_short else [Figure("S19: disk full", None, NONE, seed, f"not measured: {reason}")]


@contextlib.contextmanager
def _small_disk() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="hf-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=755", "holdfast-faults", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        place.rmdir()
        raise CannotMount(mounted.stderr.strip() or "mount failed")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        place.rmdir()


def _figures(place: Path, seconds: float, seed: int) -> list[Figure]:
    cluster = Cluster(settings=SETTINGS, place=_inside(place))
    try:
        with tempfile.TemporaryDirectory(prefix="hf-stage-") as name, sink.running(Path(name)) as witness:
            aside = Path(name)
            stage = Stage(cluster, cluster.database(), witness, aside)
            with Fleet(stage.task(nap=0.01, worker={"lease": 2.0}), aside) as fleet:
                outcome = asyncio.run(_fill(stage, fleet, place, seconds))
                complaints = fleet.last_words(2000)
                said = stage.cluster.log_mentions("No space left on device")
                print(f"    the server said {said} times that no space is left", flush=True)
            verdict = judge(stage.dsn, stage.witness.entries(), started=outcome.accepted)
    finally:
        cluster.end()
    return outcome.figures(verdict, any(text in complaints for text in COMPLAINTS), seconds, seed)


def _inside(place: Path) -> Path:
    directory = place / "cluster"
    directory.mkdir()
    return directory


class Outcome:
    def __init__(self) -> None:
        self.accepted: dict[str, str] = {}
        self.refused = 0
        self.refused_while_full = 0
        self.untyped: list[str] = []
        self.is_full = False

    def figures(self, verdict: Verdict, complained: bool, seconds: float, seed: int) -> list[Figure]:
        for line in [*verdict.report(3).splitlines(), *self.untyped[:3]]:
            print(f"    {line}", flush=True)
        told = f"{len(self.accepted):,} starts accepted, {self.refused:,} refused, disk full for {seconds:.0f} s"
        hit = self.refused_while_full > 0
        return [
            Figure("S19: accepted work lost to a full disk", verdict.broken(), NONE, seed, told, hit),
            Figure(
                "S19: starts refused without a typed error",
                len(self.untyped),
                NONE,
                seed,
                f"of {self.refused:,} refused",
            ),
            Figure(
                "S19: alarms raised", int(complained and hit), Bar("≥", 1), seed, "by callers' errors and workers' logs"
            ),
        ]


async def _fill(stage: Stage, fleet: Fleet, place: Path, seconds: float) -> Outcome:
    outcome = Outcome()
    async with Engine(stage.dsn) as engine:
        await engine.publish(journey("work", 3))
        await asyncio.to_thread(fleet.grow, 2)
        caller = asyncio.create_task(_call(engine, outcome))
        await scene.until(lambda: len(outcome.accepted) > 50, 30, "work flows")
        filler = place / "filler"
        await asyncio.to_thread(_take_all, filler)
        outcome.is_full = True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:  # what the server frees is taken again
            await asyncio.to_thread(_take_all, filler)
            await asyncio.sleep(0.2)
        await scene.until(lambda: outcome.refused_while_full > 3, 60, "callers notice")
        outcome.is_full = False
        filler.unlink()
        await asyncio.to_thread(_up_again, stage)
        known = len(outcome.accepted)
        await scene.until(lambda: len(outcome.accepted) > known + 20, 60, "work flows again")
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    # A start whose answer was lost may have happened: it ends like the others, and nobody was told of it.
    await scene.until(lambda: not stage.unfinished(), 60, "everything accepted ends")
    return outcome


async def _call(engine: Engine, outcome: Outcome) -> None:
    number = 0
    while True:
        number += 1
        key = f"k{number}"
        try:
            instance: Any = await engine.start("work", {"n": number}, key=key)
            outcome.accepted[key] = str(instance.id)
            await asyncio.sleep(0.01)
        except StoreError:
            outcome.refused += 1
            outcome.refused_while_full += outcome.is_full
            await asyncio.sleep(0.05)
        except HoldfastError as other:
            outcome.refused += 1
            outcome.untyped.append(repr(other))
            await asyncio.sleep(0.05)


def _take_all(filler: Path) -> None:
    """Every byte there is, in ever smaller pieces."""
    with filler.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                if file.write(bytes(size)) < size:
                    size //= 2
            except OSError:
                size //= 2


def _up_again(stage: Stage) -> None:
    """The server may have survived, or given up; both are brought to the same point."""
    deadline = time.monotonic() + 60
    while True:
        try:
            stage.cluster.restart()
            stage.ask("select 1")
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
