"""Deterministic orders of a graph: depth-first, topological, and the cycles among a set of nodes.

All walks are iterative (a long chain must not meet the recursion limit) and visit neighbours in id order, so the
result depends on the graph only, never on the order in which it was written.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

Neighbours = Callable[[str], Iterable[str]]


def depth_first(roots: Iterable[str], targets: Neighbours) -> tuple[list[str], set[tuple[str, str]]]:
    """Reverse postorder of the nodes that the roots reach, and the pairs (source, target) that close a cycle."""
    finished: list[str] = []
    closing: set[tuple[str, str]] = set()
    active: set[str] = set()
    seen: set[str] = set()
    for root in roots:
        path: list[tuple[str, Iterator[str]]] = []
        following: str | None = None if root in seen else root
        while following is not None or path:
            if following is not None:
                seen.add(following)
                active.add(following)
                path.append((following, iter(sorted(set(targets(following))))))
            node, rest = path[-1]
            following = next((target for target in rest if _is_new(node, target, seen, active, closing)), None)
            if following is None:
                path.pop()
                active.discard(node)
                finished.append(node)
    return finished[::-1], closing


def _is_new(node: str, target: str, seen: set[str], active: set[str], closing: set[tuple[str, str]]) -> bool:
    if target in active:
        closing.add((node, target))
    return target not in seen


def topological_order(nodes: Iterable[str], roots: Iterable[str], targets: Neighbours) -> tuple[str, ...]:
    """Kahn's order with ties by id (WF-13); pairs that close a cycle do not count."""
    members = sorted(nodes)
    _, closing = depth_first([*roots, *members], targets)
    forward = {node: {target for target in targets(node) if (node, target) not in closing} for node in members}
    missing = dict.fromkeys(members, 0)
    for followers in forward.values():
        for target in followers:
            missing[target] += 1
    ready = [node for node in members if not missing[node]]
    order: list[str] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for target in forward[node]:
            missing[target] -= 1
            if not missing[target]:
                heapq.heappush(ready, target)
    return tuple(order)


def find_cycles(nodes: Iterable[str], targets: Neighbours) -> list[tuple[str, ...]]:
    """One shortest cycle per knot of nodes, beginning at the knot's smallest id."""
    members = sorted(nodes)
    allowed = frozenset(members)
    inner = {node: sorted(allowed.intersection(targets(node))) for node in members}
    knots = find_knots(members, inner)
    cycles = (_cycle_through(min(knot), knot, inner) for knot in knots)
    return sorted(cycle for cycle in cycles if cycle)


def find_knots(nodes: Iterable[str], inner: Mapping[str, list[str]]) -> list[frozenset[str]]:
    """Strongly connected components (Kosaraju): reverse postorder, then collect backwards along it."""
    members = sorted(nodes)
    order, _ = depth_first(members, lambda node: inner[node])
    sources: dict[str, list[str]] = {node: [] for node in members}
    for node in members:
        for target in inner[node]:
            sources[target].append(node)
    assigned: set[str] = set()
    knots: list[frozenset[str]] = []
    for node in order:
        if node in assigned:
            continue
        knot = {node}
        open_nodes = [node]
        while open_nodes:
            fresh = [source for source in sources[open_nodes.pop()] if source not in assigned and source not in knot]
            knot.update(fresh)
            open_nodes.extend(fresh)
        assigned |= knot
        knots.append(frozenset(knot))
    return knots


def _cycle_through(start: str, knot: frozenset[str], inner: dict[str, list[str]]) -> tuple[str, ...]:
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in inner[node]:
            if target == start:
                return _path_back(node, start, came_from)
            if target in knot and target not in came_from:
                came_from[target] = node
                queue.append(target)
    return ()


def _path_back(node: str, start: str, came_from: dict[str, str]) -> tuple[str, ...]:
    path = [node]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))
