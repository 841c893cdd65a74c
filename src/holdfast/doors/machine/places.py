"""Places in a JSON document: paths such as `states[2].name`, and the offset of each in the text."""

from __future__ import annotations

import re
from contextlib import suppress
from json import decoder
from typing import Any, Final, cast

Path = tuple[str | int, ...]

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r"[^,\]}\s]+")
_SIMPLE: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_scan_string: Final = cast(Any, decoder).scanstring


def spelled(path: Path) -> str:
    """Spell a path; the whole document is `$`."""
    parts = [f"[{part}]" if isinstance(part, int) else _key(part) for part in path]
    return "".join(parts).removeprefix(".") or "$"


def _key(key: str) -> str:
    return f".{key}" if _SIMPLE.fullmatch(key) else f"[{ascii(key)[:80]}]"


def offsets(text: str) -> dict[Path, int]:
    """Find the offset of every value of a JSON text, by its path; of a text that is no JSON, as far as it is read."""
    found: dict[Path, int] = {}
    with suppress(IndexError, ValueError, RecursionError):
        _value(text, _skip(text, 0), (), found)
    return found


def _value(text: str, at: int, path: Path, found: dict[Path, int]) -> int:
    found[path] = at
    if text[at] == "{":
        return _object(text, at + 1, path, found)
    if text[at] == "[":
        return _array(text, at + 1, path, found)
    if text[at] == '"':
        return _scan_string(text, at + 1)[1]
    match = _SCALAR.match(text, at)
    return at + 1 if match is None else match.end()


def _object(text: str, at: int, path: Path, found: dict[Path, int]) -> int:
    at = _skip(text, at)
    while text[at] != "}":
        key, at = _scan_string(text, at + 1)
        at = _skip(text, at) + 1  # the colon
        at = _skip(text, _value(text, _skip(text, at), (*path, key), found))
        at = _skip(text, at + 1) if text[at] == "," else at
    return at + 1


def _array(text: str, at: int, path: Path, found: dict[Path, int]) -> int:
    at = _skip(text, at)
    index = 0
    while text[at] != "]":
        at = _skip(text, _value(text, at, (*path, index), found))
        at = _skip(text, at + 1) if text[at] == "," else at
        index += 1
    return at + 1


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return at if match is None else match.end()
