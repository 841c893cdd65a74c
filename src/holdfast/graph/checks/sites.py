"""Sites of expressions in a graph, so that checks and the compiler read the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast.graph.expressions import Expression, compile_expression, with_response
from holdfast.graph.model import Graph, Node, Policy


class Site(msgspec.Struct, frozen=True):
    place: str
    text: str
    result: Literal["boolean", "any"]
    answers: bool = False  # it may read what the step answered


def find_sites(graph: Graph) -> Iterator[Site]:
    for edge in graph.edges:
        if edge.when is not None:
            yield Site(f"edges.{edge.id}.when", edge.when, "boolean")
    for node in graph.nodes:
        yield from _node_sites(node)
    for region in graph.regions:
        for verb, text in region.conditions.items():
            yield Site(f"regions.{region.id}.conditions.{verb}", text, "boolean")


def _node_sites(node: Node) -> Iterator[Site]:
    place = f"nodes.{node.id}"
    if node.until is not None:
        yield Site(f"{place}.until", node.until, "any")
    if node.after is not None:
        yield Site(f"{place}.after", node.after, "any")
    if node.wait is not None and node.wait.key is not None:
        yield Site(f"{place}.wait.key", node.wait.key, "any")
    for name, text in (node.input or {}).items():
        yield Site(f"{place}.input.{name}", text, "any")
    for name, text in (node.output or {}).items():
        yield Site(f"{place}.output.{name}", text, "any", answers=True)
    if node.assignee is not None:
        yield Site(f"{place}.assignee", node.assignee, "any")


def compile_site(site: Site, variables: dict[str, str], policy: Policy) -> Expression:
    missing = "zero" if policy.missing == "zero" else "null"
    declared = with_response(variables) if site.answers else variables
    return compile_expression(site.text, declared, missing=missing, result=site.result)
