"""Contracts and patches from the builders: what they make, what they refuse, and what their order never changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from contract_samples import house_rules, invoice, review

from holdfast import Contract, Fill, Patch
from holdfast.doors.envelope.model import (
    Action,
    Amendment,
    Approvers,
    ContractDefinition,
    DataField,
    Gate,
    PatchEdge,
    PatchNode,
    PolicyRule,
    Slot,
    State,
    Verb,
)
from holdfast.doors.envelope.written import contract_hash, patch_hash
from holdfast.errors import DefinitionError


def test_a_contract_is_written_as_one_expression() -> None:
    assert invoice() == ContractDefinition(
        type="invoice",
        version=1,
        about="What vendors send.",
        fields=(
            DataField(name="grand_total", type="money"),
            DataField(name="vendor_id", type="string", indexed=True),
            DataField(name="due_at", type="time"),
            DataField(name="note", type="string", material=False, about="Anything."),
        ),
        states=(
            State(name="draft"),
            State(name="submitted", window="amend_only", about="Somebody looks at it."),
            State(name="active", window="locked", ends=True),
            State(name="cancelled", window="locked", ends=True),
        ),
        verbs=(
            Verb(
                name="submit", source="draft", target="submitted", capability="invoice:submit",
                when="entity.grand_total > 0",
            ),
            Verb(name="withdraw", source="submitted", target="draft"),
            Verb(name="cancel", source="active", target="cancelled", capability="invoice:cancel", about="Too late."),
        ),
        gates=(
            Gate(name="approve", source="submitted", target="active", approvals=1),
            Gate(name="reject", source="submitted", target="draft"),
        ),
        actions=(Action(name="post", sets=("note", "due_at"), capability="ledger:post", run_as="system"),),
        policies=(
            PolicyRule(
                name="own", on=("submit", "post", "update"), capability="invoice:own",
                when="actor.id != entity.vendor_id",
            ),
        ),
        slots=(
            Slot(
                name="review", entry="submitted", exit="approve", rejected="reject", window="amend_only", stable=True
            ),
            Slot(name="posting", entry="approve", exit="active"),
            Slot(name="checking", entry="draft", exit="submit"),
        ),
        amendment=Amendment(states=("active",), drift="draft"),
    )  # fmt: skip


def test_a_patch_has_every_kind_of_node() -> None:
    slot = house_rules().slots["review"]
    nodes = {node.id: node for node in slot.nodes}
    assert nodes["boss"] == PatchNode(
        id="boss", kind="approval", approvers=Approvers(role="manager"), form={"type": "object"}, due=172_800.0
    )
    assert (nodes["owner"].due, nodes["pause"].delay, nodes["paid"].deadline) == (90.0, 1.5, 604_800.0)
    assert nodes["note"].sets == {"total": "entity.grand_total", "fixed": "5"}
    assert len({node.kind for node in slot.nodes}) == 13
    assert slot.edges[1:5] == (
        PatchEdge(source="route", target="both", when="entity.grand_total > 5", priority=-1, label="much"),
        PatchEdge(source="route", target="eva", when="entity.grand_total > 5", priority=-1, label="much"),
        PatchEdge(source="boss", target="agreed", on="approved"),
        PatchEdge(source="owner", target="agreed", on="approved"),
    )
    assert (slot.window, slot.entry_mode, slot.exit_mode) == ("locked", "serial", "single")


def test_a_verb_may_leave_several_states() -> None:
    contract = (
        Contract("note").state("a").state("b").state("c", ends=True)
        .verb("go", "a", "b").verb("stop", ["a", "b"], "c").build()
    )  # fmt: skip
    assert [(verb.name, verb.source) for verb in contract.verbs] == [("go", "a"), ("stop", "a"), ("stop", "b")]


def test_documents_begin_in_the_marked_state_or_in_the_first() -> None:
    def written(mark: bool) -> ContractDefinition:
        first = Contract("note").state("b", ends=not mark).state("a", initial=mark, ends=mark)
        return (
            first.verb("go", *(("a", "b") if mark else ("b", "a"))).verb("back", "b", "a").build()
            if mark
            else (Contract("note").state("a").state("b", ends=True).verb("go", "a", "b").build())
        )

    assert [state.name for state in written(True).states] == ["a", "b"]
    assert [state.name for state in written(False).states] == ["a", "b"]


def test_builders_never_change() -> None:
    one = Contract("note").state("a", ends=True)
    two = one.state("b", ends=True).verb("go", "a", "b")
    assert [len(each.build().states) for each in (one, two)] == [1, 2]
    fill = Fill()
    fill.condition("c")
    assert Patch("note", 1).slot("s", fill).build().slots["s"].nodes == ()
    form: dict[str, Any] = {"type": "object"}
    asked = Fill().approval("a", user="u", form=form)
    form["type"] = "array"
    assert Patch("note", 1).slot("s", asked).build().slots["s"].nodes[0].form == {"type": "object"}


def contract_calls() -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    return [
        ("field", ("total", "money"), {}),
        ("field", ("owner", "string"), {"material": False}),
        ("state", ("draft",), {"initial": True}),
        ("state", ("submitted",), {"window": "amend_only"}),
        ("state", ("active",), {"ends": True}),
        ("verb", ("submit", "draft", "submitted"), {"when": "entity.total > 0"}),
        ("verb", ("withdraw", "submitted", "draft"), {"when": "entity.total < 0"}),
        ("gate", ("approve", "submitted", "active"), {"approvals": 1}),
        ("gate", ("reject", "submitted", "draft"), {}),
        ("slot", ("review", "submitted", "approve"), {"stable": True}),
        ("action", ("post",), {"sets": ["total", "owner"]}),
        ("action", ("fix",), {}),
        ("policy", ("own",), {"on": ["submit", "post"], "when": "actor.id == entity.owner"}),
        ("policy", ("all",), {"capability": "x"}),
        ("amendment", ("active",), {}),
    ]


def test_builder_order_never_changes_a_condition() -> None:
    """Shuffled calls give the same hash, and every condition stays with its verb, its policy and its edge."""
    dice = random.Random(7)
    seen: set[str] = set()
    for _ in range(50):
        calls = contract_calls()
        dice.shuffle(calls)
        contract = Contract("bill")
        for name, args, options in calls:
            contract = getattr(contract, name)(*args, **options)
        built = contract.build()
        assert built.states[0].name == "draft"
        assert {verb.name: verb.when for verb in built.verbs} == {
            "submit": "entity.total > 0",
            "withdraw": "entity.total < 0",
        }
        seen.add(contract_hash(built))
    assert len(seen) == 1


def test_builder_order_never_changes_an_edge() -> None:
    dice = random.Random(8)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("condition", ("route",), {}),
        ("approval", ("boss",), {"role": "manager"}),
        ("approval", ("chief",), {"role": "chief"}),
        ("edge", ("in", "route"), {}),
        ("edge", ("route", "boss"), {"when": "entity.total < 10"}),
        ("edge", ("route", "chief"), {}),
        ("edge", ("boss", "out"), {"on": "approved"}),
        ("edge", ("chief", "out"), {"on": "approved"}),
    ]
    seen: set[str] = set()
    for _ in range(50):
        dice.shuffle(calls)
        fill = Fill()
        for name, args, options in calls:
            fill = getattr(fill, name)(*args, **options)
        built = Patch("bill", 1).slot("review", fill).build()
        conditions = {(edge.source, edge.target): edge.when for edge in built.slots["review"].edges}
        assert (conditions["route", "boss"], conditions["route", "chief"]) == ("entity.total < 10", None)
        seen.add(patch_hash(built))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        (lambda: invoice_with(about="Other words."), False),
        (lambda: invoice_with(version=2), False),
        (lambda: invoice_with(type="bill"), True),
        (lambda: invoice_with(states=(State(name="draft"), *invoice().states[1:])), False),
        (lambda: invoice_with(states=(State(name="draft", window="locked"), *invoice().states[1:])), True),
        (lambda: invoice_with(states=tuple(reversed(invoice().states))), True),  # documents begin elsewhere
        (lambda: invoice_with(verbs=tuple(reversed(invoice().verbs))), False),
        (lambda: invoice_with(amendment=None), True),
        (lambda: invoice_with(gates=(Gate(name="approve", source="submitted", target="active", approvals=2),)), True),
    ],
)
def test_the_hash_is_of_what_changes_behaviour(change: Any, is_other: bool) -> None:
    assert (contract_hash(change()) != contract_hash(invoice())) == is_other


def invoice_with(**changes: Any) -> ContractDefinition:
    import msgspec

    return msgspec.structs.replace(invoice(), **changes)


def test_hashes_are_pinned() -> None:
    assert contract_hash(invoice()) == "221100b73dd921a8e7fd05d7331c9942ae94b9735515e95124b35f577e3d4307"
    assert patch_hash(house_rules()) == "47b581bd688564b2c9aa3423bb7d08c20ddd1252fd2a1e728d107d06384a80ef"


def refusals(build: Any) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as caught:
        build()
    return [(each.code, each.place) for each in caught.value.diagnostics]


def test_unknown_options_are_refused_with_all_other_mistakes() -> None:
    found = refusals(
        lambda: (
            Contract("bill", verion=2)  # type: ignore[call-arg]
            .state("draft", windw="locked", ends=True)
            .field("total", "currency")  # type: ignore[arg-type]
            .verb("go", "draft", "nowhere", guard="x")
            .build()
        )
    )
    assert found == [
        ("CONTRACT_OPTION_UNKNOWN", "verion"),
        ("CONTRACT_OPTION_UNKNOWN", "states.draft.windw"),
        ("CONTRACT_OPTION_UNKNOWN", "verbs.go.guard"),
        ("CONTRACT_VALUE_INVALID", "fields.total.type"),
        ("CONTRACT_STATE_UNKNOWN", "verbs.go.to"),
    ]


def test_unknown_options_of_a_patch() -> None:
    found = refusals(
        lambda: (
            Patch("bill", 1, vers=2)  # type: ignore[call-arg]
            .slot("s", Fill(windw="locked").approval("a", roel="boss").edge("in", "a", onn="x"))
            .slot("s", Fill())
            .slot("t", 5)  # type: ignore[arg-type]
            .policy("p", capabilty="x")
            .build()
        )
    )
    assert found == [
        ("PATCH_OPTION_UNKNOWN", "vers"),
        ("PATCH_OPTION_UNKNOWN", "slots.s.windw"),
        ("PATCH_OPTION_UNKNOWN", "slots.s.nodes.a.roel"),
        ("PATCH_OPTION_UNKNOWN", "slots.s.edges.in.onn"),
        ("PATCH_DUPLICATE_SLOT", "slots.s"),
        ("PATCH_OPTION_UNKNOWN", "policies.p.capabilty"),
        ("PATCH_TYPE_WRONG", "slots.t"),
        ("PATCH_APPROVERS_AMBIGUOUS", "slots.s.nodes.a.approvers"),
        ("PATCH_POLICY_EMPTY", "policies.p"),
    ]


@pytest.mark.parametrize("value", [None, object(), 5, float("nan"), "\0", "\ud800", b"x", {"a": 1}, [[]], {1: 2}, True])
def test_no_value_makes_a_builder_crash(value: Any) -> None:
    contracts = [
        Contract(value, value, about=value).state(value, window=value, initial=value, ends=value, about=value),
        Contract("a").state("s", ends=True).field(value, value, material=value, indexed=value, about=value),
        Contract("a").state("s", ends=True).verb(value, value, value, capability=value, when=value, about=value),
        Contract("a").state("s", ends=True).gate(value, value, value, approvals=value, about=value),
        Contract("a").state("s", ends=True).slot(value, value, value, rejected=value, window=value, stable=value),
        Contract("a").state("s", ends=True).action(value, sets=value, capability=value, run_as=value, about=value),
        Contract("a").state("s", ends=True).policy(value, on=value, capability=value, when=value),
        Contract("a").state("s", ends=True).amendment(value, drift=value),
    ]
    fills = [
        Fill(window=value, entry_mode=value, exit_mode=value).condition(value, name=value, about=value, window=value),
        Fill().split(value).join(value, value).script(value, value).rule(value, value, value),
        Fill().action(value, value, payload=value, run_as=value).policy_gate(value, capability=value, when=value),
        Fill().approval("x", user=value, role=value, expression=value, form=value, due=value),
        Fill().approval("x", user="u", form={"type": value}),
        Fill().wait_timer("x", value, until=value, cron=value, timezone=value).wait_event("y", value, key=value),
        Fill().webhook_out("x", value, headers=value, secret=value, payload=value, awaits=value),
        Fill().notification("x", value, to=value, subject=value, text=value, payload=value),
        Fill().sub_flow("x", value, value, payload=value, deadline=value).edge(value, value, on=value, when=value),
    ]
    patches = [Patch("a", 1).slot("s", fill) for fill in fills]
    patches += [
        Patch(value, value, version=value, about=value),
        Patch("a", 1).policy("p", on=value, when=value),
        Patch("a", 1).slot(value, Fill()),
    ]
    for builder in (*contracts, *patches):
        try:
            builder.build()
        except DefinitionError as error:
            assert all(each.code and each.place and each.hint for each in error.diagnostics)  # noqa: PT017


def test_a_form_that_contains_itself_is_refused() -> None:
    form: dict[str, Any] = {}
    form["properties"] = form
    fill = Fill().approval("a", user="u", form=form)
    assert refusals(Patch("a", 1).slot("s", fill).build)[0][0] == "YAML_TOO_DEEP"


def test_a_patch_of_ten_thousand_nodes_is_refused_by_its_size_alone() -> None:
    fill = Fill()
    fill._nodes = tuple({"id": f"n{n}", "kind": "split"} for n in range(10_000))
    assert refusals(Patch("a", 1).slot("s", fill).build) == [("PATCH_TOO_LARGE", "patch")]
    half = Fill()
    half._edges = tuple({"from": "in", "to": "out"} for _ in range(4_001))
    assert refusals(Patch("a", 1).slot("s", half).slot("t", half).build) == [("PATCH_TOO_LARGE", "patch")]


def test_the_fill_of_the_samples_is_whole() -> None:
    assert review().problems == ()
