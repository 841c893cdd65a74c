"""Flows with one effect, and what tests ask about it."""

from __future__ import annotations

from typing import Any

from effect_servers import Receiver

from holdfast import Engine
from holdfast.graph.model import Edge, Graph, Node, Retry
from holdfast.runtime.effects.options import EffectOptions
from holdfast.store.effects import Effect

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIQ=="
SECRETS = {"webhook": SECRET, "rotating": f"{SECRET} {OLD_SECRET}", "token": "hunter2-hunter2/hunter2+x"}
AT_ONCE = Retry(calls=3)


def secrets(_: str, name: str) -> str | None:
    return SECRETS.get(name)


def options(receiver: Receiver, **others: Any) -> EffectOptions:
    given = {"allow": (receiver.host,), "secrets": secrets, "connect_timeout": 2.0, "read_timeout": 0.4}
    return EffectOptions(**given | others)


def flow(kind: str = "webhook", *, name: str = "told", awaits: bool = False, **node: Any) -> Graph:
    """start → tell → done, with a way out when the effect fails."""
    nodes = [
        Node(id="start", kind="start"),
        Node(id="tell", kind="effect", handler=kind, awaits=awaits, **{"retry": AT_ONCE} | node),
        Node(id="done", kind="end"),
    ]
    edges = [Edge(id="a", source="start", target="tell"), Edge(id="b", source="tell", target="done")]
    if awaits:
        nodes.append(Node(id="sorry", kind="end"))
        edges.append(Edge(id="c", source="tell", target="sorry", on="error"))
    return Graph(name=name, entry="start", nodes=tuple(nodes), edges=tuple(edges))


async def run(engine: Engine, graph: Graph, data: Any = None) -> Effect:
    """Run one instance as far as it goes now; its effect."""
    await engine.publish(graph)
    instance = await engine.start(graph.name, data or {"order": 17})
    await engine.drain(timeout=30)
    [effect] = await engine.effects(instance.id)
    return effect


async def event_types(engine: Engine, effect: Effect) -> list[str]:
    return [e.type for e in await engine.events(effect.instance_id) if e.type.startswith("effect_")]


async def visited(engine: Engine, effect: Effect) -> list[str]:
    return [step.name for step in await engine.steps(effect.instance_id, all=True)]
