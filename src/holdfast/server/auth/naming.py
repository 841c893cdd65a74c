"""Forms of the names in an identity: they end in rows, keys and the audit trail.

Names that begin with an underscore are the engine's own organisations, and `system` is the actor of the engine's own
changes: no caller can have either.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, cast

from holdfast.errors import Refused

MOST_TENANT_BYTES: Final = 200
MOST_SUBJECT_BYTES: Final = 500
MOST_WORD_BYTES: Final = 200
MOST_WORDS: Final = 1000
SYSTEM: Final = "system"
_UNFIT: Final = re.compile("[\0-\x1f\x7f\ud800-\udfff]")


def is_tenant(value: Any) -> bool:
    return _is_word(value, MOST_TENANT_BYTES) and not value.startswith("_")


def is_subject(value: Any) -> bool:
    return _is_word(value, MOST_SUBJECT_BYTES) and value != SYSTEM


def is_partition(value: Any) -> bool:
    return value == "" or _is_word(value, MOST_TENANT_BYTES)


def are_words(values: Any) -> bool:
    """Roles, capabilities, scopes."""
    if not isinstance(values, list | tuple | set | frozenset):
        return False
    words = cast("Collection[Any]", values)
    return len(words) <= MOST_WORDS and all(_is_word(word, MOST_WORD_BYTES) for word in words)


def split_words(text: str) -> tuple[str, ...]:
    """`a, b c` as three words: lists in headers, options and the `scope` of a token."""
    return tuple(text.replace(",", " ").split())


def check_name(fits: bool, what: str, rule: str) -> None:
    if not fits:
        raise Refused(
            f"The {what} {rule}.", code="NAME_INVALID", hint="See `holdfast docs authentication` for what names may be."
        )


def _is_word(value: Any, most: int) -> bool:
    return (
        isinstance(value, str)
        and bool(value)
        and value == value.strip()
        and _UNFIT.search(value) is None
        and len(value.encode()) <= most
    )
