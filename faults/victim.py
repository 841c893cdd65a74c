"""Processes that die where they are told to: `python -m faults.victim <life as JSON>`.

It loads the engine once and then forks one process per line on its standard input. Such a process is a caller and a
worker in one: it starts an instance, serves it, and goes away when the instance is over, unless its failpoint comes
first. A life with a `story` does what that function says instead, and sets its failpoint when the story comes to the
part that matters. The answer to a line is how the process ended and how many points it passed.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import psycopg

from faults.client import SPACE
from faults.report import ROOT
from faults.worker import Hands, Task, named, opened
from holdfast import Engine
from holdfast.core.people.ownership import OVER
from holdfast.testing.failpoints import arm as set_failpoints
from holdfast.testing.failpoints import parse
from holdfast.testing.injection import Failpoint
from holdfast.testing.wiring import wire

EXPIRE = "update holdfast.workers set lease_until = clock_timestamp() where lease_until > clock_timestamp()"
PATIENCE = 60.0
PERSON = "ann"


@dataclass
class Life:
    """What one process does: an instance of `flow` under `key`, its event if it waits for one, the decision of its
    task if it has one; `lingers` until nothing is left in the outbox either."""

    flow: str
    key: str
    failpoint: str = ""
    keyed: bool = True  # False: started without a key, in the commit that opens its first step
    event: str = ""
    decision: str = ""
    lingers: bool = False
    input: dict[str, Any] = field(default_factory=dict)
    story: str = ""  # "module:function", called with (engine, hands, life)
    mark: str = ""  # a file that is there from the moment the failpoint is set
    dsn: str = ""  # another way to the same database


class Trap:
    """The failpoint of a life, not set yet. Statements travel one by one from the beginning, so that only the kill
    itself tells a life with a failpoint from one without."""

    def __init__(self, points: list[Failpoint], mark: str) -> None:
        self._points = points
        self._mark = mark
        wire()

    def set(self) -> None:
        """The first time; later ones change nothing."""
        points, self._points = self._points, []
        set_failpoints(points)
        if self._mark:
            Path(self._mark).touch()


async def live(task: Task, life: Life, points: list[Failpoint]) -> None:
    hands = Hands(task)
    engine = await opened(task, hands)
    if life.story:
        hands.trap = Trap(points, life.mark)
        async with engine.worker(**task.worker):
            await named(life.story)(engine, hands, life)
        await engine.close()
        return
    set_failpoints(points)  # now: a process that dies before it has a connection did nothing
    async with engine.worker(**task.worker):
        id = await begin(engine, life)
        if id is not None:
            if life.event:
                await engine.signal_key(life.event, life.key, {"for": life.key}, id=uuid5(SPACE, life.key))
            if life.decision:
                await decide(engine, life, id)
            await engine.wait(id, timeout=PATIENCE)
        if id is None or life.lingers:
            await engine.drain(timeout=PATIENCE)
    await engine.close()


async def decide(engine: Engine, life: Life, instance: UUID | str) -> None:
    """A person who does not know whether they were heard asks again, with the same decision."""
    async with asyncio.timeout(PATIENCE):
        while not (tasks := await engine.tasks(instance)):
            await asyncio.sleep(0.005)
    [task] = tasks
    if task.status not in OVER:
        await engine.claim(task.id, by=PERSON)
    await engine.decide(task.id, by=PERSON, decision=life.decision, id=uuid5(SPACE, life.key))


async def begin(engine: Engine, life: Life) -> UUID | str | None:
    """None: there is nothing to begin, only something to finish."""
    given = {"key": life.key, **life.input}
    if life.keyed:
        return (await engine.start(life.flow, given, key=life.key)).id
    return (await engine.start(life.flow, given)).id if life.failpoint else None


def fork(task: Task, life: Life) -> dict[str, Any]:
    if life.dsn:
        task = replace(task, dsn=life.dsn)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        points = parse(life.failpoint)
        try:
            asyncio.run(live(task, life, points))
        except BaseException:
            logging.exception("a life went wrong: %s", life)
            os._exit(1)
        os.write(writing, json.dumps([point.hits for point in points]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        passed = answer.read()
    _, status = os.waitpid(child, 0)
    return {"code": os.waitstatus_to_exitcode(status), "passed": json.loads(passed or b"[]")}


class Nursery:
    """The harness's end of such a process."""

    def __init__(self, process: subprocess.Popen[str], dsn: str) -> None:
        self._process = process
        self._dsn = dsn

    def live(self, life: Life) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(life)) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def bury(self) -> None:
        """A dead process renews nothing: its lease is over now instead of some seconds later."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(EXPIRE)


@contextmanager
def nursery(task: Task, environment: Mapping[str, str] | None = None) -> Iterator[Nursery]:
    process = subprocess.Popen(
        [sys.executable, "-m", "faults.victim", json.dumps(asdict(task))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield Nursery(process, task.dsn)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(name)s %(message)s")
    for module in (extra.partition(":")[0] for extra in task.extras):
        importlib.import_module(module)  # once, for all that are forked
    for patch in task.patches:
        importlib.import_module(patch).apply()
    for text in sys.stdin:
        print(json.dumps(fork(task, Life(**json.loads(text)))), flush=True)


if __name__ == "__main__":
    main()
