"""Summary of an instance: its flow, its status, its start and end, and the actions of people with their reasons."""

from __future__ import annotations

import json as text_json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from holdfast.core.model.ids import CONTROL
from holdfast.core.model.status import TERMINAL
from holdfast.store.reads.instances import Step
from holdfast.views.labels import error_words, first_line
from holdfast.views.record import Record, document, fate_of
from holdfast.views.spans import shown, spoken


class Fact(NamedTuple):
    name: str
    value: str


# Actions of people on a whole instance; the summary lists the last of each kind.
DEEDS: Final = {
    "cancel": "cancelled",
    "abort": "aborted",
    "force_fail": "failed",
    "suspend": "paused",
    "resume": "resumed",
    "requeue": "requeued",
    "undo_again": "requeued",
    "migrate": "migrated",
    "rerun": "run again",
}
# The control rows that begin a status: the last of them dates it. Without one, the instance has had it from its start.
BEGINNINGS: Final = {
    "suspended": ("suspend",),
    "dlq": ("suspend",),
    "running": ("resume", "requeue", "rerun", "cancel"),
    "rolling_back": ("rollback", "resume", "undo_again"),
}


def facts_of(record: Record) -> Iterator[Fact]:
    """List the facts of an instance to see at a glance, as names and values."""
    instance = record.instance
    yield Fact("instance", instance.id)
    yield Fact("flow", f"{instance.flow} version {instance.flow_version}")
    yield Fact("status", _status(record))
    if progress := _progress(record):
        yield Fact("rollback", " · ".join(progress))
    if instance.created_at is not None:
        yield Fact("started", f"{shown(instance.created_at)}{_by(instance.created_by)}")
        if instance.completed_at is not None:
            yield Fact("ended", f"{shown(instance.completed_at)}, {_after(record)}")
    names = {"key": instance.key, "business key": instance.business_key, "sub-flow of": instance.parent_id}
    for name, value in names.items():
        if value is not None:
            yield Fact(name, value)
    yield from _deeds(record)
    if instance.error is not None and instance.status != "completed":
        yield Fact("error" if instance.status in TERMINAL else "last error", error_words(instance.error))
    yield Fact("input", _json(instance.input))
    if instance.status == "completed":
        yield Fact("result", _json(instance.data))


def _status(record: Record) -> str:
    instance = record.instance
    parts = [instance.status.replace("_", " ")]
    if instance.reason:
        parts.append(first_line(instance.reason))
    since = _since(record)
    if instance.status not in TERMINAL and since is not None:
        parts.append(f"for {spoken(record.now - since)}")
    return " · ".join(parts)


def _since(record: Record) -> datetime | None:
    """The time since which the instance has its status; a step that began a rollback dates it, too."""
    status = record.instance.status
    rows = [row for kind in BEGINNINGS.get(status, ()) for row in record.controls.get(kind, [])]
    if status == "rolling_back":
        rows += [row for row in record.steps if fate_of(row) == "rollback"]
    return max((row.closed_at or row.created_at for row in rows), default=record.instance.created_at)


def _progress(record: Record) -> list[str]:
    """The progress of the rollback, and the status it will end in."""
    planned = [row for row in record.compensations if row.status != "superseded"]
    begun = record.turned_back
    if not (planned or begun):
        return []
    said: list[str] = []
    if record.instance.status not in TERMINAL and begun:
        said.append(f"will end {begun[0]}")
    done = sum(row.status == "completed" for row in planned)
    broken = sum(row.status == "failed" for row in planned)
    point = _save_point(record)
    if begun and point is not None and not begun[1]:
        said.append(f"back to {point}")
    if planned:
        said.append(f"{done} of {len(planned)} steps undone" + (f", {broken} could not be" if broken else ""))
    return said


def _save_point(record: Record) -> str | None:
    """The last save point that the instance passed."""
    nodes = {} if record.graph is None else record.graph.nodes
    points = [
        (row.opened, name)
        for name, rows in record.visits.items()
        if name in nodes and nodes[name].traits.stops_rollback
        for row in rows
        if row.status == "completed"
    ]
    return max(points)[1] if points else None


def _deeds(record: Record) -> Iterator[Fact]:
    """List the interventions in their order, with time, actor and reason."""
    told = {deed: row for row in record.steps if row.kind == CONTROL and (deed := _deed(row))}
    for deed, row in sorted(told.items(), key=lambda pair: pair[1].opened):
        yield Fact(deed, f"{shown(row.created_at)}{_by(row.opened_by)}{_why(row)}")


def _deed(row: Step) -> str:
    """Name the action of a control row; empty if no person took it, but a failure or a timeout."""
    kind, detail = row.name.removeprefix("@"), document(row.detail)
    if kind == "rollback":
        return detail["target"] if detail.get("by") else ""
    return "" if detail.get("status") == "dlq" else DEEDS.get(kind, "")


def _why(row: Step) -> str:
    reason = document(row.detail).get("reason")
    return f": {first_line(reason)}" if reason else ""


def _by(actor: str | None) -> str:
    return f" by {actor}" if actor else ""


def _after(record: Record) -> str:
    instance = record.instance
    assert instance.completed_at is not None
    assert instance.created_at is not None
    return f"after {spoken(instance.completed_at - instance.created_at)}"


def _json(value: Any) -> str:
    return text_json.dumps(value, ensure_ascii=False)
