"""Trees of text: lines with branches drawn in front, marks and details in columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

WIDEST: Final = 60  # a longer label pushes only its own line


class Twig(msgspec.Struct, frozen=True):
    """One line of a tree, and the lines below it."""

    label: str
    detail: str = ""
    sign: str = ""  # before the label: "undo" or "to", drawn as the pen draws it
    node: str | None = None  # the node whose mark is drawn beside it
    inner: tuple[Twig, ...] = ()


def undo_twig(compensation: str) -> Twig:
    return Twig(compensation, "undoes it", "undo", compensation)


class Pen(msgspec.Struct, frozen=True):
    """The characters that draw a tree: branches, margins and signs."""

    fork: str
    last: str
    bar: str
    gap: str
    signs: dict[str, str]


UNICODE: Final = Pen("├─ ", "└─ ", "│  ", "   ", {"": "", "undo": "↩ ", "to": "→ "})
ASCII: Final = Pen("|- ", "`- ", "|  ", "   ", {"": "", "undo": "<- ", "to": "-> "})


def render(title: str, twigs: tuple[Twig, ...], marks: Mapping[str, str], pen: Pen) -> str:
    rows = [
        (f"{lead}{pen.signs[twig.sign]}{twig.label}", marks.get(twig.node or "", ""), twig.detail)
        for lead, twig in _drawn(twigs, pen)
    ]
    width = max((len(text) for text, _, _ in rows if len(text) <= WIDEST), default=0)
    room = max((len(mark) for _, mark, _ in rows), default=0)
    lines = (_columns(text.ljust(width), mark.ljust(room), detail) for text, mark, detail in rows)
    return "\n".join([title, *lines]) + "\n"


def _columns(*cells: str) -> str:
    return "  ".join(cell for cell in cells if cell).rstrip()


def _drawn(twigs: tuple[Twig, ...], pen: Pen, margin: str = "") -> Iterator[tuple[str, Twig]]:
    for number, twig in enumerate(twigs, 1):
        is_last = number == len(twigs)
        yield margin + (pen.last if is_last else pen.fork), twig
        yield from _drawn(twig.inner, pen, margin + (pen.gap if is_last else pen.bar))
