"""The ways of a contract: what leaves a state, which gate is reached from it, and what lies around a slot."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doors.envelope.model import ContractDefinition, Gate, Slot, Verb


class Ways:
    """The ways of one contract, looked up once. Names that nothing has lead nowhere."""

    def __init__(self, contract: ContractDefinition) -> None:
        self.states = {state.name: state for state in contract.states}
        self.gates = {gate.name: gate for gate in contract.gates}
        self.slots = contract.slots
        self._gates: dict[str, list[Gate]] = {}
        self._verbs: dict[str, list[Verb]] = {}
        for gate in contract.gates:
            self._gates.setdefault(gate.source, []).append(gate)
        for verb in contract.verbs:
            self._verbs.setdefault(verb.source, []).append(verb)

    def gates_of(self, state: str) -> list[Gate]:
        """The gates that leave a state."""
        return self._gates.get(state, [])

    def verbs_of(self, state: str) -> list[Verb]:
        """The verbs that leave a state."""
        return self._verbs.get(state, [])

    def rejected(self, slot: Slot) -> str | None:
        """Find the gate behind the port `rejected`: the one that was named, else the only other gate of the entry."""
        if slot.rejected is not None:
            return slot.rejected
        if slot.entry not in self.states:
            return None
        others = [gate.name for gate in self.gates_of(slot.entry) if gate.name != slot.exit]
        return others[0] if len(others) == 1 else None

    def slots_of(self, state: str) -> list[Slot]:
        """The slots between a state and one of its gates."""
        gates = {gate.name for gate in self.gates_of(state)}
        return [slot for slot in self.slots if slot.entry == state and slot.exit in gates]

    def direct(self, state: str) -> list[Gate]:
        """The gates that a document reaches from a state by itself: exactly one, if the contract is sound."""
        exits = {slot.exit for slot in self.slots_of(state)}
        if exits:
            return [gate for gate in self.gates_of(state) if gate.name in exits]
        ports = {self.rejected(slot) for slot in self.slots if slot.entry == state}
        return [gate for gate in self.gates_of(state) if gate.name not in ports]

    def lost(self, state: str) -> Iterator[Gate]:
        """The gates of a state to which nothing leads."""
        reached = {gate.name for gate in self.direct(state)}
        reached |= {port for slot in self.slots if slot.entry == state and (port := self.rejected(slot))}
        return (gate for gate in self.gates_of(state) if gate.name not in reached)

    def rests(self, state: str) -> bool:
        """Check whether documents rest in a state until somebody calls a verb: no gate leaves it."""
        return not self.gates_of(state)
