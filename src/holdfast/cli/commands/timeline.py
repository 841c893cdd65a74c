"""`holdfast timeline`: what happened in an instance and how long it took, as bars below one another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.text import Text

from holdfast.cli.render.looks import LOOKS
from holdfast.cli.render.output import console, draw, fit
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import anywhere, place
from holdfast.printable import printable
from holdfast.store.reads.instances import Instance
from holdfast.views.labels import UNREACHED
from holdfast.views.spans import shown, spoken
from holdfast.views.timeline import Bar, Entry, bars
from holdfast.views.timeline import timeline as in_order

MOST: Final = 1000  # tasks of one instance
NARROWEST: Final = 72
SHORTEST_BAR: Final = 16
WIDEST_NAME: Final = 28
_SIGNS: Final = {"work": "█", "wait": "░", "moment": "◆", "open": "▶"}
_PLAIN: Final = {"work": "#", "wait": ":", "moment": "*", "open": ">"}


@anywhere
def timeline(
    instance: Annotated[str, typer.Argument(metavar="ID", help="The instance's id.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the events of an instance in order, with the duration of each step or wait."""
    with place() as engine:
        found = engine.get(instance)
        steps, events = engine.steps(instance, all=True), engine.events(instance)
        tasks = engine.tasks(instance, limit=MOST)
    entries = in_order(steps, events, tasks)
    if json:
        show_facts({"instance": msgspec.to_builtins(found), "entries": [_plain(one) for one in entries]}, json=True)
    else:
        _print(found, bars(found, entries, steps, tasks, datetime.now(UTC)))


def _plain(entry: Entry) -> dict[str, Any]:
    return {**msgspec.to_builtins(entry), "seconds": entry.seconds}


def _print(instance: Instance, rows: Sequence[Bar]) -> None:
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
        name = Text(fit(row.name, names).ljust(names), "dim" if row.kind == "moment" else "")
        bar = Text(_bar(row, span, bars, signs), _style(row))
        told = Text(fit(row.words, max(words, 12)), _style(row))
        lines.append(Text("  ").join([name, bar, Text(length.rjust(lengths)), told]))
    for line in lines:
        line.rstrip()
    draw(lines if has_signs else [_plainer(line) for line in lines])


def _plainer(line: Text) -> Text:
    return Text(line.plain.replace("·", ",").encode("ascii", "replace").decode())


def _style(row: Bar) -> str:
    return "dim" if row.kind == "moment" else LOOKS.get(row.state, LOOKS[UNREACHED]).style


def _span(row: Bar) -> str:
    return "" if row.kind == "moment" else spoken(timedelta(seconds=row.end - row.begin))


def _head(instance: Instance, span: float) -> Text:
    began = f"since {shown(instance.created_at)}" if instance.created_at else ""
    parts = [f"{instance.flow} version {instance.flow_version}", instance.status.replace("_", " "), began]
    return Text.assemble((instance.id, "bold"), "  ", printable(" · ".join([*parts, spoken(timedelta(seconds=span))])))


def _scale(names: int, bars: int, span: float) -> Text:
    end, middle = spoken(timedelta(seconds=span)), spoken(timedelta(seconds=span / 2))
    line = "0".ljust(bars // 2) + middle
    line = line.ljust(bars - len(end)) + end if len(line) + len(end) + 1 <= bars else "0".ljust(bars - len(end)) + end
    return Text(" " * (names + 2) + line, "dim")


def _bar(row: Bar, span: float, width: int, signs: dict[str, str]) -> str:
    """Draw the bar of a step: one cell at least, however short the step was."""
    first = min(max(int(row.begin / span * width), 0), width - 1)
    last = min(max(round(row.end / span * width), first + 1), width)
    bar = signs[row.kind] * (last - first)
    return (" " * first + (bar[:-1] + signs["open"] if row.is_open else bar)).ljust(width)
