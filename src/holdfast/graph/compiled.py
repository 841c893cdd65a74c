"""The compiled graph: the kernel's program, with every lookup prepared and a hash that proves it unchanged.

The hash covers the canonical JSON of all fields but itself. Fields that hold their default are left out of that JSON,
so a later release may add fields with defaults without breaking the hash of definitions that running instances pin.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from holdfast.errors import DefinitionError
from holdfast.graph.model import GRAPH_FORMAT, Edge, Graph, Node, Policy, Region, dump_struct
from holdfast.payloads import hash_json

COMPILER_VERSION: Final = "1"


class JoinRequirement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requirement of a join: the number of its split's tokens that must arrive."""

    split: str
    mode: str  # all | any
    required: int  # all: the number of the split's branches · any: 1


class Compiled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    format: int
    compiler_version: str
    name: str
    version: int
    kind: str
    entry: str
    policy: Policy
    variables: dict[str, str]
    nodes: dict[str, Node]  # by id, in id order
    edges: dict[str, Edge]  # by id, in id order
    adjacency: dict[str, tuple[str, ...]]  # node → outgoing edge ids by (priority, id); every node has an entry
    reverse_adjacency: dict[str, tuple[str, ...]]  # node → incoming edge ids by (priority, id); every node has an entry
    topological_order: tuple[str, ...]
    joins: dict[str, JoinRequirement]
    splits: dict[str, str | None]  # split → its join; None: the branches end by themselves or escape
    depth: dict[str, int]  # node → number of enclosing scopes; a join counts those of its parent token
    edit_windows: dict[str, str]  # only nodes that declare one
    stable_nodes: tuple[str, ...]
    slot_map: dict[str, str]  # node → slot that owns it
    reads: tuple[str, ...]  # every path the expressions read
    config: dict[str, Any] = {}
    regions: dict[str, Region] = {}  # by id, in id order
    hash: str = ""


def hash_compiled(compiled: Compiled) -> str:
    """Compute the SHA-256 that the artifact must carry; its own `hash` is left out."""
    content = dump_compiled(compiled)
    content.pop("hash", None)
    return hash_json(content)


def sealed(compiled: Compiled) -> Compiled:
    return msgspec.structs.replace(compiled, hash=hash_compiled(compiled))


def dump_compiled(compiled: Compiled) -> dict[str, Any]:
    return dump_struct(compiled, "compiled graph")


def graph_of(compiled: Compiled) -> Graph:
    """Rebuild the graph that was compiled, its nodes in topological order."""
    order = dict.fromkeys([*compiled.topological_order, *compiled.nodes])
    return Graph(
        name=compiled.name,
        version=compiled.version,
        kind=compiled.kind,
        entry=compiled.entry,
        nodes=tuple(compiled.nodes[id] for id in order),
        edges=tuple(compiled.edges.values()),
        policy=compiled.policy,
        variables=compiled.variables,
        config=compiled.config,
        regions=tuple(compiled.regions.values()),
    )


class Artifact(Protocol):
    """A compiler's output, in any form it is kept."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def compiler_version(self) -> str: ...
    @property
    def format(self) -> int: ...


def require_current(compiled: Artifact) -> None:
    """Refuse to start new instances on the output of another compiler; running instances stay on what they pinned."""
    if compiled.compiler_version == COMPILER_VERSION and compiled.format == GRAPH_FORMAT:
        return
    raise DefinitionError(
        f"{compiled.name!r} version {compiled.version} was compiled by compiler {compiled.compiler_version}, "
        f"this is compiler {COMPILER_VERSION}.",
        code="WORKFLOW_COMPILER_STALE",
        hint="Publish the definition as a new version; running instances keep the old one until they are migrated.",
    )
