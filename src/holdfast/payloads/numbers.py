"""Spelling of numbers, such that the database gives back the same number.

PostgreSQL keeps a number of jsonb as digits: `1e19` comes back as `10000000000000000000`, an integer that no caller
could have sent. A zero behind the point is kept. So every large float is written out with one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
LARGE_FLOAT: Final = b"0e0"  # every large float has it once its digits are zeros
_LOOKS_LARGE: Final = re.compile(rb"(?:^|[\[:,])-?[0-9](?:\.[0-9]+)?e[0-9]")
_TEXT_OR_LARGE: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9](?:\.[0-9]+)?e[0-9]+')
_QUOTE: Final = ord('"')


def spelled(data: bytes) -> bytes:
    """Compact JSON as msgspec writes it, with every float of 1e16 and more as digits, a point and a zero."""
    if data.translate(DIGITS).find(LARGE_FLOAT) < 0 or _LOOKS_LARGE.search(data) is None:
        return data
    return _TEXT_OR_LARGE.sub(_written_out, data)


def _written_out(found: re.Match[bytes]) -> bytes:
    token = found[0]
    return token if token[0] == _QUOTE else f"{Decimal(token.decode()):f}.0".encode()
