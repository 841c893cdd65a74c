"""A contract for invoices, an organisation's patch for it, and the ways of three invoices, simulated in memory.

    python examples/contracts_invoice.py

    draft ── submit ── submitted ──[ review ]── approve ── active
      └────────────── reject ◁─────────┘

The contract says which states there are. The patch says who approves: a decision table reads the amount. Nothing is
stored, and no database is needed.
"""

from __future__ import annotations

from typing import Any

from holdfast import Contract, DecisionTable, Fill, Patch
from holdfast.doors.envelope.decision_tables.building import pin_table
from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.tables import Tables
from holdfast.runtime.envelopes.script import CallVerb, Decide, Edit, Input
from holdfast.runtime.envelopes.simulated import Simulation
from holdfast.runtime.envelopes.simulation import simulate

INVOICE = (
    Contract("invoice")
    .field("total", "money")
    .field("vendor", "string")
    .field("note", "string", material=False)
    .state("draft")
    .state("submitted", window="amend_only")
    .state("active", window="locked", ends=True)
    .verb("submit", "draft", "submitted", when="entity.total > 0")
    .verb("withdraw", "submitted", "draft")
    .gate("approve", "submitted", "active")
    .gate("reject", "submitted", "draft")
    .slot("review", "submitted", "approve", stable=True)
    .amendment(drift="draft")
    .build()
)
LIMITS = (
    DecisionTable("limits")
    .column("total", "money", least=1)
    .row({"approver": "nobody"}, {"total": {"below": 50_000}})
    .row({"approver": "boss"}, {"total": {"at_least": 50_000, "below": 1_000_000}})
    .row({"approver": "both"}, {"total": {"at_least": 1_000_000}})
    .build()
)
ACME = (
    Patch("invoice", envelope=1)
    .slot(
        "review",
        Fill()
        .rule("limit", "limits")
        .approval("boss", role="manager")
        .approval("finance", role="finance")
        .condition("large")
        .edge("in", "limit")
        .edge("limit", "out", when="context.approver == 'nobody'")
        .edge("limit", "boss")
        .edge("boss", "large", on="approved")
        .edge("large", "finance", when="context.approver == 'both'")
        .edge("large", "out")
        .edge("finance", "out", on="approved"),
    )
    .build()
)
GRAPH = compile_effective(INVOICE, ACME, tables=Tables([pin_table(LIMITS)]))
SUBMIT = CallVerb(verb="submit")


def invoice(total: int) -> dict[str, Any]:
    return {"total": total, "vendor": "v9", "note": ""}


def tell(title: str, total: int, *script: Input) -> Simulation:
    found = simulate(GRAPH, invoice(total), script)
    print(f"\n{title}")
    for line in found.lines():
        print(f"  {line}")
    return found


def main() -> None:
    small = tell("A small one passes by itself.", 9_900, SUBMIT)
    assert small.states == ("draft", "submitted", "active")
    assert not small.questions

    large = tell("A large one is signed twice.", 2_000_000, SUBMIT, Decide(node="boss"), Decide(node="finance"))
    assert [question.decision for question in large.questions] == ["approved", "approved"]

    edited = Edit(fields={"total": 60_000})
    changed = tell(
        "One is changed meanwhile, and begins again.", 2_000_000, SUBMIT, Decide(node="boss"), edited, SUBMIT
    )
    assert changed.waits == ("usr:review:boss",)
    print(f"\n{INVOICE.type}: three ways, nothing stored, and nobody was passed over.")


if __name__ == "__main__":
    main()
