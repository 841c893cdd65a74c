"""Secrets by reference: a definition names one, the process that delivers looks it up, no row ever holds it.

`{"secret": "billing"}` means the environment variable HOLDFAST_SECRET_BILLING: the prefix keeps a definition from
naming whatever else the process has in its environment. An application may bring a function instead, which also learns
the organisation.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from holdfast.runtime.effects.delivery import EffectFailed

SecretSource = Callable[[str, str], str | None]  # (organisation, name) → value

PREFIX: Final = "HOLDFAST_SECRET_"
HIDDEN: Final = "***"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SHORTEST: Final = 4  # shorter ones would blot out half of every text


def from_environment(_: str, name: str) -> str | None:
    return os.environ.get(PREFIX + name.upper().replace("-", "_"))


class Secrets:
    """What one delivery looked up; it can hide those values in whatever is stored or logged afterwards."""

    def __init__(self, source: SecretSource, org: str) -> None:
        self._source = source
        self._org = org
        self._seen: set[str] = set()

    def find(self, name: object) -> str | None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise EffectFailed(
                "EFFECT_CONFIG_INVALID", "A secret's name is made of letters, digits, `_` and `-`.", final=True
            )
        value = self._source(self._org, name)
        if value:
            self._seen |= {value, *value.split()}
        return value or None

    def require(self, name: object) -> str:
        value = self.find(name)
        if value is None:
            raise EffectFailed(
                "EFFECT_SECRET_MISSING",
                f"The secret {name!r} is not set where effects are delivered (HOLDFAST_SECRET_…).",
            )
        return value

    def hide(self, text: str) -> str:
        """The text without the secrets, however an answer may have spelled them."""
        for spelling in self._spellings():
            text = text.replace(spelling, HIDDEN)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        for spelling in self._spellings():
            data = data.replace(spelling.encode(), HIDDEN.encode())
        return data

    def _spellings(self) -> list[str]:
        """Longest first, lest a part of one stays behind."""
        secrets = [secret for secret in self._seen if len(secret) >= _SHORTEST]
        return sorted({spelling for secret in secrets for spelling in _spelled(secret)}, key=len, reverse=True)


def _spelled(secret: str) -> Iterator[str]:
    escaped = json.dumps(secret)[1:-1]
    yield from (secret, escaped, escaped.replace("/", "\\/"), quote(secret, safe=""), quote_plus(secret))
    yield base64.b64encode(secret.encode()).decode()
