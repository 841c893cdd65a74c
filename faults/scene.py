"""What a scenario stands on: a database, a witness, a directory, and patience for conditions."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from faults import cluster, sink
from faults.cluster import Cluster
from faults.sink import Sink
from faults.worker import Task

UNFINISHED = """
select (select count(*) from holdfast.instances where status <> 'completed' and completed_at is null)
    + (select count(*) from holdfast.effects where status not in ('completed', 'dead_letter'))
"""


class TooLate(Exception):
    """A condition did not come true in time."""


@dataclass
class Stage:
    cluster: Cluster
    dsn: str
    witness: Sink
    place: Path

    def task(self, **wishes: Any) -> Task:
        return Task(**{"dsn": self.dsn, "sink": self.witness.port, "gate": str(self.gate), **wishes})

    @property
    def gate(self) -> Path:
        return self.place / "gate"

    def ask(self, question: str, *values: Any) -> Any:
        """The first value of the first row."""
        rows = cluster.ask(self.dsn, question, *values)
        return rows[0][0] if rows else None

    def unfinished(self) -> int:
        """Instances that are not over and effects that are not delivered."""
        return self.ask(UNFINISHED)


@contextmanager
def prepared(*, movable_clock: bool = False) -> Iterator[Stage]:
    place = Path(tempfile.mkdtemp(prefix="hf-stage-"))
    try:
        with cluster.database(movable_clock=movable_clock) as (server, dsn), sink.running(place) as witness:
            yield Stage(server, dsn, witness, place)
    finally:
        shutil.rmtree(place)


async def until(condition: Callable[[], Any], patience: float, what: str = "") -> Any:
    """The first true answer. A plain condition runs in a thread; a database that is away has no answer yet."""
    deadline = time.monotonic() + patience
    while True:
        try:
            answer = await asyncio.to_thread(condition)
            if isinstance(answer, Awaitable):
                answer = await answer
        except psycopg.OperationalError:
            answer = None
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TooLate(f"not within {patience:.0f} s: {what or condition}")
        await asyncio.sleep(0.02)
