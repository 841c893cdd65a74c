"""Settings of effect delivery in this process; the environment gives the defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast.errors import HoldfastError
from holdfast.runtime.effects.addresses import Resolver, resolve
from holdfast.runtime.effects.secrets import SecretSource, from_environment

_SCHEMES: Final = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class Smtp(msgspec.Struct, frozen=True, kw_only=True):
    """A mail server: `plain` as it is, `starttls` asks for encryption, `tls` begins with it."""

    host: str
    port: int
    security: str = "starttls"
    user: str | None = None
    password: str | None = None
    sender: str | None = None

    def __repr__(self) -> str:
        return f"Smtp({self.security} {self.host}:{self.port})"


class EffectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`allow` names hosts (or host:port) that need be neither public nor https. `limits` is by target, over `limit`."""

    allow: tuple[str, ...] = ()
    limit: int = 10  # deliveries to one target at the same time, over all workers
    limits: dict[str, int] = {}
    concurrency: int = 64  # deliveries at the same time in this process
    connect_timeout: float = 5.0
    read_timeout: float = 15.0
    body_limit: int = 64 * 1024  # bytes read of an answer
    smtp: Smtp | None = None
    secrets: SecretSource = from_environment
    resolve: Resolver = resolve
    tls: Any = None  # an ssl.SSLContext, where the system's certificates are not the right ones
    scan: float = 5.0  # seconds between scans without a hint

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> EffectOptions:
        source = os.environ if environment is None else environment
        allow = tuple(entry.strip() for entry in source.get("HOLDFAST_EFFECTS_ALLOW", "").split(",") if entry.strip())
        return cls(
            allow=allow, smtp=_smtp(source.get("HOLDFAST_SMTP", "").strip(), source.get("HOLDFAST_SMTP_FROM", ""))
        )


def _smtp(url: str, sender: str) -> Smtp | None:
    if not url:
        return None
    parts = urlsplit(url)
    try:
        port = parts.port or _SCHEMES[parts.scheme]
    except (ValueError, KeyError):
        port = 0
    if not (port and parts.hostname):
        # The value itself stays out of the message: it may hold a password.
        raise HoldfastError(
            "HOLDFAST_SMTP is not the address of a mail server.",
            code="SETTING_INVALID",
            hint="Write smtp+starttls://user:password@host:587, smtps://… or smtp://….",
        )
    security = {"smtp": "plain", "smtps": "tls"}.get(parts.scheme, "starttls")
    return Smtp(
        host=parts.hostname,
        port=port,
        security=security,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        sender=sender.strip() or None,
    )
