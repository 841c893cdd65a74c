"""The effective graph: steps woven into their slots, windows, stable regions, tables, and what no patch may change."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from envelope_samples import BOTH, INVOICE, LIMITS, ONE, demanding, edge, patch, slot, step
from msgspec.structs import replace

from holdfast.doors.envelope.effective import check_effective, compile_effective
from holdfast.doors.envelope.lowering import lower_contract
from holdfast.doors.envelope.model import Approvers, PatchDefinition, PolicyRule, SlotPatch
from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled
from holdfast.graph.model import Node
from holdfast.graph.windows import WINDOWS, Window

DIRECT = "sys:state:submitted>sys:gate:approve"


def ways(compiled: Compiled, node: str) -> dict[str, str]:
    """Event → target of the edges that leave a node."""
    return {compiled.edges[id].on: compiled.edges[id].target for id in compiled.adjacency[node]}


def node_of(kind: str, **fields: Any) -> Node:
    steps = SlotPatch(nodes=(step("it", kind, **fields),), edges=(edge("in>it"), edge("it>out")))
    return compile_effective(INVOICE, patch(steps), tables=LIMITS).nodes["usr:review:it"]


@pytest.mark.parametrize("empty", [None, patch(), patch(SlotPatch()), patch(SlotPatch(window="locked"))])
def test_an_empty_patch_keeps_the_direct_edge(empty: PatchDefinition | None) -> None:
    compiled = compile_effective(INVOICE, empty)
    envelope = lower_contract(INVOICE)
    assert DIRECT in compiled.edges
    assert list(compiled.edges.values()) == list(envelope.edges)
    assert list(compiled.nodes.values()) == list(envelope.nodes)
    assert compiled.slot_map == {}


def test_a_filled_slot_lies_between_its_ports() -> None:
    compiled = compile_effective(INVOICE, patch(ONE))
    assert (compiled.kind, compiled.name) == ("effective", "document:invoice")
    assert DIRECT not in compiled.edges
    assert ways(compiled, "sys:state:submitted") == {"completed": "sys:slot:review:in"}
    assert ways(compiled, "sys:slot:review:in") == {
        "completed": "usr:review:ann",
        "sys:never": "sys:slot:review:rejected",
    }
    assert ways(compiled, "usr:review:ann") == {
        "approved": "sys:slot:review:out",
        "rejected": "sys:slot:review:rejected",  # nobody wrote this edge
    }
    assert ways(compiled, "sys:slot:review:out") == {"completed": "sys:gate:approve"}
    assert ways(compiled, "sys:slot:review:rejected") == {"completed": "sys:gate:reject"}
    assert {id: edge.provenance for id, edge in compiled.edges.items() if id.startswith("usr:")} == {
        "usr:review:ann:approved>out": "review",
        "usr:review:ann:rejected>rejected": "review",
        "usr:review:in>ann": "review",
    }


def test_a_slot_behind_a_verb_is_entered_by_the_verb() -> None:
    compiled = compile_effective(INVOICE, patch(prepare=slot("check", "in>check check>out")))
    [submit] = [edge for edge in compiled.edges.values() if edge.on == "submit"]
    assert submit.target == "sys:slot:prepare:in"
    assert (submit.guard, submit.when) == ("invoice:submit", "entity.total > 0")
    assert ways(compiled, "sys:slot:prepare:out") == {"completed": "sys:state:submitted"}
    assert compiled.regions["sys:state:draft"].verbs == {"submit": "sys:slot:prepare:in"}
    assert compiled.regions["slot:prepare"].verbs == {}
    assert "sys:slot:prepare:rejected" not in compiled.nodes


def test_a_slot_behind_a_gate_comes_before_the_state_it_leads_to() -> None:
    compiled = compile_effective(INVOICE, patch(book=slot("post:action", "in>post post>out")))
    assert ways(compiled, "sys:gate:approve") == {"completed": "sys:slot:book:in"}
    assert ways(compiled, "sys:slot:book:out") == {"completed": "sys:state:active"}
    assert compiled.edit_windows["usr:book:post"] == "locked"


def test_a_slot_is_a_region_with_the_verbs_that_interrupt_it() -> None:
    region = compile_effective(INVOICE, patch(ONE)).regions["slot:review"]
    assert region.nodes == (
        "sys:slot:review:in",
        "sys:slot:review:out",
        "sys:slot:review:rejected",
        "usr:review:ann",
    )
    assert region.verbs == {"withdraw": "sys:state:draft"}
    assert (region.window, region.stable, region.amendment) == ("amend_only", True, "sys:state:draft")


def test_stable_slots_make_all_their_nodes_stable() -> None:
    compiled = compile_effective(INVOICE, patch(BOTH, prepare=slot("check", "in>check check>out")))
    stable = {node for node in compiled.stable_nodes if not node.startswith(("sys:state", "sys:gate"))}
    assert stable == {node for node, owner in compiled.slot_map.items() if owner == "review"}


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("base", "override", "own"), list(product(WINDOWS, (None, *WINDOWS), (None, *WINDOWS))))
def test_windows_become_stricter_or_are_refused(base: Window, override: Window | None, own: Window | None) -> None:
    """All combinations of the slot's window, the patch's and the step's."""
    review = replace(INVOICE.slots[1], window=base)
    contract = replace(INVOICE, slots=(INVOICE.slots[0], review, INVOICE.slots[2]))
    steps = SlotPatch(nodes=(step("it", window=own),), edges=(edge("in>it"), edge("it>out")), window=override)
    rank = WINDOWS.index
    of_slot = base if override is None or rank(override) < rank(base) else override
    looser = {
        place
        for place, given, than in [
            ("slots.review.window", override, base),
            ("slots.review.nodes.it.window", own, of_slot),
        ]
        if given is not None and rank(given) < rank(than)
    }
    found = check_effective(contract, patch(steps))
    assert {each.place for each in found} == looser
    assert {each.code for each in found} <= {"SLOT_WINDOW_LOOSER"}
    if not looser:
        compiled = compile_effective(contract, patch(steps))
        assert compiled.edit_windows["sys:slot:review:in"] == of_slot == compiled.regions["slot:review"].window
        assert compiled.edit_windows["usr:review:it"] == (own or of_slot)


