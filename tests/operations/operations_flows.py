"""Flows the tests of the operations share: a step, something to wait for, another step."""

from __future__ import annotations

from typing import Any

from holdfast import Context


def waiting(name: str = "plain", middle: dict[str, Any] | None = None, **policy: Any) -> dict[str, Any]:
    wait = {"kind": "wait_event", "wait": {"event": "signed"}}
    return {
        "name": name,
        "entry": "one",
        "policy": policy,
        "nodes": [
            {"id": "one", "kind": "task", "handler": "echo"},
            {"id": "middle", **(middle or wait)},
            {"id": "two", "kind": "task", "handler": "echo"},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "a", "source": "one", "target": "middle"},
            {"id": "b", "source": "middle", "target": "two"},
            {"id": "c", "source": "two", "target": "end"},
        ],
    }


def undoable(name: str = "saga") -> dict[str, Any]:
    """The same with a compensation: it is not carried, because it may need its past to go back."""
    flow = waiting(name)
    flow["nodes"][0]["undo"] = "back"
    flow["nodes"].append({"id": "back", "kind": "compensation", "handler": "echo"})
    return flow


async def echo(ctx: Context, data: Any) -> Any:
    return data
