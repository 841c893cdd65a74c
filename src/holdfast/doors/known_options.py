"""Options that a verb or a value does not have, with the word to write instead of an old or misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any, Final

_PARTS: Final = {"retries": "attempts", "retry_delay": "delay"}  # an old word → the part of `Retry` it is now
_RETRY: Final = ("attempts", "backoff", "max_delay", "jitter", *_PARTS)


def unknown_option(owner: str, option: str, known: Iterable[str]) -> str:
    """Say that `owner` has no such option, and what to write instead."""
    known = sorted(known)
    similar = difflib.get_close_matches(option[:80], known, n=1)
    part = _PARTS.get(option, option)
    if "retry" in known and option in _RETRY:
        instead = f"write retry=Retry({part}=…)"
    elif part in known:
        instead = f"write {part}=…"
    elif similar:
        instead = f"did you mean {similar[0]!r}?"
    else:
        return f"{owner} has no option {option!r}; it takes {', '.join(known)}."
    return f"{owner} has no option {option!r}: {instead}" + ("" if instead.endswith("?") else ".")


def options_of(method: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(method).parameters) - {"self"}
