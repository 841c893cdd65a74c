"""Arguments in JSON: literal, in a file, or on standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from holdfast.errors import Refused


def read_given(text: str | None, option: str = "--input", *, code: str = "INPUT_NOT_JSON") -> Any:
    """Read JSON: the literal, the file named after an `@`, or with `-` standard input."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(_raw(text))
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise Refused(
            f"{option} cannot be read: {error}.",
            code=code,
            hint="Quote JSON for the shell, or name a file that holds it: @order.json.",
        ) from None


def read_object(text: str | None, option: str, hint: str) -> dict[str, Any] | None:
    given = read_given(text, option)
    if given is None or isinstance(given, dict):
        return cast("dict[str, Any] | None", given)
    raise Refused(f"{option} is no JSON object.", code="INPUT_NOT_JSON", hint=hint)


def read_list(text: str | None, option: str, hint: str) -> list[Any] | None:
    given = read_given(text, option)
    if given is None or isinstance(given, list):
        return cast("list[Any] | None", given)
    raise Refused(f"{option} is no JSON list.", code="INPUT_NOT_JSON", hint=hint)


def _raw(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    return Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()


def read_attributes(pairs: Sequence[str]) -> dict[str, Any] | None:
    """A value that is JSON of a number or a truth value is that; anything else is text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise Refused(f"{pair!r} is no attribute.", code="ATTRIBUTE_INVALID", hint="Write --attribute NAME=VALUE.")
        found[name] = _value(value)
    return found or None


def _value(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text
    return value if isinstance(value, (bool, int, float, str)) else text
