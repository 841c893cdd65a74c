"""Conversion of a service's answer to the output of a step, or to its failure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from holdfast.errors import PayloadError
from holdfast.payloads import decode
from holdfast.runtime.invokers.errors import CallFailed, CallRefused

if TYPE_CHECKING:
    from holdfast.runtime.invokers.client import Answer

MOST_EXCERPT: Final = 500
LONGEST_WAIT: Final = 3600.0
_WORTH_A_RETRY: Final = frozenset({408, 425, 429})
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json")

Hide = Callable[[str], str]


def read_answer(answer: Answer, title: str, hide: Hide) -> Any:
    if not 200 <= answer.status < 300:
        raise _failure(answer, title, hide)
    if answer.truncated:
        raise CallRefused("OPERATION_ANSWER_TOO_LARGE", f"{title} answered with more than {len(answer.body)} bytes.")
    if answer.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise _unreadable(title, "it is compressed, which was not asked for")
    if not answer.body:
        return None
    kind, _, options = answer.headers.get("content-type", "").partition(";")
    if _JSON.fullmatch(kind.strip().lower()):
        return _without_secrets(_json(answer.body, title), hide)
    return hide(_text(answer.body, options, title))


def retry_after(text: str) -> float | None:
    """Seconds, from a number of them or from a date."""
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return min(max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time()), LONGEST_WAIT)


def _failure(answer: Answer, title: str, hide: Hide) -> CallFailed | CallRefused:
    code, status = f"HTTP_{answer.status}", answer.status
    message = f"{title} answered {status}{_excerpt(answer.body, hide)}"
    if status >= 500 or status in _WORTH_A_RETRY:
        return CallFailed(code, message, retry_after=retry_after(answer.headers.get("retry-after", "").strip()))
    return CallRefused(code, message)


def _excerpt(body: bytes, hide: Hide) -> str:
    """Hidden before it is cut: half a secret is still one."""
    text = hide(body.decode("utf-8", "replace"))[:MOST_EXCERPT]
    readable = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return f": {readable}" if readable else "."


def _json(body: bytes, title: str) -> Any:
    try:
        return decode(body, f"the answer of {title}")
    except PayloadError as failure:
        # By its code only: the words may quote a part of the answer.
        raise _unreadable(title, f"it is no JSON that can be stored ({failure.code})") from None


def _text(body: bytes, options: str, title: str) -> str:
    found = re.search(r"charset\s*=\s*\"?([\w.:-]+)", options, re.IGNORECASE)
    try:
        text = body.decode(found[1] if found else "utf-8")
    except (LookupError, UnicodeDecodeError):
        raise _unreadable(title, "it is no text") from None
    if "\x00" in text:
        raise _unreadable(title, "it is no text")
    return text


def _without_secrets(value: Any, hide: Hide) -> Any:
    """A service that echoes a credential must not get it stored. Hardly any does, so look at the whole first."""
    plain = msgspec.json.encode(value).decode()
    return value if hide(plain) == plain else _hidden(value, hide)


def _hidden(value: Any, hide: Hide) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_hidden(item, hide) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {hide(key): _hidden(item, hide) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _unreadable(title: str, why: str) -> CallRefused:
    return CallRefused("OPERATION_ANSWER_INVALID", f"The answer of {title} cannot be used: {why}.")
