"""Record: all rows of one instance, read once and laid out for drawing.

The caller reads them: a command from an engine or a server, a page of the console from an engine.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, cast
from uuid import UUID

import msgspec

from holdfast.core.model.ids import COMPENSATE, CONTROL, FORWARD
from holdfast.core.model.renames import names_today
from holdfast.core.model.timestamps import to_datetime
from holdfast.graph.compiled import Compiled
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.reads.instances import Event, Instance, Step
from holdfast.store.tasks import Task


class Record:
    def __init__(
        self,
        instance: Instance,
        graph: Compiled | None,
        steps: Sequence[Step],
        tasks: Sequence[Task],
        letters: Sequence[DeadLetter],
        events: Sequence[Event] | None,
        now: datetime,
    ) -> None:
        self.instance = instance
        self.graph = graph  # None: it cannot be read any more
        self.steps = steps
        self.tasks = tasks
        self.letters = letters
        self.events = events
        self.now = now
        self.children: dict[str, Record] = {}  # by the step that started them, as far as they were read

    @cached_property
    def visits(self) -> dict[str, list[Step]]:
        """The forward rows of every node, by the node's name of today, in their order."""
        today = names_today((row.opened, msgspec.json.encode(row.detail)) for row in self.controls.get("migrate", []))
        return _grouped((today(step.name, step.opened), step) for step in self.steps if step.kind == FORWARD)

    @cached_property
    def undone(self) -> dict[str, list[Step]]:
        """The compensations of steps, by the id of the step they undo."""
        return _grouped((_undoes(step), step) for step in self.compensations)

    @cached_property
    def compensations(self) -> list[Step]:
        return [step for step in self.steps if step.kind == COMPENSATE]

    @cached_property
    def planned(self) -> int:
        """The number of compensations in the plan of the rollback."""
        return sum(step.run == 0 for step in self.compensations)

    @cached_property
    def turned_back(self) -> tuple[str, bool] | None:
        """The status a rollback leads to, and whether it passes every save point.

        A rollback that a failed step began has no control row: it leads to "failed" and stops at a save point.
        """
        told = self.controls.get("rollback", [])
        if told:
            return told[-1].detail["target"], told[-1].detail["root"]
        return ("failed", False) if any(fate_of(step) == "rollback" for step in self.steps) else None

    @cached_property
    def controls(self) -> dict[str, list[Step]]:
        """The actions of operators and the engine on the whole instance, by kind: cancel, abort, suspend, rollback …"""
        return _grouped((step.name.removeprefix("@"), step) for step in self.steps if step.kind == CONTROL)

    @cached_property
    def started(self) -> dict[str, str]:
        """The ids of sub-flows, by the id of the step that started them."""
        return {step.id: child for step in self.steps if (child := _child_of(step)) is not None}

    @cached_property
    def tasks_by_step(self) -> dict[str, list[Task]]:
        return _grouped((task.step_id, task) for task in self.tasks)

    @cached_property
    def letters_by_step(self) -> dict[str, list[DeadLetter]]:
        """The letters by their step; letters about anything but a step are under the empty name."""
        return _grouped((_step_of(letter), letter) for letter in self.letters)

    @cached_property
    def _moved(self) -> dict[str, Any]:
        return {row.detail["was"]: row.detail["wait"] for row in self.controls.get("reschedule", [])}

    def waits(self, step: Step) -> list[dict[str, Any]]:
        """The waits of an open step, each with the time it was last rescheduled to."""
        waits: list[dict[str, Any]] = list(document(step.detail).get("waits", ()))
        retry = document(step.error).get("retry")
        if retry and step.attempts == retry.get("after"):
            waits.append(retry["wait"])
        return [self._latest(wait) for wait in waits]

    def _latest(self, wait: dict[str, Any]) -> dict[str, Any]:
        while wait["id"] in self._moved:
            wait = self._moved[wait["id"]]
        return wait


def document(value: Any) -> dict[str, Any]:
    """Take a JSON object of a row; an empty one stands for anything else."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def fate_of(step: Step) -> str | None:
    """The consequence for the instance when the step failed: rollback, for example."""
    return document(step.closing if step.kind == FORWARD else step.detail).get("fate")


def due_of(wait: dict[str, Any]) -> datetime | None:
    due = wait.get("due")
    return None if due is None else to_datetime(due)


def reference(wait: dict[str, Any]) -> str:
    """The id that a wait refers to: of a task, an effect or a sub-flow."""
    return str(UUID(bytes=base64.b64decode(wait["ref"])))


def _child_of(step: Step) -> str | None:
    """The id of a step's sub-flow, from the waits that its row has kept since its opening."""
    waits: list[dict[str, Any]] = document(step.detail).get("waits", []) if step.kind == FORWARD else []
    return next((reference(wait) for wait in waits if wait["kind"] == "child" and wait.get("ref")), None)


def _undoes(step: Step) -> str:
    undoes = document(step.detail).get("undoes")
    return str(UUID(hex=undoes)) if undoes else ""


def _step_of(letter: DeadLetter) -> str:
    step = document(letter.envelope).get("step")
    try:
        return str(UUID(step)) if isinstance(step, str) else ""
    except ValueError:
        return ""


def _grouped(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for name, value in pairs:
        groups[name].append(value)
    return dict(groups)
