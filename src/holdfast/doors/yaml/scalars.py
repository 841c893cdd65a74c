"""Plain scalars by the core schema of YAML 1.2: `no`, `on` and dates stay text, `0o17` is a number."""

from __future__ import annotations

import math
import re
from typing import Final

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_BASED: Final = re.compile(r"0o([0-7]+)|0x([0-9a-fA-F]+)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ODD: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
LONGEST_NUMBER: Final = 18  # digits: a longer number is an identifier, and JSON readers would round it


def resolve(text: str) -> str | int | float | bool | None:
    """Resolve a plain scalar to its value; raise ValueError for a number that JSON does not know."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(_short(text))
    if based := _BASED.fullmatch(text):
        digits = _short(based[1] or based[2])
        return int(digits, 8 if based[1] else 16)
    if _FLOAT.fullmatch(text):
        return _finite(float(text))
    if _ODD.fullmatch(text):
        raise ValueError(f"{text} is no number in JSON")
    return text


def _short(digits: str) -> str:
    if len(digits.lstrip("+-")) > LONGEST_NUMBER:
        raise ValueError(f"A whole number has {len(digits.lstrip('+-'))} digits")
    return digits


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("A number is too large")
    return number
