"""Weave the steps of an organisation into an envelope, and take them out again.

The direct edge of a filled slot makes way for three proxies: the envelope leads to `in`, the steps lead to `out` and to
`rejected`, and these lead on into the envelope. Because `unweave` is the exact inverse, an effective graph proves by
itself which envelope it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.graph.envelope import (
    IN,
    NEVER,
    OUT,
    REJECTED,
    EnvelopeConfig,
    SlotPlace,
    edge_id,
    never_edge,
    plain_edge,
    port_id,
    region_id,
)
from holdfast.graph.model import Edge, Node, Region
from holdfast.graph.windows import Window, strictest


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one slot, ready for the graph."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    window: Window | None = None  # where the patch made it stricter


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a graph that weaving changes."""

    nodes: dict[str, Node]
    edges: dict[str, Edge]
    regions: dict[str, Region]


def parts_of(nodes: Iterable[Node], edges: Iterable[Edge], regions: Iterable[Region]) -> Parts:
    return Parts(
        nodes={node.id: node for node in nodes},
        edges={edge.id: edge for edge in edges},
        regions={region.id: region for region in regions},
    )


def weave(envelope: Parts, config: EnvelopeConfig, fillings: Mapping[str, Filling]) -> Parts:
    nodes, edges, regions = dict(envelope.nodes), dict(envelope.edges), dict(envelope.regions)
    for name, filling in sorted(fillings.items()):
        slot = config.slots[name]
        direct = edges.pop(slot.edge)
        if slot.rejecting is not None:
            edges.pop(slot.rejecting, None)
        window = strictest(slot.window, filling.window)
        nodes |= {node.id: node for node in (*filling.nodes, *_ports(slot, window))}
        edges |= {edge.id: edge for edge in (*filling.edges, *_port_edges(slot, direct))}
        regions[region_id(name)] = _region(slot, window, filling.nodes)
        regions |= _entered(slot, direct.on, regions, slot.exit, port_id(name, IN))
    return Parts(nodes=nodes, edges=edges, regions=regions)


def unweave(effective: Parts, config: EnvelopeConfig, filled: Iterable[str]) -> Parts:
    """Take out the steps of every filled slot: the envelope is left."""
    names = set(filled)
    nodes = {id: node for id, node in effective.nodes.items() if node.slot not in names}
    edges = {id: edge for id, edge in effective.edges.items() if edge.source in nodes and edge.target in nodes}
    regions = {id: found for id, found in effective.regions.items() if id not in {region_id(name) for name in names}}
    for name in sorted(names):
        slot = config.slots[name]
        entering = _entering(slot, effective.edges)
        edges[slot.edge] = msgspec.structs.replace(entering, id=slot.edge, target=slot.exit)
        if slot.rejecting is not None and slot.rejected is not None:
            edges[slot.rejecting] = never_edge(slot.entry, slot.rejected)
        regions |= _entered(slot, entering.on, regions, port_id(name, IN), slot.exit)
    return Parts(nodes=nodes, edges=edges, regions=regions)


def fillings_of(effective: Parts, filled: Iterable[str], windows: Mapping[str, Window]) -> dict[str, Filling]:
    """The steps of each filled slot, as an effective graph holds them."""
    found: dict[str, Filling] = {}
    for name in filled:
        ports = {port_id(name, port) for port in (IN, OUT, REJECTED)}
        nodes = tuple(node for node in effective.nodes.values() if node.slot == name and node.id not in ports)
        edges = tuple(edge for edge in effective.edges.values() if edge.provenance == name)
        found[name] = Filling(nodes=nodes, edges=edges, window=windows.get(name))
    return found


def _ports(slot: SlotPlace, window: str) -> Iterator[Node]:
    for port in (IN, OUT, REJECTED) if slot.rejected is not None else (IN, OUT):
        yield Node(
            id=port_id(slot.name, port),
            kind="slot",
            slot=slot.name,
            edit_window=window,
            stable=slot.stable,
            config={"port": port},
        )


def _port_edges(slot: SlotPlace, direct: Edge) -> Iterator[Edge]:
    entry, out = port_id(slot.name, IN), port_id(slot.name, OUT)
    label = None if direct.on == "completed" else direct.on
    yield msgspec.structs.replace(direct, id=edge_id(direct.source, entry, label), target=entry)
    yield plain_edge(out, slot.exit)
    if slot.rejected is not None:
        rejected = port_id(slot.name, REJECTED)
        yield never_edge(entry, rejected)
        yield plain_edge(rejected, slot.rejected)


def _region(slot: SlotPlace, window: str, steps: tuple[Node, ...]) -> Region:
    inside = {node.id for node in (*_ports(slot, window), *steps)}
    return Region(
        id=region_id(slot.name),
        nodes=tuple(sorted(inside)),
        window=window,
        stable=slot.stable,
        verbs=slot.verbs,
        guards=slot.guards,
        conditions=slot.conditions,
        amendment=slot.amendment,
    )


def _entered(slot: SlotPlace, verb: str, regions: Mapping[str, Region], old: str, new: str) -> dict[str, Region]:
    """Lead the verb of a slot that is entered by one to the slot, or back to its own target."""
    region = regions.get(slot.entry)
    if region is None or region.verbs.get(verb) != old:
        return {}
    return {region.id: msgspec.structs.replace(region, verbs={**region.verbs, verb: new})}


def _entering(slot: SlotPlace, edges: Mapping[str, Edge]) -> Edge:
    entry = port_id(slot.name, IN)
    found = [edge for edge in edges.values() if edge.target == entry and edge.on != NEVER]
    return found[0] if len(found) == 1 else plain_edge(slot.entry, entry)
