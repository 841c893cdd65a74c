"""Decode JSON to plain values, key by key: a value that does not fit its shape is reported and left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from holdfast.doors.durations import read_iso_duration
from holdfast.doors.machine.places import Path
from holdfast.doors.machine.problems import Findings
from holdfast.doors.shapes import Anything, Choice, Either, Fields, Flag, Items, Number, Shape, Span, Text, Whole

LONGEST_BYTES: Final = 200  # of a name, because that is what the columns and their indexes hold
CALENDAR: Final = "Months and years have no fixed length: write days, such as P30D."
_MONTHS: Final = re.compile(r"P[0-9.]*[YM]|P[0-9.]+Y[0-9.]*M?")

compiled: Final = lru_cache(maxsize=64)(re.compile)


class Misfit:
    """Placeholder of a refused value."""


MISFIT: Final = Misfit()


class Taken(dict[str, Any]):
    """The keys of an object that fit; `given` has those that did not as well."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given = frozenset(given)

    def is_sound(self, *keys: str) -> bool:
        """Check that none of these keys was refused."""
        return all(key in self or key not in self.given for key in keys)


class Taker:
    """A decoder of one value after another."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def take(self, shape: Shape, value: Any, path: Path) -> Any:
        return _TAKERS[type(shape)](self, shape, value, path)

    def refuse(self, code: str, message: str, path: Path, hint: str = "") -> Misfit:
        self.findings.add(code, path, message, hint=hint)
        return MISFIT

    def wrong_type(self, path: Path, wanted: str, value: Any, code: str = "") -> Misfit:
        message = f"{_named(path)} must be {wanted}; it is {described(value)}."
        return self.refuse(code or "MACHINE_TYPE_WRONG", message, path)

    # --- values ---------------------------------------------------------------------------------------------------

    def text(self, shape: Text, value: Any, path: Path) -> Any:
        if not isinstance(value, str):
            return self.wrong_type(path, shape.wanted, value)
        code = shape.code or "MACHINE_VALUE_INVALID"
        if not value.strip():
            return self.refuse(code, f"{_named(path)} is empty; it must be {shape.wanted}.", path)
        if len(value) > shape.longest:
            message = f"{_named(path)} has {len(value)} characters; at most {shape.longest} are read."
            return self.refuse(code, message, path)
        if shape.pattern is not None and not compiled(shape.pattern).fullmatch(value):
            return self.refuse(code, f"{_named(path)} is {described(value)}; it must be {shape.wanted}.", path)
        if shape.pattern is not None and len(value.encode()) > LONGEST_BYTES:
            message = f"{_named(path)} has {len(value.encode())} bytes; at most {LONGEST_BYTES} are kept."
            return self.refuse(code, message, path)
        return value

    def choice(self, shape: Choice, value: Any, path: Path) -> Any:
        choices = ", ".join(shape.values)
        if not isinstance(value, str):
            return self.wrong_type(path, f"one of {choices}", value)
        if value not in shape.values:
            message = f"{_named(path)} is {described(value)}; it must be one of {choices}."
            return self.refuse("MACHINE_VALUE_INVALID", message, path, self.findings.nearest(value, shape.values))
        return value

    def flag(self, shape: Flag, value: Any, path: Path) -> Any:
        return value if isinstance(value, bool) else self.wrong_type(path, "true or false", value)

    def whole(self, shape: Whole, value: Any, path: Path) -> Any:
        wanted = f"a whole number from {shape.least} to {shape.most}"
        if not _is_number(value) or int(value) != value:
            return self.wrong_type(path, wanted, value, shape.code)
        if not shape.least <= value <= shape.most:
            message = f"{_named(path)} is {described(value)}; it must be {wanted}."
            return self.refuse(shape.code or "MACHINE_VALUE_INVALID", message, path)
        return int(value)

    def span(self, shape: Span, value: Any, path: Path) -> Any:
        if not isinstance(value, str):
            return self.wrong_type(path, 'a duration in ISO 8601, such as "P2D"', value, "MACHINE_DURATION_INVALID")
        seconds = read_iso_duration(value)
        if seconds:
            return seconds
        above = "" if seconds is None else " above zero"
        hint = CALENDAR if seconds is None and _MONTHS.match(value) else ""
        message = f"{_named(path)} is {described(value)}, which is no duration{above}."
        return self.refuse("MACHINE_DURATION_INVALID", message, path, hint)

    def anything(self, shape: Anything, value: Any, path: Path) -> Any:
        return value

    def either(self, shape: Either, value: Any, path: Path) -> Any:
        fitting = next((each for each in shape.of if _has_type(each, value)), None)
        return self.wrong_type(path, shape.wanted, value) if fitting is None else self.take(fitting, value, path)

    # --- lists and objects of known keys --------------------------------------------------------------------------

    def items(self, shape: Items, value: Any, path: Path) -> Any:
        if not isinstance(value, list):
            return self.wrong_type(path, "a list", value)
        items = cast(list[Any], value)
        if not shape.least <= len(items) <= shape.most:
            message = f"{_named(path)} has {len(items)} entries; it must have {shape.least} to {shape.most}."
            return self.refuse("MACHINE_VALUE_INVALID", message, path)
        taken = [self.take(shape.of, item, (*path, index)) for index, item in enumerate(items)]
        return self.distinct(taken, path) if shape.distinct else taken

    def distinct(self, taken: list[Any], path: Path) -> list[Any]:
        seen: set[str] = set()
        for index, value in enumerate(taken):
            if value is not MISFIT and value in seen:
                message = f"{_named(path)} names {value!r} twice."
                taken[index] = self.refuse("MACHINE_VALUE_INVALID", message, (*path, index))
            seen.add(value)
        return taken

    def fields(self, shape: Fields, value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            return self.wrong_type(path, f"an object: a {shape.noun}", value)
        given = cast(dict[str, Any], value)
        taken = Taken(given)
        for key, item in given.items():
            field = shape.table.get(key)
            if field is None:
                hint = self.findings.nearest(key, shape.table) or f"It takes {', '.join(shape.table)}."
                self.refuse("MACHINE_KEY_UNKNOWN", f"A {shape.noun} has no key {key[:80]!r}.", (*path, key), hint)
            elif (fit := self.take(field.shape, item, (*path, key))) is not MISFIT:
                taken[key] = fit
        for key, field in shape.table.items():
            if field.required and key not in given:
                self.refuse("MACHINE_KEY_MISSING", f"The {shape.noun} has no {key!r}.", path)
        return taken


_TAKERS: Final[dict[type, Callable[[Taker, Any, Any, Path], Any]]] = {
    Text: Taker.text,
    Choice: Taker.choice,
    Flag: Taker.flag,
    Whole: Taker.whole,
    Span: Taker.span,
    Anything: Taker.anything,
    Either: Taker.either,
    Items: Taker.items,
    Fields: Taker.fields,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_type(shape: Shape, value: Any) -> bool:
    if isinstance(shape, Text | Choice | Span):
        return isinstance(value, str)
    return isinstance(shape, Whole | Number) and _is_number(value)


def _named(path: Path) -> str:
    """Name a value at the beginning of a sentence, by the last name in its path."""
    names = [part for part in path if isinstance(part, str)]
    return f"{names[-1]!r}" if names else "The document"


def described(value: Any) -> str:
    """Describe a value in a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value[:80])
        case int() | float():
            return str(value)[:80]
        case list():
            return "a list"
        case _:
            return "an object"
