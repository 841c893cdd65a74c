"""Compile a contract and a patch to the effective graph, the one that documents run.

Pure and deterministic: the same contract, patch and tables give the same artifact, in whatever order their parts are
written. First the rules of the patch are checked, then the steps are woven into the envelope and the whole graph is
checked, last comes the proof that the envelope is whole.
"""

from __future__ import annotations

import msgspec

from holdfast.doors.envelope.findings import ROOT, Finding, Findings, Place, require_sound
from holdfast.doors.envelope.lowering import graph_name, lower_contract
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.patch_lowering import Lowered, lower_patch
from holdfast.doors.envelope.patch_rules import check_patch
from holdfast.doors.envelope.tables import Tables
from holdfast.doors.envelope.written import patch_hash, policy_contents
from holdfast.graph.approvals import Lack, find_lacks
from holdfast.graph.checks.check import check_normalised, normalised
from holdfast.graph.compile import assemble, compile_graph
from holdfast.graph.compiled import Compiled, sealed
from holdfast.graph.diagnostics import Diagnostic
from holdfast.graph.envelope import SYSTEM, EffectiveConfig, EnvelopeConfig, PatchRef
from holdfast.graph.integrity import prove, require_integrity
from holdfast.graph.model import Graph, dump_struct
from holdfast.graph.scopes import Scopes, find_scopes
from holdfast.graph.topology import read_topology
from holdfast.graph.weaving import parts_of, weave

NO_TABLES = Tables()


def compile_envelope(contract: ContractDefinition) -> Compiled:
    """Compile the envelope of a sound contract. It runs no documents, and its gates demand no approvals yet."""
    return compile_graph(lower_contract(contract))


def compile_effective(
    contract: ContractDefinition,
    patch: PatchDefinition | None = None,
    *,
    tables: Tables = NO_TABLES,
    version: int | None = None,
) -> Compiled:
    """Compile a sound contract and a patch; every finding is in the error's `diagnostics`. None: the bare envelope."""
    findings, woven = _check(contract, patch, tables)
    require_sound(findings, f"The patch of {contract.type!r}")
    assert woven is not None, "without errors there is a graph"
    number = version or (contract.version if patch is None else patch.version)
    compiled = assemble(msgspec.structs.replace(woven.graph, version=number))
    config = msgspec.structs.replace(woven.config, integrity=prove(compiled, woven.config))
    proven = msgspec.structs.replace(compiled, config=dump_struct(config, "effective graph"))
    require_integrity(proven)
    return sealed(proven)


def check_effective(
    contract: ContractDefinition, patch: PatchDefinition | None = None, *, tables: Tables = NO_TABLES
) -> tuple[Finding, ...]:
    """Find everything that is wrong with a patch, and its warnings, in the order of their places."""
    return _check(contract, patch, tables)[0]


class Woven(msgspec.Struct, frozen=True):
    """The effective graph before it is compiled."""

    graph: Graph
    config: EffectiveConfig


def _check(
    contract: ContractDefinition, patch: PatchDefinition | None, tables: Tables
) -> tuple[tuple[Finding, ...], Woven | None]:
    findings = Findings() if patch is None else check_patch(contract, patch, tables)
    if findings.errors:
        return findings.in_order(), None
    envelope = lower_contract(contract)
    config = msgspec.convert(envelope.config, EnvelopeConfig)
    empty = Lowered({}, {}, {})
    lowered = empty if patch is None else lower_patch(contract, patch, config.slots, tables)
    woven = _weave(envelope, config, patch, lowered)
    graph = normalised(woven.graph)
    origins = _Origins(patch, lowered)
    for found in check_normalised(graph):
        _add(findings, found, origins)
    if not findings.errors:
        topology = read_topology(graph)
        scopes = find_scopes(topology)
        for split in _open_splits(scopes):
            message = f"Its branches leave the slot without meeting, so {split.rpartition(':')[2]!r} would never end."
            findings.add("SLOT_SPLIT_OPEN", origins.find(f"nodes.{split}"), message)
        for lack in find_lacks(topology, scopes):
            _add_lack(findings, lack)
    return findings.in_order(), Woven(graph, woven.config)


def _weave(envelope: Graph, config: EnvelopeConfig, patch: PatchDefinition | None, lowered: Lowered) -> Woven:
    parts = weave(parts_of(envelope.nodes, envelope.edges, envelope.regions), config, lowered.fillings)
    effective = EffectiveConfig(
        envelope=config,
        patch=None
        if patch is None
        else PatchRef(version=patch.version, hash=patch_hash(patch), policies=policy_contents(patch)),
        filled=tuple(sorted(lowered.fillings)),
        windows={name: found.window for name, found in sorted(lowered.fillings.items()) if found.window is not None},
        tables={
            name: {"version": table.version, "hash": table.hash, "table": table.table}
            for name, table in sorted(lowered.tables.items())
        },
    )
    graph = Graph(
        name=graph_name(config.type),
        kind="effective",
        entry=envelope.entry,
        nodes=tuple(parts.nodes.values()),
        edges=tuple(parts.edges.values()),
        policy=envelope.policy,
        variables=envelope.variables,
        config=dump_struct(effective, "effective graph"),
        regions=tuple(parts.regions.values()),
    )
    return Woven(graph, effective)


# --- findings of the whole graph --------------------------------------------------------------------------------------


class _Origins:
    """The places in the patch that nodes and edges of the graph come from."""

    def __init__(self, patch: PatchDefinition | None, lowered: Lowered) -> None:
        self.nodes: dict[str, Place] = {}
        self.edges: dict[str, Place] = {}
        if patch is None:
            return
        for name, steps in patch.slots.items():
            place = ROOT.at("slots").at(name)
            for index, node in enumerate(steps.nodes):
                self.nodes[f"usr:{name}:{node.id}"] = place.item("nodes", index, node.id)
            for port in ("in", "out", "rejected"):
                self.nodes[f"sys:slot:{name}:{port}"] = place
        for id, (name, index) in lowered.edges.items():
            place = ROOT.at("slots").at(name)
            self.edges[id] = place if index is None else place.item("edges", index)

    def find(self, place: str) -> Place:
        """Find the place in the patch of a place in the graph; places of the envelope stay as they are."""
        collection, _, rest = place.partition(".")
        known = {"nodes": self.nodes, "edges": self.edges}.get(collection, {})
        id = rest
        while id and id not in known:
            id = id.rpartition(".")[0]
        if not id:
            return Place(place, ())
        found = known[id]
        for key in rest[len(id) :].strip(".").split("."):
            found = found.at(key) if key else found
        return found


def _add(findings: Findings, found: Diagnostic, origins: _Origins) -> None:
    """Add a problem of the whole graph; warnings about the envelope are for the author of the contract."""
    place = origins.find(found.place)
    if place.path or found.severity == "error":
        findings.add(found.code, place, found.message, hint=found.hint, severity=found.severity)


def _open_splits(scopes: Scopes) -> list[str]:
    """Find the splits that nodes of the envelope would be inside of: no join closes them within their slot."""
    found = {split for node, split in scopes.inside.items() if node.startswith(SYSTEM) and split is not None}
    return sorted(found)


def _add_lack(findings: Findings, lack: Lack) -> None:
    way = " → ".join(id.rpartition(":")[2] for id in lack.way)
    gate = lack.gate.rpartition(":")[2]
    message = f"The gate {gate!r} demands {lack.demanded} approvals; this way to it has {lack.found}: {way}."
    place = ROOT.at("slots") if lack.slot is None else ROOT.at("slots").at(lack.slot)
    findings.add("GATE_UNDERAPPROVED", place, message)
