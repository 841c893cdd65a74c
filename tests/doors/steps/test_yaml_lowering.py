"""What each step of a file becomes: one node, one edge per transition, and a graph that compiles."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from steps_yaml import EXAMPLES, FULL, call, document, sound, step, workflow

from holdfast.doors.steps.load import load_steps, to_graph
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Node, Policy, Retry, Wait

ORDER = sound((EXAMPLES / "order_approval.yaml").read_text())


def nodes(text: str) -> dict[str, Node]:
    return {node.id: node for node in to_graph(sound(text)).nodes}


def with_step(**fields: Any) -> Node:
    """The node of a step that leads to an end on whatever it knows."""
    event = fields.get("event") or ("completed" if fields["type"] in ("system", "notification", "wait") else "sent")
    flow = workflow([step("it", **fields), step("z")], [("it", event, "z")], name="The flow")
    return nodes(document(flow))["it"]


def test_the_policy_is_that_of_steps() -> None:
    graph = to_graph(ORDER)
    assert (graph.name, graph.version, graph.kind, graph.entry) == ("orders.approval", 1, "steps", "review")
    assert graph.policy == Policy(
        on_error="suspend",
        on_cancel="stop",
        data="context",
        missing="null",
        chain_limit=10,
        timeout=259_200.0,
        on_timeout="expired",
        keeps_error=True,
        capabilities=("orders:approve:execute",),
    )


def test_the_entry_says_what_is_known_of_the_workflow() -> None:
    review = nodes(ORDER.text)["review"].metadata
    assert review["workflow"] == {"name": "Order approval"}
    assert review["input_schema"]["required"] == ["order_id", "customer_email"]
    assert (review["name"], review["type"]) == ("Review the order", "approval")
    assert nodes(ORDER.text)["process"].metadata == {"name": "Confirm the order at the shop", "type": "system"}


def test_the_first_step_is_the_entry_unless_another_is_named() -> None:
    flow = workflow([step("a", "action"), step("b", "action"), step("z")], [("a", "go", "z"), ("b", "go", "a")])
    assert to_graph(sound(document({**flow, "initial_step": "b"}))).entry == "b"
    unreached = [*flow["transitions"], {"from": "a", "event": "back", "to": "b"}]
    assert to_graph(sound(document({**flow, "transitions": unreached}))).entry == "a"


def test_an_action() -> None:
    node = with_step(type="action", form={"type": "object"}, capabilities=["a", "b"], metadata={"x": 1})
    assert (node.kind, node.form, node.capabilities, node.self_approval) == (
        "human",
        {"type": "object"},
        ("a", "b"),
        True,
    )
    assert node.metadata["x"] == 1


@pytest.mark.parametrize(("written", "allowed"), [({}, False), ({"self_approval": True}, True)])
def test_an_approval(written: dict[str, Any], allowed: bool) -> None:
    node = with_step(type="approval", **written)
    assert (node.kind, node.self_approval) == ("approval", allowed)


@pytest.mark.parametrize(
    ("assignee", "roles", "expression"),
    [
        ({"role": "approver"}, ("approver",), None),
        ({"expression": "workflow.manager"}, (), "workflow.manager"),
        ({"user": "o'neil\\x"}, (), "'o\\'neil\\\\x'"),
    ],
)
def test_an_assignee(assignee: dict[str, str], roles: tuple[str, ...], expression: str | None) -> None:
    node = with_step(type="action", assignee=assignee)
    assert (node.roles, node.assignee) == (roles, expression)


@pytest.mark.parametrize(
    ("operation", "handler"),
    [
        ("python:charge", "charge"),
        ("openapi:shop.createOrder", "openapi:shop.createOrder"),
        ("grpc:a/b", "grpc:a/b"),
    ],
)
def test_a_system_step(operation: str, handler: str) -> None:
    node = with_step(
        type="system",
        operation=operation,
        input={"a": "workflow.a", "n": 5, "t": True, "z": None},
        output={"b": "response.b"},
        retry={"calls": 3, "delay": "2s", "backoff": "linear"},
        call_timeout="30s",
    )
    assert (node.kind, node.handler, node.best_effort, node.timeout) == ("task", handler, False, 30.0)
    assert node.input == {"a": "workflow.a", "n": "5", "t": "true", "z": "null"}
    assert node.output == {"b": "response.b"}
    assert node.retry == Retry(calls=3, delay=2.0, backoff="linear")


def test_a_call_is_made_once_unless_more_are_said() -> None:
    assert with_step(type="system", operation="python:x").retry is None
    assert with_step(type="system", operation="python:x", retry={"calls": 1}).retry is None


def test_a_notification_is_best_effort() -> None:
    node = with_step(type="notification", operation="python:tell")
    assert (node.kind, node.handler, node.best_effort) == ("task", "tell", True)


def test_waits() -> None:
    assert with_step(type="wait", duration="P2D").delay == 172_800.0
    assert with_step(type="wait", until="workflow.due").until == "workflow.due"
    assert with_step(type="wait", until="2026-12-24T18:00:00Z").until == "'2026-12-24T18:00:00Z'"
    node = with_step(type="wait", event="paid", key="workflow.order", capabilities=["send"])
    assert (node.kind, node.wait, node.capabilities) == (
        "wait_event",
        Wait(event="paid", key="workflow.order"),
        ("send",),
    )


def test_transitions_are_tried_in_the_order_they_were_written() -> None:
    steps = [step("a", "action"), step("x"), step("y")]
    ways = [("a", "go", "x", "input.n > 1"), ("a", "go", "y"), ("a", "stop", "y"), ("a", "stop", "y", "true")]
    flow = workflow(steps, ways)
    flow["transitions"][2]["guard"] = "g"
    edges = to_graph(sound(document(flow))).edges
    assert [(e.id, e.on, e.when, e.guard, e.priority) for e in edges] == [
        ("a:go>x", "go", "input.n > 1", None, 0),
        ("a:go>y", "go", None, None, 1),
        ("a:stop>y", "stop", None, "g", 2),
        ("edge#4", "stop", "true", None, 3),
    ]


@pytest.mark.parametrize(
    ("own", "flow", "target"),
    [
        ({"timeout": "1h", "on_timeout": "x"}, {"timeout": "2h", "on_timeout": "y"}, "x"),
        ({"timeout": "1h"}, {"timeout": "2h", "on_timeout": "y"}, "y"),
        ({"timeout": "1h"}, {"on_timeout": "y"}, "y"),
        ({"on_timeout": "x"}, {"timeout": "2h", "on_timeout": "y"}, "x"),
        ({}, {"timeout": "2h", "on_timeout": "y"}, None),
        ({"timeout": "1h"}, {}, None),
    ],
)
def test_a_timeout_leads_to_its_own_step_or_to_that_of_the_workflow(
    own: dict[str, Any], flow: dict[str, Any], target: str | None
) -> None:
    """What the workflow as a whole does when its time is up stands in the policy."""
    steps = [step("a", "action", **own), call("c"), step("x"), step("y")]
    ways = [("a", "go", "c"), ("c", "completed", "x"), ("c", "error", "y")]
    graph = to_graph(sound(document(workflow(steps, ways, **flow))))
    assert next((e.target for e in graph.edges if e.on == "timeout"), None) == target
    assert graph.nodes[0].deadline == (3600.0 if "timeout" in own else None)
    assert graph.policy.on_timeout == flow.get("on_timeout")
    compile_graph(graph)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_compile(file: Any) -> None:
    found = load_steps(file.read_text(), name=file.name)
    assert found.problems == ()
    for each in found.workflows:
        compile_graph(to_graph(each))


def test_the_example_of_the_documentation_compiles() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "steps.md").read_text()
    block = page.split("```yaml\n")[1].split("```")[0]
    compile_graph(to_graph(sound(block)))
    assert load_steps(block).problems == ()


def test_everything_at_once_compiles() -> None:
    compile_graph(to_graph(sound(json.dumps(FULL))))


# --- the text that is kept ------------------------------------------------------------------------------------------

TWO = """\
# both
workflows:

  # the first
  - id: one   # here
    steps:
      - id: ask
        type: action
        description: |
          Several lines,

            indented.
      # its end
      - {id: over, type: terminal}
    transitions: [{from: ask, to: over, event: sent}]

  # the second
  - {id: two, steps: [{id: ask, type: action}, {id: over, type: terminal}],
     transitions: [{from: ask, to: over, event: sent}]}
