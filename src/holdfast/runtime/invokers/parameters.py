"""Parameters of an operation: their values, and their spelling in a path, a query, a header or a cookie.

The rule is that a value arrives as it was given or is not sent at all. Where a place has no spelling for a value (a
line break in a header, a comma inside a list that commas separate), it is refused before anything is sent.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import msgspec

from holdfast.payloads import encode
from holdfast.runtime.invokers.errors import shown, unfit, unsupported
from holdfast.runtime.schemas.schemas import Check, told

LONGEST: Final = 8000  # characters of one value, where it is part of a line
_STYLES: Final = {
    "path": frozenset({"simple"}),
    "query": frozenset({"form", "deepObject", "spaceDelimited", "pipeDelimited"}),
    "header": frozenset({"simple"}),
    "cookie": frozenset({"form"}),
}
_DELIMITERS: Final = {"simple": ",", "form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEADER: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_COOKIE: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")
_ROUNDS: Final = 5  # of percent-decoding that proxies on the way might do


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    place: str  # path | query | header | cookie
    required: bool = False
    style: str = "simple"
    explode: bool = False
    is_json: bool = False  # written as JSON text, whatever it is
    check: Check | None = None

    @property
    def label(self) -> str:
        return f"the {self.place} parameter {shown(self.name)}"

    def validate(self, value: Any) -> None:
        misfits = self.check(value) if self.check is not None else []
        if misfits:
            raise unfit(f"{self.label} does not fit: {told(misfits)}")
        if self.style not in _STYLES[self.place] and not self.is_json:
            raise unsupported(f"{self.label} is written in the style {shown(self.style)}, which is not supported.")


def in_path(parameter: Parameter, value: Any) -> str:
    text = ",".join(_items(parameter, value))
    if not text:
        raise unfit(f"{parameter.label} is empty, so the path would be another one.")
    if _CONTROL.search(text):
        raise unfit(f"{parameter.label} holds a control character.")
    return quote(text, safe="" if not isinstance(value, list) else ",")


def check_path(path: str) -> None:
    """Refuse a segment that could mean another place, however often a proxy decodes it."""
    for _ in range(_ROUNDS):
        if any(segment.strip() in (".", "..") for segment in re.split(r"[/\\;]", path)):
            raise unfit("a path parameter would lead to another place (`.` or `..`).")
        decoded = unquote(path)
        if decoded == path:
            return
        path = decoded
    raise unfit("a path parameter is percent-encoded again and again.")


def in_query(parameter: Parameter, value: Any) -> list[tuple[str, str]]:
    """Pairs of the query, percent-encoded."""
    name = _quoted(parameter.name)
    if isinstance(value, dict) and parameter.style == "deepObject" and not parameter.is_json:
        members = cast("dict[str, Any]", value)
        return [
            (f"{name}[{_quoted(_key(parameter, key))}]", _quoted(_text(parameter, item)))
            for key, item in members.items()
        ]
    items = _items(parameter, value)
    if isinstance(value, list) and not parameter.is_json:
        if not items:
            return []
        if not parameter.explode:
            return [(name, _quoted(_DELIMITERS.get(parameter.style, ",")).join(map(_quoted, items)))]
    return [(name, _quoted(item)) for item in items]


def in_header(parameter: Parameter, value: Any) -> str:
    return header_value(",".join(_items(parameter, value)), parameter.label)


def header_value(text: str, label: str) -> str:
    if not is_header(text):
        raise unfit(f"{label} has a value that a header cannot carry unchanged.")
    return text


def is_header(text: str) -> bool:
    return len(text) <= LONGEST and _HEADER.fullmatch(text) is not None


def in_cookie(parameter: Parameter, value: Any) -> str:
    if isinstance(value, list | dict) and not parameter.is_json:
        raise unsupported(f"{parameter.label} is not a single value, and cookies have no safe spelling for others.")
    [text] = _items(parameter, value)
    return f"{parameter.name}={cookie_value(text, parameter.label)}"


def cookie_value(text: str, label: str) -> str:
    if len(text) > LONGEST or not _COOKIE.fullmatch(text):
        raise unfit(f"{label} has a value that a cookie cannot carry unchanged.")
    return text


def _items(parameter: Parameter, value: Any) -> list[str]:
    """The value as text, a list as its items; a single line of JSON where the document asks for it."""
    if parameter.is_json:
        return [encode(value, parameter.label).decode()]
    if not isinstance(value, list):
        return [_text(parameter, value)]
    items = [_text(parameter, item) for item in cast("list[Any]", value)]
    delimiter = _DELIMITERS.get(parameter.style, ",")
    is_joined = parameter.place != "query" or not parameter.explode
    if is_joined and any(delimiter in item for item in items):
        raise unfit(f"{parameter.label} has an item with {delimiter!r} in it, which separates the items.")
    if parameter.place == "header" and any(item != item.strip() or not item for item in items):
        raise unfit(f"{parameter.label} has an item that a list in a header cannot carry unchanged.")
    return items


def _text(parameter: Parameter, value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | float):
        text = msgspec.json.encode(value).decode()
    else:
        raise unfit(f"{parameter.label} holds {_kind(value)}, which has no spelling there.")
    if len(text) > LONGEST:
        raise unfit(f"{parameter.label} is longer than {LONGEST} characters.")
    return text


def _key(parameter: Parameter, key: str) -> str:
    if not key or "[" in key or "]" in key:
        raise unfit(f"{parameter.label} has a key that brackets cannot carry unchanged.")
    return key


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "an object" if isinstance(value, dict) else "a list"


def _quoted(text: str) -> str:
    return quote(text, safe="")
