"""`holdfast timeline`: what happened in an instance and how long it took, as bars below one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich.text import Text

from holdfast.cli.output import console
from holdfast.cli.output import show as show_facts
from holdfast.cli.place import anywhere, place
from holdfast.cli.record import document
from holdfast.cli.spans import shown, spoken
from holdfast.cli.tree import fit
from holdfast.cli.wording import LOOKS, error_words, first_line
from holdfast.core.status import TERMINAL
from holdfast.runtime.timeline import Entry
from holdfast.runtime.timeline import timeline as told_in_order
from holdfast.store.reads import Instance, Step
from holdfast.store.tasks import Task

MOST: Final = 1000  # tasks of one instance
NARROWEST: Final = 72
SHORTEST_BAR: Final = 16
WIDEST_NAME: Final = 28
_SIGNS: Final = {"work": "█", "wait": "░", "moment": "◆", "open": "▶"}
_PLAIN: Final = {"work": "#", "wait": ":", "moment": "*", "open": ">"}
_WORK: Final = frozenset({"work", "call"})  # behaviours that do something; the others only wait or pass
_PASSED: Final = frozenset({"pass", "join", "end", "control"})  # behaviours that take no time
_UNTOLD: Final = frozenset(  # what the bars say already
    {"instance_started", "instance_completed", "decision_made", "rollback_planned", "scope_opened", "branch_arrived",
     "join_completed", "token_ended", "compensation_started", "compensation_completed", "step_failed", "timer_fired",
     "event_received", "step_delayed"}
)  # fmt: skip


class Row(NamedTuple):
    name: str
    begin: float  # seconds since the start
    end: float
    sign: str  # of _SIGNS
    is_open: bool
    words: str
    style: str


@anywhere
def timeline(
    instance: Annotated[str, typer.Argument(metavar="ID", help="The instance's id.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What happened in an instance, in order, with how long each step took or has been waiting."""
    with place() as engine:
        found = engine.get(instance)
        steps, events = engine.steps(instance, all=True), engine.events(instance)
        tasks = engine.tasks(instance, limit=MOST)
    entries = told_in_order(steps, events, tasks)
    if json:
        show_facts({"instance": msgspec.to_builtins(found), "entries": [_plain(one) for one in entries]}, json=True)
    else:
        _print(found, _rows(found, entries, steps, tasks, datetime.now(UTC)))


def _plain(entry: Entry) -> dict[str, Any]:
    return {**msgspec.to_builtins(entry), "seconds": entry.seconds}


def _rows(
    instance: Instance, entries: Sequence[Entry], steps: Sequence[Step], tasks: Sequence[Task], now: datetime
) -> list[Row]:
    began = instance.created_at or now
    behaviours = {(step.name, step.token): step.behaviour for step in steps}
    names = {step.token: step.name for step in steps}
    deciders = {task.token: task.decided_by or task.assignee for task in tasks}
    rows: list[Row] = []
    for entry in entries:
        key = entry.name, entry.token or ""
        begin = (entry.at - began).total_seconds()
        if entry.kind == "event" and entry.name not in _UNTOLD:
            rows.append(Row(entry.name, begin, begin, "moment", False, _event_words(entry, names), "dim"))
        elif entry.kind == "step" and behaviours.get(key) not in _PASSED:
            is_open = entry.until is None and instance.status not in TERMINAL
            end = ((now if is_open else entry.until or entry.at) - began).total_seconds()
            sign = "work" if behaviours.get(key) in _WORK else "wait"
            look = LOOKS.get(entry.status or "", LOOKS["unreached"])
            words = _step_words(entry, deciders.get(entry.token or ""))
            rows.append(Row(entry.name, begin, end, sign, is_open, words, look.style))
    return rows


def _step_words(entry: Entry, person: str | None) -> str:
    is_queued = entry.status == "running" and not entry.attempts
    parts = ["queued" if is_queued else (entry.status or "").replace("_", " ")]
    parts += [f"{entry.attempts} calls"] if (entry.attempts or 0) > 1 else []
    parts += [f"by {person}"] if person else []
    parts += [error_words(entry.detail)] if entry.status in ("failed", "paused") and entry.detail else []
    return " · ".join(parts)


def _event_words(entry: Entry, names: Mapping[str, str]) -> str:
    detail = document(entry.detail)
    told = next((str(detail[name]) for name in ("message", "reason", "code", "event") if detail.get(name)), "")
    by = f"by {entry.actor}" if entry.actor and entry.actor != "system" else ""
    return " · ".join(part for part in (names.get(entry.token or "", ""), by, first_line(told)) if part)


def _print(instance: Instance, rows: Sequence[Row]) -> None:
    screen = console()
    has_signs = screen.encoding.lower().startswith("utf")
    signs = _SIGNS if has_signs else _PLAIN
    span = max((row.end for row in rows), default=0.0) or 1e-3
    names = min(max((len(row.name) for row in rows), default=0), WIDEST_NAME)
    spans = [_span(row) for row in rows]
    lengths = max(map(len, spans), default=0)
    width = max(screen.width, NARROWEST)
    words = min(max((len(row.words) for row in rows), default=0), (width - names - lengths - 6) // 2)
    bars = max(SHORTEST_BAR, width - names - lengths - words - 6)
    lines = [_head(instance, span), Text(), _scale(names, bars, span)]
    for row, length in zip(rows, spans, strict=True):
        name = Text(fit(row.name, names).ljust(names), "dim" if row.sign == "moment" else "")
        bar = Text(_bar(row, span, bars, signs), row.style)
        told = Text(fit(row.words, max(words, 12)), row.style)
        lines.append(Text("  ").join([name, bar, Text(length.rjust(lengths)), told]))
    for line in lines:
        line.rstrip()
        screen.print(line if has_signs else Text(line.plain.replace("·", ",").encode("ascii", "replace").decode()))


def _span(row: Row) -> str:
    return "" if row.sign == "moment" else spoken(timedelta(seconds=row.end - row.begin))


def _head(instance: Instance, span: float) -> Text:
    began = f"since {shown(instance.created_at)}" if instance.created_at else ""
    parts = [f"{instance.flow} version {instance.flow_version}", instance.status.replace("_", " "), began]
    return Text.assemble((instance.id, "bold"), "  ", " · ".join([*parts, spoken(timedelta(seconds=span))]))


def _scale(names: int, bars: int, span: float) -> Text:
    end, middle = spoken(timedelta(seconds=span)), spoken(timedelta(seconds=span / 2))
    line = "0".ljust(bars // 2) + middle
    line = line.ljust(bars - len(end)) + end if len(line) + len(end) + 1 <= bars else "0".ljust(bars - len(end)) + end
    return Text(" " * (names + 2) + line, "dim")


def _bar(row: Row, span: float, width: int, signs: dict[str, str]) -> str:
    """At least one cell: what is too short to be seen still happened."""
    first = min(max(int(row.begin / span * width), 0), width - 1)
    last = min(max(round(row.end / span * width), first + 1), width)
    bar = signs[row.sign] * (last - first)
    return (" " * first + (bar[:-1] + signs["open"] if row.is_open else bar)).ljust(width)
