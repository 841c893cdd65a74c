"""`holdfast show`: one instance, its flow as a tree with the state of every step, and what a person can do about it."""

from __future__ import annotations

import contextlib
import json as text_json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.reading import read_record
from holdfast.cli.render.output import console, fit
from holdfast.cli.render.output import draw as draw_lines
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.render.suggestions import remedies
from holdfast.cli.render.summary import summary
from holdfast.cli.render.tree import Drawing, draw
from holdfast.cli.target import Place, anywhere, place
from holdfast.core.model.status import TERMINAL
from holdfast.store.reads.instances import Event
from holdfast.views.record import Record

INTERVAL: Final = 1.0  # seconds between two looks
NARROWEST: Final = 60
ASCII: Final = str.maketrans("│├└─·…→↶", "|+`-,~><")


@anywhere
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The instance's id.")],
    events: Annotated[bool, typer.Option("--events", help="Add the audit trail.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Draw every branch of wide forks.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Draw it again whenever it changes, until it is over.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show an instance: its flow as a tree with live states, its wait, and the commands that help."""
    with place() as engine:
        looks = _looks(engine, id, events, again=watch, everything=all)
        with contextlib.suppress(KeyboardInterrupt) if watch else contextlib.nullcontext():
            if json:
                for record in looks:
                    show_facts(_plain(record), json=True)
            elif watch and console().is_terminal:
                _follow(looks, everything=all)
            else:
                for record in looks:
                    _print(record, everything=all)


def _looks(engine: Place, id: str, events: bool, *, again: bool, everything: bool) -> Iterator[Record]:
    """The instance as it is; with `again`, also as it becomes, until its end."""
    seen: Any = None
    while True:
        record = read_record(engine, id, events=events, now=datetime.now(UTC), everything=everything)
        is_over = record.instance.status in TERMINAL
        state = _state(record)
        if state != seen or (again and console().is_terminal):  # on a terminal also time goes on
            seen = state
            yield record
        if is_over or not again:
            return
        time.sleep(INTERVAL)


def _state(record: Record) -> Any:
    """The values that change whenever the drawing does."""
    children = [_state(child) for child in record.children.values()]
    return record.instance.version, [step.attempts for step in record.steps], record.letters, children


def _follow(looks: Iterator[Record], *, everything: bool) -> None:
    """One drawing in place of the other; the last one stays, whole."""
    screen, last = console(), None
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        for last in looks:
            live.update(Text("\n").join(_lines(last, screen, everything=everything)), refresh=True)
    if last is not None:
        _print(last, everything=everything)


def _print(record: Record, *, everything: bool) -> None:
    draw_lines(_lines(record, console(), everything=everything))


def _lines(record: Record, screen: Console, *, everything: bool) -> list[Text]:
    drawing = Drawing(max(screen.width, NARROWEST), _knows_signs(screen), everything)
    lines = [*summary(record, drawing.width), Text(), *draw(record, drawing)]
    if told := remedies(record, drawing.width):
        lines += [Text(), *told]
    if record.events is not None:
        lines += [Text(), *(_event(event, drawing.width) for event in record.events)]
    return lines if drawing.signs else [_plainer(line) for line in lines]


def _knows_signs(screen: Console) -> bool:
    return screen.encoding.lower().startswith("utf")


def _plainer(line: Text) -> Text:
    line.plain = line.plain.translate(ASCII).encode("ascii", "replace").decode()
    return line


def _event(event: Event, width: int) -> Text:
    about = f" {event.node}" if event.node else ""
    by = f" by {event.actor}" if event.actor and event.actor != "system" else ""
    detail = f"  {text_json.dumps(event.detail, ensure_ascii=False)}" if event.detail else ""
    head = f"{event.created_at:%Y-%m-%d %H:%M:%S}  {event.type}{about}{by}"
    return Text.assemble((fit(head, width), ""), (fit(detail, max(width - len(head), 0)) if detail else "", "dim"))


def _plain(record: Record) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "instance": msgspec.to_builtins(record.instance),
        "steps": msgspec.to_builtins(record.steps),
        "tasks": msgspec.to_builtins(record.tasks),
        "dead_letters": msgspec.to_builtins(record.letters),
        "sub_flows": [_plain_child(record, step, child) for step, child in record.started.items()],
    }
    return facts if record.events is None else {**facts, "events": msgspec.to_builtins(record.events)}


def _plain_child(record: Record, step: str, id: str) -> dict[str, Any]:
    """Turn a sub-flow into JSON: all fields if it was read, otherwise the ids."""
    child = record.children.get(step)
    return {"step_id": step, "id": id, **({} if child is None else _plain(child))}
