"""The meaning of fields: which of them are conditions, approvers, timers, windows, actions."""

from __future__ import annotations

from typing import Final

from holdfast.graph.difference.model import Aspect, Noun

_NOUNS: Final[dict[Noun, Aspect]] = {"policy": "policy", "table": "table", "action": "action"}
_FIELDS: Final[dict[str, Aspect]] = {
    "when": "condition",
    "config.when": "condition",
    "conditions": "condition",
    "roles": "approvers",
    "assignee": "approvers",
    "self_approval": "approvers",
    "approvals": "approvers",
    "config.approvals": "approvers",
    "form": "approvers",
    "delay": "timer",
    "after": "timer",
    "until": "timer",
    "cron": "timer",
    "timezone": "timer",
    "due": "timer",
    "deadline": "timer",
    "timeout": "timer",
    "edit_window": "window",
    "window": "window",
    "stable": "window",
    "amendment": "window",
    "config.action": "action",
    "config.run_as": "action",
    "capability": "policy",
    "config.capability": "policy",
    "guard": "policy",
    "guards": "policy",
    "config.table": "table",
    "config.version": "table",
    "config.hash": "table",
    "verbs": "way",
    "entry": "way",
    "exit": "way",
    "edge": "way",
    "rejected": "way",
    "rejecting": "way",
    "priority": "way",
    "mode": "way",
    "target": "way",
    "label": "text",
    "metadata": "text",
}
_BY_KIND: Final[dict[str, dict[str, Aspect]]] = {"action": {"input": "action"}}


def aspect_of(noun: Noun, kinds: frozenset[str | None], field: str) -> Aspect:
    """Find the meaning of a field: of the whole part, else of the field, else of the field it lies in."""
    outer = field.partition(".")[0]
    special = next((meant for kind, fields in _BY_KIND.items() if kind in kinds and (meant := fields.get(outer))), None)
    return _NOUNS.get(noun) or special or _FIELDS.get(field) or _FIELDS.get(outer) or "other"
