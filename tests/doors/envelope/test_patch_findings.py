"""Bad patches: each problem with its code, its place and a remedy, all at once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from envelope_samples import INVOICE, ONE, edge, patch, slot, step
from msgspec.structs import replace

from holdfast.doors.envelope.effective import check_effective, compile_effective
from holdfast.doors.envelope.findings import MOST_FINDINGS, REMEDIES, Finding
from holdfast.doors.envelope.model import (
    Approvers,
    PatchDefinition,
    PatchEdge,
    PatchNode,
    PolicyRule,
    SlotPatch,
)
from holdfast.doors.envelope.patch_kinds import TAKES
from holdfast.doors.envelope.patch_rules import MOST_EDGES, MOST_NODES, MOST_POLICIES
from holdfast.doors.envelope.tables import PinnedTable, Tables
from holdfast.errors import DefinitionError
from holdfast.graph.kinds import KINDS


def one_step(kind: str, on: str = "completed", **fields: Any) -> PatchDefinition:
    return patch(SlotPatch(nodes=(step("it", kind, **fields),), edges=(edge("in>it"), edge(f"it>out:{on}"))))


def bare(kind: str, **fields: Any) -> PatchDefinition:
    """A step without the fields that samples have."""
    nodes = (PatchNode(id="it", kind=kind, **fields),)
    return patch(SlotPatch(nodes=nodes, edges=(edge("in>it"), edge("it>out"))))


def with_edge(ends: str, **fields: Any) -> PatchDefinition:
    return patch(
        slot("check", "in>check check>out", edge(ends, **{"priority": 1, "when": "entity.total > 5"} | fields))
    )


def named(id: str) -> PatchDefinition:
    return patch(SlotPatch(nodes=(step(id),), edges=(edge("in>out"),)))


ENTERED = slot("both:split a b met:join", "in>both both>a both>b a>met b>met met>out")
OFTEN = slot("a b:approval", "in>a a>b b>out:approved", edge("a>b", when="entity.total > 5", priority=1))

OPEN = slot("both:split a b", "in>both both>a both>b a>out b>out")

# code, place, patch
CASES: list[tuple[str, str, PatchDefinition]] = [
    ("PATCH_CONTRACT_FOREIGN", "contract", patch(contract="order")),
    ("PATCH_BASE_UNKNOWN", "envelope", patch(envelope=2)),
    ("SLOT_UNKNOWN", "slots.unknown", patch(unknown=ONE)),
    # names
    ("PATCH_NAME_INVALID", "slots.review.nodes.a b", named("a b")),
    ("PATCH_NAME_INVALID", "slots.review.nodes.", named("")),
    ("PATCH_NAME_INVALID", "slots.review.nodes.out", named("out")),
    ("PATCH_NAMESPACE", "slots.review.nodes.sys:gate:approve", named("sys:gate:approve")),
    ("PATCH_NAMESPACE", "slots.review.nodes.usr:review:it", named("usr:review:it")),
    ("PATCH_NAMESPACE", "slots.review.nodes.usr:book:it", named("usr:book:it")),
    ("PATCH_DUPLICATE_NODE", "slots.review.nodes.it", patch(slot("it it", "in>it it>out"))),
    # kinds and fields
    *[
        ("PATCH_KIND_REFUSED", "slots.review.nodes.it.kind", bare(kind))
        for kind in [*(kind for kind, row in KINDS.items() if not row.in_slots), "mystery"]
    ],
    ("PATCH_FIELD_MISSING", "slots.review.nodes.it.mode", bare("join")),
    ("PATCH_FIELD_MISSING", "slots.review.nodes.it.sets", bare("script", sets={})),
    ("PATCH_FIELD_MISSING", "slots.review.nodes.it", bare("wait_timer")),
    ("PATCH_FIELD_MISSING", "slots.review.nodes.it", bare("policy_gate")),
    ("PATCH_FIELD_MISSING", "slots.review.nodes.it.approvers", one_step("approval", "approved", approvers=Approvers())),
    ("PATCH_FIELD_MISPLACED", "slots.review.nodes.it", bare("wait_timer", delay=5.0, cron="* * * * *")),
    ("PATCH_FIELD_MISPLACED", "slots.review.nodes.it.url", one_step("condition", url="https://x.example")),
    ("PATCH_FIELD_MISPLACED", "slots.review.nodes.it.due", one_step("notification", due=5.0)),
    (
        "PATCH_FIELD_MISPLACED",
        "slots.review.nodes.it.approvers",
        one_step("approval", "approved", approvers=Approvers(user="ann", role="finance")),
    ),
    ("PATCH_ACTION_UNKNOWN", "slots.review.nodes.it.action", one_step("action", action="delete")),
    ("PATCH_FIELD_UNKNOWN", "slots.review.nodes.it.payload.colour", one_step("action", payload={"colour": "now"})),
    (
        "PATCH_FIELD_UNKNOWN",
        "slots.review.nodes.it.payload.total",
        one_step("action", action="mark", payload={"total": "entity.total"}),
    ),
    ("PATCH_RUN_AS_LOOSER", "slots.review.nodes.it.run_as", one_step("action", action="mark", run_as="system")),
    ("PATCH_RUN_AS_LOOSER", "slots.review.nodes.it.run_as", one_step("action", run_as="service_account")),
    ("PATCH_TABLE_UNKNOWN", "slots.review.nodes.it.table", one_step("rule", table="prices")),
    ("PATCH_TABLE_MISFIT", "slots.review.nodes.it.table", one_step("rule", table="foreign")),
    # expressions
    ("PATCH_EXPRESSION_INVALID", "slots.review.edges[2].when@0", with_edge("check>out", when="entity.totl > 5")),
    ("PATCH_EXPRESSION_INVALID", "slots.review.edges[2].when@13", with_edge("check>out", when="entity.total > 'much'")),
    ("PATCH_EXPRESSION_INVALID", "slots.review.edges[2].when@0", with_edge("check>out", when="input.total > 5")),
    ("PATCH_EXPRESSION_INVALID", "slots.review.nodes.it.sets.a@0", one_step("script", sets={"a": "nothing.here"})),
    ("PATCH_EXPRESSION_INVALID", "slots.review.nodes.it.key@4", one_step("wait_event", key="now +")),
    ("PATCH_EXPRESSION_INVALID", "slots.review.nodes.it.when@0", one_step("policy_gate", when="entity.total")),
    (
        "PATCH_EXPRESSION_INVALID",
        "slots.review.nodes.it.approvers.expression@0",
        one_step("approval", "approved", approvers=Approvers(expression="entity.boss")),
    ),
    # windows and modes
    ("SLOT_WINDOW_LOOSER", "slots.review.window", patch(replace(ONE, window="editable"))),
    ("SLOT_WINDOW_LOOSER", "slots.review.nodes.it.window", one_step("condition", window="editable")),
    ("SLOT_MODE_WRONG", "slots.review.entry_mode", patch(replace(ONE, entry_mode="branch"))),
    ("SLOT_MODE_WRONG", "slots.review.entry_mode", patch(replace(ENTERED, entry_mode="serial"))),
    ("SLOT_MODE_WRONG", "slots.review.exit_mode", patch(replace(ONE, exit_mode="join"))),
    ("SLOT_MODE_WRONG", "slots.review.exit_mode", patch(replace(ENTERED, exit_mode="single"))),
    # edges
    ("SLOT_EDGE_SYSTEM", "slots.review.edges[2].target", with_edge("check>sys:gate:approve")),
    ("SLOT_EDGE_SYSTEM", "slots.review.edges[2].source", with_edge("sys:state:draft>check")),
    ("SLOT_EDGE_SYSTEM", "slots.review.edges[2].target", with_edge("check>sys:slot:review:out")),
    ("SLOT_EDGE_FOREIGN", "slots.review.edges[2].target", with_edge("check>usr:book:post")),
    (
        "SLOT_EDGE_FOREIGN",
        "slots.review.edges[1].target",
        patch(slot("", "in>out in>post"), book=slot("post:action", "in>post post>out")),
    ),
    ("PATCH_TARGET_UNKNOWN", "slots.review.edges[2].target", with_edge("check>chek")),
    ("SLOT_PORT_MISUSED", "slots.review.edges[2].source", with_edge("out>check")),
    ("SLOT_PORT_MISUSED", "slots.review.edges[2].source", with_edge("rejected>check")),
    ("SLOT_PORT_MISUSED", "slots.review.edges[2].target", with_edge("check>in")),
    ("SLOT_WITHOUT_REJECTED", "slots.book.edges[1].target", patch(book=slot("", "in>out in>rejected"))),
    ("SLOT_WITHOUT_REJECTED", "slots.book.nodes.ann", patch(book=ONE)),
    ("PATCH_EVENT_UNEXPECTED", "slots.review.edges[2].on", with_edge("check>out", on="approved")),
    ("PATCH_EVENT_UNEXPECTED", "slots.review.edges[2].on", with_edge("check>out", on="sys:never")),
    ("PATCH_EVENT_UNEXPECTED", "slots.review.edges[2].on", with_edge("in>check", on="error")),
    (
        "PATCH_TIMEOUT_UNUSED",
        "slots.review.edges[2].on",
        patch(slot("a:approval", "in>a a>out:approved a>out:timeout")),
    ),
    ("PATCH_DUPLICATE_EDGE", "slots.review.edges[2]", with_edge("check>out", when=None, priority=0)),
    ("PATCH_EDGE_MISSING", "slots.review.nodes.a", patch(slot("a:action b", "in>a a>out:error in>b b>out"))),
    # the shape
    ("PATCH_CYCLE", "slots.review.nodes.a", patch(slot("a b", "in>a a>b b>a b>out"))),
    ("PATCH_CYCLE", "slots.review.nodes.check", with_edge("check>check")),
    ("PATCH_UNREACHABLE", "slots.review.nodes.b", patch(slot("a b", "in>a a>out b>out"))),
    ("PATCH_WITHOUT_PORT", "slots.review", patch(slot("a", "in>a a>rejected"))),
    ("PATCH_WITHOUT_PORT", "slots.review.nodes.b", patch(slot("a b:action", "in>a a>out a>b b>b"))),
    # policies
    ("PATCH_POLICY_TAKEN", "policies.small", patch(policies=(PolicyRule(name="small", capability="x"),))),
    ("PATCH_POLICY_EMPTY", "policies.ours", patch(policies=(PolicyRule(name="ours"),))),
    (
        "PATCH_POLICY_TARGET",
        "policies.ours.on",
        patch(policies=(PolicyRule(name="ours", on=("pst",), capability="x"),)),
    ),
    ("PATCH_EXPRESSION_INVALID", "policies.ours.when@0", patch(policies=(PolicyRule(name="ours", when="entity.x"),))),
    # what only the whole graph shows
    ("JOIN_WITHOUT_SPLIT", "slots.review.nodes.met", patch(slot("met:join", "in>met met>out"))),
    ("SPLIT_TOO_NARROW", "slots.review.nodes.one", patch(slot("one:split", "in>one one>out"))),
    ("NO_DEFAULT_EDGE", "slots.review.nodes.check", patch(slot("check", "in>check", edge("check>out", when="true")))),
    ("NO_DEFAULT_EDGE", "slots.review", patch(slot("check", "check>out", edge("in>check", when="true")))),
    ("BAD_DURATION", "slots.review.nodes.it.delay", one_step("wait_timer", delay=-1.0)),
    ("BAD_CRON", "slots.review.nodes.it.cron", bare("wait_timer", cron="never")),
    (
        "BAD_MODE",
        "slots.review.nodes.met.mode",
        patch(replace(ENTERED, nodes=(*ENTERED.nodes[:3], step("met", "join", mode="most")))),
    ),
    ("BAD_FORM", "slots.review.nodes.it.form.type", one_step("approval", "approved", form={"type": 5})),
    ("SLOT_SPLIT_OPEN", "slots.book.nodes.both", patch(book=OPEN)),
    ("GATE_UNDERAPPROVED", "slots.review", patch(OFTEN)),
]
ONLY_WITH_APPROVALS = {"GATE_UNDERAPPROVED"}
COLUMNS = [{"field": "total", "type": "money"}, {"field": "vendor", "type": "number"}]
FOREIGN = Tables([PinnedTable(name="foreign", version=1, hash="0" * 64, table={"columns": COLUMNS})])


def found_in(written: PatchDefinition, code: str) -> tuple[Finding, ...]:
    approve, reject = INVOICE.gates
    demanded = replace(approve, approvals=2 if code in ONLY_WITH_APPROVALS else 0)
    return check_effective(replace(INVOICE, gates=(demanded, reject)), written, tables=FOREIGN)


@pytest.mark.parametrize(("code", "place", "written"), CASES, ids=[f"{code}-{place}" for code, place, _ in CASES])
def test_a_problem_has_its_code_and_its_place(code: str, place: str, written: PatchDefinition) -> None:
    found = [each for each in found_in(written, code) if (each.code, each.place) == (code, place)]
    [finding] = found
    assert finding.message.endswith(".")
    assert finding.hint
    assert finding.severity == "error"
    assert str(finding).startswith(f"{place}: {code} ")


def test_every_code_has_a_sample() -> None:
    assert {code for code, _, _ in CASES} >= set(REMEDIES) - {"PATCH_TOO_LARGE"}


def test_every_kind_for_slots_says_what_it_takes() -> None:
    assert {kind for kind, row in KINDS.items() if row.in_slots} == set(TAKES)


def test_a_policy_may_be_about_what_can_be_done_with_every_document() -> None:
    about_all = PolicyRule(name="ours", on=("create", "update", "amend", "submit", "post"), capability="x")
    assert check_effective(INVOICE, patch(policies=(about_all,))) == ()


def test_a_patch_path_leads_to_the_item_that_is_wrong() -> None:
    [found] = check_effective(INVOICE, with_edge("check>out", when="entity.totl > 5"))
    assert (found.path, found.column) == (("slots", "review", "edges", 2, "when"), 0)
    [found] = check_effective(INVOICE, one_step("action", action="pots"))
    assert found.path == ("slots", "review", "nodes", 0, "action")
    assert found.hint == "Did you mean post?"
    [found] = check_effective(INVOICE, one_step("wait_timer", delay=-1.0))
    assert found.path == ("slots", "review", "nodes", 0, "delay")


def test_everything_is_found_at_once() -> None:
    steps = slot("a b:mystery c:approval", "in>a a>b b>a c>sys:end a>out:error", window="editable")
    written = patch(steps, unknown=ONE, envelope=9, policies=(PolicyRule(name="small"),))
    found = check_effective(INVOICE, written)
    assert {each.code for each in found} == {
        "PATCH_BASE_UNKNOWN",
        "PATCH_CYCLE",
        "PATCH_EVENT_UNEXPECTED",
        "PATCH_KIND_REFUSED",
        "PATCH_EDGE_MISSING",
        "PATCH_POLICY_EMPTY",
        "PATCH_POLICY_TAKEN",
        "PATCH_UNREACHABLE",
        "SLOT_EDGE_SYSTEM",
        "SLOT_UNKNOWN",
        "SLOT_WINDOW_LOOSER",
    }
    assert [each.place for each in found] == sorted(each.place for each in found)


def test_a_warning_does_not_refuse_a_patch() -> None:
    steps = SlotPatch(
        nodes=(
            step("both", "split"),
            step("a", "script"),
            step("b", "script"),
            step("met", "join"),
        ),
        edges=ENTERED.edges,
    )
    [found] = check_effective(INVOICE, patch(steps))
    assert (found.code, found.place, found.severity) == ("SHARED_KEY_WRITTEN", "slots.review.nodes.both", "warning")
    assert compile_effective(INVOICE, patch(steps)).hash


# --- limits -----------------------------------------------------------------------------------------------------------


def many(nodes: int = 0, edges: int = 0, policies: int = 0) -> PatchDefinition:
    steps = SlotPatch(
        nodes=tuple(PatchNode(id=f"n{number}", kind="condition") for number in range(nodes)),
        edges=tuple(PatchEdge(source="in", target="out", priority=number) for number in range(edges)),
    )
    return patch(steps, policies=tuple(PolicyRule(name=f"p{number}", capability="x") for number in range(policies)))


@pytest.mark.parametrize(
    "written", [many(nodes=MOST_NODES + 1), many(edges=MOST_EDGES + 1), many(policies=MOST_POLICIES + 1)]
)
def test_a_patch_that_is_too_large_is_refused_for_that_alone(written: PatchDefinition) -> None:
    [found] = check_effective(INVOICE, written)
    assert (found.code, found.place) == ("PATCH_TOO_LARGE", "patch")


def test_size_is_looked_at_before_anything_that_takes_time() -> None:
    fits = many(nodes=MOST_NODES)
    huge = many(nodes=100 * MOST_NODES)
    assert duration(huge) < duration(fits)


def duration(written: PatchDefinition) -> float:
    began = time.process_time()
    check_effective(INVOICE, written)
    return time.process_time() - began


def test_the_largest_patch_full_of_mistakes_has_few_enough_findings() -> None:
    found = check_effective(INVOICE, many(nodes=MOST_NODES))
    assert len(found) == MOST_FINDINGS
    with pytest.raises(DefinitionError, match=f"{3 * MOST_NODES + 1} errors|errors in all"):
        compile_effective(INVOICE, many(nodes=MOST_NODES))
