"""Options of the builder: one row per option, with a test and a description of valid values."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Final, cast

from holdfast.doors.saga.model import (
    Call,
    Compensation,
    Condition,
    Fork,
    Human,
    Join,
    Mail,
    Parallel,
    SavePoint,
    Sleep,
    Step,
    SubFlow,
    WaitEvent,
    Webhook,
)

BACKOFFS: Final = ("fixed", "linear", "exponential")
MODES: Final = ("all", "any")
DATA: Final = ("value", "context")
ENGINE_EVENTS: Final = ("completed", "error", "timeout")
NAMELESS: Final = "<lambda>"  # what Python calls a function without a name
LONGEST_NAME: Final = 200  # bytes, because that is what the columns and their indexes hold
LONGEST_DURATION: Final = 100 * 365.25 * 86_400
_INVISIBLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})

Option = tuple[Callable[[Any], bool], str]


def name_complaint(name: Any, *, is_id: bool = False) -> str:
    """Describe the fault of a name; empty if it is valid."""
    if not isinstance(name, str):
        return f"is {type(name).__name__}, not text"
    if not name.strip():
        return "is empty"
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return "contains a control character"
    if len(name.encode()) > LONGEST_NAME:
        return f"is {len(name.encode())} bytes long"
    return "contains '@', which separates a token's path and hop" if is_id and "@" in name else ""


def is_version(value: Any) -> bool:
    return _is_whole(value) and 1 <= value < 2**31


def is_calls(value: Any) -> bool:
    return _is_whole(value) and value < 2**31


def is_limit(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 < value <= LONGEST_DURATION)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_delay(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= LONGEST_DURATION


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_mapping(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(_is_expression(name) and _is_expression(text) for name, text in cast(dict[Any, Any], value).items())


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and not any(name_complaint(name) for name in cast(tuple[Any, ...], value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_addresses(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, list) and value != [] and all(map(_is_text, cast(list[Any], value))))


def _are_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(name) and isinstance(held, str | dict) for name, held in cast(dict[Any, Any], value).items()
    )


def _is_event(value: Any) -> bool:
    return not name_complaint(value) and value not in ENGINE_EVENTS


def _or_none(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


_DELAY: Final[Option] = (_is_delay, "a number of seconds from 0, at most 100 years")
_LIMIT: Final[Option] = (is_limit, "a number of seconds above 0, at most 100 years, or None")
_FLAG: Final[Option] = (_is_flag, "True or False")
_EXPRESSION: Final[Option] = (_or_none(_is_expression), "an expression, or None")
_NAME: Final[Option] = (_or_none(lambda value: not name_complaint(value)), "a name of 1 to 200 visible bytes, or None")
_MAPPING: Final[Option] = (_or_none(_is_mapping), "a dictionary of names and expressions, or None")
_PRIORITY: Final[Option] = (lambda value: _is_whole(value) and 0 <= value <= 100, "a whole number from 0 to 100")

_TEXT: Final[Option] = (_or_none(_is_text), "text, or None")
_ADDRESSES: Final[Option] = (_or_none(_are_addresses), "an address or several, or None")

_AGAIN: Final[dict[str, Option]] = {
    "retries": (_or_none(is_calls), "a whole number: all calls, the first included"),
    "retry_delay": _DELAY,
    "max_delay": _DELAY,
    "backoff": (lambda value: value in BACKOFFS, f"one of {', '.join(BACKOFFS)}"),
    "jitter": (lambda value: _is_number(value) and 0 <= value <= 1, "a share from 0 to 1"),
    "timeout": _LIMIT,
}
_SENT: Final[dict[str, Option]] = {**_AGAIN, "deadline": _LIMIT, "input": _MAPPING, "awaits": _FLAG}
_CALLED: Final[dict[str, Option]] = {
    **_AGAIN,
    "idempotent": _FLAG,
    "priority": _PRIORITY,
    "queue": _NAME,
}

WRITTEN: Final = {  # a stored field → the option a person writes
    "retries": "retry.attempts",
    "retry_delay": "retry.delay",
    "max_delay": "retry.max_delay",
    "backoff": "retry.backoff",
    "jitter": "retry.jitter",
}
OPTIONS: Final[dict[type, dict[str, Option]]] = {
    Step: {**_CALLED, "deadline": _LIMIT, "delay": _DELAY, "input": _MAPPING, "output": _MAPPING},
    Compensation: _CALLED,
    Call: {**_AGAIN, "deadline": _LIMIT, "input": _MAPPING, "output": _MAPPING},
    Webhook: {
        **_SENT,
        "url": (_is_text, "an address"),
        "type": _TEXT,
        "secret": _NAME,
        "signed": _FLAG,
        "envelope": _FLAG,
        "headers": (_or_none(_are_headers), "a dictionary of names and texts or secrets, or None"),
    },
    Mail: {
        **_SENT,
        **dict.fromkeys(("to", "cc", "bcc", "reply_to"), _ADDRESSES),
        **dict.fromkeys(("subject", "text", "html", "sender"), _TEXT),
    },
    Human: {"roles": (_are_names, "names of 1 to 200 visible bytes"), "due": _LIMIT, "priority": _PRIORITY},
    WaitEvent: {
        "event": (_is_event, f"a name of 1 to 200 visible bytes other than {', '.join(ENGINE_EVENTS)}"),
        "key": _EXPRESSION,
        "early": (_or_none(_is_flag), "True, False or None"),
        "deadline": _LIMIT,
    },
    Sleep: {
        "seconds": (_or_none(_is_delay), _DELAY[1]),
        "after": _EXPRESSION,
        "until": _EXPRESSION,
        "cron": _NAME,
        "timezone": _NAME,
    },
    SubFlow: {
        "flow": (lambda value: not name_complaint(value, is_id=True), "the name of a flow"),
        "version": (_or_none(is_version), "a whole number from 1, or None"),
        "input": _MAPPING,
        "deadline": _LIMIT,
    },
    Condition: {"expression": (_is_expression, "an expression")},
    Join: {"mode": (lambda value: value in MODES, "'all' or 'any'")},
    SavePoint: {},
    Fork: {},
    Parallel: {},
}
FLOW_OPTIONS: Final[dict[str, Option]] = {
    "dlq": _FLAG,
    "attempts": (is_calls, "a whole number: all calls, the first included"),
    "timeout": _LIMIT,
    "data": (lambda value: value in DATA, "'value' or 'context'"),
}
