"""Rules of slots: what lies before and behind each of them, and the gate behind its port `rejected`."""

from __future__ import annotations

from holdfast.doors.envelope.model import Slot
from holdfast.doors.envelope.reading.building import ContractDraft, Part
from holdfast.doors.envelope.slots import ContractIndex
from holdfast.doors.yaml.problems import Findings


def check_slots(draft: ContractDraft, ways: ContractIndex, findings: Findings) -> None:
    """Report slots that lie nowhere, or where another one lies."""
    rules = _SlotRules(draft, ways, findings)
    seen: dict[tuple[str, str], str] = {}
    for part in draft.parts["slots"]:
        rules.check(part)
        slot: Slot = part.value
        other = seen.setdefault((slot.entry, slot.exit), slot.name)
        if other != slot.name:
            rules.add("CONTRACT_SLOT_OVERLAP", part, "", f"The slot {other!r} lies at the same place.")


class _SlotRules:
    def __init__(self, draft: ContractDraft, ways: ContractIndex, findings: Findings) -> None:
        self.draft = draft
        self.ways = ways
        self.findings = findings

    def add(self, code: str, part: Part, key: str, message: str) -> None:
        self.findings.add(code, message, self.draft.mark(part.path, *([key] if key else [])))

    def check(self, part: Part) -> None:
        slot: Slot = part.value
        if slot.entry in self.ways.states:
            self.behind_state(part, slot)
        elif slot.entry in self.ways.gates:
            self.behind_gate(part, slot)
        else:
            message = f"There is no state and no gate {slot.entry!r}."
            self.add("CONTRACT_SLOT_ENTRY_WRONG", part, "entry", message)

    def behind_state(self, part: Part, slot: Slot) -> None:
        gates = {gate.name for gate in self.ways.gates_of(slot.entry)}
        verbs = {verb.name for verb in self.ways.verbs_of(slot.entry)}
        if slot.exit in gates:
            self.rejected(part, slot, gates - {slot.exit})
            return
        if slot.exit not in verbs:
            message = f"No gate and no verb {slot.exit!r} leaves the state {slot.entry!r}."
            self.add("CONTRACT_SLOT_EXIT_WRONG", part, "exit", message)
        elif self.ways.states[slot.entry].ends:
            message = f"The state {slot.entry!r} ends the instance, so no steps come behind it."
            self.add("CONTRACT_ENDED", part, "entry", message)
        elif gates:
            message = f"{slot.entry!r} leads to a gate, so the verb {slot.exit!r} interrupts; no steps come before it."
            self.add("CONTRACT_SLOT_EXIT_WRONG", part, "exit", message)
        else:
            self.rejected(part, slot, set())

    def behind_gate(self, part: Part, slot: Slot) -> None:
        target = self.ways.gates[slot.entry].target
        if slot.exit != target:
            message = f"The gate {slot.entry!r} leads to {target!r}, not to {slot.exit!r}."
            self.add("CONTRACT_SLOT_EXIT_WRONG", part, "exit", message)
        else:
            self.rejected(part, slot, set())

    def rejected(self, part: Part, slot: Slot, gates: set[str]) -> None:
        if slot.rejected is not None and slot.rejected not in gates:
            found = f"the others are {', '.join(sorted(gates))}" if gates else "there is no other one"
            message = f"{slot.rejected!r} is no other gate that leaves {slot.entry!r}; {found}."
            self.add("CONTRACT_SLOT_REJECTED_WRONG", part, "rejected", message)
