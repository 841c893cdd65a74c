"""Rules of a contract that no single key can break: names that exist, states that are reached and left."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.doors.envelope.model import Gate, Verb
from holdfast.doors.envelope.reading.building import ContractDraft, Part
from holdfast.doors.envelope.reading.conditions import Conditions
from holdfast.doors.envelope.reading.names import CALLS, RESERVED
from holdfast.doors.envelope.reading.slot_rules import check_slots
from holdfast.doors.envelope.slots import ContractIndex
from holdfast.doors.yaml.problems import Findings
from holdfast.graph.topology import walk

_NOUNS = {"states": "state", "verbs": "verb", "gates": "gate", "actions": "action"}


def check_contract(draft: ContractDraft, findings: Findings) -> None:
    """Report every rule that the contract breaks; where a list could not be read, nothing is missed in it."""
    rules = _Rules(draft, findings)
    rules.names()
    rules.clashes()
    rules.initial()
    rules.references()
    rules.conditions()
    if draft.broken.isdisjoint({"states", "verbs", "gates", "slots"}):
        before = so_far = findings.errors
        check_slots(draft, rules.ways, findings)
        rules.gates(knows_slots=findings.errors == before)
        if rules.knows_all_states():  # a name that leads nowhere would make states look unreachable
            rules.left()
            rules.reached()
            if findings.errors == so_far:
                rules.ended()


class _Rules:
    def __init__(self, draft: ContractDraft, findings: Findings) -> None:
        self.draft = draft
        self.contract = draft.contract
        self.findings = findings
        self.ways = ContractIndex(draft.contract)

    def add(self, code: str, part: Part, key: str, message: str, known: Iterable[str] = (), name: str = "") -> None:
        hint = self.findings.nearest(name, sorted(known)) if name else ""
        self.findings.add(code, message, self.draft.mark(part.path, *([key] if key else [])), hint=hint)

    # --- names ----------------------------------------------------------------------------------------------------

    def names(self) -> None:
        for key, reserved in RESERVED.items():
            seen: set[str | tuple[str, str]] = set()
            for part in self.draft.parts[key]:
                name: str = part.value.name
                identity = (name, part.value.source) if isinstance(part.value, Verb) else name
                if identity in seen:
                    where = f" from {part.value.source!r}" if isinstance(part.value, Verb) else ""
                    self.add("CONTRACT_DUPLICATE", part, "name", f"There is another {name!r}{where} before this one.")
                elif name in reserved:
                    self.add("CONTRACT_NAME_RESERVED", part, "name", f"{name!r} is a name of the engine's own.")
                seen.add(identity)

    def clashes(self) -> None:
        """Report names that two nouns share: slots and calls could not tell them apart."""
        known: dict[str, str] = {}
        for key, noun in _NOUNS.items():
            for part in self.draft.parts[key]:
                other = known.setdefault(part.value.name, noun)
                if other != noun:
                    message = f"There is a {other} {part.value.name!r}, so no {noun} can have this name."
                    self.add("CONTRACT_NAME_CLASH", part, "name", message)

    def initial(self) -> None:
        for path in self.draft.initial[1:]:
            self.findings.add(
                "CONTRACT_INITIAL_AMBIGUOUS", "There is another initial state.", self.draft.mark(path, "initial")
            )

    # --- references -----------------------------------------------------------------------------------------------

    def references(self) -> None:
        if "states" not in self.draft.broken:
            for part in (*self.draft.parts["verbs"], *self.draft.parts["gates"]):
                self.state(part, "from", part.value.source)
                self.state(part, "to", part.value.target)
            self.amendment()
        if "fields" not in self.draft.broken:
            for part in self.draft.parts["actions"]:
                for name in part.value.sets:
                    self.field(part, name)
        if self.draft.broken.isdisjoint({"verbs", "actions"}):
            for part in self.draft.parts["policies"]:
                self.calls(part)
        for part in self.draft.parts["policies"]:
            if part.value.capability is None and part.value.when is None:
                self.add("CONTRACT_POLICY_EMPTY", part, "", f"The policy {part.value.name!r} demands nothing.")

    def state(self, part: Part, key: str, name: str) -> None:
        states = self.ways.states
        if name not in states:
            self.add("CONTRACT_STATE_UNKNOWN", part, key, f"There is no state {name!r}.", states, name)

    def field(self, part: Part, name: str) -> None:
        fields = {field.name for field in self.contract.fields}
        if name not in fields:
            self.add("CONTRACT_FIELD_UNKNOWN", part, "sets", f"There is no field {name!r}.", fields, name)

    def calls(self, part: Part) -> None:
        known = CALLS | {each.name for each in (*self.contract.verbs, *self.contract.actions)}
        for name in part.value.on:
            if name not in known:
                message = f"There is no verb and no action {name!r}."
                self.add("CONTRACT_CALL_UNKNOWN", part, "on", message, known, name)

    def amendment(self) -> None:
        amendment = self.contract.amendment
        if amendment is None:
            return
        part = Part(("amendment",), amendment)
        for name in amendment.states:
            self.state(part, "states", name)
        if amendment.drift is not None:
            self.state(part, "drift", amendment.drift)
        if not amendment.states and amendment.drift is None and ("amendment", "states") not in self.draft.marks:
            self.add("CONTRACT_AMENDMENT_EMPTY", part, "", "The amendment names no state.")

    def conditions(self) -> None:
        if "fields" in self.draft.broken:
            return
        conditions = Conditions(self.contract, self.findings)
        for part in (*self.draft.parts["verbs"], *self.draft.parts["policies"]):
            conditions.check(part.value.when, self.draft.mark(part.path, "when"))

    # --- ways -----------------------------------------------------------------------------------------------------

    def gates(self, *, knows_slots: bool) -> None:
        """Report gates that no document reaches, and gates that demand approvals without a slot for them."""
        exits = {slot.exit for slot in self.contract.slots}
        for part in self.draft.parts["gates"]:
            gate = part.value
            state = self.ways.states.get(gate.source)
            if state is not None and state.ends:
                message = f"The state {state.name!r} ends the instance, so the gate {gate.name!r} is never reached."
                self.add("CONTRACT_ENDED", part, "from", message)
            elif state is not None and knows_slots:
                self.way(part, gate)
            if gate.approvals and gate.name not in exits:
                message = f"The gate {gate.name!r} demands approvals, and no slot before it has room for them."
                self.add("CONTRACT_GATE_WITHOUT_SLOT", part, "approvals", message)
            elif gate.approvals and knows_slots and not self.may_be_rejected(gate):
                message = f"The gate {gate.name!r} demands approvals, and a rejection leads nowhere."
                self.add("CONTRACT_GATE_WITHOUT_REJECTION", part, "approvals", message)

    def may_be_rejected(self, gate: Gate) -> bool:
        """Check if the slot before the gate has a gate behind its port `rejected`."""
        before = [slot for slot in self.contract.slots if slot.exit == gate.name]
        return all(self.ways.rejecting_gate(slot) is not None for slot in before)

    def way(self, part: Part, gate: Gate) -> None:
        direct = self.ways.direct_gates(gate.source)
        behind = {self.ways.rejecting_gate(slot) for slot in self.ways.slots_of(gate.source)}
        if gate not in direct and gate.name not in behind:
            message = f"Nothing decides when {gate.name!r} is taken: {gate.source!r} leads to another gate."
            self.add("CONTRACT_GATE_WITHOUT_WAY", part, "", message)
        elif gate in direct and len(direct) > 1:
            others = ", ".join(repr(each.name) for each in direct if each is not gate)
            message = f"Nothing decides whether {gate.name!r} is taken from {gate.source!r}, or {others}."
            self.add("CONTRACT_GATE_WITHOUT_WAY", part, "", message)

    def knows_all_states(self) -> bool:
        ends = {end for way in (*self.contract.verbs, *self.contract.gates) for end in (way.source, way.target)}
        amendment = self.contract.amendment
        named = {*amendment.states, amendment.drift} - {None} if amendment else set[str]()
        return (ends | named) <= self.ways.states.keys()

    def left(self) -> None:
        amended = set(self.contract.amendment.states if self.contract.amendment else ())
        for part in self.draft.parts["states"]:
            name: str = part.value.name
            is_left = self.ways.verbs_of(name) or self.ways.gates_of(name) or name in amended
            if not is_left and not part.value.ends:
                message = f"Nothing leaves {name!r}, and it does not end the instance."
                self.add("CONTRACT_STATE_STUCK", part, "", message)

    def ended(self) -> None:
        """Report states from which no way leads to an end: an instance there would live for ever."""
        coming: dict[str, list[str]] = {}
        for way in (*self.contract.verbs, *self.contract.gates):
            coming.setdefault(way.target, []).append(way.source)
        amended = self.contract.amendment.states if self.contract.amendment else ()
        ends = [*amended, *(state.name for state in self.contract.states if state.ends)]
        found = walk(ends, lambda name: coming.get(name, ()))
        for part in self.draft.parts["states"]:
            if part.value.name not in found:
                message = f"No verbs and gates lead from {part.value.name!r} to a state that ends the instance."
                self.add("CONTRACT_STATE_ENDLESS", part, "", message)

    def reached(self) -> None:
        leading: dict[str, list[str]] = {}
        for way in (*self.contract.verbs, *self.contract.gates):
            leading.setdefault(way.source, []).append(way.target)
        first = self.contract.states[0].name
        drift = self.contract.amendment.drift if self.contract.amendment else None
        is_stable = any(slot.stable for slot in self.contract.slots)
        roots = [first, *([drift] if drift is not None and is_stable else [])]
        found = walk(roots, lambda name: leading.get(name, ()))
        for part in self.draft.parts["states"]:
            if part.value.name not in found:
                message = f"No verbs and gates lead from {first!r} to {part.value.name!r}."
                self.add("CONTRACT_STATE_UNREACHABLE", part, "", message)
