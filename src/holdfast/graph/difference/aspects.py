"""The meaning of fields: which of them are conditions, approvers, timers, windows, actions."""

from __future__ import annotations

from typing import Final

from holdfast.graph.difference.model import Aspect, Noun
from holdfast.graph.envelope import ACTION_CALL

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
_OF_ACTIONS: Final[dict[str, Aspect]] = {"input": "action"}


def aspect_of(noun: Noun, handlers: frozenset[str], field: str) -> Aspect:
    """Find the meaning of a field: of the whole part, else of the field, else of the field it lies in."""
    outer = field.partition(".")[0]
    special = _OF_ACTIONS.get(outer) if ACTION_CALL in handlers else None
    return _NOUNS.get(noun) or special or _FIELDS.get(field) or _FIELDS.get(outer) or "other"
