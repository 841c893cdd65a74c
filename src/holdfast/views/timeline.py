"""Timeline of an instance: its steps from opening to end, events and tasks in between, and bars for their duration.

Audit events that only repeat the opening or end of a step are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from holdfast.core.model.status import TERMINAL
from holdfast.store.reads.instances import Event, Instance, Step
from holdfast.store.tasks import Task
from holdfast.views.labels import error_words, first_line, said, told_state
from holdfast.views.record import document

_TOLD_BY_STEPS: Final = frozenset(
    {"step_started", "step_waiting", "step_passed", "step_completed", "step_skipped", "step_cancelled"}
)
_KINDS: Final = ("event", "step", "task")  # of one moment, in this order


class Entry(msgspec.Struct, frozen=True):
    """One line of the timeline. `until` and `seconds` are None for events, and for steps and tasks still open."""

    at: datetime
    kind: Literal["step", "event", "task"]
    name: str
    token: str | None = None
    status: str | None = None
    actor: str | None = None
    until: datetime | None = None
    attempts: int | None = None
    detail: Any = None
    failed: bool | None = None  # of a step: it failed itself, even if it was compensated since
    undo: str | None = None  # of a step: the state of its compensation: running, done, failed

    @property
    def seconds(self) -> float | None:
        return None if self.until is None else max(0.0, (self.until - self.at).total_seconds())


def timeline(steps: Iterable[Step], events: Iterable[Event], tasks: Iterable[Task]) -> list[Entry]:
    """List steps, events and tasks by revision, then by time: commits of the same time keep their order."""
    visits = list(steps)
    opened = {(step.token, step.began_at): step.opened[0] for step in visits}
    last = max(opened.values(), default=0)
    lines = [
        *((step.opened[0], _step(step)) for step in visits if step.behaviour != "control"),
        *((event.version, _event(event)) for event in events if event.type not in _TOLD_BY_STEPS),
        *((opened.get((task.token, task.created_at), last), _task(task)) for task in tasks),
    ]
    return [entry for _, entry in sorted(lines, key=_place)]


def _place(line: tuple[int, Entry]) -> tuple[int, datetime, int]:
    revision, entry = line
    return revision, entry.at, _KINDS.index(entry.kind)


def _step(step: Step) -> Entry:
    return Entry(
        at=step.began_at,
        kind="step",
        name=step.name,
        token=step.token,
        status=step.status,
        actor=step.closed_by or step.opened_by,
        until=step.closed_at,
        attempts=step.attempts,
        detail=step.error,
        failed=step.failed,
        undo=step.undo,
    )


def _event(event: Event) -> Entry:
    return Entry(event.created_at, "event", event.type, event.token, None, event.actor, detail=event.detail)


def _task(task: Task) -> Entry:
    holder = task.decided_by or task.assignee
    return Entry(task.created_at, "task", task.node, task.token, task.status, holder, task.closed_at)


# --- as bars ------------------------------------------------------------------------------------------------------

_WORK: Final = frozenset({"work", "call"})  # behaviours that do something; the others only wait or pass
_PASSED: Final = frozenset({"pass", "join", "end", "control"})  # behaviours that take no time
_UNTOLD: Final = frozenset(  # events that the bars show already
    {"instance_started", "instance_completed", "decision_made", "rollback_planned", "scope_opened", "branch_arrived",
     "join_completed", "token_ended", "compensation_started", "compensation_completed", "step_failed", "timer_fired",
     "event_received", "step_delayed"}
)  # fmt: skip


class Bar(NamedTuple):
    """A bar from `begin` to `end`, in seconds since the start of the instance."""

    name: str
    begin: float
    end: float
    kind: Literal["work", "wait", "moment"]
    is_open: bool
    words: str
    state: str = ""  # of a step


def bars(
    instance: Instance, entries: Sequence[Entry], steps: Sequence[Step], tasks: Sequence[Task], now: datetime
) -> list[Bar]:
    """Lay out a timeline as bars: steps that take time, and events that no step shows."""
    began = instance.created_at or now
    behaviours = {(step.name, step.token): step.behaviour for step in steps}
    names = {step.token: step.name for step in steps}
    deciders = {task.token: task.decided_by or task.assignee for task in tasks}
    found: list[Bar] = []
    for entry in entries:
        key = entry.name, entry.token or ""
        begin = (entry.at - began).total_seconds()
        if entry.kind == "event" and entry.name not in _UNTOLD:
            found.append(Bar(entry.name, begin, begin, "moment", False, _event_words(entry, names)))
        elif entry.kind == "step" and behaviours.get(key) not in _PASSED:
            is_open = entry.until is None and instance.status not in TERMINAL
            end = ((now if is_open else entry.until or entry.at) - began).total_seconds()
            sign = "work" if behaviours.get(key) in _WORK else "wait"
            words = _step_words(entry, deciders.get(entry.token or ""))
            found.append(Bar(entry.name, begin, end, sign, is_open, words, _state(entry)))
    return found


def _step_words(entry: Entry, person: str | None) -> str:
    is_queued = entry.status == "running" and not entry.attempts
    parts = ["queued" if is_queued else said(_state(entry))]
    parts += [f"{entry.attempts} calls"] if (entry.attempts or 0) > 1 else []
    parts += [f"by {person}"] if person else []
    parts += [error_words(entry.detail)] if (entry.failed or entry.status == "paused") and entry.detail else []
    return " · ".join(parts)


def _state(entry: Entry) -> str:
    return told_state(entry.status or "", failed=entry.failed, undo=entry.undo)


def _event_words(entry: Entry, names: Mapping[str, str]) -> str:
    detail = document(entry.detail)
    told = next((str(detail[name]) for name in ("message", "reason", "code", "event") if detail.get(name)), "")
    by = f"by {entry.actor}" if entry.actor and entry.actor != "system" else ""
    return " · ".join(part for part in (names.get(entry.token or "", ""), by, first_line(told)) if part)
