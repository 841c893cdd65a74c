"""Secrets by reference: a definition names one, the process that delivers looks it up, no row ever holds it.

A secret belongs to one organisation. `{"secret": "billing"}` of acme means the environment variable
HOLDFAST_SECRET_ACME__BILLING. HOLDFAST_SECRET_BILLING is for the organisation of the process (HOLDFAST_ORG), and for
the others only where HOLDFAST_SHARED_SECRETS names `billing`. The prefix keeps a definition from naming any other
variable of the process. An application may provide a function of organisation and name instead.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from holdfast.runtime.effects.delivery import EffectFailed
from holdfast.settings import SECRET_NAME, Settings, normal_secret_name

SecretSource = Callable[[str, str], str | None]  # (organisation, name) → value

PREFIX: Final = "HOLDFAST_SECRET_"
HIDDEN: Final = "***"
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_SHORTEST: Final = 4  # shorter ones would blot out half of every text


def from_environment(org: str, name: str) -> str | None:
    return next((value for variable in variables_of(org, name) if (value := os.environ.get(variable))), None)


def variables_of(org: str, name: str) -> tuple[str, ...]:
    """The environment variables that may hold the secret: the organisation's own first, then the plain one.

    The first two underscores in a row end the organisation, so a plain name has none: it would be another tenant's.
    """
    spelled = normal_secret_name(name)
    own = f"{PREFIX}{_spelled_org(org)}__{spelled}"
    settings = Settings.from_environment()
    if "__" in spelled or (org != settings.org and spelled not in settings.shared_secrets):
        return (own,)
    return own, PREFIX + spelled


def _spelled_org(org: str) -> str:
    """Small letters and digits as capitals, every other byte as `_` and two hex digits: no two are spelled alike."""
    return "".join(chr(byte).upper() if chr(byte) in _PLAIN else f"_{byte:02X}" for byte in org.encode())


class Secrets:
    """Secrets looked up for one delivery; hides their values in the text stored or logged afterwards."""

    def __init__(self, source: SecretSource, org: str) -> None:
        self._source = source
        self._org = org
        self._seen: set[str] = set()

    def find(self, name: object) -> str | None:
        if not isinstance(name, str) or not SECRET_NAME.fullmatch(name):
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
                f"{self._org!r} has no secret {name!r} where effects are delivered. {self._remedy(str(name))}",
                elsewhere=True,
            )
        return value

    def _remedy(self, name: str) -> str:
        if self._source is not from_environment:
            return "Add it where `EffectOptions(secrets=…)` looks it up."
        variables = variables_of(self._org, name)
        shared = "" if len(variables) > 1 else " A name in HOLDFAST_SHARED_SECRETS is everybody's."
        return f"Set {' or '.join(variables)} for the worker.{shared}"

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
