"""Trees of data that was written in Python, so that it is read by the same shapes as files are."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from typing import Any, Final, cast

from holdfast.doors.yaml.problems import Findings, Severity
from holdfast.doors.yaml.reading import DEEPEST
from holdfast.doors.yaml.tree import Entry, Mapping, Mark, Scalar, Sequence, Tree
from holdfast.graph.diagnostics import Diagnostic

LONGEST_PART: Final = 80  # characters of one name in a place
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


class DataFindings(Findings):
    """The problems of data: each names its place by the path there, such as `states.draft.window`."""

    def __init__(self, noun: str, remedies: Dictionary[str, str]) -> None:
        super().__init__("", remedies)
        self.noun = noun
        self.diagnostics: list[Diagnostic] = []

    def keep(self, code: str, message: str, mark: Mark, hint: str, severity: Severity) -> None:
        place = mark.place or self.noun
        self.diagnostics.append(Diagnostic(code=code, message=message, place=place, severity=severity, hint=hint))


def tree_of(value: Any, findings: Findings, place: str = "") -> Tree:
    """Make the tree of data; report what no document can hold."""
    return _tree(value, findings, place, 0)


def _tree(value: Any, findings: Findings, place: str, depth: int) -> Tree:
    mark = Mark(0, 0, None, place)
    if depth > DEEPEST:
        findings.add("YAML_TOO_DEEP", f"More than {DEEPEST} levels stand inside each other.", mark)
        return Scalar(None, mark)
    if isinstance(value, Dictionary):
        entries: dict[str, Entry] = {}
        for key, item in cast(Dictionary[Any, Any], value).items():
            if not isinstance(key, str):
                findings.add("YAML_KEY_NOT_TEXT", "A key must be text.", mark)
                continue
            inner = _joined(place, key)
            key = _text(key, findings, Mark(0, 0, None, inner))
            entries[key] = Entry(Mark(0, 0, None, inner), _tree(item, findings, inner, depth + 1))
        return Mapping(entries, mark, len(entries))
    if isinstance(value, list | tuple):
        items = cast(list[Any], value)
        named = enumerate(items)
        return Sequence(
            tuple(_tree(item, findings, _joined(place, _name(item, index)), depth + 1) for index, item in named),
            mark,
            len(items),
        )
    return Scalar(_text(value, findings, mark) if isinstance(value, str) else value, mark)


def _text(text: str, findings: Findings, mark: Mark) -> str:
    """Refuse characters that PostgreSQL does not store, as the reading of YAML does."""
    if not _UNSTORABLE.search(text):
        return text
    findings.add("YAML_CHARACTER", "The text holds U+0000 or half a character.", mark)
    return _UNSTORABLE.sub("?", text)


def _joined(place: str, name: str) -> str:
    name = _UNSTORABLE.sub("?", name)
    part = name if len(name) <= LONGEST_PART else f"{name[:LONGEST_PART]}…"
    return f"{place}.{part}" if place else part


def _name(item: Any, index: int) -> str:
    """Name an entry of a list by its id or name, an edge by its ends, all else by the position."""
    if isinstance(item, Dictionary):
        entry = cast(Dictionary[Any, Any], item)
        for key in ("id", "name"):
            if isinstance(entry.get(key), str):
                return entry[key]
        if "from" in entry and "to" in entry:
            return f"{_ends(entry['from'])}>{_ends(entry['to'])}"
    return str(index)


def _ends(value: Any) -> str:
    names = cast(list[Any], value) if isinstance(value, list | tuple) else [value]
    return ",".join(str(name) for name in names[:3])
