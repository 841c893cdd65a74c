"""Settings of authentication: the accepted proofs, from the application or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.server.auth.capabilities import Resolver
from holdfast.server.auth.jwt_settings import Claims, JwtSettings
from holdfast.server.auth.naming import split_words
from holdfast.server.auth.resolving import VARIABLE, load_resolver

_SWITCHES: Final = {"": None, "1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
_JWT: Final = "HOLDFAST_JWT_"
_CLAIM: Final = f"{_JWT}CLAIM_"


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`resolver` replaces the map of roles; without either, capabilities are what token or key say."""

    jwt: tuple[JwtSettings, ...] = ()
    api_keys: bool = True
    development: bool = False
    roles: Mapping[str, tuple[str, ...]] = {}
    resolver: Resolver | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> AuthSettings:
        source = os.environ if environment is None else environment
        return cls(
            jwt=_issuer(source),
            api_keys=_switch(source, "HOLDFAST_ACCEPT_API_KEYS", otherwise=True),
            development=_switch(source, "HOLDFAST_DEVELOPMENT_IDENTITY", otherwise=False),
            roles=_roles(source.get("HOLDFAST_ROLES", "").strip()),
            resolver=_resolver(source.get(VARIABLE, "").strip()),
        )


def _issuer(source: Mapping[str, str]) -> tuple[JwtSettings, ...]:
    given = {name.removeprefix(_JWT).lower(): text.strip() for name, text in source.items() if name.startswith(_JWT)}
    given = {name: text for name, text in given.items() if text}
    if not given:
        return ()
    claims = {name: given.pop(f"claim_{name}") for name in Claims.__struct_fields__ if f"claim_{name}" in given}
    fields: dict[str, Any] = {"issuer": "", "audience": (), "claims": Claims(**claims)}
    for name, text in given.items():
        match name:
            case "audience" | "algorithms":
                fields[name] = split_words(text)
            case "leeway":
                fields[name] = _number(f"{_JWT}LEEWAY", text)
            case "issuer" | "jwks_url" | "key" | "scope_prefix":
                fields[name] = text
            case _:
                raise _invalid(
                    f"{_JWT}{name.upper()}", "is not known", "`holdfast docs authentication` lists those there are."
                )
    return (JwtSettings(**fields),)


def _roles(place: str) -> dict[str, tuple[str, ...]]:
    """The file that HOLDFAST_ROLES names: JSON, from role to capabilities."""
    if not place:
        return {}
    try:
        return msgspec.json.decode(Path(place).read_bytes(), type=dict[str, tuple[str, ...]])
    except (OSError, msgspec.DecodeError) as problem:
        raise _invalid(
            "HOLDFAST_ROLES",
            f"names a file that cannot be used ({type(problem).__name__})",
            'Write JSON such as {"approver": ["orders:approve:*"]}.',
        ) from None


def _resolver(place: str) -> Resolver | None:
    return load_resolver(place) if place else None


def _switch(source: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    text = source.get(name, "").strip().lower()
    if text not in _SWITCHES:
        raise _invalid(name, "is neither yes nor no", "Use 1 or 0, or leave it out.")
    chosen = _SWITCHES[text]
    return otherwise if chosen is None else chosen


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _invalid(name, "is not a number", "Write seconds.") from None


def _invalid(name: str, problem: str, hint: str) -> HoldfastError:
    return HoldfastError(f"{name} {problem}.", code="SETTING_INVALID", hint=hint, variable=name)
