"""Blueprint and policy become one graph in which everything is resolved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from machine_samples import blueprint, edited, policy, vendor

from holdfast.doors.machine import MachineDefinition
from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import dump_compiled, graph_of
from holdfast.graph.loading import load_compiled
from holdfast.graph.machine import Completion, Hook, MachineConfig, Param, Rule, StateConfig, StateTimeout
from holdfast.graph.model import Graph, Policy, dump_graph, load_graph


def states(graph: Graph) -> dict[str, StateConfig]:
    return {node.id: msgspec.convert(node.config, StateConfig) for node in graph.nodes}


def rules_of(state: str, *rules: dict[str, Any], **others: Any) -> dict[str, Rule]:
    machine = MachineDefinition.parse(blueprint(), policy(rules=list(rules), **others))
    return states(machine.lower())[state].rules


def test_states_are_nodes_and_transitions_edges() -> None:
    graph = MachineDefinition.parse(blueprint()).graph(7)
    assert (graph.name, graph.version, graph.kind, graph.entry) == ("test.order", 7, "machine", "New")
    assert [(node.id, node.kind) for node in graph.nodes] == [("Done", "terminal"), ("New", "state"), ("Open", "state")]
    assert [(edge.source, edge.on, edge.target) for edge in graph.edges] == [
        ("New", "Go", "Open"),
        ("Open", "Again", "Open"),
        ("Open", "End", "Done"),
    ]
    assert graph.policy == Policy(data="context", on_error="suspend", on_cancel="stop", early=False)
    assert check(graph) == ()


def test_the_graph_says_what_it_was_made_of() -> None:
    config = msgspec.convert(vendor().lower().config, MachineConfig)
    assert (config.environment, config.definition, config.blueprint) == ("prod", "vendorregistration", 1)
    assert config.codes["Overrun"] == 1010
    assert (config.policy_name, config.stale, len(config.policy or "")) == ("vendorregistration.policy", 604_800, 64)
    alone = msgspec.convert(MachineDefinition.parse(blueprint()).lower().config, MachineConfig)
    assert (alone.policy, alone.policy_name, alone.stale) == (None, None, None)


def test_it_survives_the_compiler_and_the_store() -> None:
    graph = vendor().graph(3)
    compiled = compile_graph(graph)
    stored = load_compiled(msgspec.json.encode(dump_compiled(compiled)), compiled.hash)
    assert stored.config == graph.config
    assert {node.id: node.config for node in graph_of(stored).nodes} == {node.id: node.config for node in graph.nodes}
    assert load_graph(dump_graph(graph)) == graph


def test_everything_in_a_rule_is_resolved() -> None:
    [(event, rule)] = states(vendor().lower())["CheckVendorRegistered"].rules.items()
    param = Param(code="PARAMS.REG.PQ.VALIDATE", data={"approval": {"levels": 2, "roles": ["procurement", "finance"]}})
    assert event == "Received"
    both = Completion(success="Validated", failure="Refused")
    assert rule == Rule(
        complete=both, hooks=(Hook(code="APP.REG.CHECK.VENDOR_REGISTERED", params=(param,), complete=both),)
    )


def test_the_options_of_hooks() -> None:
    hooks = states(vendor().lower())["PendingPQValidation"].rules["Validated"].hooks
    assert [(hook.type, hook.order, hook.ack, hook.deadline, hook.label, hook.holds) for hook in hooks] == [
        ("gate", 1, "all", None, "Fetch the prequalification", True),
        ("gate", 2, "any", None, None, True),
        ("effect", 2, "all", 3600, None, False),
    ]
    [remind] = states(vendor().lower())["AwaitingApproval"].rules["Reminded"].hooks
    assert (remind.code, remind.not_before, remind.holds) == ("APP.REG.APPROVAL.REMIND", 300, False)


def test_the_last_rule_for_state_and_event_wins() -> None:
    first, last = {"state": "Open", "via": 1, "params": ["A"]}, {"state": "Open", "via": "Go", "params": ["B"]}
    plain = {"state": "Open", "params": ["C"]}
    catalogue = [{"code": code, "data": code} for code in "ABC"]
    found = rules_of("Open", first, last, plain, params=catalogue)
    assert {event: rule.params[0].code for event, rule in found.items()} == {"Again": "C", "Go": "B"}


def test_else_the_last_rule_without_an_event_wins() -> None:
    catalogue = [{"code": code} for code in "AB"]
    found = rules_of("Open", {"state": "Open", "params": ["A"]}, {"state": "Open", "params": ["B"]}, params=catalogue)
    assert {event: rule.params[0].code for event, rule in found.items()} == {"Again": "B", "Go": "B"}


def test_only_the_rule_that_wins_emits() -> None:
    found = rules_of(
        "Open", {"state": "Open", "emit": [{"event": "ALL"}]}, {"state": "Open", "via": 3, "emit": [{"event": "ONE"}]}
    )
    assert {event: [hook.code for hook in rule.hooks] for event, rule in found.items()} == {
        "Go": ["ALL"],
        "Again": ["ONE"],
    }


def test_the_completion_of_a_rule_is_not_that_of_its_hooks() -> None:
    rule = rules_of("Open", {"state": "Open", "complete": {"success": 2, "failure": 3}, "emit": [{"event": "CALL"}]})[
        "Go"
    ]
    assert (rule.complete, rule.hooks[0].complete) == (Completion(success="End", failure="Again"), None)


def test_an_event_without_a_rule_has_no_entry() -> None:
    assert set(rules_of("Open", {"state": "Open", "via": 3})) == {"Again"}
    assert rules_of("New", {"state": "Open"}) == {}


def test_a_final_state_has_rules_as_well() -> None:
    assert rules_of("Done", {"state": "Done", "emit": [{"event": "TELL"}]})["End"].hooks[0].code == "TELL"


@pytest.mark.parametrize(
    ("written", "timeout"),
    [
        ({"timeout": "P2D", "timeout_event": 2}, StateTimeout(after=172_800, event="End")),
        ({"timeout_minutes": 60, "timeout_mode": "repeat"}, StateTimeout(after=3600, mode="repeat")),
        ({"timeout": "PT30M", "timeout_mode": 1}, StateTimeout(after=1800, mode="repeat")),
        (
            {"timeout": "P1DT12H", "timeout_mode": 0, "timeout_event": "Again"},
            StateTimeout(after=129_600, event="Again"),
        ),
    ],
)
def test_timeouts(written: dict[str, Any], timeout: StateTimeout) -> None:
    machine = MachineDefinition.parse(blueprint(), policy(timeouts=[{"state": "Open", **written}]))
    assert states(machine.lower())["Open"].timeout == timeout


@pytest.mark.parametrize("written", [{"stale": "PT1H"}, {"stale": 60}, {"stale_minutes": 60}])
def test_staleness(written: dict[str, Any]) -> None:
    machine = MachineDefinition.parse(blueprint(), policy(**written))
    assert msgspec.convert(machine.lower().config, MachineConfig).stale == 3600


def test_conditions_are_tried_in_their_order_and_the_default_last() -> None:
    plan = blueprint()
    plan["transitions"] += [
        {"from": "Open", "event": "End", "to": "New", "when": "input.n > 2"},
        {"from": "Open", "event": "End", "to": "New", "when": "input.n > 1", "guard": "boss"},
    ]
    graph = MachineDefinition.parse(plan).lower()
    edges = sorted((edge for edge in graph.edges if edge.on == "End"), key=lambda edge: edge.priority)
    assert [(edge.when, edge.guard, edge.target) for edge in edges] == [
        ("input.n > 2", None, "New"),
        ("input.n > 1", "boss", "New"),
        (None, None, "Done"),
    ]
    assert len({edge.id for edge in graph.edges}) == len(graph.edges)
    assert check(graph) == ()


@pytest.mark.parametrize("condition", ["input.n > 1", "context.n > 1", "'boss' in actor.roles", "now > '2026-01-01'"])
def test_conditions_read_the_payload_the_context_the_actor_and_the_time(condition: str) -> None:
    plan = edited(blueprint(), (("transitions", 1, "when"), condition))
    compile_graph(MachineDefinition.parse(plan).lower())


def test_long_names_and_names_that_look_alike_get_edges_of_their_own() -> None:
    a, b = "a" * 100, "b" * 100
    plan = blueprint(
        states=[{"name": name, "is_initial": name == "x"} for name in ("x", "x:e>y", a, b)],
        events=[{"code": 1, "name": "e"}, {"code": 2, "name": "y:e>x"}, {"code": 3, "name": "e" * 100}],
        transitions=[
            {"from": "x", "event": "e", "to": "x:e>y"},
            {"from": "x:e>y", "event": "e", "to": "x"},
            {"from": "x", "event": "y:e>x", "to": a},
            {"from": a, "event": 3, "to": b},
            {"from": b, "event": 3, "to": a},
        ],
    )
    graph = MachineDefinition.parse(plan).lower()
    assert len({edge.id for edge in graph.edges}) == 5
    compile_graph(graph)


def test_a_machine_without_an_end_compiles() -> None:
    plan = blueprint(
        states=[{"name": "On", "is_initial": True}, {"name": "Off"}],
        transitions=[{"from": "On", "event": 1, "to": "Off"}, {"from": "Off", "event": 1, "to": "On"}],
    )
    machine = MachineDefinition.parse(plan)
    assert [found.code for found in machine.warnings] == ["CIRCULAR_ONLY"]
    assert compile_graph(machine.lower()).entry == "On"


def test_graphs_of_other_kinds_still_need_an_end() -> None:
    graph = MachineDefinition.parse(blueprint()).lower()
    circle = msgspec.structs.replace(
        graph,
        nodes=tuple(node for node in graph.nodes if node.id != "Done"),
        edges=tuple(edge for edge in graph.edges if edge.target != "Done"),
    )
    assert check(circle) == ()
    assert {found.code for found in check(msgspec.structs.replace(circle, kind="saga"))} == {"NO_END"}
