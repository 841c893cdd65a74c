"""Decode a tree to plain values, key by key: a value that does not fit its shape is reported and left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from holdfast.doors.durations import read_duration
from holdfast.doors.shapes import (
    Anything,
    Choice,
    Either,
    Expressions,
    Fields,
    Flag,
    Items,
    Json,
    Named,
    Number,
    Shape,
    Span,
    Text,
    Variants,
    Whole,
)
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import Mapping, Mark, Path, Scalar, Sequence, Tree, described, plain


class Misfit:
    """Placeholder of a refused value."""


MISFIT: Final = Misfit()
compiled: Final = lru_cache(maxsize=64)(re.compile)


class Taker:
    """A decoder of one value after another; `marks` has the place of each, by its path.

    `prefix` begins the codes of the door: with STEPS a wrong type is STEPS_TYPE_WRONG."""

    def __init__(self, findings: Findings, prefix: str) -> None:
        self.findings = findings
        self.prefix = prefix
        self.marks: dict[Path, Mark] = {}

    def take(self, shape: Shape, tree: Tree, path: Path) -> Any:
        self.marks.setdefault(path, tree.mark)
        return _TAKERS[type(shape)](self, shape, tree, path)

    def refuse(self, code: str, message: str, mark: Mark, hint: str = "") -> Misfit:
        self.findings.add(code, message, mark, hint=hint)
        return MISFIT

    def wrong_type(self, path: Path, wanted: str, tree: Tree) -> Misfit:
        message = f"{_told(path)} must be {wanted}; it is {described(tree)}."
        return self.refuse(f"{self.prefix}_TYPE_WRONG", message, tree.mark)

    # --- values ---------------------------------------------------------------------------------------------------

    def text(self, shape: Text, tree: Tree, path: Path) -> Any:
        match tree:
            case Scalar(str(value)):
                pass
            case _:
                return self.wrong_type(path, shape.wanted if shape.pattern is None else f"text: {shape.wanted}", tree)
        code = shape.code or f"{self.prefix}_VALUE_INVALID"
        if not value.strip():
            return self.refuse(code, f"{_told(path)} is empty; it must be {shape.wanted}.", tree.mark)
        if len(value) > shape.longest:
            message = f"{_told(path)} has {len(value)} characters; at most {shape.longest} are read."
            return self.refuse(code, message, tree.mark)
        if shape.pattern is not None and not compiled(shape.pattern).fullmatch(value):
            message = f"{_told(path)} is {described(tree)}; it must be {shape.wanted}."
            return self.refuse(code, message, tree.mark)
        return value

    def choice(self, shape: Choice, tree: Tree, path: Path) -> Any:
        match tree:
            case Scalar(str(value)) if value in shape.values:
                return value
            case Scalar(str(value)):
                message = f"{_told(path)} is {described(tree)}; it must be one of {', '.join(shape.values)}."
                return self.refuse(
                    f"{self.prefix}_VALUE_INVALID", message, tree.mark, self.findings.nearest(value, shape.values)
                )
            case _:
                return self.wrong_type(path, f"one of {', '.join(shape.values)}", tree)

    def flag(self, shape: Flag, tree: Tree, path: Path) -> Any:
        match tree:
            case Scalar(bool(value)):
                return value
            case _:
                return self.wrong_type(path, "true or false", tree)

    def number(self, shape: Whole | Number, tree: Tree, path: Path) -> Any:
        is_whole = isinstance(shape, Whole)
        wanted = f"a {'whole ' if is_whole else ''}number from {shape.least} to {shape.most}"
        match tree:
            case Scalar(bool()):
                return self.wrong_type(path, wanted, tree)
            case Scalar(int(value)):
                pass
            case Scalar(float(value)) if not is_whole or value.is_integer():
                value = int(value) if is_whole else value
            case _:
                return self.wrong_type(path, wanted, tree)
        if not shape.least <= value <= shape.most:
            return self.refuse(
                f"{self.prefix}_VALUE_INVALID", f"{_told(path)} is {value}; it must be {wanted}.", tree.mark
            )
        return value

    def span(self, shape: Span, tree: Tree, path: Path) -> Any:
        match tree:
            case Scalar(str(value)):
                seconds = read_duration(value)
            case Scalar(int() | float()):
                seconds = None
            case _:
                return self.wrong_type(path, 'a duration such as "72h"', tree)
        if seconds is None or (seconds == 0 and not shape.zero_allowed):
            message = (
                f"{_told(path)} is {described(tree)}, which is no duration{'' if seconds is None else ' above 0'}."
            )
            return self.refuse(f"{self.prefix}_DURATION_INVALID", message, tree.mark)
        return seconds

    def expressions(self, shape: Expressions, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Mapping):
            return self.wrong_type(path, "a mapping of names to expressions", tree)
        taken: dict[str, str] = {}
        for name, entry in tree.entries.items():
            inner = (*path, name)
            self.marks[inner] = entry.tree.mark
            match entry.tree:
                case Scalar(str(value)) if value.strip():
                    taken[name] = value
                case Scalar(str()):
                    self.refuse(f"{self.prefix}_VALUE_INVALID", f"{_told(inner)} is empty.", entry.tree.mark)
                case Scalar(None | int() | float() as value):
                    taken[name] = json.dumps(value)
                case _:
                    self.wrong_type(inner, "an expression", entry.tree)
        return taken

    def json(self, shape: Json, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Mapping):
            return self.wrong_type(path, "a mapping", tree)
        self.mark_all(tree, path)
        return plain(tree)

    def mark_all(self, tree: Tree, path: Path) -> None:
        self.marks[path] = tree.mark
        match tree:
            case Mapping(entries):
                for key, entry in entries.items():
                    self.mark_all(entry.tree, (*path, key))
            case Sequence(items):
                for index, item in enumerate(items):
                    self.mark_all(item, (*path, index))
            case _:
                pass

    # --- lists and mappings of known keys -------------------------------------------------------------------------

    def items(self, shape: Items, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Sequence):
            return self.wrong_type(path, "a list", tree)
        if not shape.least <= len(tree.items) <= shape.most:
            message = f"{_told(path)} has {len(tree.items)} entries; it must have {shape.least} to {shape.most}."
            code = shape.code if shape.code and len(tree.items) > shape.most else f"{self.prefix}_VALUE_INVALID"
            return self.refuse(code, message, tree.mark)
        taken = [self.take(shape.of, item, (*path, index)) for index, item in enumerate(tree.items)]
        if shape.distinct:
            self.refuse_repeated(taken, path)
        return taken

    def named(self, shape: Named, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Mapping):
            return self.wrong_type(path, "a mapping of names", tree)
        if len(tree.entries) > shape.most:
            message = f"{_told(path)} has {len(tree.entries)} entries; it must have at most {shape.most}."
            return self.refuse(f"{self.prefix}_VALUE_INVALID", message, tree.mark)
        taken: dict[str, Any] = {}
        for name, entry in tree.entries.items():
            if self.text(shape.key, Scalar(name, entry.key), (*path, name)) is not MISFIT:
                self.marks[(*path, name, "key")] = entry.key
                taken[name] = self.take(shape.of, entry.tree, (*path, name))
        return taken

    def either(self, shape: Either, tree: Tree, path: Path) -> Any:
        fitting = next((each for each in shape.of if _fits(each, tree)), None)
        return self.wrong_type(path, shape.wanted, tree) if fitting is None else self.take(fitting, tree, path)

    def anything(self, shape: Anything, tree: Tree, path: Path) -> Any:
        self.mark_all(tree, path)
        return plain(tree)

    def refuse_repeated(self, taken: list[Any], path: Path) -> None:
        for index, value in enumerate(taken):
            if value is not MISFIT and value in taken[:index]:
                mark = self.marks[(*path, index)]
                self.refuse(f"{self.prefix}_VALUE_INVALID", f"{_told(path)} names {value!r} twice.", mark)

    def fields(self, shape: Fields, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Mapping):
            return self.wrong_type(path, "a mapping", tree)
        taken: dict[str, Any] = {}
        for key, entry in tree.entries.items():
            field = shape.table.get(key)
            if field is None:
                self.unknown_key(key, entry.key, shape)
                continue
            self.marks[(*path, key, "key")] = entry.key
            value = self.take(field.shape, entry.tree, (*path, key))
            taken[key] = value
        for key, field in shape.table.items():
            if field.required and key not in tree.entries:
                taken[key] = self.refuse(f"{self.prefix}_KEY_MISSING", f"The {shape.noun} has no {key!r}.", tree.mark)
        return taken

    def unknown_key(self, key: str, mark: Mark, shape: Fields) -> None:
        hint = self.findings.nearest(key, tuple(shape.table)) or f"It takes {', '.join(shape.table)}."
        self.refuse(f"{self.prefix}_KEY_UNKNOWN", f"A {shape.noun} has no key {key[:80]!r}.", mark, hint)

    def kind(self, shape: Variants, tree: Mapping, path: Path) -> str | Misfit:
        entry = tree.entries.get(shape.by)
        if entry is None:
            return self.refuse(f"{self.prefix}_KEY_MISSING", f"The {shape.noun} has no {shape.by!r}.", tree.mark)
        return self.take(Choice(tuple(shape.tables)), entry.tree, (*path, shape.by))

    def id(self, tree: Mapping) -> str | Misfit:
        """Read the id of an entry of unknown kind, so that transitions to it are not reported as well."""
        entry = tree.entries.get("id")
        match entry.tree if entry is not None else None:
            case Scalar(str(value)):
                return value
            case _:
                return MISFIT

    def variants(self, shape: Variants, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Mapping):
            return self.wrong_type(path, "a mapping", tree)
        kind = self.kind(shape, tree, path)
        if isinstance(kind, Misfit):
            return {shape.by: kind, "id": self.id(tree)}
        everywhere = {key for table in shape.tables.values() for key in table.table}
        own = shape.tables[kind].table
        misplaced = {key for key in tree.entries if key in everywhere and key not in own}
        for key in misplaced:
            where = [name for name, table in shape.tables.items() if key in table.table]
            message = f"A {shape.noun} of {shape.by} {kind} has no {key!r}; it belongs to {', '.join(where)}."
            self.refuse(f"{self.prefix}_KEY_MISPLACED", message, tree.entries[key].key)
        kept = {key: value for key, value in tree.entries.items() if key not in misplaced and key != shape.by}
        table = {key: field for key, field in own.items() if key != shape.by}
        taken = self.fields(Fields(shape.tables[kind].noun, table), Mapping(kept, tree.mark, tree.size), path)
        return {shape.by: kind, **taken}


_TAKERS: Final[dict[type, Callable[[Taker, Any, Tree, Path], Any]]] = {
    Text: Taker.text,
    Choice: Taker.choice,
    Flag: Taker.flag,
    Whole: Taker.number,
    Number: Taker.number,
    Span: Taker.span,
    Expressions: Taker.expressions,
    Json: Taker.json,
    Anything: Taker.anything,
    Either: Taker.either,
    Items: Taker.items,
    Named: Taker.named,
    Fields: Taker.fields,
    Variants: Taker.variants,
}


def _fits(shape: Shape, tree: Tree) -> bool:
    """Check whether the value has the type of the shape: a list, a mapping or a scalar."""
    match shape:
        case Items():
            return isinstance(tree, Sequence)
        case Fields() | Variants() | Named() | Json() | Expressions():
            return isinstance(tree, Mapping)
        case Flag():
            return isinstance(tree, Scalar) and isinstance(tree.value, bool)
        case _:
            return isinstance(tree, Scalar) and (not isinstance(shape, Text) or isinstance(tree.value, str))


def _told(path: Path) -> str:
    """Name a value at the beginning of a sentence, by the last name in its path."""
    names = [part for part in path if isinstance(part, str)]
    return f"{names[-1]!r}" if names else "The file"