def test_an_empty_slot_may_not_loosen_its_window_either() -> None:
    [found] = check_effective(INVOICE, patch(SlotPatch(window="editable")))
    assert found.code == "SLOT_WINDOW_LOOSER"


# --- steps ------------------------------------------------------------------------------------------------------------


def test_an_action_runs_as_its_contract_says_or_with_fewer_rights() -> None:
    assert node_of("action").config == {"action": "post", "run_as": "system"}
    assert node_of("action", run_as="actor").config == {"action": "post", "run_as": "actor"}


def test_calls_go_to_the_engine_never_to_a_handler_of_the_patch() -> None:
    kinds = ("action", "rule", "policy_gate")
    assert {node_of(kind).handler for kind in kinds} == {"holdfast:action", "holdfast:rule", "holdfast:policy"}


def test_a_user_is_text_and_not_an_expression() -> None:
    steps = SlotPatch(
        nodes=(step("it", "approval", approvers=Approvers(user="ann o'neil")),),
        edges=(edge("in>it"), edge("it>out:approved")),
    )
    assert compile_effective(INVOICE, patch(steps)).nodes["usr:review:it"].assignee == "'ann o\\'neil'"


def test_a_step_keeps_what_people_see() -> None:
    node = node_of("condition", name="Large?", about="Above the limit.")
    assert node.metadata == {"name": "Large?", "description": "Above the limit."}


def test_other_fields_reach_their_nodes() -> None:
    assert node_of("wait_event", key="entity.vendor", deadline=60.0).wait is not None
    assert node_of("wait_timer", delay=None, until="2030-01-01T00:00:00+00:00").until == "'2030-01-01T00:00:00+00:00'"
    assert node_of("webhook_out", secret="billing", awaits=True).config["secret"] == "billing"
    notified = node_of("notification", to="entity.vendor", subject="Paid")
    assert (notified.handler, notified.input, notified.config) == (
        "mail",
        {"to": "entity.vendor"},
        {"subject": "Paid"},
    )
    child = node_of("sub_flow", flow_version=3).child
    assert child is not None
    assert child.version == 3


def test_edges_that_differ_in_their_condition_only_have_names_of_their_own() -> None:
    steps = slot(
        "check",
        "in>check check>out",
        edge("check>out", when="entity.total > 1", priority=1),
        edge("check>out", when="entity.total > 2", priority=2),
    )
    compiled = compile_effective(INVOICE, patch(steps))
    assert [compiled.edges[id].when for id in compiled.adjacency["usr:review:check"]] == [
        None,
        "entity.total > 1",
        "entity.total > 2",
    ]


def test_long_names_fit() -> None:
    name = "x" * 60
    steps = slot(f"{name}:approval", f"in>{name} {name}>out:approved")
    contract = replace(INVOICE, slots=(replace(INVOICE.slots[1], name="y" * 60),))
    written = replace(patch(), slots={"y" * 60: steps})
    assert f"usr:{'y' * 60}:{name}" in compile_effective(contract, written).nodes


# --- the artefact -----------------------------------------------------------------------------------------------------


