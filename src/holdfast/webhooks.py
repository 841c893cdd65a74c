"""Signatures of webhooks, after the Standard Webhooks specification: what the engine signs and a receiver verifies.

    from holdfast import webhooks

    payload = webhooks.verify(request.headers, body, secrets=["whsec_…"])

The signature covers id, time and body; it is an HMAC-SHA256 under each active secret, so a secret is changed by having
two for a while: the sender signs with both, the receiver accepts either. Verify the raw bytes, before they are parsed.
A receiver also remembers the ids it has acted upon: a delivery may come more than once, always under the same id.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from holdfast.errors import Forbidden, HoldfastError

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
TOLERANCE: Final = 300  # seconds a delivery may be old, or ahead of our clock
PREFIX: Final = "whsec_"

_VERSION: Final = "v1"
_MOST_SIGNATURES: Final = 16


def sign(id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> str:
    """The value of the signature header: one signature per active secret."""
    signatures = (_signature(id, timestamp, body, _key(secret)) for secret in secrets)
    return " ".join(f"{_VERSION},{signature}" for signature in signatures)


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> str:
    """The id of a genuine delivery; `Forbidden` with a reason when it is not. Compares in constant time."""
    lowered = {name.lower(): value for name, value in headers.items()}
    id, stamp, given = (lowered.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not (id and stamp and given):
        raise Forbidden(
            "The request is not signed.",
            code="WEBHOOK_UNSIGNED",
            hint=f"Pass the headers {ID}, {TIMESTAMP}, {SIGNATURE}.",
        )
    timestamp = _timestamp(stamp)
    if timestamp is None or abs((time.time() if now is None else now) - timestamp) > tolerance:
        raise Forbidden(
            "The request was signed too long ago, or in the future.",
            code="WEBHOOK_TOO_OLD",
            hint="Check the clocks of both sides; somebody may be repeating an old request.",
        )
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    wanted = [_signature(id, timestamp, body, key).encode() for key in keys]
    offered = [part.partition(",") for part in given.split()[:_MOST_SIGNATURES]]
    matches = [
        hmac.compare_digest(signature.encode(), expected)
        for version, _, signature in offered
        if version == _VERSION
        for expected in wanted
    ]
    if not any(matches):
        raise Forbidden(
            "The signature does not fit the request.",
            code="WEBHOOK_SIGNATURE_INVALID",
            hint="Verify the raw bytes of the body, with the secret the sender uses now.",
        )
    return id


def _signature(id: str, timestamp: int, body: bytes, key: bytes) -> str:
    content = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return base64.b64encode(hmac.new(key, content, sha256).digest()).decode()


def _timestamp(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _key(secret: str) -> bytes:
    """The bytes of a secret: base64 behind the prefix `whsec_`, which may be left out."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < 16:
        raise HoldfastError(
            "A webhook secret is not usable.",
            code="WEBHOOK_SECRET_INVALID",
            hint="It is base64 of at least 16 bytes, after `whsec_`: openssl rand -base64 32 makes one.",
        )
    return key
