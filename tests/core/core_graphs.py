"""Small words to write graphs with, so that a test reads as the picture it tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from holdfast.core.model.program import Program, link
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Edge, Graph, Node, Policy


def start(id: str = "start") -> Node:
    return Node(id=id, kind="start")


def task(id: str, **options: Any) -> Node:
    return Node(id=id, kind="task", handler=id, **options)


def call(id: str, **options: Any) -> Node:
    return Node(id=id, kind="action", handler=id, **options)


def state(id: str, **options: Any) -> Node:
    return Node(id=id, kind="state", **options)


def timer(id: str, delay: float | None = None, **options: Any) -> Node:
    return Node(id=id, kind="wait_timer", delay=delay, **options)


def split(id: str) -> Node:
    return Node(id=id, kind="split")


def join(id: str, mode: str = "all") -> Node:
    return Node(id=id, kind="join", mode=mode)


def condition(id: str) -> Node:
    return Node(id=id, kind="condition")


def end(id: str = "end") -> Node:
    return Node(id=id, kind="end")


def terminal(id: str = "terminal") -> Node:
    return Node(id=id, kind="terminal")


def edge(source: str, target: str, on: str = "completed", when: str | None = None, **options: Any) -> Edge:
    condition = "" if when is None else f"?{options.get('priority', 0)}"
    return Edge(id=f"{source}-{on}-{target}{condition}", source=source, target=target, on=on, when=when, **options)


def chain(*ids: str) -> list[Edge]:
    return [edge(source, target) for source, target in pairwise(ids)]


def program(nodes: list[Node], edges: list[Edge], policy: Policy | None = None, **options: Any) -> Program:
    graph = Graph(
        name="test",
        entry=nodes[0].id,
        nodes=tuple(nodes),
        edges=tuple(edges),
        policy=policy or Policy(),
        **options,
    )
    return link(compile_graph(graph))


def line(*nodes: Node, policy: Policy | None = None, **options: Any) -> Program:
    """The nodes one after another, an end behind them."""
    ids = [node.id for node in nodes]
    return program([*nodes, end()], chain(*ids, "end"), policy, **options)
