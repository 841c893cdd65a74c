"""Suggestions: the actions a person can take on an instance now, as commands to copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.graph.rules import rules_of
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.tasks import Task
from holdfast.views.labels import error_words
from holdfast.views.record import Record, document


class Suggestion(NamedTuple):
    about: str
    command: str


def suggestions(record: Record) -> Iterator[Suggestion]:
    """List, for an instance and its sub-flows, each open matter with the command that settles it."""
    instance = record.instance
    for task in record.tasks:
        if task.closed_at is None:
            due = "" if task.due_at is None else f", due {task.due_at:%Y-%m-%d %H:%M}"
            yield Suggestion(f"{task.node} waits for a person{due}", _answer(task, record))
    for letter in record.letters:
        yield Suggestion(_about(letter), f"holdfast requeue {letter.id} --by NAME --reason WHY")
    if instance.status == "suspended":
        what = "The instance" if instance.parent_id is None else f"The sub-flow {instance.flow}"
        yield Suggestion(f"{what} is paused", f"holdfast resume {instance.id} --by NAME")
    for child in record.children.values():
        yield from suggestions(child)


def _answer(task: Task, record: Record) -> str:
    """Write the command that answers a task: `advance` in a workflow of steps, `tasks decide` elsewhere."""
    graph = record.graph
    if graph is None or not rules_of(graph.kind).takes_events or task.node not in graph.adjacency:
        return f"holdfast tasks decide {task.id} confirmed --by NAME"
    events = dict.fromkeys(graph.edges[id].on for id in graph.adjacency[task.node])
    offered = [event for event in events if event not in ("error", "timeout")]
    return f"holdfast advance {task.instance_id} {'|'.join(offered)} --by NAME"


def _about(letter: DeadLetter) -> str:
    node = document(letter.envelope).get("node")
    what = f"{letter.source} {node}" if node else letter.source
    why = error_words(letter.error) if letter.error else letter.reason
    return f"Dead letter of the {what}: {why}"
