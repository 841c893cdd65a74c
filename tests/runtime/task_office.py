"""Flows with people in them, and what tests of tasks do again and again."""

from __future__ import annotations

from typing import Any

from holdfast import Context, Engine, Flow
from holdfast.errors import HoldfastError
from holdfast.store.tasks import Task


async def keep(ctx: Context, data: Any) -> Any:
    return data


EXPENSE = (
    Flow("expense")
    .step("collect", keep)
    .human("approve", form={"type": "object"}, roles=["manager", "board"], due=3600, priority=80)
    .step("pay", keep)
    .build()
)
REVIEW: dict[str, Any] = {
    "name": "review",
    "entry": "review",
    "nodes": [
        {"id": "review", "kind": "human", "due": 60.0},
        {"id": "rework", "kind": "human"},
        {"id": "end", "kind": "end"},
        {"id": "late", "kind": "end"},
    ],
    "edges": [
        {"id": "yes", "source": "review", "target": "end", "on": "approved"},
        {"id": "no", "source": "review", "target": "rework", "on": "rejected"},
        {"id": "slow", "source": "review", "target": "late", "on": "timeout"},
        {"id": "again", "source": "rework", "target": "review"},
    ],
}


async def ask(engine: Engine, flow: str = "expense", input: Any = None) -> Task:
    """A new instance, run up to its task."""
    instance = await engine.start(flow, {"amount": 5} if input is None else input)
    await engine.drain(timeout=30)
    [task] = await engine.tasks(instance.id)
    return task


async def history(engine: Engine, task: Task) -> list[str]:
    return [event.type for event in await engine.task_events(task.id)]


async def code_of(act: Any) -> str:
    try:
        await act
    except HoldfastError as refusal:
        return refusal.code
    return "done"
