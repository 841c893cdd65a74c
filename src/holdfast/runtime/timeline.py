"""What happened in an instance as one story: its steps from opening to end, and what happened to it in between.

Audit events that only say that a step was opened or closed are left out, because the step says it already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from holdfast.store.reads import Event, Step
from holdfast.store.tasks import Task

if TYPE_CHECKING:
    from holdfast.runtime.edge import Id
    from holdfast.runtime.engine import Engine

MOST: Final = 1000  # of each kind
_TOLD_BY_STEPS: Final = frozenset(
    {"step_started", "step_waiting", "step_passed", "step_completed", "step_skipped", "step_cancelled"}
)


class Entry(msgspec.Struct, frozen=True):
    """One line. `until` and `seconds` are None for moments, and for what goes on."""

    at: datetime
    kind: Literal["step", "event", "task"]
    name: str
    token: str | None = None
    status: str | None = None
    actor: str | None = None
    until: datetime | None = None
    attempts: int | None = None
    detail: Any = None

    @property
    def seconds(self) -> float | None:
        return None if self.until is None else max(0.0, (self.until - self.at).total_seconds())


async def read_timeline(
    engine: Engine, instance_id: Id, tells: Callable[[str | None], bool] = lambda _: True
) -> tuple[list[Entry], bool]:
    """The first entries of an instance in order, and whether there are more than are told; only steps that `tells`
    lets through, by name."""
    steps = await engine.steps(instance_id, limit=MOST)
    events = await engine.events(instance_id, limit=MOST)
    tasks = await engine.tasks(instance_id, limit=MOST)
    entries = timeline(
        (step for step in steps if tells(step.name)),
        (event for event in events if tells(event.node)),
        (task for task in tasks if tells(task.node)),
    )
    return entries, any(len(found) == MOST for found in (steps, events, tasks))


def timeline(steps: Iterable[Step], events: Iterable[Event], tasks: Iterable[Task]) -> list[Entry]:
    entries = [
        *(_step(step) for step in steps if step.behaviour != "control"),
        *(_event(event) for event in events if event.type not in _TOLD_BY_STEPS),
        *(_task(task) for task in tasks),
    ]
    return sorted(entries, key=lambda entry: (entry.at, ("event", "step", "task").index(entry.kind)))


def _step(step: Step) -> Entry:
    return Entry(
        step.created_at, "step", step.name, step.token, step.status, step.closed_by or step.opened_by, step.closed_at,
        step.attempts, step.error,
    )  # fmt: skip


def _event(event: Event) -> Entry:
    return Entry(event.created_at, "event", event.type, event.token, None, event.actor, detail=event.detail)


def _task(task: Task) -> Entry:
    holder = task.decided_by or task.assignee
    return Entry(task.created_at, "task", task.node, task.token, task.status, holder, task.closed_at)
