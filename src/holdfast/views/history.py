"""Audit trail of a workflow in its users' words, derived from the rows of its steps, which are immutable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from holdfast.core.model.program import Program
from holdfast.core.model.signals import SYSTEM
from holdfast.core.model.status import InstanceStatus
from holdfast.store.reads.instances import Instance, Step

_DONE: Final = frozenset({"completed", "confirmed", "rejected"})
_APPROVED: Final = frozenset({"approved", "approve", "confirmed", "confirm"})
_REJECTED: Final = frozenset({"rejected", "reject"})
_OUT_OF_TIME: Final = frozenset({"timeout", "expired"})
_CANCELLED: Final = frozenset({InstanceStatus.CANCELLED, InstanceStatus.ABORTED})
_OPERATED: Final = frozenset({"resumed", "requeued", "rerun"})
_STOPS: Final = frozenset({"@cancel", "@abort"})

_Place = tuple[int, int, int]  # version, ordinal, and the number among the events of one row


class HistoryEvent(msgspec.Struct, frozen=True):
    """One event of the history. `step` is None if it is about the whole workflow."""

    event: str
    step: str | None
    actor: str
    timestamp: datetime | None
    data: Any = None
    comment: str | None = None


def history(view: Instance, steps: Iterable[Step], program: Program) -> list[HistoryEvent]:
    visits = list(steps)
    told = [line for step in visits for line in _visit(step, view, program)]
    told.sort(key=lambda line: line[0])
    return [event for _, event in told] + list(_end(view, visits))


def _visit(step: Step, view: Instance, program: Program) -> Iterator[tuple[_Place, HistoryEvent]]:
    if step.kind == "control":
        if step.name == "@expire":
            yield (*step.opened, 0), HistoryEvent("timeout", None, SYSTEM.id, step.created_at)
        return
    yield (*step.opened, 0), HistoryEvent("step_entered", step.name, _who_entered(step, view), step.began_at)
    if step.closed is not None and step.behaviour != "end":
        for ordinal, event in enumerate(_closing(step, program), 1):
            yield (*step.closed, ordinal), event


def _who_entered(step: Step, view: Instance) -> str:
    """The actor of a step's start: the starter or an operator, else the system; the step before names its person."""
    actor = view.created_by if step.cause == "started" else step.opened_by if step.cause in _OPERATED else None
    return actor or SYSTEM.id


def _closing(step: Step, program: Program) -> Iterator[HistoryEvent]:
    actor, at, outcome = step.closed_by or SYSTEM.id, step.closed_at, step.outcome or ""
    comment = _comment(step)
    if outcome in _OUT_OF_TIME:
        yield HistoryEvent("timeout", step.name, SYSTEM.id, at, _failure(step.error))
    elif step.error is not None:
        yield HistoryEvent("step_failed", step.name, actor, at, _failure(step.error))
    if step.status in _DONE:
        yield HistoryEvent("step_completed", step.name, actor, at, step.output, comment)
    if step.behaviour == "rest" and (outcome in _APPROVED or outcome in _REJECTED):
        name = "approved" if outcome in _APPROVED else "rejected"
        yield HistoryEvent(name, step.name, actor, at, step.output, comment)
    for edge in step.chosen_edge_ids or ():
        yield HistoryEvent("transition", step.name, actor, at, {"event": outcome, "to": _target(program, step, edge)})


def _end(view: Instance, steps: list[Step]) -> Iterator[HistoryEvent]:
    if view.status == InstanceStatus.COMPLETED:
        yield HistoryEvent("workflow_completed", None, SYSTEM.id, view.completed_at)
    elif view.status == InstanceStatus.FAILED:
        data = _failure(view.error) or {"code": view.reason}
        yield HistoryEvent("workflow_failed", None, SYSTEM.id, view.completed_at, data)
    elif view.status in _CANCELLED:
        actor = next((step.opened_by for step in reversed(steps) if step.name in _STOPS), None)
        yield HistoryEvent("cancelled", None, actor or SYSTEM.id, view.completed_at, comment=view.reason)


def _target(program: Program, step: Step, edge: str) -> str | None:
    place = program.places.get(step.name)
    ways = () if place is None else (way for group in place.ways.values() for way in group)
    return next((way.target for way in ways if way.id == edge), None)


def _comment(step: Step) -> str | None:
    return object_of(step.closing).get("comment")


def _failure(error: Any) -> dict[str, Any] | None:
    """The code and message of an error, without the details, which are for operators."""
    told = object_of(error)
    return {"code": told.get("code"), "message": told.get("message")} if told else None


def object_of(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
