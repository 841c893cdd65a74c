"""Resolver of capabilities by Cedar policies: they decide whether a person may `use` a capability.

Needs the extra `holdfast[cedar]`. The principal is `Person::"<tenant>/<subject>"` with `tenant`, `subject`,
`partition`, `roles`, `scopes` and the `capabilities` of its token; its parents are `Tenant::"<tenant>"` and
`Role::"<role>"`. Without a policy that permits, the answer is no; so it is when any policy cannot be evaluated, since
that one might have forbidden it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.server.access.identity import Identity

log = logger("holdfast.auth")


_USE: Final = {"type": "Action", "id": "use"}


class CedarPolicies:
    """Capabilities by Cedar. `capabilities` are the words that definitions name: each is decided once per request."""

    def __init__(
        self,
        policies: str,
        *,
        schema: str | None = None,
        entities: Iterable[Mapping[str, Any]] = (),
        capabilities: Iterable[str] = (),
    ) -> None:
        self._cedar = _load()
        self._names = tuple(dict.fromkeys(capabilities))
        try:
            self._schema = None if schema is None else self._cedar.Schema.from_str(schema)
            self._policies = self._cedar.PolicySet.from_str(policies)
            self._entities = self._cedar.Entities.from_json_str(json.dumps([dict(entity) for entity in entities]))
        except ValueError as problem:
            raise HoldfastError(
                f"The Cedar policies cannot be used: {problem}",
                code="SETTING_INVALID",
                hint="The message of Cedar says where.",
            ) from None

    async def resolve(self, identity: Identity) -> frozenset[str]:
        """The permitted capabilities; with no names to decide on, those of the token."""
        if not self._names:
            return identity.capabilities
        answers = self._decide(identity)
        return frozenset(name for name, allowed in zip(self._names, answers, strict=True) if allowed)

    def _decide(self, identity: Identity) -> list[bool]:
        requests = [_request(identity, name) for name in self._names]
        try:
            entities = self._entities.with_added_json_str(json.dumps(_entities(identity, self._names)))
            results = self._cedar.is_authorized_batch(requests, self._policies, entities, self._schema)
        except ValueError as problem:
            log.warning("Cedar could not decide, so the answer is no: %s", problem)
            return [False] * len(self._names)
        for problem in dict.fromkeys(problem for result in results for problem in result.diagnostics.errors):
            log.warning("A Cedar policy failed, so the answer is no: %s", problem)
        return [bool(result.allowed) and not result.diagnostics.errors for result in results]


def _request(identity: Identity, capability: str) -> dict[str, Any]:
    return {
        "principal": _person(identity),
        "action": _USE,
        "resource": {"type": "Capability", "id": capability},
        "context": {"method": identity.method},
    }


def _entities(identity: Identity, capabilities: Iterable[str]) -> list[dict[str, Any]]:
    roles = [{"type": "Role", "id": role} for role in dict.fromkeys(identity.roles)]
    person = {
        "uid": _person(identity),
        "attrs": {
            "subject": identity.subject,
            "tenant": identity.tenant,
            "partition": identity.partition,
            "roles": list(identity.roles),
            "scopes": sorted(identity.scopes),
            "capabilities": sorted(identity.capabilities),
        },
        "parents": [{"type": "Tenant", "id": identity.tenant}, *roles],
    }
    words: list[dict[str, Any]] = [
        {"uid": {"type": "Capability", "id": name}, "attrs": {"tenant": identity.tenant}, "parents": []}
        for name in capabilities
    ]
    return [person, *words]


def _person(identity: Identity) -> dict[str, str]:
    """Escaped up to the slash, so that no two people of two tenants have one name."""
    return {"type": "Person", "id": f"{quote(identity.tenant, safe='')}/{identity.subject}"}


def _load() -> Any:
    try:
        return import_module("cedarpy")
    except ModuleNotFoundError:
        raise HoldfastError(
            "Cedar policies need a package that is not installed.",
            code="EXTRA_MISSING",
            hint="Install it with: pip install 'holdfast[cedar]'",
        ) from None
