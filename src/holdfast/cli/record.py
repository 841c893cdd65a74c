"""Everything there is to tell about one instance, read once and laid out for drawing."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from holdfast.cli.place import Place
from holdfast.compiler.compiled import Compiled
from holdfast.core.ids import COMPENSATE, CONTROL, FORWARD
from holdfast.core.moments import to_datetime
from holdfast.core.renames import names_today
from holdfast.errors import DefinitionError, NotFound
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.reads import Event, Instance, Step
from holdfast.store.tasks import Task

MOST: Final = 1000  # tasks, letters and sub-flows of one instance
DEEPEST: Final = 3  # sub-flows inside each other that are told
MOST_CHILDREN: Final = 20  # sub-flows that are told of unless all are wanted; the others have only their ids


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
        """The forward rows of every node, by the name it has today, in the order they happened."""
        today = names_today((row.opened, msgspec.json.encode(row.detail)) for row in self.controls.get("migrate", []))
        return _grouped((today(step.name, step.opened), step) for step in self.steps if step.kind == FORWARD)

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
    def turned_back(self) -> tuple[str, bool] | None:
        """What the rollback leads to, and whether past every save point. A step that failed tells of it itself."""
        told = self.controls.get("rollback", [])
        if told:
            return told[-1].detail["target"], told[-1].detail["root"]
        return ("failed", False) if any(fate_of(step) == "rollback" for step in self.steps) else None

    @cached_property
    def controls(self) -> dict[str, list[Step]]:
        """What operators and the engine did to the whole instance, by kind: cancel, abort, suspend, rollback …"""
        return _grouped((step.name.removeprefix("@"), step) for step in self.steps if step.kind == CONTROL)

    @cached_property
    def started(self) -> dict[str, str]:
        """The sub-flow of every step that has one: the ids of both."""
        return {step.id: child for step in self.steps if (child := _child_of(step)) is not None}

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


def read_record(engine: Place, id: str, *, events: bool, now: datetime, everything: bool = False) -> Record:
    """The instance with its sub-flows, those of the first level before those of the next."""
    whole = _read(engine, id, events=events, now=now)
    left, level = MOST if everything else MOST_CHILDREN, [whole]
    for _ in range(DEEPEST):
        below: list[Record] = []
        for record in level:
            for step in _telling(record, everything)[: left - len(below)]:
                with suppress(NotFound):  # it could not be started, or is not kept any more
                    record.children[step] = _read(engine, record.started[step], events=False, now=now)
                    below.append(record.children[step])
        left, level = left - len(below), below
    return whole


def _telling(record: Record, everything: bool) -> list[str]:
    """The steps whose sub-flows are worth reading: one that completed has gone as its flow says."""
    return [
        step.id for step in record.steps if step.id in record.started and (everything or step.status != "completed")
    ]


def _read(engine: Place, id: str, *, events: bool, now: datetime) -> Record:
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


def fate_of(step: Step) -> str | None:
    """What became of the instance when the step failed."""
    return document(step.closing if step.kind == FORWARD else step.detail).get("fate")


def due_of(wait: dict[str, Any]) -> datetime | None:
    due = wait.get("due")
    return None if due is None else to_datetime(due)


def reference(wait: dict[str, Any]) -> str:
    """The id of what is waited for."""
    return str(UUID(bytes=base64.b64decode(wait["ref"])))


def _child_of(step: Step) -> str | None:
    """A step keeps what it waited for when it was opened."""
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
