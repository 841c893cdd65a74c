"""The envelope of a contract: its nodes, edges, slots and regions, and a hash of all that changes behaviour."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from envelope_samples import INVOICE
from msgspec.structs import replace
from random_envelopes import random_contract, shuffled_contract

from holdfast.doors.envelope.lowering import lower_contract
from holdfast.doors.envelope.model import Amendment, ContractDefinition, DataField, Gate, Slot, State, Verb
from holdfast.graph.checks.check import check
from holdfast.graph.model import Graph


def nodes(graph: Graph) -> dict[str, str]:
    return {node.id: node.kind for node in graph.nodes}


def edges(graph: Graph) -> dict[str, str]:
    return {edge.id: edge.on for edge in graph.edges}


def errors(graph: Graph) -> list[str]:
    return [found.code for found in check(graph) if found.severity == "error"]


def test_the_graph_of_an_invoice() -> None:
    envelope = lower_contract(INVOICE)
    assert (envelope.kind, envelope.name, envelope.version, envelope.entry) == (
        "envelope",
        "document:invoice",
        1,
        "sys:start",
    )
    assert nodes(envelope) == {
        "sys:end": "terminal",
        "sys:gate:approve": "lifecycle_gate",
        "sys:gate:reject": "lifecycle_gate",
        "sys:start": "start",
        "sys:state:active": "stage",
        "sys:state:cancelled": "stage",
        "sys:state:draft": "state",
        "sys:state:submitted": "stage",
    }
    assert edges(envelope) == {
        "sys:gate:approve>sys:state:active": "completed",
        "sys:gate:reject>sys:state:draft": "completed",
        "sys:start>sys:state:draft": "completed",
        "sys:state:active>sys:end": "completed",
        "sys:state:cancelled>sys:end": "completed",
        "sys:state:draft:submit>sys:state:submitted": "submit",
        "sys:state:submitted:never>sys:gate:reject": "sys:never",
        "sys:state:submitted>sys:gate:approve": "completed",
    }
    assert {edge.provenance for edge in envelope.edges} == {"envelope"}
    assert errors(envelope) == []


def test_a_verb_keeps_its_capability_and_its_condition() -> None:
    [submit] = [edge for edge in lower_contract(INVOICE).edges if edge.on == "submit"]
    assert (submit.guard, submit.when) == ("invoice:submit", "entity.total > 0")


def test_a_gate_knows_where_it_leads_and_what_it_demands() -> None:
    [approve] = [node for node in lower_contract(INVOICE).nodes if node.id == "sys:gate:approve"]
    assert approve.handler == "holdfast:gate"
    assert approve.config == {"gate": "approve", "from": "submitted", "to": "active", "approvals": 0}
    assert (approve.edit_window, approve.stable) == ("amend_only", True)


def test_the_slots_say_which_edge_their_steps_replace() -> None:
    slots = lower_contract(INVOICE).config["slots"]
    assert slots["review"] == {
        "name": "review",
        "entry": "sys:state:submitted",
        "exit": "sys:gate:approve",
        "edge": "sys:state:submitted>sys:gate:approve",
        "rejected": "sys:gate:reject",
        "rejecting": "sys:state:submitted:never>sys:gate:reject",
        "window": "amend_only",
        "stable": True,
        "verbs": {"withdraw": "sys:state:draft"},
        "amendment": "sys:state:draft",
    }
    assert slots["prepare"]["edge"] == "sys:state:draft:submit>sys:state:submitted"
    assert slots["book"]["edge"] == "sys:gate:approve>sys:state:active"
    assert slots["book"]["window"] == "locked"  # that of the state it leads to


def test_a_region_holds_a_state_with_its_gates_and_verbs() -> None:
    regions = {region.id: region for region in lower_contract(INVOICE).regions}
    submitted = regions["sys:state:submitted"]
    assert submitted.nodes == ("sys:gate:approve", "sys:gate:reject", "sys:state:submitted")
    assert submitted.verbs == {"withdraw": "sys:state:draft"}
    assert (submitted.stable, submitted.amendment) == (True, "sys:state:draft")
    assert regions["sys:state:draft"].verbs == {"submit": "sys:state:submitted"}
    assert regions["sys:state:active"].verbs == {"cancel": "sys:state:cancelled"}
    assert not regions["sys:state:draft"].stable


def test_a_state_that_only_an_amendment_leaves_rests_until_then() -> None:
    posted = ContractDefinition(
        type="order",
        states=(State(name="draft"), State(name="posted", window="locked")),
        verbs=(Verb(name="post", source="draft", target="posted"),),
        amendment=Amendment(states=("posted",)),
    )
    envelope = lower_contract(posted)
    assert nodes(envelope)["sys:state:posted"] == "state"
    assert edges(envelope)["sys:state:posted:amend>sys:end"] == "amend"
    assert errors(envelope) == []


def test_a_rejection_may_lead_back_to_its_own_state() -> None:
    """The slot is entered again. Nothing waits on the edge that no token takes, and nothing has to."""
    again = replace(INVOICE, gates=(INVOICE.gates[0], Gate(name="reject", source="submitted", target="submitted")))
    assert errors(lower_contract(again)) == []


def test_a_cycle_of_gates_is_still_found() -> None:
    going_round = ContractDefinition(
        type="order",
        states=(State(name="a"), State(name="b"), State(name="c", ends=True)),
        gates=(Gate(name="on", source="a", target="b"), Gate(name="back", source="b", target="a")),
        verbs=(Verb(name="stop", source="a", target="c"),),
    )
    assert errors(lower_contract(going_round)) == ["AUTOMATIC_CYCLE"]


def test_an_end_that_only_an_interrupt_reaches_counts() -> None:
    paused = ContractDefinition(
        type="order",
        states=(State(name="draft"), State(name="held"), State(name="done", ends=True)),
        verbs=(Verb(name="hold", source="draft", target="held"), Verb(name="stop", source="held", target="done")),
        gates=(Gate(name="release", source="held", target="draft"),),
    )
    assert errors(lower_contract(paused)) == []


def test_random_contracts_lower_to_sound_graphs_in_any_order() -> None:
    for seed in range(200):
        random = Random(seed)
        contract = random_contract(random)
        envelope = lower_contract(contract)
        assert errors(envelope) == [], seed
        assert lower_contract(shuffled_contract(random, contract)) == envelope, seed


@pytest.mark.parametrize(
    "change",
    [
        {"states": (replace(INVOICE.states[0], window="amend_only"), *INVOICE.states[1:])},
        {"verbs": (replace(INVOICE.verbs[0], when=None), *INVOICE.verbs[1:])},
        {"verbs": (INVOICE.verbs[0], INVOICE.verbs[1], replace(INVOICE.verbs[2], capability=None))},
        {"gates": (replace(INVOICE.gates[0], approvals=1), INVOICE.gates[1])},
        {"fields": (*INVOICE.fields, DataField(name="more", type="list"))},
        {"fields": (replace(INVOICE.fields[0], material=False), *INVOICE.fields[1:])},
        {"actions": (replace(INVOICE.actions[0], run_as="actor"), INVOICE.actions[1])},
        {"policies": ()},
        {"slots": (replace(INVOICE.slots[0], stable=True), *INVOICE.slots[1:])},
        {"slots": (INVOICE.slots[0], replace(INVOICE.slots[1], window="locked"), INVOICE.slots[2])},
        {"slots": (*INVOICE.slots[:2], Slot(name="other", entry="approve", exit="active"))},
        {"amendment": Amendment(states=("active",))},
        {"amendment": None},
    ],
)
def test_all_that_changes_behaviour_changes_the_hash(change: dict[str, Any]) -> None:
    assert hash_of(replace(INVOICE, **change)) != hash_of(INVOICE)


def test_texts_and_numbers_do_not_change_the_hash() -> None:
    told = replace(
        INVOICE,
        version=7,
        about="Invoices.",
        states=(replace(INVOICE.states[0], about="Being written."), *INVOICE.states[1:]),
        gates=(replace(INVOICE.gates[0], about="By finance."), INVOICE.gates[1]),
        fields=(replace(INVOICE.fields[0], about="In cents."), *INVOICE.fields[1:]),
    )
    assert hash_of(told) == hash_of(INVOICE)


def hash_of(contract: ContractDefinition) -> str:
    return lower_contract(contract).config["hash"]
