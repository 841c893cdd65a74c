"""Slots of a contract, resolved: the nodes on both sides of each, and the edge between them that its steps replace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.doors.envelope.model import ContractDefinition, Gate, Slot, State, Verb
from holdfast.graph.envelope import AMEND, END, SlotPlace, edge_id, gate_id, state_id


class ContractIndex:
    """The parts of a contract by the state they belong to, each list sorted by name."""

    def __init__(self, contract: ContractDefinition) -> None:
        self.contract = contract
        self.states = {state.name: state for state in contract.states}
        self.gates = {gate.name: gate for gate in contract.gates}
        self._gates: defaultdict[str, list[Gate]] = defaultdict(list)
        self._verbs: defaultdict[str, list[Verb]] = defaultdict(list)
        self._slots: defaultdict[str, list[Slot]] = defaultdict(list)
        for gate in sorted(contract.gates, key=lambda gate: gate.name):
            self._gates[gate.source].append(gate)
        for verb in sorted(contract.verbs, key=lambda verb: verb.name):
            self._verbs[verb.source].append(verb)
        for slot in sorted(contract.slots, key=lambda slot: slot.name):
            self._slots[slot.entry].append(slot)
        self._amended = frozenset(contract.amendment.states if contract.amendment is not None else ())

    def gates_of(self, state: str) -> list[Gate]:
        return self._gates.get(state, [])

    def verbs_of(self, state: str) -> list[Verb]:
        return self._verbs.get(state, [])

    def slots_of(self, entry: str) -> list[Slot]:
        return self._slots.get(entry, [])

    def rests(self, state: State) -> bool:
        """Check if documents stay in a state until a person calls a verb: no gate leads on, and it is no end."""
        return not state.ends and not self.gates_of(state.name)

    def rejecting_gate(self, slot: Slot) -> str | None:
        """Find the gate behind the port `rejected`: the one that is named, else the only other one of the entry."""
        if slot.rejected is not None:
            return slot.rejected
        gates = [gate.name for gate in self.gates_of(slot.entry)]
        others = [gate for gate in gates if gate != slot.exit]
        return others[0] if slot.exit in gates and len(others) == 1 else None

    def direct_gates(self, state: str) -> list[Gate]:
        """Find the gates that a state leads to: the exits of its slots, else all that no slot has behind `rejected`."""
        slots, gates = self.slots_of(state), self.gates_of(state)
        exits = {slot.exit for slot in slots}
        behind = {self.rejecting_gate(slot) for slot in slots}
        return [gate for gate in gates if gate.name in exits] or [gate for gate in gates if gate.name not in behind]

    def is_stable(self, state: str) -> bool:
        """Check if a state ends in a gate behind a stable slot: the gate must meet the version approved there."""
        exits = {gate.name for gate in self.gates_of(state)}
        return any(slot.stable and slot.exit in exits for slot in self.slots_of(state))

    def interrupts(self, state: str) -> dict[str, str]:
        """List the verbs of a state, each with the node that it leads to."""
        found = {verb.name: state_id(verb.target) for verb in self.verbs_of(state)}
        if state in self._amended and not self.states[state].ends:
            found.setdefault(AMEND, END)  # a new document takes the place of this one
        return dict(sorted(found.items()))

    def guards(self, state: str) -> dict[str, str]:
        """List the capabilities that the verbs of a state need."""
        return {verb.name: verb.capability for verb in self.verbs_of(state) if verb.capability is not None}

    def conditions(self, state: str) -> dict[str, str]:
        """List the conditions of the verbs of a state."""
        return {verb.name: verb.when for verb in self.verbs_of(state) if verb.when is not None}

    @property
    def drift_target(self) -> str | None:
        """The node where a document goes after a material edit in a stable slot."""
        amendment = self.contract.amendment
        return state_id(amendment.drift) if amendment is not None and amendment.drift is not None else None


def resolve_slots(index: ContractIndex) -> dict[str, SlotPlace]:
    return {place.name: place for place in sorted(_places(index), key=lambda place: place.name)}


def _places(index: ContractIndex) -> Iterator[SlotPlace]:
    for slot in index.contract.slots:
        if slot.entry not in index.states:
            yield _after_gate(index, slot)
        elif slot.exit in index.gates and index.gates[slot.exit].source == slot.entry:
            yield _before_gate(index, slot)
        else:
            yield _after_verb(index, slot)


def _before_gate(index: ContractIndex, slot: Slot) -> SlotPlace:
    entry, exit, rejected = state_id(slot.entry), gate_id(slot.exit), index.rejecting_gate(slot)
    behind = None if rejected is None else gate_id(rejected)
    return SlotPlace(
        name=slot.name,
        entry=entry,
        exit=exit,
        edge=edge_id(entry, exit),
        rejected=behind,
        rejecting=None if behind is None else edge_id(entry, behind, "never"),
        window=slot.window or index.states[slot.entry].window,
        stable=slot.stable,
        approvals=index.gates[slot.exit].approvals,
        verbs=index.interrupts(slot.entry),
        guards=index.guards(slot.entry),
        conditions=index.conditions(slot.entry),
        amendment=index.drift_target if slot.stable else None,
    )


def _after_verb(index: ContractIndex, slot: Slot) -> SlotPlace:
    verb = next(verb for verb in index.verbs_of(slot.entry) if verb.name == slot.exit)
    entry, exit = state_id(slot.entry), state_id(verb.target)
    return SlotPlace(
        name=slot.name,
        entry=entry,
        exit=exit,
        edge=edge_id(entry, exit, verb.name),
        window=slot.window or index.states[slot.entry].window,
        stable=slot.stable,
        amendment=index.drift_target if slot.stable else None,
    )


def _after_gate(index: ContractIndex, slot: Slot) -> SlotPlace:
    entry, exit = gate_id(slot.entry), state_id(slot.exit)
    return SlotPlace(
        name=slot.name,
        entry=entry,
        exit=exit,
        edge=edge_id(entry, exit),
        window=slot.window or index.states[slot.exit].window,
        stable=slot.stable,
        amendment=index.drift_target if slot.stable else None,
    )
