"""Everything there is to tell about one instance, read once and laid out for drawing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, cast
from uuid import UUID

from holdfast.cli.place import Place
from holdfast.compiler.compiled import Compiled
from holdfast.core.ids import COMPENSATE, CONTROL, FORWARD
from holdfast.core.moments import to_datetime
from holdfast.errors import DefinitionError, NotFound
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.reads import Event, Instance, Step
from holdfast.store.tasks import Task

MOST: Final = 1000  # tasks and letters of one instance


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

    @cached_property
    def visits(self) -> dict[str, list[Step]]:
        """The forward rows of every node, in the order they happened."""
        return _grouped((step.name, step) for step in self.steps if step.kind == FORWARD)

    @cached_property
    def undone(self) -> dict[str, list[Step]]:
        """The compensations of every step that has some, by its id."""
        return _grouped((_undoes(step), step) for step in self.compensations)

    @cached_property
    def compensations(self) -> list[Step]:
        return [step for step in self.steps if step.kind == COMPENSATE]

    @cached_property
    def planned(self) -> int:
        """How many compensations the rollback had in its plan."""
        return sum(step.run == 0 for step in self.compensations)

    @cached_property
    def controls(self) -> dict[str, list[Step]]:
        """What operators and the engine did to the whole instance, by kind: cancel, abort, suspend, rollback …"""
        return _grouped((step.name.removeprefix("@"), step) for step in self.steps if step.kind == CONTROL)

    @cached_property
    def tasks_by_step(self) -> dict[str, list[Task]]:
        return _grouped((task.step_id, task) for task in self.tasks)

    @cached_property
    def letters_by_step(self) -> dict[str, list[DeadLetter]]:
        """The open letters about steps; what else has become a letter is under the empty name."""
        return _grouped((_step_of(letter), letter) for letter in self.letters)

    @cached_property
    def _moved(self) -> dict[str, Any]:
        return {row.detail["was"]: row.detail["wait"] for row in self.controls.get("reschedule", [])}

    def waits(self, step: Step) -> list[dict[str, Any]]:
        """What an open step waits for, at the moments it was last rescheduled to."""
        waits: list[dict[str, Any]] = list(document(step.detail).get("waits", ()))
        retry = document(step.error).get("retry")
        if retry and step.attempts == retry.get("after"):
            waits.append(retry["wait"])
        return [self._latest(wait) for wait in waits]

    def _latest(self, wait: dict[str, Any]) -> dict[str, Any]:
        while wait["id"] in self._moved:
            wait = self._moved[wait["id"]]
        return wait


def read_record(engine: Place, id: str, *, events: bool, now: datetime) -> Record:
    instance = engine.get(id)
    return Record(
        instance,
        _graph_of(engine, instance),
        engine.steps(id, all=True),
        engine.tasks(id, limit=MOST),
        engine.dead_letters(id, limit=MOST),
        engine.events(id) if events else None,
        now,
    )


def _graph_of(engine: Place, instance: Instance) -> Compiled | None:
    try:
        return engine.flow(instance.flow, instance.flow_version).graph
    except (DefinitionError, NotFound):
        return None  # its steps can still be told


def document(value: Any) -> dict[str, Any]:
    """What a row keeps as JSON, where there may also be nothing."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def due_of(wait: dict[str, Any]) -> datetime | None:
    due = wait.get("due")
    return None if due is None else to_datetime(due)


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
