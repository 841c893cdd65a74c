"""Incident lines: what one committed decision has to tell of failures, read off its events."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec

from holdfast.core.model.decision import Decision, Event
from holdfast.core.model.status import InstanceStatus
from holdfast.core.signals.results import STOPPED

if TYPE_CHECKING:
    from holdfast.core.model.program import Program

LONGEST: Final = 500  # characters of a message in a line
SECOND: Final = 1_000_000

_RETRIED: Final = frozenset({"step_retried", "compensation_retried"})
_FAILED: Final = frozenset({"step_failed", "compensation_failed"})
_ENDED: Final = frozenset({"step_failed", "step_skipped"})  # while the instance stops
_PARKED: Final = {"instance_suspended": "suspended", "instance_dlq": "dead letter"}
_LOUD: Final = _RETRIED | _ENDED | _FAILED | _PARKED.keys() | {
    "step_completed", "step_finished_late", "rollback_started", "instance_failed"
}  # fmt: skip

Kind = Literal["call", "late", "rollback", "stopped", "asked", "letter"]


class Line(msgspec.Struct, frozen=True):
    """Content of one log line."""

    kind: Kind
    what: str
    level: int
    step: str | None
    attempt: int | None
    error: str | None
    next: str
    status: str = ""  # of an instance that stopped


def lines_of(decision: Decision, program: Program | None, now: int) -> Iterator[Line]:
    """The incidents of one decision, in the order of its events."""
    for event in decision.events:
        if event.type in _LOUD:
            yield from _lines(decision, program, event, now)
    for letter in decision.letters:
        what = f"Dead letter {UUID(bytes=letter.id)} opened"
        yield Line("letter", what, logging.ERROR, letter.node, letter.calls, letter.reason, "dead letter")


def _lines(decision: Decision, program: Program | None, event: Event, now: int) -> Iterator[Line]:
    detail: dict[str, Any] = {} if event.detail is None else msgspec.json.decode(event.detail)
    error = None if "code" not in detail else short(f"{detail['code']}: {detail.get('message', '')}")
    calls = detail.get("calls", 1)
    if event.type in _RETRIED:
        what, next = f"{_noun(event)} failed, retry follows", _retry(decision, program, event, calls, now)
        yield Line("call", what, logging.WARNING, event.node, calls, error, next)
    elif event.type in _FAILED and error is not None:
        what, next = f"{_noun(event)} failed", _fate(decision, event)
        yield Line("call", what, logging.ERROR, event.node, calls, error, next)
    elif event.type == "step_completed" and not _is_told(decision, event) and (kept := _error_of_row(decision, event)):
        what, next = "Step failed, its flow goes on", "the flow goes on"
        yield Line("call", what, logging.WARNING, event.node, calls, kept, next)
    elif event.type in _ENDED and (kept := _error_of_row(decision, event)):
        what = "Step failed while its instance stops"
        yield Line("call", what, logging.WARNING, event.node, calls, kept, "rollback")
    elif event.type == "step_finished_late" and not detail.get("succeeded", True):
        yield Line("late", "Cancelled step failed late", logging.WARNING, event.node, None, error, "nothing")
    elif event.type == "rollback_started":
        what, reason = f"Rollback begins, to end {detail['target']}", detail.get("reason")
        yield Line("rollback", what, logging.WARNING, None, None, _text(reason), "rollback")
    elif event.type == "instance_failed":
        reason = _text(detail.get("reason"))
        yield Line("stopped", "Instance failed", logging.ERROR, None, None, reason, "nothing", "failed")
    elif event.type in _PARKED:
        fate, reason = _PARKED[event.type], _text(detail.get("reason"))
        next = f"{fate}, until it is resumed or requeued"
        if event.actor == "system" or event.node is not None:
            what, status = f"Instance stands still: {fate}", event.type.removeprefix("instance_")
            yield Line("stopped", what, logging.WARNING, event.node, None, reason, next, status)
        else:
            yield Line("asked", f"Instance {fate} by an operator", logging.INFO, None, None, reason, next)


def _retry(decision: Decision, program: Program | None, event: Event, calls: int, now: int) -> str:
    """Describe the retry: a lost call is followed by another one at once, the last failure of a decision may wait for a
    timer.
    """
    path = (event.token or "").rpartition("@")[0]
    due = next((t.due for t in decision.timers if t.purpose == "retry" and t.path == path), None)
    place = None if program is None else program.places.get(event.node or "")
    most = "" if place is None else f" of {max(place.retry.calls, calls + 1)}"
    when = "at once" if due is None else f"in {max(0, due - now) / SECOND:g} s"
    return f"retry: attempt {calls + 1}{most} {when}"


def _fate(decision: Decision, failed: Event) -> str:
    """The consequence of a step's final failure."""
    if failed.type == "compensation_failed":
        return "dead letter, the rollback goes on"
    later = {event.type for event in decision.events if event.ordinal > failed.ordinal}
    if "instance_dlq" in later or any(letter.token == failed.token for letter in decision.letters):
        return "dead letter"
    for type, next in (
        ("rollback_started", "rollback"),
        ("instance_suspended", "suspended"),
        ("instance_failed", "the instance fails"),
    ):
        if type in later:
            return next
    if any(e.token == failed.token and e.type == "step_completed" for e in decision.events):
        return "the flow goes on: best effort"
    if decision.instance.status in (InstanceStatus.SUSPENDED, InstanceStatus.DLQ):
        return "decided when the instance is resumed"
    return "the flow goes on by another way"


def _is_told(decision: Decision, completed: Event) -> bool:
    return any(e.token == completed.token and e.type == "step_failed" for e in decision.events)


def _error_of_row(decision: Decision, event: Event) -> str | None:
    """The failure that only a step's row tells: of a handler that came back while its instance was stopping, or at
    best effort."""
    raw = next((c.error for c in decision.closed if c.node == event.node and c.error is not None), None)
    if raw is None:
        return None
    error = msgspec.json.decode(raw)
    return None if error["code"] == STOPPED else short(f"{error['code']}: {error['message']}")


def traceback_of(decision: Decision, line: Line) -> str | None:
    """The stored traceback of a failed call; a line of a lost call has none."""
    if line.error is None or line.error.startswith("LEASE_LOST"):
        return None
    stored = [decision.error, *(r.error for r in decision.retried), *(c.error for c in decision.closed)]
    for raw in stored:
        error: dict[str, Any] = {} if raw is None else msgspec.json.decode(raw)
        detail: dict[str, Any] | None = error.get("detail")
        if detail and "traceback" in detail and line.error.startswith(str(error["code"])[: LONGEST - 1]):
            return str(detail["traceback"])
    return None


def short(text: str) -> str:
    """The first line of a text, cut to what a log line has room for."""
    line = text.partition("\n")[0]
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _text(reason: object) -> str | None:
    return None if reason is None else short(str(reason))


def _noun(event: Event) -> str:
    return "Compensation" if event.type.startswith("compensation") else "Step"
