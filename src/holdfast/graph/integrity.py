"""The proof of an effective graph: the envelope is whole in it, in order, and outside of every split.

It is found again from the graph itself, never believed: the steps of the slots are taken out, the rest must have
the hash of the envelope, and weaving them in once more must give the same graph. So an artefact that was edited by hand
is refused even if its own hash was made to fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.errors import DefinitionError
from holdfast.graph.approvals import find_lacks
from holdfast.graph.compiled import Compiled
from holdfast.graph.envelope import (
    IN,
    OUT,
    REJECTED,
    SYSTEM,
    EffectiveConfig,
    Integrity,
    hash_envelope,
    port_id,
    user_id,
)
from holdfast.graph.kinds import KINDS
from holdfast.graph.model import Graph
from holdfast.graph.order import find_knots
from holdfast.graph.scopes import Scopes, find_scopes
from holdfast.graph.topology import Topology, read_topology
from holdfast.graph.weaving import Parts, fillings_of, parts_of, unweave, weave
from holdfast.graph.windows import WINDOWS, strictest

REMEDY: Final = "Restore it from a backup, or publish the patch again: publishing compiles it anew."

Breaches = Iterator[str]


def require_integrity(compiled: Compiled) -> None:
    """Refuse an effective graph in which the envelope is not whole (WF-08)."""
    breach = next(find_breaches(compiled), None)
    if breach is not None:
        raise DefinitionError(
            f"The envelope is not whole in {compiled.name!r} version {compiled.version}: {breach}",
            code="ENVELOPE_BROKEN",
            hint=REMEDY,
        )


def find_breaches(compiled: Compiled) -> Breaches:
    """Find every breach of the envelope in an effective graph; none is the proof."""
    try:
        config = msgspec.convert(compiled.config, EffectiveConfig)
    except msgspec.ValidationError as error:
        yield f"It does not say which envelope it was made of: {error}."
        return
    unknown = sorted(set(config.filled) - set(config.envelope.slots))
    if unknown:
        yield f"Its envelope has no slot {unknown[0]!r}."
        return
    compiled = in_order(compiled)
    parts = parts_of(compiled.nodes.values(), compiled.edges.values(), compiled.regions.values())
    envelope = unweave(parts, config.envelope, config.filled)
    topology = read_topology(_graph(compiled))
    scopes = find_scopes(topology)
    breaches = [
        *_envelope(compiled, config, envelope),
        *_weaving(config, parts, envelope),
        *_steps(compiled, config),
        *_depths(compiled, scopes),
    ]
    yield from breaches
    if breaches:
        return  # what follows reads the graph by its envelope
    yield from _lookups(compiled, topology)
    yield from _order(compiled, envelope)
    yield from _approvals(topology, scopes)


def prove(compiled: Compiled, config: EffectiveConfig) -> Integrity:
    """Write down which nodes of the envelope there must be and are."""
    parts = parts_of(compiled.nodes.values(), compiled.edges.values(), compiled.regions.values())
    nodes = tuple(sorted(unweave(parts, config.envelope, config.filled).nodes))
    present = tuple(id for id in sorted(compiled.nodes) if id in set(nodes))
    return Integrity(required=nodes, present=present, valid=present == nodes)


def in_order(compiled: Compiled) -> Compiled:
    """Put nodes, edges and regions into the order of their ids: a database keeps the keys of JSON in another one."""
    return msgspec.structs.replace(
        compiled,
        nodes=dict(sorted(compiled.nodes.items())),
        edges=dict(sorted(compiled.edges.items())),
        regions=dict(sorted(compiled.regions.items())),
    )


def _graph(compiled: Compiled) -> Graph:
    return Graph(
        name=compiled.name,
        entry=compiled.entry,
        kind=compiled.kind,
        nodes=tuple(compiled.nodes.values()),
        edges=tuple(compiled.edges.values()),
        policy=compiled.policy,
        regions=tuple(compiled.regions.values()),
    )


# --- the envelope -----------------------------------------------------------------------------------------------------


def _envelope(compiled: Compiled, config: EffectiveConfig, found: Parts) -> Breaches:
    bare = Graph(
        name=compiled.name,
        entry=compiled.entry,
        nodes=tuple(found.nodes.values()),
        edges=tuple(found.edges.values()),
        regions=tuple(found.regions.values()),
        policy=compiled.policy,
        variables=compiled.variables,
    )
    if hash_envelope(bare, config.envelope) != config.envelope.hash:
        yield "Without the steps of its slots it is not the envelope it names."
    nodes = tuple(sorted(found.nodes))
    if config.integrity is not None and config.integrity != Integrity(required=nodes, present=nodes, valid=True):
        yield "The nodes of its proof are not those of its envelope."
    if config.integrity is None:
        yield "It carries no proof."


def _weaving(config: EffectiveConfig, parts: Parts, envelope: Parts) -> Breaches:
    """Weave the steps in again: ports and their edges are as they must be, and nothing lies beside them."""
    fillings = fillings_of(parts, config.filled, config.windows)
    again = weave(envelope, config.envelope, fillings)
    for noun in ("nodes", "edges", "regions"):
        ours, theirs = getattr(parts, noun), getattr(again, noun)
        odd = sorted(id for id in {*ours, *theirs} if ours.get(id) != theirs.get(id))
        if odd:
            yield f"{odd[0]!r} of its {noun} belongs neither to the envelope nor to a slot, or was altered."


def _steps(compiled: Compiled, config: EffectiveConfig) -> Breaches:
    """Check the namespace of every step, and that edges of a slot stay within it and its ports."""
    for node in compiled.nodes.values():
        if node.slot is None or node.id.startswith(SYSTEM):
            continue
        if node.slot not in config.filled or not node.id.startswith(user_id(node.slot, "")):
            yield f"The node {node.id!r} is not in the namespace of a slot that is filled."
        elif node.kind not in KINDS or not KINDS[node.kind].in_slots:
            yield f"The node {node.id!r} has the kind {node.kind}, which is not for slots."
        elif node.edit_window not in WINDOWS or node.edit_window != strictest(
            node.edit_window, _window(config, node.slot)
        ):
            yield f"The edit window of {node.id!r} is looser than that of its slot."
        elif node.stable != config.envelope.slots[node.slot].stable:
            yield f"The node {node.id!r} is not as stable as its slot."
    for edge in compiled.edges.values():
        if edge.provenance in config.filled:
            yield from _confined(compiled, edge.provenance, edge.source, edge.target, edge.id)


def _confined(compiled: Compiled, slot: str, source: str, target: str, edge: str) -> Breaches:
    from_inside = source == port_id(slot, IN) or _is_step(compiled, slot, source)
    to_inside = target in (port_id(slot, OUT), port_id(slot, REJECTED)) or _is_step(compiled, slot, target)
    if not (from_inside and to_inside):
        yield f"The edge {edge!r} leaves its slot elsewhere than through a port."


def _is_step(compiled: Compiled, slot: str, id: str) -> bool:
    node = compiled.nodes.get(id)
    return node is not None and node.slot == slot and not id.startswith(SYSTEM)


def _window(config: EffectiveConfig, slot: str) -> str:
    return strictest(config.envelope.slots[slot].window, config.windows.get(slot))


# --- the prepared lookups ---------------------------------------------------------------------------------------------


def _lookups(compiled: Compiled, topology: Topology) -> Breaches:
    """Compare the prepared lookups, which the kernel reads, with the nodes and edges they were made of."""
    nodes = compiled.nodes
    fits = {
        "adjacency": compiled.adjacency == {id: tuple(e.id for e in found) for id, found in topology.outgoing.items()},
        "reverse_adjacency": compiled.reverse_adjacency
        == {id: tuple(e.id for e in found) for id, found in topology.incoming.items()},
        "edit_windows": compiled.edit_windows
        == {id: node.edit_window for id, node in nodes.items() if node.edit_window is not None},
        "stable_nodes": compiled.stable_nodes == tuple(id for id, node in nodes.items() if node.stable),
        "slot_map": compiled.slot_map == {id: node.slot for id, node in nodes.items() if node.slot is not None},
    }
    for table, is_sound in fits.items():
        if not is_sound:
            yield f"Its {table} does not fit its nodes and edges."


def _depths(compiled: Compiled, scopes: Scopes) -> Breaches:
    """Check that a token at a node of the envelope is the only one: no split is around it."""
    depths = scopes.depths()
    for node in compiled.nodes:
        depth = depths.get(node)
        if node.startswith(SYSTEM) and (depth != 0 or compiled.depth.get(node) != 0):
            yield f"The node {node!r} of the envelope is inside of a split, or no way leads to it."
        elif depth != compiled.depth.get(node):
            yield f"The depth of {node!r} is not that of its place."


def _order(compiled: Compiled, envelope: Parts) -> Breaches:
    """Check that the envelope's own edges lead forward, as they do in the envelope."""
    if sorted(compiled.topological_order) != sorted(compiled.nodes):
        yield "Its topological order is not one of its nodes."
        return
    rank = {node: number for number, node in enumerate(compiled.topological_order)}
    targets: dict[str, list[str]] = {node: [] for node in envelope.nodes}
    for edge in envelope.edges.values():
        if edge.source in targets and edge.target in targets:
            targets[edge.source].append(edge.target)
    knots = {node: min(knot) for knot in find_knots(targets, targets) for node in knot}
    for source, found in targets.items():
        for target in found:
            if knots[source] != knots[target] and rank[source] > rank[target]:
                yield f"{target!r} comes before {source!r} in its topological order."


def _approvals(topology: Topology, scopes: Scopes) -> Breaches:
    for lack in find_lacks(topology, scopes):
        yield f"The gate {lack.gate!r} demands {lack.demanded} approvals; a way to it has {lack.found}."
