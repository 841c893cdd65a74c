"""WF-08: the envelope is whole in every effective graph: present, unaltered, in order, and outside of every split.

The attack edits artifacts by hand and makes their hashes fit, so only the proof is left to find it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from envelope_samples import BOTH, INVOICE, demanding, edge, patch, slot, step
from msgspec.structs import replace
from random_envelopes import TABLES, random_contract, random_patch

from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.model import SlotPatch
from holdfast.errors import DefinitionError
from holdfast.graph import compile_graph
from holdfast.graph.compile import assemble
from holdfast.graph.compiled import Compiled, dump_compiled, graph_of, sealed
from holdfast.graph.envelope import NEVER
from holdfast.graph.integrity import find_breaches, require_integrity
from holdfast.graph.loading import load_compiled
from holdfast.graph.model import Edge, Graph, Region
from holdfast.graph.scopes import find_scopes
from holdfast.graph.topology import read_topology

PATCH = patch(BOTH, prepare=slot("check", "in>check check>out"), book=slot("post:action", "in>post post>out"))
EFFECTIVE = compile_effective(demanding(2), PATCH)


def breaches(compiled: Compiled) -> list[str]:
    """Seal the edited artifact, and list what the proof finds; loading it must be refused if there is anything."""
    edited = sealed(compiled)
    found = list(find_breaches(edited))
    if found:
        with pytest.raises(DefinitionError) as caught:
            load_compiled(dump_compiled(edited), edited.hash)
        assert caught.value.code == "ENVELOPE_BROKEN"
        assert found[0] in caught.value.message
    else:
        assert load_compiled(dump_compiled(edited), edited.hash) == edited
    return found


def rebuilt(graph: Graph) -> Compiled:
    """Prepare the lookups of an edited graph anew, as an attacker with the compiler would."""
    return replace(assemble(graph), config=graph.config)


def test_the_proof_of_what_was_compiled() -> None:
    assert breaches(EFFECTIVE) == []
    proof = EFFECTIVE.config["integrity"]
    assert proof["valid"] is True
    assert proof["required"] == [
        "sys:end",
        "sys:gate:approve",
        "sys:gate:reject",
        "sys:start",
        "sys:state:active",
        "sys:state:cancelled",
        "sys:state:draft",
        "sys:state:submitted",
    ]


# --- present and unaltered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [node for node in EFFECTIVE.nodes if node.startswith("sys:")])
def test_a_missing_node_is_found(missing: str) -> None:
    graph = graph_of(EFFECTIVE)
    assert breaches(
        rebuilt(
            replace(
                graph,
                nodes=tuple(node for node in graph.nodes if node.id != missing),
                edges=tuple(each for each in graph.edges if missing not in (each.source, each.target)),
            )
        )
    )


@pytest.mark.parametrize("missing", [id for id, each in EFFECTIVE.edges.items() if each.provenance == "envelope"])
def test_a_missing_edge_is_found(missing: str) -> None:
    graph = graph_of(EFFECTIVE)
    assert breaches(rebuilt(replace(graph, edges=tuple(each for each in graph.edges if each.id != missing))))


NODES: list[dict[str, Any]] = [
    {"handler": "mine"},
    {"kind": "stage"},
    {"kind": "condition", "handler": None},
    {"edit_window": "editable"},
    {"stable": False},
    {"config": {"gate": "approve", "from": "submitted", "to": "active", "approvals": 0}},
    {"config": {"gate": "reject", "from": "submitted", "to": "draft", "approvals": 2}},
    {"slot": "review"},
    {"metadata": {"a": 1}},
]


@pytest.mark.parametrize("change", NODES)
def test_an_altered_gate_is_found(change: dict[str, Any]) -> None:
    graph = graph_of(EFFECTIVE)
    nodes = tuple(replace(node, **change) if node.id == "sys:gate:approve" else node for node in graph.nodes)
    assert breaches(rebuilt(replace(graph, nodes=nodes)))


EDGES: list[dict[str, Any]] = [
    {"target": "sys:state:active"},
    {"target": "sys:end"},
    {"on": "approved"},
    {"when": "entity.total > 1"},
    {"guard": "anybody"},
    {"priority": -1},
    {"provenance": "review"},
    {"label": "new"},
]


ALTERED = [
    (id, change)
    for id, each in EFFECTIVE.edges.items()
    for change in EDGES
    if each.provenance == "envelope" and replace(each, **change) != each
]


@pytest.mark.parametrize(("id", "change"), ALTERED)
def test_an_altered_edge_is_found(id: str, change: dict[str, Any]) -> None:
    graph = graph_of(EFFECTIVE)
    edges = tuple(replace(each, **change) if each.id == id else each for each in graph.edges)
    assert breaches(rebuilt(replace(graph, edges=edges)))


REGIONS: list[dict[str, Any]] = [
    {"window": "editable"},
    {"stable": False},
    {"verbs": {}},
    {"verbs": {"withdraw": "sys:state:draft", "hurry": "sys:gate:approve"}},
    {"guards": {"withdraw": "anybody"}},
    {"conditions": {"withdraw": "entity.total > 1"}},
    {"amendment": "sys:gate:approve"},
    {"amendment": None},
    {"nodes": ()},
]


@pytest.mark.parametrize("change", REGIONS)
@pytest.mark.parametrize("id", ["sys:state:submitted", "slot:review"])
def test_an_altered_region_is_found(id: str, change: dict[str, Any]) -> None:
    altered = replace(EFFECTIVE.regions[id], **change)
    assert breaches(replace(EFFECTIVE, regions={**EFFECTIVE.regions, id: altered}))


def test_a_region_of_ones_own_is_found() -> None:
    own = Region(id="slot:mine", nodes=(), verbs={"hurry": "sys:gate:approve"})
    assert breaches(replace(EFFECTIVE, regions={**EFFECTIVE.regions, own.id: own}))


@pytest.mark.parametrize("change", [{"window": "editable"}, {"stable": False}, {"approvals": 0}, {"rejected": None}])
def test_a_slot_that_is_described_otherwise_is_found(change: dict[str, Any]) -> None:
    envelope = EFFECTIVE.config["envelope"]
    slots = {**envelope["slots"], "review": {**envelope["slots"]["review"], **change}}
    config = {**EFFECTIVE.config, "envelope": {**envelope, "slots": slots}}
    assert breaches(replace(EFFECTIVE, config=config))


@pytest.mark.parametrize(
    "change",
    [
        {"integrity": None},
        {"integrity": {"required": [], "present": [], "valid": True}},
        {"filled": []},
        {"filled": ["review"]},
        {"filled": ["book", "nothing", "prepare", "review"]},
        {"windows": {"review": "locked"}},
        {"envelope": {}},
        {"mine": True},
    ],
)
def test_a_proof_that_does_not_fit_is_found(change: dict[str, Any]) -> None:
    assert breaches(replace(EFFECTIVE, config={**EFFECTIVE.config, **change}))


@pytest.mark.parametrize("policy", [{"on_error": "fail"}, {"missing": "zero"}, {"on_timeout": "sys:gate:approve"}])
def test_the_rules_of_the_graph_are_part_of_the_envelope(policy: dict[str, Any]) -> None:
    assert breaches(replace(EFFECTIVE, policy=replace(EFFECTIVE.policy, **policy)))


def test_so_are_the_types_of_its_fields() -> None:
    assert breaches(replace(EFFECTIVE, variables={**EFFECTIVE.variables, "entity.total": "any"}))


def test_so_is_its_entry() -> None:
    assert breaches(replace(EFFECTIVE, entry="sys:gate:approve"))


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "condition", "roles": ()},
        {"kind": "task", "handler": "mine", "roles": ()},
        {"edit_window": "editable"},
        {"edit_window": None},
        {"stable": False},
        {"slot": "book"},
        {"slot": None},
        {"id": "usr:book:ann"},
        {"id": "ann"},
    ],
)
def test_a_step_that_breaks_its_slot_is_found(change: dict[str, Any]) -> None:
    """An approval that became something else leaves the gate without one that it demands."""
    old, graph = "usr:review:ann", graph_of(EFFECTIVE)
    new = change.get("id", old)
    edges = tuple(
        replace(
            each, source=new if each.source == old else each.source, target=new if each.target == old else each.target
        )
        for each in graph.edges
    )
    nodes = tuple(replace(node, **change) if node.id == old else node for node in graph.nodes)
    assert breaches(rebuilt(replace(graph, nodes=nodes, edges=edges)))


def test_a_way_past_the_approvals_is_found() -> None:
    graph = graph_of(EFFECTIVE)
    ends = {"source": "sys:slot:review:in", "target": "sys:slot:review:out"}
    past = Edge(id="usr:review:in>out", **ends, provenance="review", priority=-1)
    found = breaches(rebuilt(replace(graph, edges=(*graph.edges, past))))
    assert found == ["The gate 'sys:gate:approve' demands 2 approvals; a way to it has 0."]


# --- in order ---------------------------------------------------------------------------------------------------------


def test_a_reordered_envelope_is_found() -> None:
    order = list(EFFECTIVE.topological_order)
    first, second = order.index("sys:start"), order.index("sys:state:draft")
    order[first], order[second] = order[second], order[first]
    found = breaches(replace(EFFECTIVE, topological_order=tuple(order)))
    assert "'sys:state:draft' comes before 'sys:start' in its topological order." in found


def test_an_order_with_something_missing_is_found() -> None:
    assert breaches(replace(EFFECTIVE, topological_order=EFFECTIVE.topological_order[1:]))


@pytest.mark.parametrize("table", ["adjacency", "reverse_adjacency"])
def test_lookups_that_hide_an_edge_are_found(table: str) -> None:
    """The kernel reads the lookups and not the edges."""
    for node, edges in getattr(EFFECTIVE, table).items():
        if edges:
            hidden = {**getattr(EFFECTIVE, table), node: edges[1:]}
            assert breaches(replace(EFFECTIVE, **{table: hidden})), node


@pytest.mark.parametrize("change", [{"edit_windows": {}}, {"stable_nodes": ()}, {"slot_map": {}}])
def test_lookups_of_windows_and_slots_must_fit(change: dict[str, Any]) -> None:
    assert breaches(replace(EFFECTIVE, **change))


# --- outside of every split -------------------------------------------------------------------------------------------


def without_never(compiled: Compiled) -> Graph:
    graph = graph_of(compiled)
    return replace(graph, edges=tuple(each for each in graph.edges if each.on != NEVER))


def test_a_port_that_only_branches_reach_would_be_inside_of_their_split() -> None:
    """Both approvals reject to the port. Without its way from outside it belongs to the split by the rule of scopes.
    The gate behind it would run beside the other approval, once for each rejection.
    """
    effective = compile_effective(INVOICE, patch(BOTH))
    trapped = read_topology(without_never(effective))
    assert find_scopes(trapped).depth("sys:slot:review:rejected") == 1
    assert find_scopes(trapped).depth("sys:gate:reject") == 1
    assert effective.depth["sys:slot:review:rejected"] == effective.depth["sys:gate:reject"] == 0


def test_the_proof_finds_a_port_that_lost_its_way_from_outside() -> None:
    effective = compile_effective(INVOICE, patch(BOTH))
    found = breaches(rebuilt(without_never(effective)))
    assert "The node 'sys:gate:reject' of the envelope is inside of a split, or no way leads to it." in found


def test_a_depth_that_was_edited_is_found() -> None:
    deeper = {**EFFECTIVE.depth, "sys:gate:reject": 1}
    assert breaches(replace(EFFECTIVE, depth=deeper))
    shallower = {**EFFECTIVE.depth, "usr:review:ann": 0}
    assert breaches(replace(EFFECTIVE, depth=shallower))


def test_random_patches_keep_the_envelope_outside_of_every_split() -> None:
    splits = 0
    for seed in range(150):
        random = Random(seed)
        contract = random_contract(random)
        compiled = compile_effective(contract, random_patch(random, contract, filled=True, size=20), tables=TABLES)
        splits += len(compiled.splits)
        assert list(find_breaches(compiled)) == [], seed
        assert {compiled.depth[node] for node in compiled.nodes if node.startswith("sys:")} == {0}, seed
    assert splits > 100


def test_a_gate_inside_of_a_split_cannot_be_compiled() -> None:
    """An envelope of somebody's own, with a split before the gate."""
    graph = graph_of(compile_effective(INVOICE, patch(slot("a", "in>a a>out"))))
    fork = step("a", "split")
    nodes = tuple(replace(node, kind=fork.kind) if node.id == "usr:review:a" else node for node in graph.nodes)
    other = SlotPatch(edges=(edge("a>rejected"),)).edges[0]
    more = replace(graph.edges[0], id="usr:review:a>rejected", source="usr:review:a", target="sys:slot:review:rejected")
    assert other.target == "rejected"
    compiled = compile_graph(replace(graph, nodes=nodes, edges=(*graph.edges, replace(more, provenance="review"))))
    with pytest.raises(DefinitionError) as caught:
        require_integrity(compiled)
    assert caught.value.code == "ENVELOPE_BROKEN"
