"""Conversion of a verified token's claims to an identity. A claim of the wrong form is refused, never read as
absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from holdfast.server.access.identity import JWT, Identity
from holdfast.server.auth import naming
from holdfast.server.auth.jwt_settings import JwtSettings
from holdfast.server.auth.refusals import unfit

_ABSENT: Final = None
NO_SCOPE: Final = frozenset({"none"})  # not empty: that would mean those of the roles


def identity_from(claims: Mapping[str, Any], settings: JwtSettings) -> Identity:
    names = settings.claims
    tenant, subject = _find(claims, names.tenant), _find(claims, names.subject)
    partition = _find(claims, names.partition)
    if tenant is _ABSENT:
        raise unfit(
            f"The token does not say to which tenant it belongs: the claim {names.tenant!r} is missing.",
            code="TENANT_MISSING",
            hint="Let the identity provider add it, or name another claim in the settings.",
        )
    if not naming.is_tenant(tenant):
        raise _malformed(names.tenant)
    if not naming.is_subject(subject):
        raise _malformed(names.subject)
    if partition is not _ABSENT and not naming.is_partition(partition):
        raise _malformed(names.partition)
    return Identity(
        tenant=tenant,
        subject=subject,
        partition=partition or "",
        roles=tuple(_words(claims, names.roles)),
        capabilities=frozenset(_words(claims, names.capabilities)),
        scopes=_scopes(claims, settings),
        method=JWT,
    )


def _scopes(claims: Mapping[str, Any], settings: JwtSettings) -> frozenset[str]:
    if not settings.claims.scopes:
        return frozenset()
    prefix = settings.scope_prefix
    found = _words(claims, settings.claims.scopes)
    return frozenset(word.removeprefix(prefix) for word in found if word.startswith(prefix)) or NO_SCOPE


def _words(claims: Mapping[str, Any], name: str) -> list[str]:
    found = _find(claims, name)
    words = naming.split_words(found) if isinstance(found, str) else found
    if words is _ABSENT:
        return []
    if not naming.are_words(words):
        raise _malformed(name)
    return list(dict.fromkeys(cast("list[str]", words)))


def _find(claims: Mapping[str, Any], name: str) -> Any:
    """Find a claim by its full name, since names may be addresses with dots; else along the dots."""
    if not name:
        return _ABSENT
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, Mapping):
            return _ABSENT
        found = cast("Mapping[str, Any]", found).get(part)
    return found


def _malformed(name: str) -> Exception:
    return unfit(f"The claim {name!r} of the token is missing or not of the form it must have.")
