"""Contracts and patches for tests: the invoice as a builder writes it, and edits of its written form."""

from __future__ import annotations

import copy
from typing import Any

from holdfast import Contract, Fill, Patch
from holdfast.doors.envelope import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.reading.load import load_contracts, require_contract, require_patch
from holdfast.doors.envelope.written import contract_data, patch_data
from holdfast.doors.yaml.writing import write_yaml
from holdfast.errors import DefinitionError
from holdfast.graph.diagnostics import Diagnostic

REMOVED = object()
Place = tuple[str | int, ...]
Edit = tuple[Place, Any]


def invoice() -> ContractDefinition:
    return (
        Contract("invoice", version=1, about="What vendors send.")
        .field("grand_total", "money")
        .field("vendor_id", "string", indexed=True)
        .field("due_at", "time")
        .field("note", "string", material=False, about="Anything.")
        .state("draft")
        .state("submitted", window="amend_only", about="Somebody looks at it.")
        .state("active", window="locked", ends=True)
        .state("cancelled", window="locked", ends=True)
        .verb("submit", "draft", "submitted", capability="invoice:submit", when="entity.grand_total > 0")
        .verb("withdraw", "submitted", "draft")
        .verb("cancel", "active", "cancelled", capability="invoice:cancel", about="Too late.")
        .gate("approve", "submitted", "active", approvals=1)
        .gate("reject", "submitted", "draft")
        .slot("review", "submitted", "approve", rejected="reject", window="amend_only", stable=True)
        .slot("posting", "approve", "active")
        .slot("checking", "draft", "submit")
        .action("post", sets=["note", "due_at"], capability="ledger:post", run_as="system")
        .policy("own", on=["submit", "post", "update"], capability="invoice:own", when="actor.id != entity.vendor_id")
        .amendment("active", drift="draft")
        .build()
    )


def review() -> Fill:
    """Every kind of node, with every option."""
    return (
        Fill(window="locked", entry_mode="serial", exit_mode="single")
        .condition("route", name="How much?", about="By amount.", window="locked")
        .split("both")
        .approval("boss", role="manager", form={"type": "object"}, due="2d")
        .approval("owner", expression="entity.owner", due=90)
        .approval("eva", user="eva")
        .join("agreed", "any")
        .script("note", {"total": "entity.grand_total", "fixed": 5})
        .rule("limits", "approval_limits", 2)
        .action("book", "post", payload={"note": "'booked'"}, run_as="actor")
        .wait_timer("pause", 1.5)
        .wait_timer("day", until="entity.due_at")
        .wait_timer("night", cron="0 2 * * *", timezone="Europe/Berlin")
        .wait_event("paid", "payment.done", key="entity.vendor_id", deadline="1w")
        .webhook_out("tell", "https://example.org/x", headers={"X-A": "b"}, secret="s", payload={"a": "1"}, awaits=True)
        .notification("mail", "mail", to="entity.owner", subject="Paid", text="Thanks.\nBye.", payload={"a": "true"})
        .sub_flow("child", "other.flow", 3, payload={"a": "null"}, deadline=3600)
        .policy_gate("wall", capability="x:y", when="entity.grand_total < 10")
        .edge("in", "route")
        .edge("route", ["both", "eva"], when="entity.grand_total > 5", priority=-1, label="much")
        .edge(["boss", "owner"], "agreed", on="approved")
        .edge("agreed", "out")
    )


def house_rules() -> PatchDefinition:
    return (
        Patch("invoice", envelope=1, version=4, about="Ours.")
        .slot("review", review())
        .slot("posting", Fill())
        .policy("strict", on="submit", when="entity.grand_total < 100")
        .build()
    )


def edited(data: dict[str, Any], *edits: Edit) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    for path, value in edits:
        place: Any = changed
        for part in path[:-1]:
            place = place[part]
        if value is REMOVED:
            del place[path[-1]]
        elif isinstance(place, list) and path[-1] == len(place):
            place.append(value)
        else:
            place[path[-1]] = value
    return changed


def contract(*edits: Edit) -> dict[str, Any]:
    return edited(contract_data(invoice()), *edits)


def patch(*edits: Edit) -> dict[str, Any]:
    return edited(patch_data(house_rules()), *edits)


def refused(read: Any, data: Any) -> tuple[Diagnostic, ...]:
    """The problems of data that a builder made; none if it is sound."""
    try:
        read(data)
    except DefinitionError as error:
        return error.diagnostics
    return ()


def problems_of(key: str, data: Any) -> tuple[Diagnostic, ...]:
    return refused(require_contract if key == "contract" else require_patch, data)


def codes_in_yaml(key: str, data: Any) -> list[tuple[str, str]]:
    """The codes of the same data as a file, each with the line of its place."""
    text = write_yaml({key: data})
    lines = text.splitlines()
    return [(each.code, lines[each.line - 1]) for each in load_contracts(text).problems]
