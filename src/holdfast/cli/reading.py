"""Read everything about one instance, from an engine or a server, for `holdfast show`."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Final

from holdfast.cli.target import Place
from holdfast.errors import DefinitionError, NotFound
from holdfast.graph.compiled import Compiled
from holdfast.store.reads.instances import Instance
from holdfast.views.record import Record

MOST: Final = 1000  # tasks, letters and sub-flows of one instance
DEEPEST: Final = 3  # levels of sub-flows that are read
MOST_CHILDREN: Final = 20  # sub-flows that are read unless all are wanted; the others have only their ids


def read_record(engine: Place, id: str, *, events: bool, now: datetime, everything: bool = False) -> Record:
    """Read an instance with its sub-flows, those of the first level before those of the next."""
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
    """List the steps whose sub-flows are worth reading: a completed one has gone as its flow says."""
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
