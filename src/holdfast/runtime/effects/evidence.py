"""Evidence of an answer: enough to know the outcome, little enough to keep, and without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.runtime.effects.delivery import clean
from holdfast.runtime.effects.secrets import Secrets

BODY_BYTES: Final = 4096
HEADER_CHARACTERS: Final = 500
MESSAGE_CHARACTERS: Final = 2000
# Never cookies, tokens or anything else an answer may hand out.
HEADERS: Final = frozenset({
    "cf-ray", "content-length", "content-type", "date", "location", "retry-after", "server", "traceparent", "via",
    "x-correlation-id", "x-request-id",
})  # fmt: skip


class Answer(msgspec.Struct):
    """The answer so far; a failure half-way leaves the rest empty."""

    status: int | None = None
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    truncated: bool = False

    def header(self, wanted: str) -> str:
        return next((value.strip() for name, value in self.headers if name.lower() == wanted), "")


def kept_headers(headers: Iterable[tuple[str, str]], secrets: Secrets) -> dict[str, str]:
    return {
        name.lower(): clean(secrets.hide(value), HEADER_CHARACTERS)
        for name, value in headers
        if name.lower() in HEADERS
    }


def kept_body(body: bytes, secrets: Secrets) -> str:
    """The first 4 KiB as text; hidden first and cut then, so that no half of a secret stays."""
    head = secrets.hide_bytes(body)[:BODY_BYTES]
    return clean(head.decode("utf-8", "replace"), BODY_BYTES)


def message(text: Any, secrets: Secrets) -> str:
    return clean(secrets.hide(str(text)), MESSAGE_CHARACTERS)
