"""Capabilities: rights as words of segments, and their sources.

A grant may hold wildcards, a definition names plain words. Segments are separated by colons:

- `*` in the middle stands for exactly one segment: `orders:*:execute` covers `orders:approve:execute`;
- `*` at the end stands for one segment or more: `orders:*` covers `orders:approve` and `orders:approve:execute`,
  not `orders`;
- `*` alone covers everything; within a segment it is a plain character.

The engine compares plain words. So its caller first selects the words of a definition that are covered:
`granted(identity, named)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from holdfast.errors import HoldfastError
from holdfast.server.access.identity import Identity
from holdfast.server.auth.naming import are_words

ANY: Final = "*"


class Resolver(Protocol):
    """Source of capabilities for an authenticated identity."""

    async def resolve(self, identity: Identity) -> frozenset[str]: ...


class FromClaims:
    """Capabilities of the token or the key."""

    async def resolve(self, identity: Identity) -> frozenset[str]:
        return identity.capabilities


class RoleMap:
    """Capabilities of the token or the key, and those of its roles."""

    def __init__(self, roles: Mapping[str, Iterable[str]]) -> None:
        for role, grants in roles.items():
            if isinstance(grants, str) or not are_words(tuple(grants)):
                raise HoldfastError(
                    f"The role {role!r} is not mapped to a list of capabilities.",
                    code="SETTING_INVALID",
                    hint='Write {"approver": ["orders:approve:*"]}.',
                )
        self._roles = {role: frozenset(grants) for role, grants in roles.items()}

    async def resolve(self, identity: Identity) -> frozenset[str]:
        return identity.capabilities.union(*(self._roles.get(role, frozenset()) for role in identity.roles))


def granted(identity: Identity, named: Iterable[str]) -> tuple[str, ...]:
    """The named capabilities that this person has, in the form the engine wants."""
    return tuple(word for word in dict.fromkeys(named) if covers(identity.capabilities, word))


def has_all(grants: Iterable[str], wanted: Iterable[str]) -> bool:
    """Acting needs all of them."""
    held = frozenset(grants)
    return all(covers(held, word) for word in wanted)


def has_any(grants: Iterable[str], wanted: Iterable[str]) -> bool:
    """Seeing needs one of them, where any are asked for."""
    held, words = frozenset(grants), tuple(wanted)
    return not words or any(covers(held, word) for word in words)


def covers(grants: frozenset[str], word: str) -> bool:
    if word in grants or ANY in grants:
        return True
    segments = word.split(":")
    return any(_matches(grant.split(":"), segments) for grant in grants if ANY in grant)


def _matches(grant: list[str], segments: list[str]) -> bool:
    if grant[-1] == ANY:
        if len(segments) < len(grant):
            return False
        grant, segments = grant[:-1], segments[: len(grant) - 1]
    return len(grant) == len(segments) and all(
        part in (ANY, segment) for part, segment in zip(grant, segments, strict=True)
    )
