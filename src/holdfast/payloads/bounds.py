"""Bounds of stored data. A caller's input is bounded where it comes in; data the engine derives is bounded here.

Outputs that merge, mappings that copy and joins that gather let an instance's data grow with every lap of a loop.
"""

from __future__ import annotations

import re
from typing import Final

MAX_CONTEXT_BYTES: Final = 4 * 1024 * 1024  # unless the settings say otherwise
MAX_COMPOSED_DEPTH: Final = 128  # twice what one payload may have

GROWTH: Final = 64  # a number such as 1e308 is stored with all its digits: at most so many times its own length
_EXPONENT: Final = re.compile(rb"[0-9]e[+-]?([0-9]{2,3})(?=[,\]}]|$)")
_QUOTED: Final = re.compile(rb'"[^"]*"')
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'"[]'))


def stored_size(data: bytes, most: int) -> int:
    """Bytes of the JSON as the database writes it: without exponents. Only large data can grow beyond `most`."""
    size = len(data)
    if size <= most // GROWTH or size > most or not _EXPONENT.search(data):
        return size
    numbers = _QUOTED.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b""))
    return size + sum(map(int, _EXPONENT.findall(numbers)))


def is_deep(data: bytes, most: int) -> bool:
    """Check for more than `most` levels: drop strings, then the innermost pair of brackets once per level."""
    shape = data.translate(_BRACKETS)
    if len(data) <= 2 * most or shape.count(b"[") <= most:
        return False
    unescaped = shape.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = _QUOTED.sub(b"", unescaped.translate(None, _NOT_STRUCTURE).replace(b'""', b""))
    for _ in range(most):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True
