"""The walk: a value made plain (dict, list, str, int, float, bool, None), or a refusal that says where and why."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from decimal import Decimal
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from holdfast.errors import PayloadError

MAX_DEPTH: Final = 64
STORED_INTEGERS: Final = range(-(2**63), 2**63)
HASHED_INTEGERS: Final = range(-(2**53) + 1, 2**53)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SIMPLE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

# Left alone when a record is unfolded, so that the walk judges them as it does everywhere else.
_KEPT_TYPES: Final = (
    bytes,
    bytearray,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    Decimal,
    UUID,
)


def check(value: Any, place: str, integers: range = STORED_INTEGERS) -> Any:
    """The plain form of `value`; raises PayloadError naming `place` and the path inside the value."""
    try:
        return _plain(value, 1, integers)
    except _Trouble as trouble:
        where = f"`{trouble.path}` " if trouble.path else "the value "
        raise PayloadError(
            f"{place} cannot be stored: {where}{trouble.complaint}.",
            code=trouble.code,
            hint=trouble.hint,
            place=place,
            path=trouble.path,
        ) from None


class _Trouble(Exception):
    """A refusal on its way up: each level of the walk adds its step, so the happy path builds no paths."""

    def __init__(self, code: str, complaint: str, hint: str) -> None:
        super().__init__(complaint)
        self.code = code
        self.complaint = complaint
        self.hint = hint
        self.steps: list[str] = []

    @property
    def path(self) -> str:
        return "".join(reversed(self.steps)).removeprefix(".")


def _plain(value: Any, depth: int, integers: range) -> Any:
    """The value made of dict, list, str, int, float, bool and None only."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Enum):
        return _plain(value.value, depth, integers)
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, int):
        return _plain_integer(int(value), integers)
    if isinstance(value, float):
        return _plain_float(float(value))
    if isinstance(value, dict):
        return _plain_object(cast("dict[Any, Any]", value), depth, integers)
    if isinstance(value, list | tuple):
        return _plain_array(cast("list[Any] | tuple[Any, ...]", value), depth, integers)
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime.date):  # a datetime is a date
        return value.isoformat()
    return _plain(_unfold(value, depth), depth + 1, integers)  # deeper, lest a model that unfolds to models never ends


def _plain_text(text: str) -> str:
    if "\0" in text:
        raise _Trouble("PAYLOAD_NUL", "contains a NUL character", "Remove it; binary data belongs in base64 text.")
    if _SURROGATE.search(text):
        raise _Trouble(
            "PAYLOAD_SURROGATE",
            "contains a lone surrogate, which is half a character",
            "Decode the text with the right encoding before it gets here.",
        )
    return text if type(text) is str else str.__str__(text)


def _plain_integer(number: int, integers: range) -> int:
    if number not in integers:
        raise _Trouble(
            "PAYLOAD_INTEGER",
            f"is an integer outside {integers[0]} … {integers[-1]}",
            "Send large integers and amounts of money as strings.",
        )
    return number


def _plain_float(number: float) -> float:
    if not math.isfinite(number):
        raise _Trouble("PAYLOAD_NOT_FINITE", f"is {number}, which JSON cannot hold", "Send null or a string instead.")
    return number


def _plain_decimal(number: Decimal) -> str:
    if not number.is_finite():
        raise _Trouble("PAYLOAD_NOT_FINITE", f"is {number}, which is not a number", "Send null instead.")
    return str(number)


def _plain_object(value: dict[Any, Any], depth: int, integers: range) -> dict[str, Any]:
    _check_depth(depth)
    plain: dict[str, Any] = {}
    for key, item in value.items():
        try:
            plain[_plain_key(key)] = _plain(item, depth + 1, integers)
        except _Trouble as trouble:
            trouble.steps.append(_step(key))
            raise
    return plain


def _plain_array(value: list[Any] | tuple[Any, ...], depth: int, integers: range) -> list[Any]:
    _check_depth(depth)
    plain: list[Any] = []
    for index, item in enumerate(value):
        try:
            plain.append(_plain(item, depth + 1, integers))
        except _Trouble as trouble:
            trouble.steps.append(f"[{index}]")
            raise
    return plain


def _plain_key(key: Any) -> str:
    if not isinstance(key, str):
        raise _Trouble("PAYLOAD_KEY", f"has a key of type {type(key).__name__}", "Keys are text: use str(key).")
    return _plain_text(key.value if isinstance(key, Enum) else key)


def _step(key: Any) -> str:
    if isinstance(key, str) and _SIMPLE_KEY.fullmatch(key):
        return f".{key}"
    return f"[{ascii(key)[:40]}]"


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep()


def _too_deep() -> _Trouble:
    return _Trouble(
        "PAYLOAD_TOO_DEEP",
        f"is nested deeper than {MAX_DEPTH} levels",
        "Flatten it, and check that it does not contain itself.",
    )


def _unfold(value: Any, depth: int) -> Any:
    """A record (dataclass, Struct, pydantic-like model) as dicts and lists."""
    _check_depth(depth)
    try:
        if _has_fields(value):
            return msgspec.to_builtins(value, builtin_types=_KEPT_TYPES, order="deterministic", enc_hook=_unfold_inner)
        if hasattr(value, "model_dump") and not isinstance(value, type):
            return value.model_dump(mode="json")
    except _Trouble:
        raise
    except RecursionError:
        raise _too_deep() from None
    except Exception as error:
        raise _Trouble("PAYLOAD_TYPE", f"cannot be unfolded ({error})", _hint_for(value)) from None
    raise _Trouble("PAYLOAD_TYPE", f"has the unsupported type {type(value).__name__}", _hint_for(value))


def _has_fields(value: object) -> bool:
    return isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _unfold_inner(value: Any) -> Any:
    if isinstance(value, str | int | float):  # subclasses; msgspec knows only the types themselves
        return _plain(value, 1, STORED_INTEGERS)
    return _unfold(value, 1)


def _hint_for(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return "A set has no order: use sorted(...)."
    if isinstance(value, bytes | bytearray | memoryview):
        return "Use base64 text."
    if isinstance(value, datetime.timedelta):
        return "Use total_seconds()."
    return "Use dict, list, str, int, float, bool, None, a dataclass or a model."
