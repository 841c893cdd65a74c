"""What one step says of itself: its state, how long, how often, what it waits for, what went wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

from holdfast.cli.record import Record, document, due_of, reference
from holdfast.cli.spans import shown, spoken
from holdfast.compiler.compiled import Compiled
from holdfast.compiler.graph import Behaviour, Node
from holdfast.core.status import OPEN_STEP
from holdfast.store.reads import Step
from holdfast.store.tasks import Task


class Look(NamedTuple):
    glyph: str
    plain: str  # where the terminal has no such signs
    style: str


UNREACHED: Final = "unreached"
QUEUED: Final = "queued"
RETRYING: Final = "retrying"
RETRY: Final = "retry"  # the kind of wait that makes it so

LOOKS: Final[dict[str, Look]] = {
    UNREACHED: Look("·", ".", "dim"),
    QUEUED: Look("○", "o", "cyan"),
    RETRYING: Look("◐", "%", "yellow"),
    "pending": Look("○", "o", "cyan"),
    "running": Look("●", "*", "bold cyan"),
    "waiting": Look("◔", "@", "yellow"),
    "waiting_decision": Look("?", "?", "bold yellow"),
    "completed": Look("✓", "+", "green"),
    "confirmed": Look("✓", "+", "green"),
    "rejected": Look("✗", "x", "bold red"),
    "failed": Look("✗", "x", "bold red"),
    "paused": Look("‖", "!", "bold red"),
    "skipped": Look("–", "-", "dim"),
    "cancelled": Look("–", "-", "dim"),
    "compensation": Look("↶", "<", "bold magenta"),
    "rolled_back": Look("↩", "<", "magenta"),
    "superseded": Look("~", "~", "dim"),
}
_SHAPES: Final = frozenset({"split", "join", "save_point"})
_OUTSIDE: Final = frozenset({Behaviour.WORK, Behaviour.CALL})  # behaviours that are called, and called again


def state_of(step: Step, record: Record) -> str:
    """The step's status; one that runs may only be queued, or wait for its next call."""
    if step.status == "running" and step.behaviour in _OUTSIDE:
        if any(wait["kind"] == RETRY for wait in record.waits(step)):
            return RETRYING
        return "running" if step.attempts else QUEUED
    return step.status


def words_of(step: Step, node: Node | None, record: Record) -> str:
    """The state of a visit and all that matters about it at that moment."""
    state = state_of(step, record)
    passes = step.behaviour in ("pass", "join") and step.status == "completed"
    parts = [] if passes else [state.replace("_", " ")]
    parts += [promise_of(node, record.graph)] if node is not None and node.kind in _SHAPES else []
    if step.status in OPEN_STEP:
        parts += _open_words(step, state, node, record)
    elif step.behaviour not in ("pass", "join") and step.closed_at is not None:
        parts.append(spoken(step.closed_at - step.created_at))
        parts += [f"{step.attempts} calls"] if step.attempts > 1 else []
    parts += _decisions(record.tasks_by_step.get(step.id, []))
    parts += _findings(step)
    return " · ".join(parts)


def _open_words(step: Step, state: str, node: Node | None, record: Record) -> list[str]:
    if state == "pending":
        return []
    age = spoken(record.now - step.created_at)
    if state == QUEUED:
        return [f"for {age}", f"no worker has taken {_handler(step, node)} yet"]
    calls = node.retry.calls if node is not None and node.retry is not None else 1
    counted = [f"call {step.attempts} of {calls}"] if calls > 1 and state == "running" else []
    counted += [f"{step.attempts} of {calls} calls failed"] if state == RETRYING else []
    waits = [words for wait in record.waits(step) if (words := wait_words(wait, record))]
    return [f"for {age}", *counted, *waits, *_events(step, node, record)]


def _handler(step: Step, node: Node | None) -> str:
    name = step.name if node is None or node.handler is None else node.handler
    return f"handler {name!r}" if node is None or node.queue is None else f"queue {node.queue!r}"


_REFERENCES: Final = {"receipt": "effect", "task": "task"}
_UNTIL: Final = {
    RETRY: "next call",
    "timer": "until",
    "deadline": "deadline",
    "due": "due",
    "expiry": "expires",
}


def wait_words(wait: dict[str, Any], record: Record) -> str:
    kind, due = wait["kind"], due_of(wait)
    if kind in _UNTIL:
        return f"{_UNTIL[kind]} {when(due, record.now)}"
    if kind == "event":
        return f"for event {wait['event']}" + (f" with key {wait['key']}" if wait.get("key") else "")
    return ""


def references_of(step: Step, record: Record) -> list[str]:
    """The effect or task an open step waits for, with its id."""
    waits = document(step.detail).get("waits", ()) if step.status in OPEN_STEP else ()
    return [f"{_REFERENCES[w['kind']]} {reference(w)}" for w in waits if w["kind"] in _REFERENCES and w.get("ref")]


def child_words(id: str, child: Record | None) -> str:
    """A sub-flow with its id and, where it was read, what it is and how it stands."""
    if child is None:
        return f"sub-flow {id}"
    instance = child.instance
    parts = [f"sub-flow {id}", instance.status.replace("_", " "), f"{instance.flow} version {instance.flow_version}"]
    return " · ".join(parts)


def when(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "somebody sets a time"
    distance = f"in {spoken(moment - now)}" if moment > now else f"{spoken(now - moment)} ago"
    return f"{shown(moment)} ({distance})"


def _events(step: Step, node: Node | None, record: Record) -> list[str]:
    """Of a node that only its edges tell what it waits for."""
    if record.graph is None or node is None or node.kind != "state":
        return []
    edges = (record.graph.edges[id] for id in record.graph.adjacency[node.id])
    names = dict.fromkeys(edge.on for edge in edges if edge.on not in ("completed", "error", "timeout"))
    return [f"for {' or '.join(names)}"] if names else []


def _decisions(tasks: list[Task]) -> list[str]:
    said: list[str] = []
    for task in tasks:
        if task.closed_at is None:
            said += [f"for {', '.join(task.roles)}"] if task.roles else []
            said += [f"in the hands of {task.assignee}"] if task.assignee else []
        elif task.decided_by is not None:
            said.append(f"by {task.decided_by}" + (f": {first_line(task.comment)}" if task.comment else ""))
    return said


def _findings(step: Step) -> list[str]:
    """What a condition found."""
    evaluated: list[dict[str, Any]] = document(step.closing).get("evaluated", [])
    return [
        f"{one['expression']} is {str(one['result']).lower()}"
        + "".join(f" ({name} = {value})" for name, value in one.get("variables", {}).items())
        for one in evaluated
    ]


def error_of(step: Step) -> str:
    """What went wrong, on one line."""
    is_past = step.status in ("completed", "confirmed", "cancelled", "skipped")
    return "" if step.error is None or is_past else error_words(step.error)


def error_words(error: Any) -> str:
    facts = document(error)
    code, message = str(facts.get("code", "")), first_line(str(facts.get("message") or ""))
    return f"{code}: {message}" if code and message else code or message


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def promise_of(node: Node, graph: Compiled | None) -> str:
    """What a node that was not reached yet will do."""
    if node.kind == "condition" and graph is not None:
        edges = (graph.edges[id] for id in graph.adjacency[node.id])
        return " or ".join(f"if {edge.when}" for edge in edges if edge.when is not None)
    if node.kind == "join":
        return f"join of {node.mode or 'all'}"
    if node.kind == "sub_flow" and node.child is not None:
        return f"sub-flow {node.child.flow}"
    return {"split": "fork", "task": "", "wait_timer": "timer"}.get(node.kind, node.kind.replace("_", " "))
