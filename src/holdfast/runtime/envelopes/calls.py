"""The calls of an effective graph, answered from memory: gates, actions, rules and policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.core.model.signals import Failure
from holdfast.doors.envelope.decision_tables.building import read_pinned
from holdfast.doors.envelope.decision_tables.deciding import decide_table
from holdfast.graph.compiled import Compiled
from holdfast.graph.envelope import ACTION_CALL, GATE_CALL, POLICY_CALL, RULE_CALL, EffectiveConfig
from holdfast.graph.expressions import compile_expression
from holdfast.graph.model import Node


class Scope(msgspec.Struct, frozen=True):
    """What a call may read."""

    document: Mapping[str, Any]
    context: Mapping[str, Any]
    org: Mapping[str, Any]
    actor: Mapping[str, Any]
    now: str

    @property
    def values(self) -> dict[str, Any]:
        return {
            "entity": self.document,
            "context": self.context,
            "org": self.org,
            "actor": self.actor,
            "now": self.now,
        }


class Answered(msgspec.Struct, frozen=True):
    """The answer of a call, and the fields of the document that it changes."""

    output: dict[str, Any]
    changes: dict[str, Any] = {}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of the contract or the patch on verbs, actions and edits."""

    name: str
    on: tuple[str, ...] = ()
    capability: str | None = None
    when: str | None = None


class Calls:
    """The built-in calls of one effective graph."""

    def __init__(self, compiled: Compiled) -> None:
        self.variables = compiled.variables
        config = msgspec.convert(compiled.config, EffectiveConfig)
        self.contract = config.envelope.contract
        self.tables = {name: read_pinned(pinned["table"]) for name, pinned in config.tables.items()}
        found: dict[str, Any] = self.contract.get("policies", {})
        named = [{"name": name, **fields} for name, fields in found.items()]
        extra = [] if config.patch is None else config.patch.policies
        self.policies = [msgspec.convert(policy, Policy) for policy in (*named, *extra)]

    @property
    def fields(self) -> dict[str, Any]:
        return self.contract.get("fields", {})

    def is_material(self, fields: Mapping[str, Any]) -> bool:
        return any(self.fields[name].get("material", True) for name in fields)

    def broken_policy(self, call: str, scope: Scope) -> str | None:
        """Find a policy that refuses the call of a verb or an action."""
        for policy in self.policies:
            if (not policy.on or call in policy.on) and not self._permits(policy.capability, policy.when, scope):
                return policy.name
        return None

    def answer(self, node: Node, payload: dict[str, Any], scope: Scope) -> Answered | Failure:
        return _CALLS[node.handler or ""](self, node, payload, scope)

    def gate(self, node: Node, payload: dict[str, Any], scope: Scope) -> Answered | Failure:
        return Answered({})

    def action(self, node: Node, payload: dict[str, Any], scope: Scope) -> Answered | Failure:
        name = node.config["action"]
        broken = self.broken_policy(name, scope)
        if broken is not None:
            return Failure("POLICY_REFUSED", f"The policy {broken!r} refuses {name!r}.")
        return Answered({}, payload)

    def rule(self, node: Node, payload: dict[str, Any], scope: Scope) -> Answered | Failure:
        name = f"{node.config['table']}@{node.config['version']}"
        outcome = decide_table(self.tables[name], scope.document).outcome
        if outcome is None:
            return Failure("TABLE_NO_ROW", f"No row of the table {name} holds for the document.")
        return Answered(outcome)

    def policy(self, node: Node, payload: dict[str, Any], scope: Scope) -> Answered | Failure:
        if self._permits(node.config.get("capability"), node.config.get("when"), scope):
            return Answered({})
        return Failure("POLICY_REFUSED", f"The gate {node.id!r} does not let the document pass.")

    def _permits(self, capability: str | None, when: str | None, scope: Scope) -> bool:
        if capability is not None and capability not in scope.actor["capabilities"]:
            return False
        return when is None or compile_expression(when, self.variables).evaluate(scope.values) is True


_CALLS: Final[dict[str, Callable[[Calls, Node, dict[str, Any], Scope], Answered | Failure]]] = {
    GATE_CALL: Calls.gate,
    ACTION_CALL: Calls.action,
    RULE_CALL: Calls.rule,
    POLICY_CALL: Calls.policy,
}
