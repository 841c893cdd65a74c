"""Tokens of identity providers: a signature by a key of the issuer, under an algorithm that was chosen here.

The token's own words about its verification count for two lookups only: its issuer among those that are configured, and
its key among those of that issuer. Addresses and keys in its header (`jku`, `x5u`, `jwk`) are never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

import jwt
from jwt.exceptions import ExpiredSignatureError, ImmatureSignatureError, InvalidAudienceError, PyJWTError
from jwt.types import Options

from holdfast.errors import HoldfastError
from holdfast.server.access.identity import Identity
from holdfast.server.auth.claims import identity_from
from holdfast.server.auth.jwks import FixedKeys, Jwks
from holdfast.server.auth.jwt_settings import RSA, SHORTEST_RSA, JwtSettings
from holdfast.server.auth.key_set import KeySet
from holdfast.server.auth.refusals import unfit

MOST_BYTES: Final = 16 * 1024
_LONGEST_KID: Final = 300
_TYPES: Final = (None, "jwt", "at+jwt", "application/at+jwt")
_BROKEN = (PyJWTError, ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError)


class Keys(Protocol):
    async def find(self, kid: str | None, algorithm: str) -> Sequence[Any]: ...


class Issuer:
    """One issuer and its keys."""

    def __init__(self, settings: JwtSettings, keys: Keys | None = None) -> None:
        self.settings = settings
        self._keys = keys or _keys_of(settings)
        required = ["exp", "iss", "aud", *(["nbf"] if settings.require_nbf else [])]
        self._options: Options = {"require": required, "enforce_minimum_key_length": True, "verify_sub": False}

    async def verify(self, token: str, header: Mapping[str, Any]) -> dict[str, Any]:
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.settings.algorithms:
            raise unfit("The token is signed with an algorithm that its issuer is not allowed.")
        if kid is not None and (not isinstance(kid, str) or len(kid) > _LONGEST_KID):
            raise unfit("The token names its key in a way that cannot be one.")
        for key in await self._keys.find(kid, algorithm):
            claims = self._decode(token, algorithm, key)
            if claims is not None:
                return claims
        raise unfit("The token is not signed with a key of its issuer.")

    def _decode(self, token: str, algorithm: str, key: Any) -> dict[str, Any] | None:
        """None: another key may fit."""
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=self.settings.leeway,
                options=self._options,
            )
        except jwt.InvalidSignatureError:
            return None
        except ExpiredSignatureError:
            raise unfit("The token has expired.", code="TOKEN_EXPIRED", hint="Fetch a new one.") from None
        except ImmatureSignatureError:
            raise unfit("The token is not valid yet.", hint="Compare the clocks of issuer and server.") from None
        except InvalidAudienceError:
            raise unfit("The token is meant for somebody else.", hint="Ask for a token with our audience.") from None
        except jwt.MissingRequiredClaimError as lacking:
            raise unfit(f"The token lacks the claim {lacking.claim!r}.") from None
        except _BROKEN:
            raise unfit("The token cannot be verified.") from None


class JwtAuthenticator:
    def __init__(self, *issuers: JwtSettings | Issuer) -> None:
        known = [issuer if isinstance(issuer, Issuer) else Issuer(issuer) for issuer in issuers]
        self._issuers = {issuer.settings.issuer: issuer for issuer in known}
        if len(self._issuers) < len(known):
            raise HoldfastError("Two settings are about the same issuer.", code="SETTING_INVALID")

    async def authenticate(self, text: str) -> Identity:
        if len(text) > MOST_BYTES:
            raise unfit(f"The token has more than {MOST_BYTES} bytes.")
        header, claimed = _unverified(text)
        issuer = self._issuers.get(claimed)
        if issuer is None:
            raise unfit("The token comes from an issuer that is not known here.")
        return identity_from(await issuer.verify(text, header), issuer.settings)


def _unverified(token: str) -> tuple[dict[str, Any], str]:
    """The header, and the issuer as the token has it; both only to look something up."""
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except _BROKEN:
        raise unfit("The credentials are neither a token nor an API key.") from None
    header = cast("dict[str, Any]", parts["header"])
    issuer = cast("dict[str, Any]", parts["payload"]).get("iss")
    kind = header.get("typ")
    if "crit" in header or (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise unfit("The token is of a kind that is not understood here.")
    return header, issuer if isinstance(issuer, str) else ""


def _keys_of(settings: JwtSettings) -> Keys:
    if settings.jwks_url:
        return Jwks(settings.jwks_url, settings.algorithms)
    if settings.key:
        return _OneKey(settings)
    try:
        keys = KeySet(settings.jwks, settings.algorithms)
    except ValueError as problem:
        raise HoldfastError(f"The given keys are unfit: {problem}.", code="SETTING_INVALID") from None
    if not keys.size:
        raise HoldfastError("None of the given keys fits the algorithms.", code="SETTING_INVALID")
    return FixedKeys(keys)


class _OneKey:
    """A public key in PEM, or a shared secret; the key id of the token does not matter."""

    def __init__(self, settings: JwtSettings) -> None:
        try:
            self._keys = {name: _prepared(name, settings.key) for name in settings.algorithms}
        except _BROKEN:  # the reason might quote the key
            raise HoldfastError("The given key does not fit the algorithms.", code="SETTING_INVALID") from None

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Any]:
        return (self._keys[algorithm],)


def _prepared(algorithm: str, key: str) -> Any:
    """Read once; from then on it is good for this kind of algorithm only."""
    prepared: Any = jwt.get_algorithm_by_name(algorithm).prepare_key(key)
    if algorithm in RSA and prepared.key_size < SHORTEST_RSA:
        raise ValueError("the key is too short")
    return prepared
