"""Applications for `holdfast worker` in the tests of the command line. They tell the tests what they do by files in the
directory CLI_TEST_MARKS: who ran, who runs, whether they may go on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import Context, Engine, Flow, Retry

PARENT = Flow("parent").sub_flow("into", "child").build()
CHILD = Flow("child").sub_flow("on", "typo").build()
FLOW = (
    Flow("cli").step("hold", "hold", retry=Retry(attempts=5)).step("finish", "finish", retry=Retry(attempts=5)).build()
)
NOT_AN_ENGINE = 5


def marks() -> Path:
    return Path(os.environ["CLI_TEST_MARKS"])


def mark(kind: str, name: object) -> None:
    with (marks() / f"{kind}-{name}").open("a") as file:
        file.write("x")


async def hold(ctx: Context, data: Any) -> Any:
    """Goes on when `go` exists, or, if told a number of processes, when that many are at work."""
    mark("began", ctx.instance)
    mark("process", os.getpid())
    while not (marks() / "go").exists() and len(list(marks().glob("process-*"))) < data.get("processes", 1000):
        await asyncio.sleep(0.005)
    mark("held", ctx.instance)
    return data | {"pid": os.getpid()}


def finish(ctx: Context, data: Any) -> Any:
    mark("finished", ctx.instance)
    return data


def register(engine: Engine) -> Engine:
    engine.register("hold", hold)
    engine.register("finish", finish)
    return engine


def make() -> Engine:
    return register(Engine())


async def configure(engine: Engine) -> None:
    register(engine)
    await engine.publish(FLOW)


def empty() -> Engine:
    return Engine()


def only_a_consumer(engine: Engine) -> None:
    """An application without a handler of steps: all it does is to take facts of machines."""
    engine.consumer("ledger", env="prod").on()(lambda event: mark("took", f"{event.external_ref}-{event.lifecycle}"))
