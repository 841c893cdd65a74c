"""The envelope in a graph: the names of its nodes and edges, and what `Graph.config` carries of its contract.

The door that compiles contracts and patches writes it, the core reads it. Ids say whose a node is: `sys:` belongs to
the envelope and never changes, `usr:<slot>:<name>` to the slot that an organisation has filled.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.graph.model import Edge, Graph, dump_struct
from holdfast.graph.windows import Window
from holdfast.payloads import hash_json

DOCUMENTS: Final = "document:"  # the names of graphs of documents begin with it
ENVELOPE: Final = "envelope"  # the provenance of its edges
SYSTEM: Final = "sys:"
USER: Final = "usr:"
START: Final = "sys:start"
END: Final = "sys:end"
IN: Final = "in"
OUT: Final = "out"
REJECTED: Final = "rejected"
PORTS: Final = (IN, OUT, REJECTED)
NEVER: Final = "sys:never"  # the event of edges that no token takes; they only say which scope their target is in
AMEND: Final = "amend"
GATE_CALL: Final = "holdfast:gate"
ACTION_CALL: Final = "holdfast:action"
POLICY_CALL: Final = "holdfast:policy"
RULE_CALL: Final = "holdfast:rule"
LONGEST_ID: Final = 200  # bytes


class SlotPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The place of a slot in its envelope: the edge that its steps replace, and how they are left."""

    name: str
    entry: str  # the node that `in` comes after
    exit: str  # the node that `out` leads to
    edge: str  # the direct edge between them
    rejected: str | None = None  # the gate behind the port `rejected`
    rejecting: str | None = None  # the edge that no token takes, where the slot is empty
    window: Window = "editable"
    stable: bool = False
    approvals: int = 0  # the least number on every path to the gate it leads to
    verbs: dict[str, str] = {}  # those that interrupt its steps
    guards: dict[str, str] = {}  # verb → the capability that its caller needs
    conditions: dict[str, str] = {}  # verb → the expression that must hold
    amendment: str | None = None


class EnvelopeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`Graph.config` of an envelope."""

    type: str  # of the documents
    version: int
    slots: dict[str, SlotPlace] = {}
    contract: dict[str, Any] = {}  # what else changes behaviour: fields, verbs, actions, policies, amendment
    hash: str = ""


class PatchRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The patch in an effective graph."""

    version: int
    hash: str
    policies: list[dict[str, Any]] = []  # beside those of the contract


class Integrity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The proof that an envelope is whole in an effective graph."""

    required: tuple[str, ...]  # its nodes, sorted
    present: tuple[str, ...]
    valid: bool


class EffectiveConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`Graph.config` of an effective graph."""

    envelope: EnvelopeConfig
    patch: PatchRef | None = None  # None: the bare envelope
    filled: tuple[str, ...] = ()  # slots, sorted
    windows: dict[str, Window] = {}  # filled slot → its window, where the patch made it stricter
    tables: dict[str, dict[str, Any]] = {}  # decision table → version, hash, rows
    integrity: Integrity | None = None


def state_id(name: str) -> str:
    return f"sys:state:{name}"


def gate_id(name: str) -> str:
    return f"sys:gate:{name}"


def port_id(slot: str, port: str) -> str:
    return f"sys:slot:{slot}:{port}"


def user_id(slot: str, name: str) -> str:
    return f"usr:{slot}:{name}"


def region_id(slot: str) -> str:
    return f"slot:{slot}"


def short_name(id: str) -> str:
    """Shorten the id of a node to the name it has among people."""
    namespace, _, rest = id.partition(":")
    if f"{namespace}:" == USER or rest.startswith("slot:"):
        return rest.rpartition(":")[2]
    return rest.partition(":")[2] or rest if f"{namespace}:" == SYSTEM else id


def edge_id(source: str, target: str, label: str | None = None) -> str:
    """Name an edge by its ends; by its content where their names are too long."""
    id = f"{source}:{label}>{target}" if label else f"{source}>{target}"
    return id if len(id.encode()) <= LONGEST_ID else f"{SYSTEM}edge#{hash_json([source, label, target])[:32]}"


def plain_edge(source: str, target: str) -> Edge:
    return Edge(id=edge_id(source, target), source=source, target=target, provenance=ENVELOPE)


def never_edge(source: str, target: str) -> Edge:
    """Make an edge that no token takes. It gives its target a way from outside of every split."""
    return Edge(id=edge_id(source, target, "never"), source=source, target=target, on=NEVER, provenance=ENVELOPE)


def hash_envelope(graph: Graph, config: EnvelopeConfig) -> str:
    """Hash all that changes the behaviour of documents; neither the version nor a text about anything does."""
    return hash_json(
        {
            "entry": graph.entry,
            "nodes": sorted((dump_struct(node, "node") for node in graph.nodes), key=lambda each: each["id"]),
            "edges": sorted((dump_struct(edge, "edge") for edge in graph.edges), key=lambda each: each["id"]),
            "regions": sorted((dump_struct(region, "region") for region in graph.regions), key=lambda each: each["id"]),
            "policy": dump_struct(graph.policy, "policy"),
            "variables": graph.variables,
            "slots": dump_struct(config, "envelope").get("slots", {}),
            "contract": config.contract,
        }
    )
