"""Labels of one step: its state, duration, calls, waits and error."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from holdfast.core.model.status import OPEN_STEP
from holdfast.graph.compiled import Compiled
from holdfast.graph.model import Behaviour, Node
from holdfast.store.reads.instances import Step
from holdfast.store.tasks import Task
from holdfast.views.record import Record, document, due_of, reference
from holdfast.views.spans import shown, spoken

UNREACHED: Final = "unreached"
QUEUED: Final = "queued"
RETRYING: Final = "retrying"
FAILED_UNDONE: Final = "failed_undone"
FAILED_UNDOING: Final = "failed_undoing"
FAILED_STUCK: Final = "failed_stuck"
STUCK: Final = "stuck"
RETRY: Final = "retry"  # the kind of wait behind the state RETRYING

_SAID: Final = {
    FAILED_UNDONE: "failed · undone",
    FAILED_UNDOING: "failed · being undone",
    FAILED_STUCK: "failed · not undone",
    STUCK: "done · not undone",
}
_OUTSIDE: Final = frozenset({Behaviour.WORK, Behaviour.CALL})  # behaviours with calls and retries


def state_of(step: Step, record: Record) -> str:
    """The state of a step: its status, but a running step may only be queued, or wait for its next call.

    A step that failed itself shows it even after its compensation; a step that completed, and whose compensation
    failed, does not count as failed.
    """
    if step.status == "running" and step.behaviour in _OUTSIDE:
        if any(wait["kind"] == RETRY for wait in record.waits(step)):
            return RETRYING
        return "running" if step.attempts else QUEUED
    undos = [row for row in record.undone.get(step.id, []) if row.status != "superseded"]
    is_stuck = step.status == "failed" and bool(undos) and undos[-1].status == "failed"
    return told_state(step.status, failed=step.failed, undo="failed" if is_stuck else step.undo)


def told_state(status: str, *, failed: bool | None, undo: str | None) -> str:
    if undo == "failed":
        return FAILED_STUCK if failed else STUCK
    if failed and undo is not None:
        return FAILED_UNDONE if undo == "done" else FAILED_UNDOING
    return status


def said(state: str) -> str:
    """Write a state in words."""
    return _SAID.get(state) or state.replace("_", " ")


def words_of(step: Step, node: Node | None, record: Record) -> str:
    """The state of a visit, with the facts that matter in that state."""
    state = state_of(step, record)
    passes = step.behaviour in ("pass", "join") and step.status == "completed"
    parts = [] if passes else [said(state)]
    parts += [promise_of(node, record.graph)] if node is not None and _is_landmark(node) else []
    if step.status in OPEN_STEP:
        parts += _open_words(step, state, node, record)
    elif step.behaviour not in ("pass", "join") and step.closed_at is not None:
        parts.append(spoken(step.closed_at - step.began_at))
        parts += [f"{step.attempts} calls"] if step.attempts > 1 else []
    parts += _decisions(record.tasks_by_step.get(step.id, []))
    parts += _findings(step)
    return " · ".join(parts)


def _open_words(step: Step, state: str, node: Node | None, record: Record) -> list[str]:
    if state == "pending":
        return []
    age = spoken(record.now - step.began_at)
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
    """Name a sub-flow by its id and, if it was read, its status and flow."""
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
    """The events on the edges of a node that names them nowhere else."""
    if record.graph is None or node is None or not node.traits.listens_to_edges:
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
    """The results of a condition's expressions, with the variables they read."""
    evaluated: list[dict[str, Any]] = document(step.closing).get("evaluated", [])
    return [
        f"{one['expression']} is {str(one['result']).lower()}"
        + "".join(f" ({name} = {value})" for name, value in one.get("variables", {}).items())
        for one in evaluated
    ]


def error_of(step: Step) -> str:
    """The error of a step on one line; empty if the step has ended well since."""
    is_past = step.status in ("completed", "confirmed", "cancelled", "skipped")
    return "" if step.error is None or is_past else error_words(step.error)


def error_words(error: Any) -> str:
    facts = document(error)
    code, message = str(facts.get("code", "")), first_line(str(facts.get("message") or ""))
    return f"{code}: {message}" if code and message else code or message


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def promise_of(node: Node, graph: Compiled | None) -> str:
    """The label of a node that was not reached yet, for its future action."""
    traits = node.traits
    if traits.branches and traits.behaviour is Behaviour.PASS and graph is not None:
        edges = (graph.edges[id] for id in graph.adjacency[node.id])
        return " or ".join(f"if {edge.when}" for edge in edges if edge.when is not None)
    if traits.behaviour is Behaviour.JOIN:
        return f"join of {node.mode or 'all'}"
    if traits.starts_flow and node.child is not None:
        return f"sub-flow {node.child.flow}"
    return traits.promise


def _is_landmark(node: Node) -> bool:
    return node.traits.splits or node.traits.stops_rollback or node.behaviour is Behaviour.JOIN
