"""A YAML document as values with their places in the file."""

from __future__ import annotations

from typing import Any

import msgspec


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A place in a file, counted from 1; of data, the path in `place`.

    `lead` is the distance from here to the first character of a text's value: 0, or 1 behind a quote. None: the text
    was folded or escaped, so a position in it is none in the file.
    """

    line: int
    column: int
    lead: int | None = None
    place: str = ""

    def inside(self, position: int) -> Mark:
        """Find the place of the character at this position of the text; without `lead`, that of the text."""
        if self.place:
            return Mark(self.line, self.column, None, f"{self.place}@{position}")
        return self if self.lead is None else Mark(self.line, self.column + self.lead + position)


START = Mark(1, 1)

Path = tuple[str | int, ...]  # ("steps", 2, "timeout"): the place of a value in its document


def nearest_mark(marks: dict[Path, Mark], path: Path) -> Mark:
    """Find the place of a value in the file, or of the nearest value around it."""
    for length in range(len(path), -1, -1):
        found = marks.get(path[:length])
        if found is not None:
            return found
    return START


class Scalar(msgspec.Struct, frozen=True):
    value: str | int | float | bool | None
    mark: Mark

    @property
    def size(self) -> int:
        return 1


class Sequence(msgspec.Struct, frozen=True):
    items: tuple[Tree, ...]
    mark: Mark
    size: int
    spans: tuple[tuple[int, int], ...] = ()  # where each item begins and ends in the text


class Entry(msgspec.Struct, frozen=True):
    key: Mark
    tree: Tree


class Mapping(msgspec.Struct, frozen=True):
    entries: dict[str, Entry]
    mark: Mark
    size: int


Tree = Scalar | Sequence | Mapping


def plain(tree: Tree) -> Any:
    """Take the values alone, as JSON data."""
    match tree:
        case Scalar(value):
            return value
        case Sequence(items):
            return [plain(item) for item in items]
        case Mapping(entries):
            return {key: plain(entry.tree) for key, entry in entries.items()}


def described(tree: Tree) -> str:
    """Describe a value in words, for the sentence of a problem."""
    match tree:
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
        case Scalar(None):
            return "nothing"
        case Scalar(bool(value)):
            return str(value).lower()
        case Scalar(str(value)):
            return repr(value if len(value) <= 60 else f"{value[:60]}…")
        case Scalar(int() | float() as value):
            return f"the number {value}"
        case Scalar(value):  # from Python
            return f"of type {type(value).__name__}"
