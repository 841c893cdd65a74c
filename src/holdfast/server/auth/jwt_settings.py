"""Settings for the tokens of one issuer: the place of its keys, the allowed algorithms, the names of claims.

One family of algorithms per issuer, fixed here and never taken from the token: a shared secret and a public key are not
interchangeable, and a token that could choose would be signed with a key that is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import HoldfastError
from holdfast.loopback import is_loopback

RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
ELLIPTIC: Final = frozenset({"ES256", "ES384", "ES512"})
EDWARDS: Final = frozenset({"EdDSA"})
PUBLIC: Final = RSA | ELLIPTIC | EDWARDS
SHARED: Final = frozenset({"HS256", "HS384", "HS512"})
SHORTEST_RSA: Final = 2048  # bits
LONGEST_LEEWAY: Final = 300.0


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """Names of claims. A name is looked up as it is, then as a path with dots; an empty one is not looked up."""

    tenant: str = "tenant_id"
    subject: str = "sub"
    partition: str = "partition_id"
    roles: str = "roles"
    capabilities: str = "capabilities"
    scopes: str = ""


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One issuer. Its keys come from one of `jwks_url`, `jwks` (the document itself) and `key` (PEM or secret)."""

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...] = ("RS256",)
    jwks_url: str = ""
    jwks: Mapping[str, Any] | None = None
    key: str = ""
    claims: Claims = Claims()
    scope_prefix: str = ""
    leeway: float = 30.0
    require_nbf: bool = False

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience or not all(self.audience):
            raise _invalid("needs an issuer and an audience", "Both are compared with what the token says.")
        if isinstance(self.audience, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _invalid("has a text as audience", "Write a tuple, even of one.")
        if sum((bool(self.jwks_url), self.jwks is not None, bool(self.key))) != 1:
            raise _invalid("needs one source of keys", "Give one of jwks_url, jwks and key.")
        if not 0 <= self.leeway <= LONGEST_LEEWAY:
            raise _invalid("has an unfit leeway", f"Write 0 to {LONGEST_LEEWAY:.0f} seconds.")
        if not self.claims.tenant or not self.claims.subject:
            raise _invalid("names no claim for tenant or subject", "Every request belongs to a tenant and a person.")
        self._check_algorithms()
        self._check_address()

    def _check_algorithms(self) -> None:
        chosen = frozenset(self.algorithms)
        allowed = SHARED if self.key and not self.has_public_key else PUBLIC
        if not chosen or not chosen <= allowed:
            raise _invalid(
                f"allows {', '.join(sorted(chosen - allowed)) or 'no algorithm'}",
                f"With keys of this kind it may be: {', '.join(sorted(allowed))}.",
            )
        least = max(int(name[2:]) // 8 for name in chosen) if chosen <= SHARED else 0
        if len(self.key.encode()) < least:
            raise _invalid("has a short secret", f"For these algorithms it has at least {least} bytes.")

    def _check_address(self) -> None:
        if not self.jwks_url:
            return
        parts = urlsplit(self.jwks_url)
        if parts.scheme == "https" and parts.hostname:
            return
        if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
            raise _invalid("fetches its keys in the clear", "Write an https address; http only works on loopback.")

    def __repr__(self) -> str:  # without the secret: logs and tracebacks show representations
        return f"JwtSettings({self.issuer!r}, {', '.join(self.algorithms)})"

    @property
    def has_public_key(self) -> bool:
        return "-----BEGIN" in self.key


def _invalid(problem: str, hint: str) -> HoldfastError:
    return HoldfastError(f"The issuer of tokens {problem}.", code="SETTING_INVALID", hint=hint)
