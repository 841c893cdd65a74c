"""Every finding of a contract or a patch has its code, place and hint, in Python and in YAML, and all come at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from contract_samples import REMOVED, Edit, codes_in_yaml, contract, patch, problems_of

from holdfast.doors.envelope.reading.problems import REMEDIES

DOCS = Path(__file__).parents[3] / "docs"
SECOND_SLOT = {"name": "again", "entry": "submitted", "exit": "approve"}
OTHER_SLOT = {**SECOND_SLOT, "exit": "shut"}
STATE = {"name": "lost"}

GO: dict[str, Any] = {"name": "go", "from": "draft", "to": "active"}
SHUT: dict[str, Any] = {"name": "shut", "from": "submitted", "to": "draft"}

CONTRACTS: list[tuple[str, str, list[Edit]]] = [
    ("CONTRACT_KEY_MISSING", "contract", [(("states",), REMOVED)]),
    ("CONTRACT_KEY_MISSING", "fields.note", [(("fields", 3, "type"), REMOVED), (("actions", 0, "sets"), REMOVED)]),
    ("CONTRACT_KEY_UNKNOWN", "state", [(("state",), [])]),
    ("CONTRACT_KEY_UNKNOWN", "verbs.submit.guard", [(("verbs", 0, "guard"), "x")]),
    ("CONTRACT_TYPE_WRONG", "fields.note.material", [(("fields", 3, "material"), "no")]),
    ("CONTRACT_TYPE_WRONG", "version", [(("version",), True)]),
    ("CONTRACT_TYPE_WRONG", "slots", [(("slots",), {})]),
    ("CONTRACT_TYPE_WRONG", "verbs.submit.from", [(("verbs", 0, "from"), {})]),
    ("CONTRACT_TYPE_WRONG", "verbs.submit.when", [(("verbs", 0, "when"), True)]),
    ("CONTRACT_VALUE_INVALID", "version", [(("version",), 0)]),
    ("CONTRACT_VALUE_INVALID", "type", [(("type",), "sys:x")]),
    ("CONTRACT_VALUE_INVALID", "type", [(("type",), "x\n")]),
    ("CONTRACT_VALUE_INVALID", "fields.total-net.name", [(("fields", 4), {"name": "total-net", "type": "money"})]),
    ("CONTRACT_VALUE_INVALID", "fields.x__.name", [(("fields", 4), {"name": "x__", "type": "money"})]),
    ("CONTRACT_VALUE_INVALID", "states.draft.window", [(("states", 0, "window"), "open")]),
    ("CONTRACT_VALUE_INVALID", "gates.approve.approvals", [(("gates", 0, "approvals"), -1)]),
    ("CONTRACT_VALUE_INVALID", "about", [(("about",), "\x1b[31mred")]),
    ("CONTRACT_VALUE_INVALID", "actions.post.capability", [(("actions", 0, "capability"), "a\nb")]),
    ("CONTRACT_DUPLICATE", "fields.note.name", [(("fields", 4), {"name": "note", "type": "string"})]),
    ("CONTRACT_DUPLICATE", "states.draft.name", [(("states", 4), {"name": "draft"})]),
    ("CONTRACT_DUPLICATE", "verbs.submit.name", [(("verbs", 3), {"name": "submit", "from": "draft", "to": "active"})]),
    ("CONTRACT_DUPLICATE", "gates.reject.name", [(("gates", 2), {**SHUT, "name": "reject"})]),
    ("CONTRACT_DUPLICATE", "slots.review.name", [(("slots", 2, "name"), "review")]),
    ("CONTRACT_DUPLICATE", "actions.post.name", [(("actions", 1), {"name": "post"})]),
    ("CONTRACT_DUPLICATE", "policies.own.name", [(("policies", 1), {"name": "own", "capability": "x"})]),
    ("CONTRACT_NAME_CLASH", "verbs.active.name", [(("verbs", 3), {"name": "active", "from": "draft", "to": "active"})]),
    ("CONTRACT_NAME_CLASH", "actions.submit.name", [(("actions", 1), {"name": "submit"})]),
    ("CONTRACT_NAME_CLASH", "actions.approve.name", [(("actions", 1), {"name": "approve"})]),
    *(
        ("CONTRACT_NAME_RESERVED", f"actions.{name}.name", [(("actions", 1), {"name": name})])
        for name in ("create", "update", "amend", "sys", "usr", "in", "out", "rejected", "approved", "completed")
    ),
    ("CONTRACT_NAME_RESERVED", "fields.version.name", [(("fields", 4), {"name": "version", "type": "number"})]),
    ("CONTRACT_NAME_RESERVED", "states.sys.name", [
        (("states", 4), {"name": "sys", "ends": True}), (("verbs", 3), {"name": "go", "from": "draft", "to": "sys"}),
    ]),
    ("CONTRACT_NAME_RESERVED", "slots.rejected.name", [(("slots", 2, "name"), "rejected")]),
    ("CONTRACT_NAME_RESERVED", "verbs.amend.name", [(("verbs", 3), {**GO, "name": "amend"})]),
    ("CONTRACT_INITIAL_AMBIGUOUS", "states.submitted.initial", [
        (("states", 0, "initial"), True), (("states", 1, "initial"), True),
    ]),
    ("CONTRACT_STATE_UNKNOWN", "verbs.withdraw.to", [(("verbs", 1, "to"), "drafts")]),
    ("CONTRACT_STATE_UNKNOWN", "gates.reject.to", [(("gates", 1, "to"), "finish")]),
    ("CONTRACT_STATE_UNKNOWN", "amendment.states", [(("amendment", "states"), ["activ"])]),
    ("CONTRACT_STATE_UNKNOWN", "amendment.drift", [(("amendment", "drift"), "nowhere")]),
    ("CONTRACT_FIELD_UNKNOWN", "actions.post.sets", [(("actions", 0, "sets"), ["notes"])]),
    ("CONTRACT_CALL_UNKNOWN", "policies.own.on", [(("policies", 0, "on"), ["approve"])]),
    ("CONTRACT_POLICY_EMPTY", "policies.free", [(("policies", 1), {"name": "free"})]),
    ("CONTRACT_AMENDMENT_EMPTY", "amendment", [(("amendment",), {})]),
    ("CONTRACT_EXPRESSION_INVALID", "verbs.submit.when@19", [(("verbs", 0, "when"), "entity.grand_total ~ 0")]),
    ("CONTRACT_EXPRESSION_INVALID", "verbs.submit.when@0", [(("verbs", 0, "when"), "entity.total > 0")]),
    ("CONTRACT_EXPRESSION_INVALID", "verbs.submit.when@17", [(("verbs", 0, "when"), "entity.vendor_id > 0")]),
    ("CONTRACT_EXPRESSION_INVALID", "policies.own.when@0", [(("policies", 0, "when"), "entity.grand_total")]),
    ("CONTRACT_EXPRESSION_INVALID", "policies.own.when@0", [(("policies", 0, "when"), "input.x == 1")]),
    ("CONTRACT_MONEY_FRACTION", "verbs.submit.when@21", [(("verbs", 0, "when"), "entity.grand_total > 10.5")]),
    ("CONTRACT_MONEY_FRACTION", "verbs.submit.when@23", [
        (("verbs", 0, "when"), "!(org.small == true || 1.25 < entity.grand_total)"),
    ]),
    ("CONTRACT_STATE_STUCK", "states.lost", [
        (("states", 4), STATE), (("verbs", 3), {"name": "lose", "from": "draft", "to": "lost"}),
    ]),
    ("CONTRACT_STATE_UNREACHABLE", "states.lost", [
        (("states", 4), STATE), (("verbs", 3), {"name": "find", "from": "lost", "to": "draft"}),
    ]),
    ("CONTRACT_ENDED", "gates.close.from", [(("gates", 2), {"name": "close", "from": "active", "to": "cancelled"})]),
    ("CONTRACT_ENDED", "slots.last.entry", [(("slots", 3), {"name": "last", "entry": "active", "exit": "cancel"})]),
    ("CONTRACT_GATE_WITHOUT_WAY", "gates.shut", [(("gates", 2), SHUT)]),
    ("CONTRACT_GATE_WITHOUT_WAY", "gates.shut", [(("gates", 2), SHUT), (("slots", 3), OTHER_SLOT)]),
    ("CONTRACT_GATE_WITHOUT_SLOT", "gates.reject.approvals", [(("gates", 1, "approvals"), 1)]),
    ("CONTRACT_GATE_WITHOUT_REJECTION", "gates.approve.approvals", [
        (("gates", 1), REMOVED), (("slots", 0, "rejected"), REMOVED),
    ]),
    ("CONTRACT_STATE_ENDLESS", "states.lost", [
        (("states", 4), STATE), (("verbs", 3), {"name": "find", "from": "draft", "to": "lost"}),
        (("verbs", 4), {"name": "stay", "from": "lost", "to": "lost"}),
    ]),
    ("CONTRACT_SLOT_ENTRY_WRONG", "slots.posting.entry", [(("slots", 1, "entry"), "submit")]),
    ("CONTRACT_SLOT_EXIT_WRONG", "slots.posting.exit", [(("slots", 1, "exit"), "cancelled")]),
    ("CONTRACT_SLOT_EXIT_WRONG", "slots.checking.exit", [(("slots", 2, "exit"), "withdraw")]),
    ("CONTRACT_SLOT_EXIT_WRONG", "slots.checking.exit", [(("slots", 2, "exit"), "approve")]),
    ("CONTRACT_SLOT_EXIT_WRONG", "slots.checking.exit", [
        (("slots", 2), {"name": "checking", "entry": "submitted", "exit": "withdraw"}),
    ]),
    ("CONTRACT_SLOT_OVERLAP", "slots.again", [(("slots", 3), SECOND_SLOT)]),
    ("CONTRACT_SLOT_REJECTED_WRONG", "slots.review.rejected", [(("slots", 0, "rejected"), "approve")]),
    ("CONTRACT_SLOT_REJECTED_WRONG", "slots.posting.rejected", [(("slots", 1, "rejected"), "reject")]),
    ("CONTRACT_SLOT_REJECTED_WRONG", "slots.checking.rejected", [(("slots", 2, "rejected"), "reject")]),
]  # fmt: skip

NODES = ("slots", "review", "nodes")
EDGES = ("slots", "review", "edges")
FORBIDDEN = ("task", "compensation", "save_point", "end", "terminal", "state", "lifecycle_gate", "slot", "start")
PATCHES: list[tuple[str, str, list[Edit]]] = [
    ("PATCH_KEY_MISSING", "patch", [(("envelope",), REMOVED)]),
    ("PATCH_KEY_MISSING", "slots.review.nodes.agreed", [((*NODES, 5, "mode"), REMOVED)]),
    ("PATCH_KEY_MISSING", "slots.review.edges.6", [((*EDGES, 6), {"from": "boss"})]),
    ("PATCH_KEY_UNKNOWN", "handler", [(("handler",), "python:x")]),
    ("PATCH_KEY_UNKNOWN", "slots.review.nodes.both.handler", [((*NODES, 1, "handler"), "python:x")]),
    ("PATCH_KEY_MISPLACED", "slots.review.nodes.both.due", [((*NODES, 1, "due"), "2d")]),
    ("PATCH_TYPE_WRONG", "slots.review", [(("slots", "review"), [])]),
    ("PATCH_TYPE_WRONG", "slots.review.nodes.tell.headers.X-A", [((*NODES, 13, "headers", "X-A"), 5)]),
    *(
        ("PATCH_VALUE_INVALID", "slots.review.nodes.x.kind", [((*NODES, 17), {"id": "x", "kind": kind})])
        for kind in FORBIDDEN
    ),
    ("PATCH_VALUE_INVALID", "slots.review.nodes.usr:x.id", [((*NODES, 17), {"id": "usr:x", "kind": "split"})]),
    ("PATCH_VALUE_INVALID", "slots.review.edges.boss>sys:gate:approve.to", [
        ((*EDGES, 6), {"from": "boss", "to": "sys:gate:approve"}),
    ]),
    ("PATCH_VALUE_INVALID", "slots.a b", [(("slots", "a b"), {})]),
    ("PATCH_VALUE_INVALID", "slots.review.nodes.boss.form.type", [((*NODES, 2, "form"), {"type": 5})]),
    ("PATCH_VALUE_INVALID", "slots.review.entry_mode", [(("slots", "review", "entry_mode"), "first")]),
    ("PATCH_DURATION_INVALID", "slots.review.nodes.boss.due", [((*NODES, 2, "due"), "soon")]),
    ("PATCH_DURATION_INVALID", "slots.review.nodes.boss.due", [((*NODES, 2, "due"), "0s")]),
    ("PATCH_DUPLICATE_NODE", "slots.review.nodes.both.id", [((*NODES, 17), {"id": "both", "kind": "split"})]),
    ("PATCH_POLICY_TAKEN", "policies.strict.name", [(("policies", 1), {"name": "strict", "capability": "x"})]),
    ("PATCH_NAME_RESERVED", "slots.review.nodes.in.id", [((*NODES, 17), {"id": "in", "kind": "split"})]),
    ("PATCH_NAME_RESERVED", "slots.review.nodes.rejected.id", [((*NODES, 17), {"id": "rejected", "kind": "split"})]),
    ("PATCH_APPROVERS_AMBIGUOUS", "slots.review.nodes.boss.approvers", [((*NODES, 2, "approvers", "user"), "eva")]),
    ("PATCH_APPROVERS_AMBIGUOUS", "slots.review.nodes.boss.approvers", [((*NODES, 2, "approvers"), {})]),
    ("PATCH_TIME_AMBIGUOUS", "slots.review.nodes.pause", [((*NODES, 9, "until"), "now")]),
    ("PATCH_TIME_AMBIGUOUS", "slots.review.nodes.pause", [((*NODES, 9, "delay"), REMOVED)]),
    ("PATCH_POLICY_EMPTY", "policies.free", [(("policies", 1), {"name": "free"})]),
    ("PATCH_POLICY_EMPTY", "slots.review.nodes.x", [((*NODES, 17), {"id": "x", "kind": "policy_gate"})]),
    ("PATCH_TOO_LARGE", "patch", [(NODES, [{"id": f"n{n}", "kind": "split"} for n in range(2_001)])]),
]  # fmt: skip

ALL = [("contract", *each) for each in CONTRACTS] + [("patch", *each) for each in PATCHES]


def data_of(key: str, edits: list[Edit]) -> dict[str, Any]:
    return contract(*edits) if key == "contract" else patch(*edits)


def test_the_samples_are_sound() -> None:
    for key in ("contract", "patch"):
        assert problems_of(key, data_of(key, [])) == ()
        assert codes_in_yaml(key, data_of(key, [])) == []


@pytest.mark.parametrize(("key", "code", "place", "edits"), ALL)
def test_a_finding_in_python(key: str, code: str, place: str, edits: list[Edit]) -> None:
    found = problems_of(key, data_of(key, edits))
    assert (code, place) in [(each.code, each.place) for each in found]
    assert {each.code for each in found} == {code}
    assert all(each.hint and re.fullmatch(r"[A-Z'`\[].*\.", each.message, re.DOTALL) for each in found), found


@pytest.mark.parametrize(("key", "code", "place", "edits"), ALL)
def test_the_same_finding_in_yaml_is_at_its_line(key: str, code: str, place: str, edits: list[Edit]) -> None:
    found = codes_in_yaml(key, data_of(key, edits))
    assert {each for each, _ in found} == {code}
    names = [part for part in re.split(r"[.>@]", place) if part and not part.isdigit()]
    assert place in ("contract", "patch", "slots.review.edges.6") or any(
        name in line for _, line in found for name in names[-3:]
    ), (
        names,
        found,
    )


def test_every_code_has_a_test() -> None:
    tested = {code for _, code, _, _ in ALL}
    own = {code for code in REMEDIES if not code.startswith("YAML_")}
    assert own - tested == {"CONTRACT_OPTION_UNKNOWN", "PATCH_OPTION_UNKNOWN", "PATCH_DUPLICATE_SLOT"}  # of builders


@pytest.mark.parametrize("key", ["contract", "patch"])
def test_every_code_is_on_the_page_of_its_noun(key: str) -> None:
    page = (DOCS / f"{'contracts' if key == 'contract' else 'patches'}.md").read_text()
    missing = [code for code in REMEDIES if code.startswith(key.upper()) and f"`{code}`" not in page]
    assert missing == []


def test_all_findings_come_at_once() -> None:
    edits: list[Edit] = [
        (("states", 0, "window"), "open"),
        (("verbs", 0, "when"), "entity.grand_totl > 0"),
        (("verbs", 1, "to"), "drafts"),
        (("slots", 1, "exit"), "cancelled"),
        (("actions", 0, "sets"), ["notes"]),
        (("colour",), "red"),
    ]
    found = problems_of("contract", contract(*edits))
    assert sorted(each.code for each in found) == [
        "CONTRACT_EXPRESSION_INVALID",
        "CONTRACT_FIELD_UNKNOWN",
        "CONTRACT_KEY_UNKNOWN",
        "CONTRACT_SLOT_EXIT_WRONG",
        "CONTRACT_STATE_UNKNOWN",
        "CONTRACT_VALUE_INVALID",
    ]
    hints = {each.code: each.hint for each in found}
    assert hints["CONTRACT_STATE_UNKNOWN"] == "Did you mean draft?"
    assert hints["CONTRACT_FIELD_UNKNOWN"] == "Did you mean note?"
    assert "entity.grand_total" in hints["CONTRACT_EXPRESSION_INVALID"]


def test_the_position_inside_an_expression_is_the_column_in_the_file() -> None:
    [found] = codes_in_yaml("contract", contract((("verbs", 0, "when"), "entity.grand_totl > 0")))
    assert found[0] == "CONTRACT_EXPRESSION_INVALID"
