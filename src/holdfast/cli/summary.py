"""The head of what `holdfast show` prints: which instance, how it stands, who did what to it and why."""

from __future__ import annotations

import json as text_json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from holdfast.cli.record import Record, document, fate_of
from holdfast.cli.spans import shown, spoken
from holdfast.cli.tree import fit
from holdfast.cli.wording import error_words, first_line
from holdfast.core.ids import CONTROL
from holdfast.core.status import TERMINAL
from holdfast.store.reads import Step

STYLES: Final = {
    "completed": "green",
    "failed": "bold red",
    "dlq": "bold red",
    "suspended": "yellow",
    "rolling_back": "bold magenta",
    "cancelled": "magenta",
    "aborted": "magenta",
}
# What people do to a whole instance; the last one of each kind is told.
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
# What an instance stands as it does since: the last of these rows. Where there is none, it has never been otherwise.
BEGINNINGS: Final = {
    "suspended": ("suspend",),
    "dlq": ("suspend",),
    "running": ("resume", "requeue", "rerun", "cancel"),
    "rolling_back": ("rollback", "resume", "undo_again"),
}


def summary(record: Record, width: int) -> list[Text]:
    facts = list(_facts(record))
    column = max(len(name) for name, _, _ in facts)
    return [
        Text.assemble((name.ljust(column), "dim"), "  ", (fit(value, width - column - 2), style))
        for name, value, style in facts
    ]


Fact = tuple[str, str, str]


def _facts(record: Record) -> Iterator[Fact]:
    instance = record.instance
    yield "instance", instance.id, "bold"
    yield "flow", f"{instance.flow} version {instance.flow_version}", ""
    yield "status", _status(record), STYLES.get(instance.status, "cyan")
    if progress := _progress(record):
        yield "rollback", " · ".join(progress), "magenta"
    if instance.created_at is not None:
        yield "started", f"{shown(instance.created_at)}{_by(instance.created_by)}", ""
        if instance.completed_at is not None:
            yield "ended", f"{shown(instance.completed_at)}, {_after(record)}", ""
    names = {"key": instance.key, "business key": instance.business_key, "sub-flow of": instance.parent_id}
    for name, value in names.items():
        if value is not None:
            yield name, value, ""
    yield from _deeds(record)
    if instance.error is not None and instance.status != "completed":
        yield "error" if instance.status in TERMINAL else "last error", error_words(instance.error), "red"
    yield "input", _json(instance.input), ""
    if instance.status == "completed":
        yield "result", _json(instance.data), ""


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
    """When the instance came to stand as it does. A step that turned it back tells of that itself."""
    status = record.instance.status
    rows = [row for kind in BEGINNINGS.get(status, ()) for row in record.controls.get(kind, [])]
    if status == "rolling_back":
        rows += [row for row in record.steps if fate_of(row) == "rollback"]
    return max((row.closed_at or row.created_at for row in rows), default=record.instance.created_at)


def _progress(record: Record) -> list[str]:
    """How far the rollback is and what it will lead to."""
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
    """The last one that was passed."""
    nodes = {} if record.graph is None else record.graph.nodes
    points = [
        (row.opened, name)
        for name, rows in record.visits.items()
        if name in nodes and nodes[name].kind == "save_point"
        for row in rows
        if row.status == "completed"
    ]
    return max(points)[1] if points else None


def _deeds(record: Record) -> Iterator[Fact]:
    """Who intervened, when and why, in the order it happened."""
    told = {deed: row for row in record.steps if row.kind == CONTROL and (deed := _deed(row))}
    for deed, row in sorted(told.items(), key=lambda pair: pair[1].opened):
        yield deed, f"{shown(row.created_at)}{_by(row.opened_by)}{_why(row)}", ""


def _deed(row: Step) -> str:
    """What was done, or nothing if nobody wanted it: a failure parks an instance, and its time turns it back."""
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
