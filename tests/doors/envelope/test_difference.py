"""The difference of two graphs of documents: complete, symmetric, and empty only for graphs that mean the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from envelope_samples import BOTH, INVOICE, LIMITS, LONG, ONE, demanding, edge, patch, slot, step
from msgspec.structs import replace
from random_envelopes import TABLES, broken, random_contract, random_patch, shuffled_contract, shuffled_patch

from holdfast.doors.envelope.effective import compile_effective, compile_envelope
from holdfast.doors.envelope.model import (
    Approvers,
    ContractDefinition,
    PatchDefinition,
    PatchNode,
    PolicyRule,
    SlotPatch,
    State,
)
from holdfast.doors.envelope.tables import PinnedTable, Tables
from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import Compiled, dump_compiled
from holdfast.graph.difference.compare import difference
from holdfast.graph.difference.model import Difference, FieldChange, Kind, PartChange
from holdfast.graph.model import Graph, Node, dump_struct

PAIRS = {"short": 400, "long": 20_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
SHARES = 4
OTHER: dict[Kind, Kind] = {"added": "removed", "removed": "added", "changed": "changed"}


# --- random pairs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", range(SHARES))
def test_random_pairs_differ_in_what_was_changed_and_in_nothing_else(share: int) -> None:
    equal = changed = 0
    for seed in range(share, PAIRS, SHARES):
        before, after = pair(seed)
        found = difference(before, after)
        assert without_versions(before) != without_versions(after) or found.is_empty, seed
        assert without_versions(before) == without_versions(after) or not found.is_empty, seed
        assert difference(before, before).is_empty, seed
        assert mirrored(found) == difference(after, before), seed
        assert misreported(before, after, found) == [], seed
        equal, changed = equal + found.is_empty, changed + (not found.is_empty)
    # Both must have been tried, or the test would say nothing.
    assert equal > 0
    assert changed > PAIRS / SHARES / 3


def pair(seed: int) -> tuple[Compiled, Compiled]:
    """Two graphs of a type: of two patches, of a patch and one that was changed a little, or of two contracts."""
    random = Random(seed)
    contract = random_contract(random)
    first = random_patch(random, contract, filled=True)
    before = compile_effective(contract, first, tables=TABLES)
    ways = (
        lambda: compile_effective(contract, random_patch(random, contract, filled=True), tables=TABLES),
        lambda: attempt(contract, broken(random, first)) or before,
        lambda: attempt(contract, broken(random, first)) or before,
        lambda: compile_envelope(contract),
        lambda: compile_envelope(replace(random_contract(random), type=contract.type)),
        lambda: compile_effective(
            shuffled_contract(random, contract), shuffled_patch(random, replace(first, version=77)), tables=TABLES
        ),
    )
    return before, random.choice(ways)()


def attempt(contract: ContractDefinition, written: PatchDefinition) -> Compiled | None:
    try:
        return compile_effective(contract, written, tables=TABLES)
    except DefinitionError:
        return None


def without_versions(graph: Compiled) -> dict[str, Any]:
    """All that a graph means: without versions, hashes and the proof, and without the lookups made of its parts."""
    data = dump_compiled(graph)
    config = data["config"] if "envelope" in data["config"] else {"envelope": data["config"]}
    envelope = {key: value for key, value in config["envelope"].items() if key not in ("version", "hash")}
    policies = config.get("patch", {}).get("policies", [])
    parts = {key: data.get(key, {}) for key in ("entry", "policy", "variables", "nodes", "edges", "regions")}
    kept = {key: config.get(key, {}) for key in ("windows", "tables")}
    return {**parts, **kept, "envelope": envelope, "policies": policies}


def mirrored(found: Difference) -> Difference:
    """The same difference, read the other way round."""

    def field(each: FieldChange) -> FieldChange:
        return replace(each, before=each.after, after=each.before)

    def part(each: PartChange) -> PartChange:
        fields = tuple(map(field, each.fields))
        kind = next((one.after for one in fields if one.field == "kind" and each.change == "changed"), each.kind)
        return replace(each, change=OTHER[each.change], fields=fields, kind=kind)

    return Difference(
        before=found.after,
        after=found.before,
        envelope=tuple(map(part, found.envelope)),
        slots=tuple(
            replace(each, before=each.after, after=each.before, parts=tuple(map(part, each.parts)))
            for each in found.slots
        ),
        policies=tuple(map(part, found.policies)),
        tables=tuple(map(part, found.tables)),
    )


def misreported(before: Compiled, after: Compiled, found: Difference) -> list[tuple[str, str]]:
    """Compare nodes and edges field by field with what is reported of them."""
    wrong: list[tuple[str, str]] = []
    for noun, old, new in (("node", before.nodes, after.nodes), ("edge", before.edges, after.edges)):
        told = {part.id: part for part in found.parts if part.noun == noun}
        for id in {*old, *new, *told}:
            differing = changed_fields(old.get(id), new.get(id))
            part = told.get(id)
            reported = {each.field.partition(".")[0] for each in (() if part is None else part.fields)}
            ends = {"id", "source", "target", "on", "slot", "provenance"}
            if (part is None) != (old.get(id) == new.get(id)) or reported != differing - ends:
                wrong.append((noun, id))
    return wrong


def changed_fields(old: msgspec.Struct | None, new: msgspec.Struct | None) -> set[str]:
    dumped = [{} if each is None else dump_struct(each, "part") for each in (old, new)]
    return {name for name in {*dumped[0], *dumped[1]} if dumped[0].get(name) != dumped[1].get(name)}


# --- what a change means ----------------------------------------------------------------------------------------------


def effective(written: PatchDefinition | None = None, contract: ContractDefinition = INVOICE) -> Compiled:
    return compile_effective(contract, written, tables=LIMITS)


def told(before: Compiled, after: Compiled) -> list[tuple[str, str, str, Any, Any]]:
    """Every changed field: id of the part, aspect, field, before, after."""
    parts = difference(before, after).parts
    return [(part.id, each.aspect, each.field, each.before, each.after) for part in parts for each in part.fields]


def asked(**fields: Any) -> PatchDefinition:
    node = step("ann", "approval", **fields)
    return patch(SlotPatch(nodes=(node,), edges=ONE.edges))


def test_approvers_and_timers() -> None:
    before, after = asked(due=7200.0), asked(due=86400.0, approvers=Approvers(role="board"))
    assert told(effective(before), effective(after)) == [
        ("usr:review:ann", "timer", "due", 7200.0, 86400.0),
        ("usr:review:ann", "approvers", "roles", ["finance"], ["board"]),
    ]
    person = told(effective(before), effective(asked(due=7200.0, approvers=Approvers(user="ben"))))
    assert ("usr:review:ann", "approvers", "assignee", msgspec.UNSET, "'ben'") in person


def chosen(when: str, **fields: Any) -> PatchDefinition:
    more = edge("check>ann", when=when, **fields)
    return patch(slot("check ann:approval", "in>check check>out ann>out:approved", more))


def test_conditions_and_their_order() -> None:
    before, after = chosen("entity.total > 10"), chosen("entity.total > 20", priority=3)
    assert told(effective(before), effective(after)) == [
        ("usr:review:check>ann", "way", "priority", msgspec.UNSET, 3),
        ("usr:review:check>ann", "condition", "when", "entity.total > 10", "entity.total > 20"),
    ]


def filled(node: PatchNode, **fields: Any) -> PatchDefinition:
    return patch(SlotPatch(nodes=(node,), edges=(edge(f"in>{node.id}"), edge(f"{node.id}>out")), **fields))


@pytest.mark.parametrize(
    ("kind", "before", "after", "told_as"),
    [
        ("action", {"action": "post"}, {"action": "mark"}, {("action", "config.action"), ("action", "config.run_as")}),
        ("action", {"payload": {"total": "1"}}, {"payload": {"total": "2"}}, {("action", "input.total")}),
        ("wait_timer", {"delay": 60.0}, {"delay": 61.0}, {("timer", "delay")}),
        ("wait_event", {"deadline": 60.0}, {"deadline": 90.0}, {("timer", "deadline")}),
        ("policy_gate", {"when": "entity.total > 1"}, {"when": "entity.total > 2"}, {("condition", "config.when")}),
        ("policy_gate", {"capability": "a:b"}, {"capability": "a:c"}, {("policy", "config.capability")}),
        ("script", {"sets": {"x": "1"}}, {"sets": {"x": "2"}}, {("other", "input.x")}),
        ("condition", {"name": "One"}, {"name": "Two"}, {("text", "metadata.name")}),
        ("condition", {}, {"window": "locked"}, {("window", "edit_window")}),
    ],
)
def test_the_meaning_of_a_field(
    kind: str, before: dict[str, Any], after: dict[str, Any], told_as: set[tuple[str, str]]
) -> None:
    if kind == "wait_event":
        ways = (edge("in>it"), edge("it>out"), edge("it>out:timeout"))
        graphs = [
            effective(patch(SlotPatch(nodes=(step("it", kind, **fields),), edges=ways))) for fields in (before, after)
        ]
    else:
        graphs = [effective(filled(step("it", kind, **fields))) for fields in (before, after)]
    assert {each[1:3] for each in told(*graphs)} == told_as


def test_a_stricter_window_of_a_slot_is_one_of_its_steps_too() -> None:
    before, after = effective(filled(step("it"))), effective(filled(step("it"), window="locked"))
    changes = {(each[0], *each[2:]) for each in told(before, after)}
    assert changes == {
        ("review", "window", "amend_only", "locked"),
        ("review", "window.patch", msgspec.UNSET, "locked"),
        ("usr:review:it", "edit_window", "amend_only", "locked"),
        *((f"sys:slot:review:{port}", "edit_window", "amend_only", "locked") for port in ("in", "out", "rejected")),
    }


def test_policies_of_a_patch() -> None:
    one = patch(ONE, policies=(PolicyRule(name="ours", capability="a:b"),))
    other = patch(ONE, policies=(PolicyRule(name="ours", capability="a:c"), PolicyRule(name="more", when="1 < 2")))
    found = difference(effective(one), effective(other))
    assert [(part.change, part.id, part.provenance) for part in found.policies] == [
        ("added", "more", "patch"),
        ("changed", "ours", "patch"),
    ]
    assert {each.aspect for part in found.policies for each in part.fields} == {"policy"}
    assert not found.slots


def test_rows_of_tables() -> None:
    one, two = (effective(filled(step("ask", "rule", table_version=version))) for version in (1, 2))
    [table] = difference(one, two).tables
    assert (table.change, table.id) == ("changed", "limits")
    assert {each.field: (each.before, each.after) for each in table.fields} == {
        "hash": ("1" * 64, "2" * 64),
        "table.rows": ([1], [2]),
        "version": (1, 2),
    }


def test_two_versions_of_one_table_keep_apart() -> None:
    both = slot("", "in>a a>b b>out")
    nodes = (step("a", "rule", table_version=1), step("b", "rule", table_version=2))
    found = difference(effective(), effective(patch(replace(both, nodes=nodes))))
    assert [part.id for part in found.tables] == ["limits@1", "limits@2"]


def test_true_is_not_one() -> None:
    tables = [
        Tables([PinnedTable(name="limits", version=1, hash="1", table={"rows": [value]})]) for value in (True, 1, 1.0)
    ]
    asks = filled(step("ask", "rule"))
    yes, one, point = (compile_effective(INVOICE, asks, tables=known) for known in tables)
    assert not difference(yes, one).is_empty
    assert difference(one, point).is_empty


# --- slots and the envelope -------------------------------------------------------------------------------------------


def test_a_filled_slot_takes_the_place_of_the_direct_edge() -> None:
    found = difference(effective(), effective(patch(ONE)))
    [review] = found.slots
    assert (review.name, review.before, review.after) == ("review", "empty", "filled")
    assert not found.envelope
    assert {part.id for part in review.parts if part.change == "removed"} == {
        "sys:state:submitted>sys:gate:approve",
        "sys:state:submitted:never>sys:gate:reject",
    }
    assert {part.id for part in review.parts if part.provenance == "review"} == {
        "usr:review:ann",
        "usr:review:in>ann",
        "usr:review:ann:approved>out",
        "usr:review:ann:rejected>rejected",
    }


@pytest.mark.parametrize("written", [patch(ONE), patch(BOTH), LONG])
def test_patches_of_one_envelope_change_nothing_of_it(written: PatchDefinition) -> None:
    assert not difference(effective(), effective(written)).envelope


def test_the_envelope_is_the_graph_without_a_patch() -> None:
    assert difference(compile_envelope(INVOICE), effective()).is_empty
    assert not difference(compile_envelope(demanding(1)), effective(patch(ONE), demanding(1))).envelope


def test_a_renamed_step_is_another_one() -> None:
    renamed = slot("eva:approval", "in>eva eva>out:approved")
    parts = list(difference(effective(patch(ONE)), effective(patch(renamed))).parts)
    assert {(part.change, part.id) for part in parts if part.noun == "node"} == {
        ("removed", "usr:review:ann"),
        ("added", "usr:review:eva"),
    }
    assert not [part for part in parts if part.change == "changed"]


def test_a_new_version_of_the_contract() -> None:
    states = (
        *INVOICE.states[:3],
        State(name="cancelled", window="amend_only", ends=True),
        State(name="paid", ends=True),
    )
    verbs = (replace(INVOICE.verbs[0], capability="invoice:send"), *INVOICE.verbs[1:])
    verbs = (*verbs, replace(verbs[2], name="pay", target="paid"))
    newer = replace(INVOICE, version=2, states=states, verbs=verbs)
    found = difference(compile_envelope(INVOICE), compile_envelope(newer))
    assert (found.before.envelope, found.after.envelope) == (1, 2)
    told_of = {(part.change, part.noun, part.id) for part in found.envelope}
    assert told_of >= {
        ("added", "node", "sys:state:paid"),
        ("changed", "node", "sys:state:cancelled"),
        ("changed", "verb", "draft.submit"),
        ("added", "verb", "active.pay"),
    }
    # The verb leads through a slot, which has its direct edge.
    [prepare] = [each for each in found.slots if each.name == "prepare"]
    assert [each.field for part in prepare.parts for each in part.fields] == ["guard"]


def test_a_slot_that_comes_and_goes() -> None:
    fewer = replace(INVOICE, slots=INVOICE.slots[:2])
    found = difference(compile_envelope(fewer), compile_envelope(INVOICE))
    assert [(each.name, each.before, each.after) for each in found.slots] == [("book", "absent", "empty")]
    assert [(part.change, part.noun, part.id) for part in found.parts] == [("added", "slot", "book")]


# --- refusals ---------------------------------------------------------------------------------------------------------

ORDER = replace(INVOICE, type="order")


@pytest.mark.parametrize(
    "other",
    [
        lambda: compile_envelope(ORDER),
        lambda: compile_graph(Graph(name="f", entry="e", nodes=(Node(id="e", kind="end"),))),
    ],
)
def test_other_graphs_are_refused(other: Callable[[], Compiled]) -> None:
    for pair in ((compile_envelope(INVOICE), other()), (other(), compile_envelope(INVOICE))):
        with pytest.raises(DefinitionError) as raised:
            difference(*pair)
        assert raised.value.code == "NOT_COMPARABLE"


def test_as_data_it_has_no_value_where_a_side_has_no_field() -> None:
    found = difference(effective(asked()), effective(asked(due=60.0)))
    [found] = msgspec.json.decode(msgspec.json.encode(found))["slots"]
    assert found["parts"][0]["fields"] == [{"field": "due", "aspect": "timer", "after": 60.0}]
