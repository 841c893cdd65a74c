"""What a person can do about an instance now, as commands to copy; they are never cut to fit the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from holdfast.cli.record import Record, document
from holdfast.cli.tree import fit
from holdfast.cli.wording import error_words
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.tasks import Task


def remedies(record: Record, width: int) -> list[Text]:
    return [Text.assemble((fit(about, width), "dim"), f"\n  {command}") for about, command in _commands(record)]


def _commands(record: Record) -> Iterator[tuple[str, str]]:
    instance = record.instance
    for task in record.tasks:
        if task.closed_at is None:
            due = "" if task.due_at is None else f", due {task.due_at:%Y-%m-%d %H:%M}"
            yield f"{task.node} waits for a person{due}", _answer(task, record)
    for letter in record.letters:
        yield _about(letter), f"holdfast requeue {letter.id} --by NAME --reason WHY"
    if instance.status == "suspended":
        what = "The instance" if instance.parent_id is None else f"The sub-flow {instance.flow}"
        yield f"{what} is paused", f"holdfast resume {instance.id} --by NAME"
    for child in record.children.values():
        yield from _commands(child)


def _answer(task: Task, record: Record) -> str:
    """A workflow of steps is advanced by events; any other task is decided."""
    graph = record.graph
    if graph is None or graph.kind != "steps" or task.node not in graph.adjacency:
        return f"holdfast tasks decide {task.id} confirmed --by NAME"
    events = dict.fromkeys(graph.edges[id].on for id in graph.adjacency[task.node])
    offered = [event for event in events if event not in ("error", "timeout")]
    return f"holdfast advance {task.instance_id} {'|'.join(offered)} --by NAME"


def _about(letter: DeadLetter) -> str:
    node = document(letter.envelope).get("node")
    what = f"{letter.source} {node}" if node else letter.source
    why = error_words(letter.error) if letter.error else letter.reason
    return f"Dead letter of the {what}: {why}"
