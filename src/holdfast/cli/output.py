"""What the commands print: results on standard output, for people or as JSON; errors as one line on standard error,
for people or as JSON."""

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

from holdfast.errors import DefinitionError, HoldfastError, InputInvalid

T = TypeVar("T")
MANY: Final = 10  # from here on a bar is worth its line
_SECRETS: Final = (re.compile(r"(?<=://)([^:/@]*):[^@]*(?=@)"), re.compile(r"(\bpassword\s*=\s*)('[^']*'|[^\s&]+)"))


def show(facts: Mapping[str, Any], *, json: bool) -> None:
    """Facts as JSON, or as one `name value` line each; what is None is left out for people."""
    if json:
        print(text_json.dumps(dict(facts), default=str))
        return
    screen = console()
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None:
            screen.print(f"[dim]{name.ljust(width)}[/dim]  {escape(_plain(value))}")


def show_all(items: Sequence[Mapping[str, Any]]) -> None:
    """A list as JSON."""
    print(text_json.dumps(items, default=str))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns below their names; on a terminal the last one is cut where the line ends."""
    screen = console()
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    room = max(screen.width - sum(widths[:-1]) - 2 * len(widths[:-1]), 20) if screen.is_terminal else None
    for number, row in enumerate((head, *rows)):
        *cells, last = row
        shown = last if room is None or len(last) <= room else f"{last[: room - 1]}…"
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), shown])
        screen.print(escape(line.rstrip()), style="dim" if number == 0 else None)


def say(sentence: str) -> None:
    console().print(escape(sentence))


def tracked(items: Iterable[T], count: int, what: str) -> Iterator[T]:
    """The items, while a bar on the terminal counts them; it is gone when they are through."""
    screen = console(stderr=True)
    with Progress(console=screen, transient=True, disable=count < MANY or not screen.is_terminal) as bar:
        task = bar.add_task(what, total=count)
        for item in items:
            yield item
            bar.advance(task)


@contextmanager
def busy(what: str) -> Generator[None]:
    """A sign of life on the terminal while something takes its time."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(escape(what)):
        yield


def warn(sentence: str) -> None:
    """Beside the result, never in it."""
    console(stderr=True).print(f"[yellow]{escape(sentence)}[/yellow]")


def complain(error: HoldfastError, *, json: bool = False) -> None:
    if json:
        print(text_json.dumps({"error": _facts(error)}, default=str), file=sys.stderr)
        return
    screen = console(stderr=True)
    hint = f" {escape(error.hint)}" if error.hint else ""
    screen.print(f"[bold red]{escape(f'[{error.code}]')}[/bold red] {escape(error.message)}{hint}")
    listed = _listed(error)
    if isinstance(error, InputInvalid) and len(listed) == 1:  # one alone stands in the message
        return
    for each in listed:
        screen.print(f"  {escape(_written(each))}")


def _facts(error: HoldfastError) -> dict[str, Any]:
    """For programs: what `complain` tells people, and the exit code."""
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
    """A problem in one line; a misfit is a pair of where and what."""
    return ": ".join(map(str, cast("tuple[object, ...]", found))) if isinstance(found, tuple) else str(found)


def without_password(dsn: str) -> str:
    url, keyword = _SECRETS
    return keyword.sub(r"\1***", url.sub(r"\1:***", dsn))


def _plain(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def console(*, stderr: bool = False) -> Console:
    # Paths and addresses are copied from here, so lines are never folded, nothing is coloured by guess, and the `:100:`
    # behind the name of a file stays what it is.
    return Console(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)
