"""WF-06: a patch lives in its slots. Its nodes are in their namespaces, and its edges leave by the ports only."""

from __future__ import annotations

import re
from random import Random

import pytest
from envelope_samples import BOTH, INVOICE, ONE, edge, patch, slot, step
from msgspec.structs import replace
from random_envelopes import TABLES, random_contract, random_patch

from holdfast.doors.envelope.effective import check_effective, compile_effective
from holdfast.doors.envelope.model import PatchDefinition, SlotPatch
from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled, dump_compiled, sealed
from holdfast.graph.loading import load_compiled
from holdfast.graph.model import Edge

WIDE = patch(BOTH, prepare=slot("check", "in>check check>out"), book=slot("post:action", "in>post post>out"))


def escapes(compiled: Compiled) -> list[str]:
    """List the edges that touch a step of a slot and are neither inside of it nor at one of its ports."""
    owners = compiled.slot_map
    return [
        edge.id
        for edge in compiled.edges.values()
        if (edge.source.startswith("usr:") or edge.target.startswith("usr:"))
        and owners.get(edge.source) != owners.get(edge.target)
    ]


def test_every_step_is_in_the_namespace_of_its_slot() -> None:
    compiled = compile_effective(INVOICE, WIDE)
    own = {id for id in compiled.nodes if not re.fullmatch(r"sys:(start|end|(state|gate):\w+)", id)}
    assert own == set(compiled.slot_map)
    assert all(id.split(":")[1] == slot for id, slot in compiled.slot_map.items() if id.startswith("usr:"))
    assert all(id.split(":")[2] == slot for id, slot in compiled.slot_map.items() if id.startswith("sys:"))


def test_steps_touch_the_envelope_through_their_ports_only() -> None:
    compiled = compile_effective(INVOICE, WIDE)
    assert escapes(compiled) == []
    for edge_ in compiled.edges.values():
        if edge_.source.startswith("usr:") and edge_.target.startswith("sys:"):
            assert edge_.target in {f"sys:slot:{edge_.provenance}:{port}" for port in ("out", "rejected")}
        if edge_.target.startswith("usr:") and edge_.source.startswith("sys:"):
            assert edge_.source == f"sys:slot:{edge_.provenance}:in"


def test_random_patches_never_leave_their_slots() -> None:
    for seed in range(60):
        random = Random(seed)
        contract = random_contract(random)
        compiled = compile_effective(contract, random_patch(random, contract, filled=True), tables=TABLES)
        assert escapes(compiled) == [], seed


# --- the attack by patches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id",
    ["sys:gate:approve", "sys:start", "usr:book:post", "usr:review:it", "slot:review", "in", "out", "rejected", ""],
)
def test_no_step_has_an_id_of_another_namespace(id: str) -> None:
    steps = SlotPatch(nodes=(step(id),), edges=(edge("in>out"),))
    found = check_effective(INVOICE, patch(steps))
    assert {each.code for each in found} & {"PATCH_NAMESPACE", "PATCH_NAME_INVALID"}


TARGETS = [
    *("sys:start", "sys:end", "sys:gate:approve", "sys:gate:reject", "sys:state:draft", "sys:state:active"),
    *("sys:slot:review:out", "sys:slot:book:out", "sys:slot:review:in", "usr:book:post", "usr:review:check", "post"),
    *("approve", "active", "draft", "", "in"),
]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("end", ["source", "target"])
def test_no_edge_leads_elsewhere(name: str, end: str) -> None:
    extra = replace(edge("check>out", when="entity.total > 1", priority=1), **{end: name})
    steps = slot("check", "in>check check>out", extra)
    found = check_effective(INVOICE, patch(steps, book=slot("post:action", "in>post post>out")))
    if (name, end) == ("in", "source"):
        assert found == ()  # the port
        return
    [finding] = found
    assert finding.code in {"SLOT_EDGE_SYSTEM", "SLOT_EDGE_FOREIGN", "PATCH_TARGET_UNKNOWN", "SLOT_PORT_MISUSED"}
    assert finding.place == f"slots.review.edges[2].{end}"


@pytest.mark.parametrize("kind", ["state", "stage", "slot", "lifecycle_gate", "terminal", "end", "start", "task"])
def test_no_step_is_of_a_kind_of_the_envelope(kind: str) -> None:
    steps = SlotPatch(nodes=(step("it", kind),), edges=(edge("in>it"), edge("it>out")))
    assert "PATCH_KIND_REFUSED" in {each.code for each in check_effective(INVOICE, patch(steps))}


def test_no_slot_is_made_by_a_patch() -> None:
    written: PatchDefinition = patch(ONE, unknown=slot("check", "in>check check>out"))
    [found] = check_effective(INVOICE, written)
    assert (found.code, found.place) == ("SLOT_UNKNOWN", "slots.unknown")


# --- the attack on what was compiled ----------------------------------------------------------------------------------

SHORT_CUTS = [
    Edge(id="usr:review:in>gate", source="sys:slot:review:in", target="sys:gate:approve", provenance="review"),
    Edge(id="usr:review:ann>gate", source="usr:review:ann", target="sys:gate:approve", provenance="review"),
    Edge(id="usr:review:ann>gate", source="usr:review:ann", target="sys:gate:approve", provenance="envelope"),
    Edge(id="usr:review:ann>book", source="usr:review:ann", target="usr:book:post", on="error", provenance="review"),
    Edge(id="x", source="sys:state:draft", target="usr:review:ann", on="hurry", provenance="review"),
    Edge(id="x", source="sys:state:draft", target="sys:slot:review:out", on="hurry", provenance="envelope"),
    Edge(id="x", source="usr:review:ann", target="sys:slot:book:out", on="error", provenance="review"),
]


@pytest.mark.parametrize("short_cut", SHORT_CUTS, ids=str)
def test_an_edge_that_is_slipped_in_later_is_found(short_cut: Edge) -> None:
    """The artifact is edited by hand, its lookups and its hash are made to fit."""
    compiled = compile_effective(INVOICE, WIDE)
    adjacency = {**compiled.adjacency, short_cut.source: (*compiled.adjacency[short_cut.source], short_cut.id)}
    reverse = {
        **compiled.reverse_adjacency,
        short_cut.target: (*compiled.reverse_adjacency[short_cut.target], short_cut.id),
    }
    edited = sealed(
        replace(
            compiled,
            edges={**compiled.edges, short_cut.id: short_cut},
            adjacency=adjacency,
            reverse_adjacency=reverse,
        )
    )
    with pytest.raises(DefinitionError) as caught:
        load_compiled(dump_compiled(edited), edited.hash)
    assert caught.value.code == "ENVELOPE_BROKEN"
