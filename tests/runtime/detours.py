"""A flow in two versions, and how its instances are told from outside."""

from __future__ import annotations

from typing import Any

import psycopg
from faults.replayed import replay_all

from holdfast import Context, Engine


def order(version: int, *middle: dict[str, Any], name: str = "order", **policy: Any) -> dict[str, Any]:
    """A step, what stands between, a step."""
    nodes = [works("one"), *middle, works("two")]
    ids = [node["id"] for node in nodes]
    return {
        "name": name,
        "version": version,
        "entry": "one",
        "policy": policy,
        "nodes": [*nodes, {"id": "end", "kind": "end"}],
        "edges": [
            {"id": f"e{i}", "source": a, "target": b}
            for i, (a, b) in enumerate(zip(ids, [*ids[1:], "end"], strict=True))
        ],
    }


def waits(id: str = "ask", event: str = "signed") -> dict[str, Any]:
    return {"id": id, "kind": "wait_event", "wait": {"event": event}}


def works(id: str, handler: str = "echo") -> dict[str, Any]:
    return {"id": id, "kind": "task", "handler": handler}


async def echo(ctx: Context, data: Any) -> Any:
    return {**data, "trail": [*data.get("trail", []), ctx.step]}


async def published(engine: Engine, *flows: dict[str, Any]) -> Engine:
    engine.register("echo", echo)
    for flow in flows:
        await engine.publish(flow)
    return engine


def check_replay(dsn: str) -> None:
    """The rows of every instance tell what its snapshot tells."""
    with psycopg.connect(dsn) as connection:
        assert [replayed.difference for replayed in replay_all(connection) if replayed.difference] == []