def test_the_newest_table_is_pinned_unless_a_version_is_named() -> None:
    steps = SlotPatch(
        nodes=(step("newest", "rule"), step("old", "rule", table_version=1)),
        edges=(edge("in>newest"), edge("newest>old"), edge("old>out")),
    )
    compiled = compile_effective(INVOICE, patch(steps), tables=LIMITS)
    assert compiled.nodes["usr:review:newest"].config == {"table": "limits", "version": 2, "hash": "2" * 64}
    assert compiled.config["tables"] == {
        "limits@1": {"version": 1, "hash": "1" * 64, "table": {"rows": [1]}},
        "limits@2": {"version": 2, "hash": "2" * 64, "table": {"rows": [2]}},
    }


def test_the_artifact_says_what_it_was_made_of() -> None:
    ours = replace(patch(ONE, policies=(PolicyRule(name="ours", capability="x"),)), version=4)
    compiled = compile_effective(INVOICE, ours)
    config = compiled.config
    assert compiled.version == 4
    assert config["envelope"]["hash"] == lower_contract(INVOICE).config["hash"]
    assert config["envelope"]["version"] == 1
    assert config["patch"]["version"] == 4
    assert config["patch"]["policies"] == [{"name": "ours", "capability": "x"}]
    assert config["filled"] == ["review"]
    assert config["integrity"]["valid"] is True
    assert config["integrity"]["required"] == config["integrity"]["present"]


def test_the_number_of_a_patch_is_not_part_of_its_hash() -> None:
    first, second = (compile_effective(INVOICE, replace(patch(ONE), version=version)) for version in (1, 2))
    assert first.config["patch"]["hash"] == second.config["patch"]["hash"]
    assert compile_effective(INVOICE, patch(BOTH)).config["patch"]["hash"] != first.config["patch"]["hash"]


def test_every_finding_is_in_the_error() -> None:
    steps = slot("it", "in>it it>nowhere", window="editable")
    with pytest.raises(DefinitionError) as caught:
        compile_effective(INVOICE, patch(steps, unknown=ONE))
    assert caught.value.diagnostics == check_effective(INVOICE, patch(steps, unknown=ONE))
    assert len(caught.value.diagnostics) > 3


# --- approvals --------------------------------------------------------------------------------------------------------

ANY = replace(BOTH, nodes=(*BOTH.nodes[:3], step("met", "join", mode="any")))
EITHER = slot(
    "ann:approval ben:approval check",
    "in>check check>ben ann>out:approved ben>out:approved",
    edge("check>ann", when="entity.total > 5", priority=-1),
)
PASSED_BY = slot(
    "check ann:approval", "in>check check>ann ann>out:approved", edge("check>out", when="entity.total < 5", priority=-1)
)
LATE = replace(
    slot("ann:approval", "in>ann ann>out:approved ann>out:timeout"), nodes=(step("ann", "approval", due=60.0),)
)
ESCAPES = slot(
    "both:split ann:approval ben:approval check met:join",
    "in>both both>ann both>ben ann>check:approved check>met ben>met:approved met>out",
    edge("check>out", when="entity.total < 5", priority=-1),
)
ROW = slot("ann:approval ben:approval", "in>ann ann>ben:approved ben>out:approved")
PERHAPS = slot(
    "both:split ann:approval ben:approval met:join",
    "in>both both>ann ann>met:approved ben>met:approved met>out",
    edge("both>ben", when="entity.total > 5"),
)


@pytest.mark.parametrize(
    ("steps", "fewest"),
    [(ONE, 1), (BOTH, 2), (ANY, 1), (EITHER, 1), (PASSED_BY, 0), (LATE, 0), (ESCAPES, 1), (ROW, 2), (PERHAPS, 1)],
    ids=["one", "all", "any", "either", "passed by", "late", "an escape", "in a row", "perhaps"],
)
@pytest.mark.parametrize("demanded", [1, 2, 3])
def test_no_way_to_the_gate_has_fewer_approvals_than_it_demands(steps: SlotPatch, fewest: int, demanded: int) -> None:
    found = [each for each in check_effective(demanding(demanded), patch(steps)) if each.severity == "error"]
    if demanded <= fewest:
        assert found == []
    else:
        [lack] = found
        assert (lack.code, lack.place) == ("GATE_UNDERAPPROVED", "slots.review")
        assert f"demands {demanded} approvals; this way to it has {fewest}: in → " in lack.message


@pytest.mark.parametrize("unfilled", [None, patch(), patch(prepare=slot("check", "in>check check>out"))])
def test_an_empty_slot_has_no_approvals(unfilled: PatchDefinition | None) -> None:
    [lack] = check_effective(demanding(1), unfilled)
    assert (lack.code, lack.place) == ("GATE_UNDERAPPROVED", "slots")


def test_a_gate_behind_the_port_of_rejection_cannot_demand_approvals() -> None:
    approve, reject = INVOICE.gates
    contract = replace(INVOICE, gates=(approve, replace(reject, approvals=1)))
    assert "GATE_UNDERAPPROVED" in {each.code for each in check_effective(contract, patch(ONE))}
