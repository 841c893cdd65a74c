"""A contract of invoices in two versions, and patches for it."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast import Contract, Fill, Patch
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition


def invoice(version: int = 1, *, approvals: int = 0, type: str = "invoice") -> ContractDefinition:
    return (
        Contract(type, version)
        .field("total", "money")
        .field("note", "string", material=False)
        .state("draft")
        .state("submitted", window="amend_only")
        .state("active", window="locked", ends=True)
        .verb("submit", "draft", "submitted", capability="invoice:submit")
        .gate("approve", "submitted", "active", approvals=approvals)
        .gate("reject", "submitted", "draft")
        .slot("review", "submitted", "approve", stable=True)
        .build()
    )


def without_review(version: int) -> ContractDefinition:
    """The contract without its slot: no patch that fills it fits any more."""
    known = invoice(version)
    gates = tuple(gate for gate in known.gates if gate.name == "approve")
    return replace(known, slots=(), gates=gates)


def approved_by(role: str, envelope: int = 1, type: str = "invoice") -> PatchDefinition:
    steps = Fill().approval("check", role=role).edge("in", "check").edge("check", "out", on="approved")
    return Patch(type, envelope=envelope).slot("review", steps).build()


def broken() -> PatchDefinition:
    """Well written, and wrong within the contract in two places."""
    steps = Fill().script("sum", {"double": "entity.unknown * 2"}).edge("in", "sum").edge("sum", "out")
    return Patch("invoice", envelope=1).slot("review", steps).slot("nowhere", steps).build()
