"""The one place that prints: results on standard output, for people or as JSON; errors as one line on standard error,
for people or as JSON.

Names, keys, reasons and errors are untrusted text. This module prints them without control characters, line breaks and
markup of their own. A test refuses `print`, `typer.echo` and consoles everywhere else.
"""

from __future__ import annotations

import json as text_json
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment
from rich.text import Text

from holdfast.errors import DefinitionError, HoldfastError, InputInvalid
from holdfast.printable import printable, printable_lines

T = TypeVar("T")
MANY: Final = 10  # from here on a bar is worth its line
_SECRETS: Final = (re.compile(r"(?<=://)([^:/@]*):[^@]*(?=@)"), re.compile(r"(\bpassword\s*=\s*)('[^']*'|[^\s&]+)"))


def show(facts: Mapping[str, Any], *, json: bool) -> None:
    """Print facts as JSON, or as one `name value` line each, without those that are None."""
    if json:
        show_json(dict(facts))
        return
    screen = console()
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None:
            screen.print(f"[dim]{name.ljust(width)}[/dim]  {_safe(_plain(value))}")


def show_all(items: Sequence[Mapping[str, Any]]) -> None:
    """Print a list as JSON."""
    show_json(items)


def show_json(value: Any, *, stderr: bool = False, indent: int | None = None, flush: bool = False) -> None:
    """Print any value as JSON, in ASCII: control characters are escapes in its strings."""
    text = text_json.dumps(value, default=str, indent=indent, ensure_ascii=True).replace("\x7f", "\\u007f")
    print(text, file=sys.stderr if stderr else sys.stdout, flush=flush)


def show_text(text: str) -> None:
    """Print lines as they are, to be piped: code, drawings, ids; only control characters are escaped."""
    print(printable_lines(text))


def draw(lines: Iterable[Text]) -> None:
    """Print lines in colour; their parts come from `printable` or `fit`, so a name cannot bring a line break."""
    screen = console()
    for line in lines:
        screen.print(line)


def fit(text: str, width: int) -> str:
    """Escape untrusted text and cut it to a width."""
    shown = printable(text)
    return shown if len(shown) <= width else f"{shown[: max(width - 1, 1)]}…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns below their names; on a terminal the last one is cut at the end of the line."""
    screen = console()
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    room = max(screen.width - sum(widths[:-1]) - 2 * len(widths[:-1]), 20) if screen.is_terminal else None
    for number, row in enumerate((head, *rows)):
        *cells, last = row
        shown = last if room is None or len(last) <= room else f"{last[: room - 1]}…"
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), shown])
        screen.print(escape(line.rstrip()), style="dim" if number == 0 else None)


def say(sentence: str) -> None:
    console().print(_safe(sentence))


def tracked(items: Iterable[T], count: int, what: str) -> Iterator[T]:
    """Yield the items while a bar on the terminal counts them; the bar disappears after the last."""
    screen = console(stderr=True)
    with Progress(console=screen, transient=True, disable=count < MANY or not screen.is_terminal) as bar:
        task = bar.add_task(what, total=count)
        for item in items:
            yield item
            bar.advance(task)


@contextmanager
def busy(what: str) -> Generator[None]:
    """Show a sign of life on the terminal during a long operation."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(_safe(what)):
        yield


def warn(sentence: str) -> None:
    """Print a warning on standard error, never in the result."""
    console(stderr=True).print(f"[yellow]{_safe(sentence)}[/yellow]")


def complain(error: HoldfastError, *, json: bool = False) -> None:
    if json:
        show_json({"error": _facts(error)}, stderr=True)
        return
    screen = console(stderr=True)
    hint = f" {_safe(error.hint)}" if error.hint else ""
    screen.print(f"[bold red]{escape(f'[{error.code}]')}[/bold red] {_safe(error.message)}{hint}")
    listed = _listed(error)
    if isinstance(error, InputInvalid) and len(listed) == 1:  # the message has it already
        return
    for each in listed:
        screen.print(f"  {_safe(_written(each))}")


def _facts(error: HoldfastError) -> dict[str, Any]:
    """The parts of an error for programs: those that `complain` prints for people, and the exit code."""
    facts = {"code": error.code, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    listed = _listed(error)
    return {**facts, "errors": [_plain_finding(each) for each in listed]} if listed else facts


def _listed(error: HoldfastError) -> Sequence[Any]:
    if isinstance(error, DefinitionError):
        return error.diagnostics
    return error.misfits if isinstance(error, InputInvalid) else ()


def _plain_finding(found: Any) -> Any:
    if isinstance(found, tuple):
        place, message = cast("tuple[str, str]", found)
        return {"place": place, "message": message}
    return msgspec.to_builtins(found) if isinstance(found, msgspec.Struct) else str(found)


def _written(found: Any) -> str:
    """Write a problem in one line; a misfit is a pair of place and message."""
    return ": ".join(map(str, cast("tuple[object, ...]", found))) if isinstance(found, tuple) else str(found)


def without_password(dsn: str) -> str:
    url, keyword = _SECRETS
    return keyword.sub(r"\1***", url.sub(r"\1:***", dsn))


def _plain(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def console(*, stderr: bool = False) -> SafeConsole:
    # Paths and addresses are copied from here, so lines are never folded, nothing is coloured by guess, and the `:100:`
    # behind the name of a file stays what it is.
    return SafeConsole(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)


class SafeConsole(Console):
    """A console whose colours come from this package alone: it shows the control characters of a text as escapes."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            [one if one.control else Segment(printable_lines(one.text), one.style) for one in buffer]
        )


def _safe(text: str) -> str:
    """Escape text for a place that reads markup: it becomes plain text of one line."""
    return escape(printable(text))
