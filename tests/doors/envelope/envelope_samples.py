"""The contract of an invoice, and patches for it written as short as they read."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.doors.envelope.model import (
    Action,
    Amendment,
    Approvers,
    ContractDefinition,
    DataField,
    Gate,
    PatchDefinition,
    PatchEdge,
    PatchNode,
    PolicyRule,
    Slot,
    SlotPatch,
    State,
    Verb,
)
from holdfast.doors.envelope.tables import PinnedTable, Tables

INVOICE = ContractDefinition(
    type="invoice",
    version=1,
    fields=(
        DataField(name="total", type="money"),
        DataField(name="vendor", type="string"),
        DataField(name="note", type="string", material=False),
    ),
    states=(
        State(name="draft"),
        State(name="submitted", window="amend_only"),
        State(name="active", window="locked", ends=True),
        State(name="cancelled", window="locked", ends=True),
    ),
    verbs=(
        Verb(name="submit", source="draft", target="submitted", capability="invoice:submit", when="entity.total > 0"),
        Verb(name="withdraw", source="submitted", target="draft"),
        Verb(name="cancel", source="active", target="cancelled", capability="invoice:cancel"),
    ),
    gates=(
        Gate(name="approve", source="submitted", target="active"),
        Gate(name="reject", source="submitted", target="draft"),
    ),
    actions=(
        Action(name="post", capability="ledger:post", run_as="system"),
        Action(name="mark", sets=("note",)),
    ),
    policies=(PolicyRule(name="small", on=("post",), when="entity.total < 1000000"),),
    slots=(
        Slot(name="prepare", entry="draft", exit="submit"),
        Slot(name="review", entry="submitted", exit="approve", stable=True),
        Slot(name="book", entry="approve", exit="active"),
    ),
    amendment=Amendment(states=("active",), drift="draft"),
)
LIMITS = Tables(
    PinnedTable(name="limits", version=version, hash=str(version) * 64, table={"rows": [version]}) for version in (1, 2)
)
DEFAULTS: dict[str, dict[str, Any]] = {
    "approval": {"approvers": Approvers(role="finance")},
    "join": {"mode": "all"},
    "script": {"sets": {"score": "entity.total"}},
    "rule": {"table": "limits"},
    "action": {"action": "post"},
    "policy_gate": {"capability": "invoice:special"},
    "wait_timer": {"delay": 60.0},
    "wait_event": {"event": "paid"},
    "webhook_out": {"url": "https://ledger.example/"},
    "notification": {"channel": "mail"},
    "sub_flow": {"flow": "archive"},
}


def demanding(approvals: int) -> ContractDefinition:
    """The same contract, with approvals that its gate demands."""
    approve, reject = INVOICE.gates
    return replace(INVOICE, gates=(replace(approve, approvals=approvals), reject))


def step(id: str, kind: str = "condition", **fields: Any) -> PatchNode:
    return PatchNode(id=id, kind=kind, **(DEFAULTS.get(kind, {}) | fields))


def edge(ends: str, **fields: Any) -> PatchEdge:
    """`edge("ann>out:approved")`."""
    source, target = ends.split(">")
    if not target.startswith(("sys:", "usr:")) and ":" in target:
        target, _, fields["on"] = target.partition(":")
    return PatchEdge(source=source, target=target, **fields)


def slot(steps: str, edges: str, *more: PatchEdge, **fields: Any) -> SlotPatch:
    """`slot("ann:approval check", "in>check check>ann ann>out:approved")`; conditions need no kind."""
    nodes = tuple(step(*word.split(":")) for word in steps.split())
    return SlotPatch(nodes=nodes, edges=(*map(edge, edges.split()), *more), **fields)


def patch(review: SlotPatch | None = None, **fields: Any) -> PatchDefinition:
    """A patch of the slot `review`, and of others by name."""
    names = {name: fields.pop(name) for name in ("prepare", "book", "unknown") if name in fields}
    slots = names if review is None else {"review": review, **names}
    given: dict[str, Any] = {"contract": "invoice", "envelope": 1, "slots": slots}
    return PatchDefinition(**given | fields)


ONE = slot("ann:approval", "in>ann ann>out:approved")
BOTH = slot(
    "both:split ann:approval ben:approval met:join",
    "in>both both>ann both>ben ann>met:approved ben>met:approved met>out",
)
LONG = patch(
    SlotPatch(
        nodes=(*BOTH.nodes, step("limit", "rule", table_version=2), step("post", "action")),
        edges=(
            *(each for each in BOTH.edges if each.target != "out"),
            *(edge("met>limit"), edge("limit>post"), edge("post>out")),
            edge("limit>rejected", when="context.score > 90", priority=-1),
        ),
    ),
    prepare=slot("check", "in>check check>out"),
)
