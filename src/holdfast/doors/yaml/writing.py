"""Write data as YAML that reads back as the same data: mappings in blocks, short entries of lists on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, cast

from holdfast.doors.yaml.scalars import resolve

WIDTH: Final = 110
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[0-9.]+[a-z]+")
_MIDDLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_. <>=()+-]*[A-Za-z0-9_)]")  # of no special meaning behind a key


def write_yaml(data: dict[str, Any]) -> str:
    """Write a document."""
    return "\n".join(_mapping(data, 0)) + "\n"


def _mapping(data: dict[str, Any], indent: int) -> Iterator[str]:
    margin = " " * indent
    for key, value in data.items():
        inner = cast(dict[str, Any] | list[Any], value)
        if not isinstance(value, dict | list) or not value or not _is_block(inner, indent + len(key)):
            yield f"{margin}{_text(key)}: {_flow(value)}"
            continue
        yield f"{margin}{_text(key)}:"
        yield from _mapping(inner, indent + 2) if isinstance(inner, dict) else _list(inner, indent + 2)


def _list(items: list[Any], indent: int) -> Iterator[str]:
    margin = " " * indent
    for item in items:
        flat = _flow(item)
        if not isinstance(item, dict) or not item or len(flat) + indent + 2 <= WIDTH:
            yield f"{margin}- {flat}"
            continue
        first, *rest = _mapping(cast(dict[str, Any], item), indent + 2)
        yield f"{margin}- {first.lstrip()}"
        yield from rest


def _is_block(value: dict[str, Any] | list[Any], indent: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    return any(isinstance(each, dict | list) for each in inner) or len(_flow(value)) + indent + 2 > WIDTH


def _flow(value: Any) -> str:
    match value:
        case dict():
            entries = cast(dict[str, Any], value).items()
            return "{" + ", ".join(f"{_text(key)}: {_flow(item)}" for key, item in entries) + "}"
        case list():
            return "[" + ", ".join(_flow(item) for item in cast(list[Any], value)) + "]"
        case str():
            return _text(value)
        case _:
            return json.dumps(value)


def _text(value: str) -> str:
    """Write a text bare where YAML reads it as the same text, else in the quotes of JSON."""
    if len(value) <= WIDTH and (_PLAIN.fullmatch(value) or _MIDDLE.fullmatch(value)) and _is_text(value):
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


def _is_text(value: str) -> bool:
    try:
        return isinstance(resolve(value), str)
    except ValueError:  # a number that JSON does not know
        return False
