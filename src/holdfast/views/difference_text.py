"""A difference as lines of text, for terminals and comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.graph.difference.model import Difference, PartChange
from holdfast.printable import printable
from holdfast.views.difference_words import ARROW, SIGNS, heading, lines_of, sections_of, side_words

WIDTH: Final = 9  # of the longest aspect


def difference_text(found: Difference, names: tuple[str, str] | None = None) -> str:
    """Write a difference. `names` are the names of both sides; without them their versions."""
    return "\n".join(printable(line) for line in _lines(found, names)) + "\n"


def _lines(found: Difference, names: tuple[str, str] | None) -> Iterator[str]:
    before, after = names or (side_words(found.before), side_words(found.after))
    yield f"{found.after.type}: {before} {ARROW} {after}"
    if found.is_empty:
        yield "no difference"
    for section in sections_of(found):
        yield ""
        yield section.title
        for part in section.parts:
            yield from _part(part)


def _part(part: PartChange) -> Iterator[str]:
    yield f"  {SIGNS[part.change]} {heading(part)}"
    for aspect, text in lines_of(part):
        yield f"      {aspect:<{WIDTH}}  {text}" if aspect else f"      {'':<{WIDTH}}  {text}"
