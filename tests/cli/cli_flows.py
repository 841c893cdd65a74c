"""Flows for the tests of what an operator sees, and a way to run the command on them."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any, NamedTuple

import pytest

from holdfast import Branch, Context, Flow, Retry, SyncEngine, Undo
from holdfast.cli import main

WAITING: dict[str, Any] = {
    "name": "waiting",
    "entry": "all",
    "nodes": [
        {"id": "all", "kind": "split"},
        {"id": "again", "kind": "task", "handler": "refuse", "retry": {"calls": 5, "delay": 3600.0}},
        {"id": "later", "kind": "wait_timer", "delay": 7200.0},
        {"id": "paid", "kind": "wait_event", "wait": {"event": "payment", "key": "input.order"}},
        {"id": "lost", "kind": "task", "handler": "nobody"},
        {"id": "met", "kind": "join", "mode": "all"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "1", "source": "all", "target": "again", "priority": 1},
        {"id": "2", "source": "all", "target": "later", "priority": 2},
        {"id": "3", "source": "all", "target": "paid", "priority": 3},
        {"id": "4", "source": "all", "target": "lost", "priority": 4},
        {"id": "again>", "source": "again", "target": "met"},
        {"id": "later>", "source": "later", "target": "met"},
        {"id": "paid>", "source": "paid", "target": "met", "on": "payment"},
        {"id": "lost>", "source": "lost", "target": "met"},
        {"id": "met>", "source": "met", "target": "end"},
    ],
}

ORDER = (
    Flow("order")
    .step("reserve", "do", undo=Undo("undo", name="release"))
    .save_point("reserved")
    .condition("big", "input.amount > 100", otherwise=Branch().step("small", "do"))
    .fork(
        "fulfil",
        Branch().step("ship", "do", undo=Undo("undo", name="unship")),
        Branch().step("bill", "do", undo=Undo("refuse", name="refund")),
    )
    .join("fulfilled", "all")
    .human("approve", roles=["manager"])
    .step("notify", "refuse", retry=Retry(attempts=2))
    .build()
)

REPAIR = (
    Flow("repair", dlq=True)
    .fork("both", Branch().step("fine", "do"), Branch().step("broken", "weigh"))
    .join("met", "all")
    .build()
)

TWICE = (
    Flow("twice", dlq=True)
    .fork("both", Branch().step("left", "weigh"), Branch().step("right", "weigh"))
    .join("met", "all")
    .build()
)


async def do(ctx: Context, data: Any) -> Any:
    return data


async def undo(ctx: Context, data: Any) -> None:
    return None


async def refuse(ctx: Context, data: Any) -> None:
    raise ValueError("the bank is closed,\nand nobody knows for how long it will be, or whether it ever opens again")


async def weigh(ctx: Context, data: Any) -> Any:
    return {"weight": data["grams"] / 1000}


def prepared(engine: SyncEngine) -> None:
    """All flows published, all handlers but `nobody` offered."""
    for handler in (do, undo, refuse, weigh):
        engine.register(handler.__name__, handler)
    for flow in (WAITING, ORDER, REPAIR, TWICE):
        engine.publish(flow)


def started(dsn: str, flow: str, input: Any, **options: Any) -> str:
    """An instance that has gone as far as it goes."""
    with SyncEngine(dsn) as engine:
        prepared(engine)
        id = engine.start(flow, input, **options).id
        engine.drain(timeout=30)
    return id


def drained(dsn: str) -> None:
    with SyncEngine(dsn) as engine:
        prepared(engine)
        engine.drain(timeout=30)


class Done(NamedTuple):
    code: int
    output: str
    errors: str


def run(dsn: str, *arguments: str, columns: int = 80) -> Done:
    """The command in this process: as `command`, without the time a process takes to begin."""
    output, errors = io.StringIO(), io.StringIO()
    surroundings = {"HOLDFAST_DSN": dsn, "COLUMNS": str(columns), "NO_COLOR": "1"}
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        for name, value in surroundings.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["holdfast", *arguments])
        patch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as ended:
            main()
    return Done(int(ended.value.code or 0), output.getvalue(), errors.getvalue())


def told(dsn: str, *arguments: str, columns: int = 80) -> str:
    done = run(dsn, *arguments, columns=columns)
    assert done.code == 0, done.errors
    return done.output


def answered(dsn: str, *arguments: str) -> Any:
    return json.loads(told(dsn, *arguments, "--json"))


def refused(dsn: str, *arguments: str) -> tuple[int, str]:
    """The exit code and the code of the error."""
    done = run(dsn, *arguments)
    return done.code, done.errors.partition("]")[0].removeprefix("[")
