"""Read YAML text to a tree with places, in time and memory that hostile text cannot stretch.

Only the parser of ruamel.yaml is used: it constructs no objects, so no tag can name code. Aliases are counted as if
each were written out; too deep nesting is refused at its opening, before the parser continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.scalars import resolve
from holdfast.doors.yaml.tree import START, Entry, Mapping, Mark, Scalar, Sequence, Tree

LARGEST: Final = 1 << 20  # bytes
DEEPEST: Final = 40
MOST_NODES: Final = 20_000  # with every alias written out
_HALF: Final = re.compile("[\ud800-\udfff]")


class _TooMuch(Exception):
    """Refusal of the text as a whole; its problem is already among the findings."""


class _Open:
    """A sequence or mapping before its end was read."""

    def __init__(self, event: Any, mark: Mark) -> None:
        self.mark = mark
        self.begin = event.start_mark
        self.anchor: str | None = event.anchor
        self.is_mapping = isinstance(event, MappingStartEvent)
        self.size = 1
        self.items: list[Tree] = []
        self.spans: list[tuple[int, int]] = []
        self.entries: dict[str, Entry] = {}
        self.key: Tree | None = None

    def closed(self) -> Tree:
        if self.is_mapping:
            return Mapping(self.entries, self.mark, self.size)
        return Sequence(tuple(self.items), self.mark, self.size, tuple(self.spans))


def read_yaml(text: str, findings: Findings) -> tuple[Tree | None, bool]:
    """Read the tree, or None with the reason among the findings; and whether the text uses anchors."""
    size = len(text.encode(errors="surrogatepass"))
    if size > LARGEST:
        findings.add("YAML_TOO_LARGE", f"The file has {size} bytes; at most {LARGEST} are read.", START)
        return None, False
    composer = _Composer(text, findings)
    try:
        for event in _events(text):
            composer.take(event)
    except _TooMuch:
        return None, False
    except ReaderError as error:
        unreadable = cast(Any, error)
        mark = _place(text, unreadable.position)
        code = ord(text[unreadable.position])
        findings.add("YAML_CHARACTER", f"The character U+{code:04X} may not stand in a YAML file.", mark)
        return None, False
    except MarkedYAMLError as error:
        findings.add("YAML_SYNTAX", _sentence(error), _mark(cast(Any, error).problem_mark))
        return None, False
    except (YAMLError, ValueError, AttributeError) as error:
        # What else the parser raises on broken text: unknown directives' values, impossible escapes.
        findings.add("YAML_SYNTAX", f"The text cannot be read: {str(error).splitlines()[0]}.", START)
        return None, False
    if composer.root is None:
        findings.add("YAML_EMPTY", "The file is empty.", START)
    return composer.root, bool(composer.anchors)


def first_key(text: str) -> str | None:
    """Read the first key of a document; None where its top is no mapping, or cannot be read."""
    try:
        for event in islice(_events(text[:LARGEST]), 4):
            if cast("type[Any]", type(event)) is ScalarEvent:
                return event.value
    except (YAMLError, ValueError, AttributeError):
        return None
    return None


def _events(text: str) -> Iterator[Any]:
    return cast(Any, YAML(typ="safe", pure=True)).parse(text)


class _Composer:
    def __init__(self, text: str, findings: Findings) -> None:
        self.text = text
        self.findings = findings
        self.root: Tree | None = None
        self.open: list[_Open] = []
        self.anchors: dict[str, Tree | None] = {}  # None: still open
        self.documents = 0
        self.nodes = 0

    def take(self, event: Any) -> None:
        mark = _mark(event.start_mark)
        kind = cast("type[Any]", type(event))
        if kind is ScalarEvent:
            self.refuse_tag(event, mark)
            scalar = self.scalar(event, mark)
            if event.anchor is not None:
                self.anchors[event.anchor] = scalar
            self.place(scalar, event.start_mark, event.end_mark)
        elif kind is AliasEvent:
            self.place(self.aliased(event, mark), event.start_mark, event.end_mark)
        elif kind is SequenceStartEvent or kind is MappingStartEvent:
            self.begin(event, mark)
        elif kind is SequenceEndEvent or kind is MappingEndEvent:
            self.end(event)
        elif kind is DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self.refuse("YAML_SEVERAL_DOCUMENTS", "A second document begins here.", mark)

    def refuse(self, code: str, message: str, mark: Mark) -> None:
        self.findings.add(code, message, mark)
        raise _TooMuch

    def refuse_tag(self, event: Any, mark: Mark) -> None:
        if event.tag is not None and str(event.tag) != "!":
            self.findings.add("YAML_TAG", f"The tag {str(event.tag)[:80]!r} is not read.", mark)

    def begin(self, event: Any, mark: Mark) -> None:
        self.refuse_tag(event, mark)
        if len(self.open) >= DEEPEST:
            self.refuse("YAML_TOO_DEEP", f"More than {DEEPEST} levels stand inside each other.", mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.open.append(_Open(event, mark))

    def end(self, event: Any) -> None:
        level = self.open.pop()
        tree = level.closed()
        if level.anchor is not None:
            self.anchors[level.anchor] = tree
        self.place(tree, level.begin, event.end_mark)

    def aliased(self, event: Any, mark: Mark) -> Tree:
        tree = self.anchors.get(event.anchor)
        if tree is not None:
            return tree
        why = "stands inside its own anchor" if event.anchor in self.anchors else "has no anchor before it"
        self.findings.add("YAML_ALIAS", f"The alias {event.anchor!r} {why}.", mark)
        return Scalar(None, mark)

    def scalar(self, event: Any, mark: Mark) -> Scalar:
        text = self.unescaped(event.value, mark)
        if event.style is not None or event.tag is not None:
            return Scalar(text, self.led(event, mark, text))
        try:
            value = resolve(text)
        except ValueError as error:
            self.findings.add("YAML_NUMBER", f"{error}.", mark)
            value = 0
        return Scalar(value, self.led(event, mark, text))

    def unescaped(self, text: str, mark: Mark) -> str:
        """Join half characters that escapes spell to whole ones; report single halves and NUL."""
        if _HALF.search(text):
            try:
                text = text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                self.findings.add("YAML_CHARACTER", "An escape spells half a character.", mark)
                return "?"
        if "\0" in text:
            self.findings.add("YAML_CHARACTER", "An escape spells the character U+0000.", mark)
            return text.replace("\0", "?")
        return text

    def led(self, event: Any, mark: Mark, text: str) -> Mark:
        """Add to a mark the distance to the text, if the file spells its characters as they read."""
        quotes = 1 if event.style in ("'", '"') else 0
        begin = event.start_mark.index + quotes
        is_exact = event.style in (None, "", "'", '"') and self.text.startswith(text, begin) and "\n" not in text
        is_exact = is_exact and event.end_mark.index == begin + len(text) + quotes
        return Mark(mark.line, mark.column, quotes if is_exact else None)

    def place(self, tree: Tree, begin: Any, end: Any) -> None:
        self.nodes += 1
        if not self.open:
            self.root = tree
            return
        level = self.open[-1]
        level.size += tree.size
        if level.size > MOST_NODES or self.nodes > MOST_NODES:
            self.refuse("YAML_TOO_COMPLEX", f"The file holds more than {MOST_NODES} values.", level.mark)
        if level.is_mapping:
            self.place_in_mapping(level, tree, _mark(begin))
        else:
            level.items.append(tree)
            level.spans.append((begin.index, end.index))

    def place_in_mapping(self, level: _Open, tree: Tree, mark: Mark) -> None:
        key = level.key
        if key is None:
            # The place of an alias as a key is its own, not that of its anchor.
            level.key = Scalar(tree.value, mark) if isinstance(tree, Scalar) else tree
            return
        level.key = None
        if not isinstance(key, Scalar) or not isinstance(key.value, str):
            self.findings.add("YAML_KEY_NOT_TEXT", "A key must be text.", key.mark)
        elif key.value in level.entries:
            first = level.entries[key.value].key.line
            message = f"The key {key.value[:80]!r} is there twice, first in line {first}."
            self.findings.add("YAML_DUPLICATE_KEY", message, key.mark)
        else:
            # A missing value has no place of its own, so it takes that of its key.
            is_absent = isinstance(tree, Scalar) and tree.value is None and mark.line != key.mark.line
            level.entries[key.value] = Entry(key.mark, Scalar(None, key.mark) if is_absent else tree)


def _mark(mark: Any) -> Mark:
    return START if mark is None else Mark(mark.line + 1, mark.column + 1)


def _place(text: str, position: int) -> Mark:
    before = text[:position]
    return Mark(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def _sentence(error: Any) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    sentence = ": ".join(str(part) for part in parts) or "The text cannot be read"
    return sentence[0].upper() + sentence[1:300].rstrip(".") + "."
