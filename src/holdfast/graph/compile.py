"""Compile a graph for the kernel: the same graph in any order gives the same artifact and hash (WF-12)."""

from __future__ import annotations

import msgspec

from holdfast.errors import DefinitionError
from holdfast.graph.checks.check import check_normalised, normalised
from holdfast.graph.checks.sites import compile_site, find_sites
from holdfast.graph.compiled import COMPILER_VERSION, Compiled, JoinRequirement, sealed
from holdfast.graph.diagnostics import Diagnostic
from holdfast.graph.model import Edge, Graph, Region
from holdfast.graph.order import topological_order
from holdfast.graph.scopes import Scopes, find_scopes
from holdfast.graph.topology import Topology, read_topology


def compile_graph(graph: Graph) -> Compiled:
    """Check and compile; every problem is in the error's `diagnostics`."""
    graph = normalised(graph)
    _require_sound(graph.name, check_normalised(graph))
    return sealed(assemble(graph))


def assemble(graph: Graph) -> Compiled:
    """Prepare the lookups of a sound, normalised graph. The artifact is not sealed yet."""
    topology = read_topology(graph)
    scopes = find_scopes(topology)
    depths = scopes.depths()
    nodes = topology.nodes
    return Compiled(
        format=graph.format,
        compiler_version=COMPILER_VERSION,
        name=graph.name,
        version=graph.version,
        kind=graph.kind,
        entry=graph.entry,
        policy=graph.policy,
        variables=dict(sorted(graph.variables.items())),
        nodes=nodes,
        edges=topology.edges,
        adjacency={node: _ids(edges) for node, edges in topology.outgoing.items()},
        reverse_adjacency={node: _ids(edges) for node, edges in topology.incoming.items()},
        topological_order=topological_order(nodes, topology.roots, topology.targets),
        joins=_joins(topology, scopes),
        splits=_splits(topology, scopes),
        depth={node: depths.get(node, 0) for node in nodes},
        edit_windows={id: node.edit_window for id, node in nodes.items() if node.edit_window is not None},
        stable_nodes=tuple(id for id, node in nodes.items() if node.stable),
        slot_map={id: node.slot for id, node in nodes.items() if node.slot is not None},
        reads=_reads(graph),
        config=graph.config,
        regions=_regions(graph),
    )


def _require_sound(name: str, diagnostics: tuple[Diagnostic, ...]) -> None:
    errors = [found for found in diagnostics if found.severity == "error"]
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors)} errors in all)" if len(errors) > 1 else ""
    raise DefinitionError(
        f"{name!r} cannot be compiled: {first.code} at {first.place}: {first.message}{more}",
        diagnostics=diagnostics,
        hint=first.hint,
    )


def _ids(edges: tuple[Edge, ...]) -> tuple[str, ...]:
    return tuple(edge.id for edge in edges)


def _joins(topology: Topology, scopes: Scopes) -> dict[str, JoinRequirement]:
    requirements: dict[str, JoinRequirement] = {}
    for join, split in sorted(scopes.closes.items()):
        mode = topology.nodes[join].mode
        assert split is not None, "checked: JOIN_WITHOUT_SPLIT"
        assert mode is not None, "checked: MISSING_MODE"
        required = 1 if mode == "any" else len(topology.branches(split))
        requirements[join] = JoinRequirement(split=split, mode=mode, required=required)
    return requirements


def _splits(topology: Topology, scopes: Scopes) -> dict[str, str | None]:
    joins = {split: join for join, split in scopes.closes.items()}
    return {node: joins.get(node) for node in topology.nodes if topology.is_split(node)}


def _regions(graph: Graph) -> dict[str, Region]:
    by_id = sorted(graph.regions, key=lambda region: region.id)
    return {region.id: msgspec.structs.replace(region, nodes=tuple(sorted(region.nodes))) for region in by_id}


def _reads(graph: Graph) -> tuple[str, ...]:
    compiled = (compile_site(site, graph.variables, graph.policy) for site in find_sites(graph))
    return tuple(sorted({path for expression in compiled for path in expression.reads}))
