"""Shapes: the values a key may hold, as data. A door's decoder and its JSON Schema both use them, and so agree."""

from __future__ import annotations

from typing import Final

import msgspec

ID: Final = "^[A-Za-z][A-Za-z0-9_-]{0,99}$"
WORKFLOW_ID: Final = "^[A-Za-z][A-Za-z0-9_.-]{0,199}$"
EVENT: Final = "^[A-Za-z][A-Za-z0-9_.:-]{0,99}$"
VISIBLE: Final = r"^(?=.*\S)[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"


class Text(msgspec.Struct, frozen=True):
    """A text; `wanted` describes in words the texts that `pattern` matches."""

    wanted: str = "text"
    pattern: str | None = None
    longest: int = 200
    code: str = ""  # of a text that does not match; empty: the code that the door has for any wrong value


class Choice(msgspec.Struct, frozen=True):
    values: tuple[str, ...]


class Flag(msgspec.Struct, frozen=True):
    pass


class Whole(msgspec.Struct, frozen=True):
    least: int
    most: int
    code: str = ""  # of a number that is not in the range; empty: the code that the door has for any wrong value


class Number(msgspec.Struct, frozen=True):
    least: float
    most: float


class Span(msgspec.Struct, frozen=True):
    """A duration."""

    zero_allowed: bool = False
    is_iso: bool = False  # in ISO 8601 only


class Expressions(msgspec.Struct, frozen=True):
    """A mapping of names to expressions; numbers, booleans and null stand for themselves."""


class Json(msgspec.Struct, frozen=True):
    """A mapping with any content."""


class Anything(msgspec.Struct, frozen=True):
    """Any JSON."""


class Either(msgspec.Struct, frozen=True):
    """A value of one of several shapes that differ in type; `wanted` describes all of them in words."""

    wanted: str
    of: tuple[Shape, ...]


class Items(msgspec.Struct, frozen=True):
    of: Shape
    least: int = 0
    most: int = 1000
    distinct: bool = False
    code: str = ""  # of a list that is too long; empty: the code that the door has for any wrong value


class Named(msgspec.Struct, frozen=True):
    """A mapping of names to values of one shape."""

    of: Shape
    key: Text = Text()
    most: int = 1000


class Field(msgspec.Struct, frozen=True):
    shape: Shape
    about: str
    required: bool = False


class Fields(msgspec.Struct, frozen=True):
    noun: str
    table: dict[str, Field]


class Variants(msgspec.Struct, frozen=True):
    """Fields that depend on the value of one of them."""

    noun: str
    by: str
    tables: dict[str, Fields]


Shape = (
    Text
    | Choice
    | Flag
    | Whole
    | Number
    | Span
    | Expressions
    | Json
    | Anything
    | Either
    | Items
    | Named
    | Fields
    | Variants
)
