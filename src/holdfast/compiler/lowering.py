"""From a written saga to the graph: one node per step, one edge from each to the next, one end."""

from __future__ import annotations

from itertools import count, pairwise
from typing import Final

from holdfast.compiler.graph import Edge, Graph, Node, Policy, Retry
from holdfast.definitions import Definition, Human, Item, Step

SAGA_POLICY: Final = Policy(on_error="fail", on_cancel="stop", data="value", missing="zero")
LONGEST_EDGE_ID: Final = 200


def lower(definition: Definition) -> Graph:
    tasks = tuple(_node(item) for item in definition.items)
    end = Node(id=_end_id({task.id for task in tasks}), kind="end")
    nodes = (*tasks, end)
    return Graph(
        name=definition.name,
        version=definition.version,
        kind="saga",
        entry=nodes[0].id,
        nodes=nodes,
        edges=_chain(nodes),
        policy=SAGA_POLICY,
    )


def _node(item: Item) -> Node:
    return _human(item) if isinstance(item, Human) else _task(item)


def _human(asked: Human) -> Node:
    return Node(
        id=asked.name,
        kind="human",
        form=asked.form,
        roles=asked.roles,
        due=asked.due,
        priority=asked.priority,
        metadata=asked.metadata,
    )


def _task(step: Step) -> Node:
    return Node(
        id=step.name,
        kind="task",
        handler=step.handler,
        queue=step.queue,
        retry=_retry(step),
        timeout=step.timeout,
        deadline=step.deadline,
        idempotent=step.idempotent,
        priority=step.priority,
        metadata=step.metadata,
    )


def _retry(step: Step) -> Retry | None:
    if step.retries <= 1:
        return None
    return Retry(
        calls=step.retries,
        delay=step.retry_delay,
        backoff=step.backoff,
        max_delay=step.max_delay,
        jitter=step.jitter,
    )


def _end_id(taken: set[str]) -> str:
    candidates = ("end" if number == 0 else f"end#{number}" for number in count())
    return next(candidate for candidate in candidates if candidate not in taken)


def _chain(nodes: tuple[Node, ...]) -> tuple[Edge, ...]:
    edges: dict[str, Edge] = {}
    for position, (source, target) in enumerate(pairwise(nodes), start=1):
        id = f"{source.id}>{target.id}"
        # Long names do not fit, and names that contain '>' may read alike; no readable id looks like the plain one.
        if len(id.encode()) > LONGEST_EDGE_ID or id in edges:
            id = f"edge#{position}"
        edges[id] = Edge(id=id, source=source.id, target=target.id, provenance="flow")
    return tuple(edges.values())