"""


def test_each_workflow_keeps_its_own_text_with_comments() -> None:
    first, second = load_steps(TWO).require_sound()
    assert first.text.startswith("workflows:\n  - id: one   # here\n    steps:\n")
    assert "# its end" in first.text
    assert "second" not in first.text
    for each in (first, second):
        assert to_graph(sound(each.text)) == to_graph(each)
    assert first.steps[0].description == "Several lines,\n\n  indented.\n"


def test_gaps_that_count_are_kept() -> None:
    first, second = load_steps(TWO.replace("description: |", "description: |+")).require_sound()
    assert (first.text, second.text.count("id: two")) == (TWO.replace("description: |", "description: |+"), 1)


def test_other_line_ends_read_the_same() -> None:
    first, second = load_steps(TWO.replace("\n", "\r\n")).require_sound()
    assert [to_graph(each) for each in (first, second)] == [to_graph(each) for each in load_steps(TWO).workflows]
    assert to_graph(sound(first.text)) == to_graph(first)


def test_a_text_with_anchors_is_kept_whole() -> None:
    text = (
        "workflows:\n- id: one\n  steps: &s [{id: ask, type: action}, {id: over, type: terminal}]\n"
        "  transitions: &t [{from: ask, to: over, event: sent}]\n- {id: two, steps: *s, transitions: *t}\n"
    )
    for each in load_steps(text).require_sound():
        assert each.text == text
    assert msgspec.json.decode(msgspec.json.encode(ORDER.source)) == {
        "kind": "steps",
        "name": "orders.approval",
        "version": 1,
        "yaml": ORDER.text,
    }
