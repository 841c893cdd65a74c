"""The regions of a document's graph as drawings show them: slots as groups, verbs as ways that interrupt."""

from __future__ import annotations

import msgspec

from holdfast.graph.envelope import NEVER, SYSTEM, region_id
from holdfast.graph.model import Edge, Graph, Region


class Group(msgspec.Struct, frozen=True):
    """A slot with the nodes in it."""

    name: str
    title: str
    nodes: tuple[str, ...]


class Interrupt(msgspec.Struct, frozen=True):
    """A verb that interrupts a region; it is drawn from a node, or from the group of a slot."""

    source: str | None
    group: str | None
    verb: str
    target: str


def groups_of(graph: Graph) -> tuple[Group, ...]:
    """Group the nodes of each slot."""
    slots = sorted({node.slot for node in graph.nodes if node.slot is not None})
    regions = {region.id: region for region in graph.regions}
    return tuple(
        Group(
            name=slot,
            title=_title(slot, regions.get(region_id(slot))),
            nodes=tuple(dict.fromkeys(node.id for node in graph.nodes if node.slot == slot)),
        )
        for slot in slots
    )


def interrupts_of(graph: Graph) -> tuple[Interrupt, ...]:
    """List the verbs that interrupt; those that a resting state has an edge for are drawn as that edge."""
    nodes = {node.id for node in graph.nodes}
    slots = {region_id(node.slot): node.slot for node in graph.nodes if node.slot is not None}
    led = {(edge.source, edge.on) for edge in graph.edges}
    found: list[Interrupt] = []
    for region in sorted(graph.regions, key=lambda region: region.id):
        source, group = region.id if region.id in nodes else None, slots.get(region.id)
        for verb, target in sorted(region.verbs.items()):
            if target in nodes and (region.id, verb) not in led and (source or group) is not None:
                found.append(Interrupt(source=source, group=group, verb=verb, target=target))
    return tuple(found)


def windows_of(graph: Graph) -> dict[str, str]:
    """Find the edit windows of the states, each by its node."""
    nodes = {node.id for node in graph.nodes}
    return {region.id: region.window for region in graph.regions if region.id in nodes}


def drawn_edges(graph: Graph) -> tuple[Edge, ...]:
    """List the edges to draw: one that no token takes only where nothing else leads to its target."""
    if not graph.regions:
        return graph.edges
    reached = {edge.target for edge in graph.edges if edge.on != NEVER}
    return tuple(edge for edge in graph.edges if edge.on != NEVER or edge.target not in reached)


def is_locked(graph: Graph, node: str) -> bool:
    """Check if a node belongs to the envelope, which no organisation changes."""
    return bool(graph.regions) and node.startswith(SYSTEM)


def _title(slot: str, region: Region | None) -> str:
    if region is None:
        return f"slot {slot}"
    return f"slot {slot}, {region.window}{', stable' if region.stable else ''}"
