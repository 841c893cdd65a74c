"""Rules of a patch: its contract, the shape of each slot's steps, and its policies.

All problems come at once. The rules of single steps are in `step_rules.py`. Those of the whole graph
are the compiler's, when nothing is wrong here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import msgspec

from holdfast.doors.envelope.findings import ROOT, Findings, Place
from holdfast.doors.envelope.lowering import variables_of
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition, PatchEdge, PolicyRule, SlotPatch
from holdfast.doors.envelope.patch_kinds import COMPLETED, TAKES, TIMEOUT
from holdfast.doors.envelope.reading.names import CALLS
from holdfast.doors.envelope.slots import ContractIndex, resolve_slots
from holdfast.doors.envelope.step_rules import Scope, check_expression, check_name, check_steps
from holdfast.doors.envelope.tables import Tables
from holdfast.graph.envelope import IN, OUT, PORTS, REJECTED, SYSTEM, USER, SlotPlace
from holdfast.graph.kinds import KINDS, UNKNOWN, Behaviour, Kind
from holdfast.graph.order import find_cycles
from holdfast.graph.topology import walk
from holdfast.graph.windows import strictest

MOST_NODES: Final = 2_000
MOST_EDGES: Final = 8_000
MOST_POLICIES: Final = 500


def check_patch(contract: ContractDefinition, patch: PatchDefinition, tables: Tables) -> Findings:
    """Check a patch against a sound contract. Its size comes first: all further checks take time by it."""
    findings = Findings()
    if not _fits(patch, findings):
        return findings
    _base(contract, patch, findings)
    places = resolve_slots(ContractIndex(contract))
    scope = Scope(contract, tables, findings, variables_of(contract))
    homes = _homes(patch)
    for name, steps in patch.slots.items():
        place = ROOT.at("slots").at(name)
        if name in places:
            _SlotRules(steps, places[name], scope, place, homes).check()
        else:
            hint = findings.nearest(name, places)
            findings.add("SLOT_UNKNOWN", place, f"The contract has no slot {name[:80]!r}.", hint=hint)
    _policies(contract, patch, scope)
    return findings


def _fits(patch: PatchDefinition, findings: Findings) -> bool:
    sizes = {
        "nodes": (sum(len(steps.nodes) for steps in patch.slots.values()), MOST_NODES),
        "edges": (sum(len(steps.edges) for steps in patch.slots.values()), MOST_EDGES),
        "policies": (len(patch.policies), MOST_POLICIES),
    }
    for noun, (count, most) in sizes.items():
        if count > most:
            findings.add("PATCH_TOO_LARGE", ROOT, f"The patch has {count} {noun}; {most} is the most.")
    return not findings.errors


def _base(contract: ContractDefinition, patch: PatchDefinition, findings: Findings) -> None:
    if patch.contract != contract.type:
        message = f"The patch is made for {patch.contract[:80]!r}, this is the contract {contract.type!r}."
        findings.add("PATCH_CONTRACT_FOREIGN", ROOT.at("contract"), message)
    elif patch.envelope != contract.version:
        message = f"The patch is made for version {patch.envelope} of the contract, this is version {contract.version}."
        findings.add("PATCH_BASE_UNKNOWN", ROOT.at("envelope"), message)


def _homes(patch: PatchDefinition) -> dict[str, str]:
    """The slot of each name, to tell a foreign step from an unknown one."""
    return {node.id: slot for slot, steps in patch.slots.items() for node in steps.nodes}


def _policies(contract: ContractDefinition, patch: PatchDefinition, scope: Scope) -> None:
    taken = {policy.name for policy in contract.policies}
    known = CALLS | {each.name for each in (*contract.verbs, *contract.actions)}
    for index, policy in enumerate(patch.policies):
        place = ROOT.item("policies", index, policy.name)
        _policy(policy, taken, known, scope, place)
        taken.add(policy.name)


def _policy(policy: PolicyRule, taken: set[str], known: frozenset[str], scope: Scope, place: Place) -> None:
    check_name(policy.name, scope.findings, place)
    if policy.name in taken:
        scope.findings.add("PATCH_POLICY_TAKEN", place, f"There is a policy {policy.name!r} already.")
    if policy.capability is None and policy.when is None:
        scope.findings.add("PATCH_POLICY_EMPTY", place, "The policy demands nothing.")
    for name in sorted(set(policy.on) - known):
        message = f"The contract has no verb or action {name[:80]!r}."
        hint = scope.findings.nearest(name, known)
        scope.findings.add("PATCH_POLICY_TARGET", place.at("on"), message, hint=hint)
    if policy.when is not None:
        check_expression(policy.when, scope, place.at("when"), result="boolean")


class _Way(msgspec.Struct, frozen=True):
    """An edge whose ends are known, and its place in the patch."""

    edge: PatchEdge
    place: Place


class _SlotRules:
    """The rules of one slot's steps."""

    def __init__(self, steps: SlotPatch, slot: SlotPlace, scope: Scope, place: Place, homes: dict[str, str]) -> None:
        self.steps = steps
        self.slot = slot
        self.scope = scope
        self.findings = scope.findings
        self.place = place
        self.homes = homes
        self.places = {node.id: place.item("nodes", index, node.id) for index, node in enumerate(steps.nodes)}
        self.nodes = {node.id: node for node in steps.nodes}
        self.ways: list[_Way] = []
        self.leaving: defaultdict[str, list[_Way]] = defaultdict(list)

    def check(self) -> None:
        if not self.steps.nodes and not self.steps.edges:
            self._slot_window()
            return
        window = self._slot_window()
        check_steps(self.steps, window, self.scope, self.place)
        for index, edge in enumerate(self.steps.edges):
            self._edge(edge, self.place.item("edges", index))
        for way in self.ways:
            self.leaving[way.edge.source].append(way)
        self._duplicates()
        for id in self.nodes:
            self._leaves(id)
        self._shape()
        self._modes()

    def _slot_window(self) -> str:
        given = self.steps.window
        if given is not None and strictest(given, self.slot.window) != given:
            message = f"The window {given} is looser than {self.slot.window}, that of the slot."
            self.findings.add("SLOT_WINDOW_LOOSER", self.place.at("window"), message)
        return strictest(given, self.slot.window)

    # --- edges ---

    def _edge(self, edge: PatchEdge, place: Place) -> None:
        ends = [self._end(edge.source, place.at("source")), self._end(edge.target, place.at("target"))]
        if edge.when is not None:
            check_expression(edge.when, self.scope, place.at("when"), result="boolean")
        if not all(ends) or not self._uses_ports(edge, place):
            return
        self._event(edge, place)
        self.ways.append(_Way(edge, place))

    def _end(self, name: str, place: Place) -> bool:
        if name in self.nodes or name in PORTS:
            return True
        shown = repr(name[:80])
        if name.startswith(SYSTEM):
            message = f"{shown} belongs to the envelope; a slot is left by its ports."
            self.findings.add("SLOT_EDGE_SYSTEM", place, message)
        elif name.startswith(USER) or ":" in name:
            message = f"{shown} is in a namespace; edges name the steps of their slot."
            self.findings.add("SLOT_EDGE_FOREIGN", place, message)
        elif name in self.homes:
            self.findings.add("SLOT_EDGE_FOREIGN", place, f"{shown} is a step of the slot {self.homes[name]!r}.")
        else:
            hint = self.findings.nearest(name, [*self.nodes, *PORTS])
            self.findings.add("PATCH_TARGET_UNKNOWN", place, f"This slot has no step {shown}.", hint=hint)
        return False

    def _uses_ports(self, edge: PatchEdge, place: Place) -> bool:
        if edge.source in (OUT, REJECTED):
            self.findings.add("SLOT_PORT_MISUSED", place.at("source"), f"Nothing of the slot follows {edge.source!r}.")
            return False
        if edge.target == IN:
            message = "The slot is entered at 'in', by the envelope only."
            self.findings.add("SLOT_PORT_MISUSED", place.at("target"), message)
            return False
        if edge.target == REJECTED and self.slot.rejected is None:
            message = f"The slot {self.slot.name!r} has no port 'rejected'."
            self.findings.add("SLOT_WITHOUT_REJECTED", place.at("target"), message)
            return False
        return True

    def _event(self, edge: PatchEdge, place: Place) -> None:
        kind = None if edge.source == IN else self.nodes[edge.source].kind
        takes = None if kind is None else TAKES.get(kind)
        if kind is not None and takes is None:
            return
        events = (COMPLETED,) if takes is None else takes.events
        if edge.on not in events:
            message = f"{edge.source!r} is never left on {edge.on[:80]!r}, only on {', '.join(events)}."
            self.findings.add("PATCH_EVENT_UNEXPECTED", place.at("on"), message)
        elif edge.on == TIMEOUT and not self._times_out(edge.source):
            message = f"{edge.source!r} never times out: neither due nor deadline is set."
            self.findings.add("PATCH_TIMEOUT_UNUSED", place.at("on"), message)

    def _times_out(self, id: str) -> bool:
        return self.nodes[id].due is not None or self.nodes[id].deadline is not None

    def _duplicates(self) -> None:
        seen: set[tuple[object, ...]] = set()
        for way in self.ways:
            edge = way.edge
            key = (edge.source, edge.target, edge.on, edge.when, edge.priority)
            if key in seen:
                self.findings.add("PATCH_DUPLICATE_EDGE", way.place, "There is another edge like this one.")
            seen.add(key)

    def _leaves(self, id: str) -> None:
        takes = TAKES.get(self.nodes[id].kind)
        if takes is None:
            return
        events = {way.edge.on for way in self.leaving[id]}
        if takes.onward not in events:
            message = f"No edge leads on from {id!r} on {takes.onward!r}."
            self.findings.add("PATCH_EDGE_MISSING", self.places[id], message)
        if REJECTED in takes.events and REJECTED not in events and self.slot.rejected is None:
            message = f"{id!r} may be rejected, and the slot {self.slot.name!r} has no port for that."
            hint = "Add an edge on rejected."
            self.findings.add("SLOT_WITHOUT_REJECTED", self.places[id], message, hint=hint)

    # --- the shape ---

    def _shape(self) -> None:
        targets = {id: self._targets(id) for id in (*self.nodes, IN)}
        sources: defaultdict[str, list[str]] = defaultdict(list)
        for source, found in targets.items():
            for target in found:
                sources[target].append(source)
        for cycle in find_cycles(self.nodes, lambda id: targets[id]):
            way = " → ".join([*cycle[:20], cycle[0]])
            self.findings.add("PATCH_CYCLE", self.places[cycle[0]], f"The steps go round in a cycle: {way}.")
        reached = walk([IN], lambda id: targets.get(id, ()))
        leading_out = walk([OUT, REJECTED], lambda id: sources[id])
        for id, place in self.places.items():
            if id not in reached:
                self.findings.add("PATCH_UNREACHABLE", place, f"No path leads from 'in' to {id!r}.")
            if id not in leading_out:
                self.findings.add("PATCH_WITHOUT_PORT", place, f"No path leads from {id!r} to a port.")
        if OUT not in reached:
            self.findings.add("PATCH_WITHOUT_PORT", self.place, "No path leads from 'in' to 'out'.")

    def _targets(self, id: str) -> list[str]:
        found = [way.edge.target for way in self.leaving[id]]
        if id in self.nodes and needs_rejected_edge(self.nodes[id].kind, {way.edge.on for way in self.leaving[id]}):
            found.append(REJECTED)
        return found

    def _modes(self) -> None:
        entering = self.leaving[IN]
        splits = len(entering) == 1 and self._row(entering[0].edge.target).splits
        self._mode("entry_mode", self.steps.entry_mode, "branch" if splits or len(entering) > 1 else "serial")
        exiting = [way.edge.source for way in self.ways if way.edge.target == OUT]
        joins = len(exiting) == 1 and self._row(exiting[0]).behaviour is Behaviour.JOIN
        self._mode("exit_mode", self.steps.exit_mode, "join" if joins or len(exiting) > 1 else "single")

    def _row(self, id: str) -> Kind:
        return KINDS.get(self.nodes[id].kind, UNKNOWN) if id in self.nodes else UNKNOWN

    def _mode(self, field: str, given: str | None, found: str) -> None:
        if given is not None and given != found:
            message = f"The mode {given[:80]!r} is written, and the edges make it {found!r}."
            self.findings.add("SLOT_MODE_WRONG", self.place.at(field), message)


def needs_rejected_edge(kind: str, events: set[str]) -> bool:
    """Check if a step may be rejected and has no edge for it: it gets one to the port."""
    takes = TAKES.get(kind)
    return takes is not None and REJECTED in takes.events and REJECTED not in events
