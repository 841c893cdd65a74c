"""Lower a sound contract to its envelope: the graph that every effective graph of the type contains.

A state that people leave by verbs rests; a state that gates leave is passed through, and its verbs interrupt instead
of leading on. One gate is the way on; the gate behind a slot's port `rejected` hangs on an edge that no token takes, so
that it is reached, and outside of every split, whether the slot is filled or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from holdfast.doors.envelope.model import Action, ContractDefinition, DataField, Gate, PolicyRule, State, Verb
from holdfast.doors.envelope.slots import ContractIndex, resolve_slots
from holdfast.graph.envelope import (
    AMEND,
    DOCUMENTS,
    END,
    ENVELOPE,
    GATE_CALL,
    START,
    EnvelopeConfig,
    edge_id,
    gate_id,
    hash_envelope,
    never_edge,
    plain_edge,
    state_id,
)
from holdfast.graph.model import Edge, Graph, Node, Policy, Region, dump_struct

POLICY: Final = Policy(data="context", on_error="suspend", on_cancel="stop")
_TYPES: Final = {"money": "number"}  # whole minor units


def lower_contract(contract: ContractDefinition) -> Graph:
    """Make the envelope of a sound contract. The order of its parts has no meaning, but for the first state."""
    index = ContractIndex(contract)
    config = EnvelopeConfig(
        type=contract.type,
        version=contract.version,
        slots=resolve_slots(index),
        contract=_behaviour(index),
    )
    edges = sorted(_edges(index), key=lambda edge: edge.id)
    regions = sorted(_regions(index), key=lambda region: region.id)
    bare = Graph(
        name=graph_name(contract.type),
        version=contract.version,
        kind="envelope",
        entry=START,
        nodes=tuple(sorted([*_nodes(index), *_end(edges, regions)], key=lambda node: node.id)),
        edges=tuple(edges),
        policy=POLICY,
        variables=variables_of(contract),
        regions=tuple(regions),
    )
    data = dump_struct(config, "envelope") | {"hash": hash_envelope(bare, config)}
    return msgspec.structs.replace(bare, config=data)


def graph_name(type: str) -> str:
    """Name the graphs of a type of documents."""
    return f"{DOCUMENTS}{type}"


def variables_of(contract: ContractDefinition) -> dict[str, str]:
    """Declare the names that expressions may read, with their types."""
    fields = {f"entity.{field.name}": _TYPES.get(field.type, field.type) for field in contract.fields}
    return dict(sorted({"actor": "object", "context": "object", "org": "object", **fields}.items()))


def _behaviour(index: ContractIndex) -> dict[str, Any]:
    """Collect the parts of a contract that change behaviour and are not in its graph, by name."""
    contract = index.contract
    parts: dict[str, Any] = {
        "fields": _by_name(contract.fields),
        "verbs": {state: _by_name(index.verbs_of(state)) for state in sorted(index.states)},
        "actions": _by_name(contract.actions),
        "policies": _by_name(contract.policies),
    }
    if contract.amendment is not None:
        parts["amendment"] = {"states": sorted(contract.amendment.states), "drift": contract.amendment.drift}
    return parts


def _by_name(items: Iterable[DataField | Verb | Action | PolicyRule]) -> dict[str, Any]:
    """Dump parts by name: without the texts that explain them, and with lists of names sorted."""
    found: dict[str, Any] = {}
    for item in sorted(items, key=lambda each: each.name):
        data = {key: getattr(item, key) for key in item.__struct_fields__ if key not in ("name", "about")}
        found[item.name] = {key: _sorted(value) for key, value in data.items()}
    return found


def _sorted(value: Any) -> Any:
    return sorted(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


# --- nodes and edges --------------------------------------------------------------------------------------------------


def _nodes(index: ContractIndex) -> Iterator[Node]:
    yield Node(id=START, kind="start", edit_window=index.contract.states[0].window)
    for state in index.contract.states:
        is_stable = index.is_stable(state.name)
        kind = "state" if index.rests(state) else "stage"
        yield Node(id=state_id(state.name), kind=kind, edit_window=state.window, stable=is_stable)
        for gate in index.gates_of(state.name):
            yield _gate(gate, state, is_stable=is_stable)


def _gate(gate: Gate, state: State, *, is_stable: bool) -> Node:
    config: dict[str, Any] = {"gate": gate.name, "from": gate.source, "to": gate.target, "approvals": gate.approvals}
    return Node(
        id=gate_id(gate.name),
        kind="lifecycle_gate",
        handler=GATE_CALL,
        edit_window=state.window,
        stable=is_stable,
        config=config,
    )


def _end(edges: list[Edge], regions: list[Region]) -> Iterator[Node]:
    targets = {edge.target for edge in edges}.union(*(region.verbs.values() for region in regions))
    if END in targets:
        yield Node(id=END, kind="terminal")


def _edges(index: ContractIndex) -> Iterator[Edge]:
    yield plain_edge(START, state_id(index.contract.states[0].name))
    for state in index.contract.states:
        if index.rests(state):
            yield from _verbs(index, state)
        elif state.ends:
            yield plain_edge(state_id(state.name), END)
        else:
            yield from _to_gates(index, state)
    for gate in index.contract.gates:
        yield plain_edge(gate_id(gate.name), state_id(gate.target))


def _verbs(index: ContractIndex, state: State) -> Iterator[Edge]:
    source = state_id(state.name)
    for verb in index.verbs_of(state.name):
        target = state_id(verb.target)
        yield Edge(
            id=edge_id(source, target, verb.name),
            source=source,
            target=target,
            on=verb.name,
            when=verb.when,
            guard=verb.capability,
            provenance=ENVELOPE,
        )
    if index.interrupts(state.name).get(AMEND) == END:
        yield Edge(id=edge_id(source, END, AMEND), source=source, target=END, on=AMEND, provenance=ENVELOPE)


def _to_gates(index: ContractIndex, state: State) -> Iterator[Edge]:
    source = state_id(state.name)
    for gate in index.direct_gates(state.name):
        yield plain_edge(source, gate_id(gate.name))
    behind = {gate for slot in index.slots_of(state.name) if (gate := index.rejecting_gate(slot)) is not None}
    for gate in sorted(behind):
        yield never_edge(source, gate_id(gate))


def _regions(index: ContractIndex) -> Iterator[Region]:
    for state in index.contract.states:
        gates = [gate_id(gate.name) for gate in index.gates_of(state.name)]
        is_stable = index.is_stable(state.name)
        yield Region(
            id=state_id(state.name),
            nodes=tuple(sorted([state_id(state.name), *gates])),
            window=state.window,
            stable=is_stable,
            verbs=index.interrupts(state.name),
            guards=index.guards(state.name),
            conditions=index.conditions(state.name),
            amendment=index.drift_target if is_stable else None,
        )
