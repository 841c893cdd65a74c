"""Decisions by Cedar policies: a resolver of capabilities, and an answer to who may start, act on or see something.

Needs the extra `holdfast[cedar]`. The principal is `Person::"<tenant>/<subject>"` with `tenant`, `subject`,
`partition`, `roles`, `scopes` and the `capabilities` of its token; its parents are `Tenant::"<tenant>"` and
`Role::"<role>"`. Without a policy that permits, the answer is no; so it is when any policy cannot be evaluated, since
that one might have forbidden it. No policy is asked about what belongs to another tenant.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.errors import HoldfastError
from holdfast.server.identity import Identity

log = logging.getLogger("holdfast.auth")


class Action(StrEnum):
    START = "start"
    ACT = "act"
    SEE = "see"
    USE = "use"  # of a capability


class Resource(msgspec.Struct, frozen=True):
    """What somebody wants to start, act on or see: `kind` is Workflow, Instance, Step, Task …"""

    kind: str
    id: str
    tenant: str
    attributes: Mapping[str, Any] = {}


class CedarPolicies:
    """`capabilities` are the words that definitions name: which of them somebody has is asked once per request."""

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

    def allows(self, identity: Identity, action: Action, resource: Resource) -> bool:
        if resource.tenant != identity.tenant:
            return False
        return self._decide(identity, action, [resource])[0]

    async def resolve(self, identity: Identity) -> frozenset[str]:
        """Whatever the policies permit to use; with no names to ask about, those of the token."""
        if not self._names:
            return identity.capabilities
        wanted = [Resource("Capability", name, identity.tenant) for name in self._names]
        answers = self._decide(identity, Action.USE, wanted)
        return frozenset(name for name, allowed in zip(self._names, answers, strict=True) if allowed)

    def _decide(self, identity: Identity, action: Action, resources: list[Resource]) -> list[bool]:
        requests = [_request(identity, action, resource) for resource in resources]
        try:
            entities = self._entities.with_added_json_str(json.dumps(_entities(identity, resources)))
            results = self._cedar.is_authorized_batch(requests, self._policies, entities, self._schema)
        except ValueError as problem:
            log.warning("Cedar could not decide, so the answer is no: %s", problem)
            return [False] * len(resources)
        for problem in dict.fromkeys(problem for result in results for problem in result.diagnostics.errors):
            log.warning("A Cedar policy failed, so the answer is no: %s", problem)
        return [bool(result.allowed) and not result.diagnostics.errors for result in results]


def _request(identity: Identity, action: Action, resource: Resource) -> dict[str, Any]:
    return {
        "principal": _person(identity),
        "action": {"type": "Action", "id": action.value},
        "resource": {"type": resource.kind, "id": resource.id},
        "context": {"method": identity.method},
    }


def _entities(identity: Identity, resources: list[Resource]) -> list[dict[str, Any]]:
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
    things: list[dict[str, Any]] = [
        {
            "uid": {"type": resource.kind, "id": resource.id},
            "attrs": {**resource.attributes, "tenant": resource.tenant},
            "parents": [],
        }
        for resource in resources
    ]
    return [person, *things]


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
