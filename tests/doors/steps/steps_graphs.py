"""Workflows of people and system steps, as graphs."""

from __future__ import annotations

from typing import Any

POLICY: dict[str, Any] = {
    "on_error": "suspend",
    "on_cancel": "stop",
    "data": "context",
    "missing": "null",
    "chain_limit": 10,
    "keeps_error": True,
}

NOTES = {
    "type": "object",
    "properties": {"approval_notes": {"type": "string", "maxLength": 200}, "rating": {"type": "integer", "minimum": 1}},
    "required": ["approval_notes"],
}


def edge(source: str, target: str, on: str = "completed", **options: Any) -> dict[str, Any]:
    return {"id": f"{source}>{target}:{on}", "source": source, "target": target, "on": on, **options}


def approval(name: str = "orders.approval", **review: Any) -> dict[str, Any]:
    """The example of the text: review → process → notify → approved."""
    return {
        "name": name,
        "entry": "review",
        "kind": "steps",
        "policy": {**POLICY, "timeout": 72 * 3600.0, "capabilities": ["orders:approve:execute"]},
        "nodes": [
            {
                "id": "review",
                "kind": "approval",
                "form": NOTES,
                "roles": ["approver"],
                "self_approval": False,
                "metadata": {
                    "name": "Review the order",
                    "workflow": {"name": "Order approval"},
                    "input_schema": {
                        "type": "object",
                        "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}},
                        "required": ["order_id"],
                    },
                },
                **review,
            },
            {"id": "process", "kind": "task", "handler": "process", "metadata": {"name": "Process"}},
            {"id": "notify", "kind": "task", "handler": "notify", "best_effort": True},
            {"id": "approved", "kind": "terminal"},
            {"id": "rejected", "kind": "terminal"},
        ],
        "edges": [
            edge("review", "process", "approved"),
            edge("review", "rejected", "rejected", guard="orders:reject"),
            edge("process", "notify"),
            edge("notify", "approved"),
        ],
    }  # fmt: skip
