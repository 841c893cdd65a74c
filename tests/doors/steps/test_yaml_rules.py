"""Everything that is wrong with a file is said at once, each with its place, its code and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from steps_yaml import call, codes, document, problems, sound, step, workflow

from holdfast.doors.steps.load import load_steps, repeated
from holdfast.errors import DefinitionError

HEAD = "workflows:\n  - id: w\n"
ENDS = """\
      - {id: over, type: terminal}
    transitions:
      - {from: ask, to: over, event: sent}
"""
ASK = f"{HEAD}    steps:\n      - {{id: ask, type: action}}\n{ENDS}"


def with_step(line: str) -> str:
    """A sound file but for its fourth line."""
    return f"{HEAD}    steps:\n      - {{id: ask, type: {line}}}\n{ENDS}"


def with_key(line: str) -> str:
    """A sound file but for its third line."""
    return ASK.replace("    steps:", f"    {line}\n    steps:", 1)


def with_transition(line: str) -> str:
    """A sound file but for its last line, the seventh."""
    return f"{ASK}      - {{{line}}}\n"


def test_the_smallest_workflow_is_sound() -> None:
    found = sound(ASK)
    assert (found.id, found.version, found.entry, found.file) == ("w", 1, "ask", "f.yaml")
    assert [(s.id, s.type) for s in found.steps] == [("ask", "action"), ("over", "terminal")]


@pytest.mark.parametrize(
    ("text", "line", "column", "code"),
    [
        (with_key("version: 0"), 3, 14, "STEPS_VALUE_INVALID"),
        (with_key("version: -1"), 3, 14, "STEPS_VALUE_INVALID"),
        (with_key("version: 1.5"), 3, 14, "STEPS_TYPE_WRONG"),
        (with_key("version: '1'"), 3, 14, "STEPS_TYPE_WRONG"),
        (with_key("version: true"), 3, 14, "STEPS_TYPE_WRONG"),
        (with_key("version: 2147483648"), 3, 14, "STEPS_VALUE_INVALID"),
        (with_key("verison: 1"), 3, 5, "STEPS_KEY_UNKNOWN"),
        (with_key("name: [a]"), 3, 11, "STEPS_TYPE_WRONG"),
        (with_key("name: ''"), 3, 11, "STEPS_VALUE_INVALID"),
        (with_key('name: "a\\nb"'), 3, 11, "STEPS_VALUE_INVALID"),
        (with_key(f"name: {'x' * 201}"), 3, 11, "STEPS_VALUE_INVALID"),
        (with_key("name:"), 3, 5, "STEPS_TYPE_WRONG"),
        (with_key("timeout: 72"), 3, 14, "STEPS_DURATION_INVALID"),
        (with_key("timeout: 72x"), 3, 14, "STEPS_DURATION_INVALID"),
        (with_key("timeout: 0s"), 3, 14, "STEPS_DURATION_INVALID"),
        (with_key("timeout: [1h]"), 3, 14, "STEPS_TYPE_WRONG"),
        (with_key("capabilities: a"), 3, 19, "STEPS_TYPE_WRONG"),
        (with_key("capabilities: [a, 5]"), 3, 23, "STEPS_TYPE_WRONG"),
        (with_key("capabilities: [a, a]"), 3, 23, "STEPS_VALUE_INVALID"),
        (with_key("initial_step: aks"), 3, 19, "STEPS_TARGET_UNKNOWN"),
        (with_key("on_timeout: over"), 3, 17, "STEPS_TIMEOUT_UNUSED"),
        (with_key("input_schema: []"), 3, 19, "STEPS_TYPE_WRONG"),
        (with_key("input_schema: {properties: {a: {type: txt}}}"), 3, 43, "STEPS_SCHEMA_INVALID"),
        (with_key("input_schema: {$ref: 'https://example.org/x.json'}"), 3, 19, "STEPS_SCHEMA_INVALID"),
        (with_key("input_schema: {pattern: '('}"), 3, 29, "STEPS_SCHEMA_INVALID"),
        (with_step("acton"), 4, 25, "STEPS_VALUE_INVALID"),
        (with_step("5"), 4, 25, "STEPS_TYPE_WRONG"),
        (with_step("action, operation: x"), 4, 44, "STEPS_OPERATION_INVALID"),
        (with_step("action, input: {a: workflow.b}"), 4, 33, "STEPS_KEY_MISPLACED"),
        (with_step("action, output: {a: response.b}"), 4, 33, "STEPS_KEY_MISPLACED"),
        (with_step("action, retry: {calls: 2}"), 4, 33, "STEPS_KEY_MISPLACED"),
        (with_step("action, call_timeout: 1s"), 4, 33, "STEPS_KEY_MISPLACED"),
        (with_step("action, call_on: [done]"), 4, 33, "STEPS_KEY_MISPLACED"),
        (with_step("action, operation: 'python:x', call_on: [dune]"), 4, 65, "STEPS_EVENT_UNEXPECTED"),
        (with_step("action, operation: 'python:x', call_on: []"), 4, 65, "STEPS_VALUE_INVALID"),
        (with_step("action, self_approval: true"), 4, 33, "STEPS_KEY_MISPLACED"),
        (with_step("approval, self_approval: 'yes'"), 4, 50, "STEPS_TYPE_WRONG"),
        (with_step("action, asignee: {user: x}"), 4, 33, "STEPS_KEY_UNKNOWN"),
        (with_step("action, assignee: bob"), 4, 43, "STEPS_TYPE_WRONG"),
        (with_step("action, assignee: {}"), 4, 43, "STEPS_ASSIGNEE_AMBIGUOUS"),
        (with_step("action, assignee: {user: a, role: b}"), 4, 43, "STEPS_ASSIGNEE_AMBIGUOUS"),
        (with_step("action, assignee: {expression: workflow.}"), 4, 64, "STEPS_EXPRESSION_INVALID"),
        (with_step("action, form: {type: objct}"), 4, 46, "STEPS_SCHEMA_INVALID"),
        (with_step("action, metadata: {name: x}"), 4, 50, "STEPS_NAME_RESERVED"),
        (with_step("action, on_timeout: over"), 4, 45, "STEPS_TIMEOUT_UNUSED"),
        (with_step("action, timeout: 1h"), 4, 42, "STEPS_TIMEOUT_WITHOUT_STEP"),
        (with_step("action, timeout: 1h, on_timeout: ovr"), 4, 58, "STEPS_TARGET_UNKNOWN"),
        (with_step("system"), 4, 9, "STEPS_KEY_MISSING"),
        (with_step("system, operation: x"), 4, 44, "STEPS_OPERATION_INVALID"),
        (with_step("system, operation: 'python:'"), 4, 44, "STEPS_OPERATION_INVALID"),
        (with_step("system, operation: 'python:x'"), 4, 9, "STEPS_TRANSITION_MISSING"),
        (with_step("system, operation: 'python:x'"), 7, 38, "STEPS_EVENT_UNEXPECTED"),
        (with_step("system, operation: 'python:x', input: {a: [1]}"), 4, 67, "STEPS_TYPE_WRONG"),
        (with_step("system, operation: 'python:x', input: {a: ''}"), 4, 67, "STEPS_VALUE_INVALID"),
        (with_step("system, operation: 'python:x', input: {a: workflow.b + 1}"), 4, 78, "STEPS_EXPRESSION_INVALID"),
        (with_step("system, operation: 'python:x', input: {a: response.b}"), 4, 67, "STEPS_EXPRESSION_INVALID"),
        (with_step("system, operation: 'python:x', input: {a: 'entity.b'}"), 4, 68, "STEPS_EXPRESSION_INVALID"),
        (with_step("system, operation: 'python:x', output: {_last_error: response.b}"), 4, 78, "STEPS_NAME_RESERVED"),
        (with_step("system, operation: 'python:x', output: {approved_by: response.b}"), 4, 78, "STEPS_NAME_RESERVED"),
        (with_step("system, operation: 'python:x', retry: {}"), 4, 63, "STEPS_KEY_MISSING"),
        (with_step("system, operation: 'python:x', retry: {calls: 3, jitter: 2}"), 4, 82, "STEPS_VALUE_INVALID"),
        (with_step("system, operation: 'python:x', retry: {calls: 3, backoff: exp}"), 4, 83, "STEPS_VALUE_INVALID"),
        (with_step("notification, operation: 'python:x'"), 4, 9, "STEPS_TRANSITION_MISSING"),
        (with_step("wait"), 4, 9, "STEPS_WAIT_AMBIGUOUS"),
        (with_step("wait, duration: 1h, event: x"), 4, 9, "STEPS_WAIT_AMBIGUOUS"),
        (with_step("wait, duration: 1h, timeout: 2h"), 4, 45, "STEPS_KEY_MISPLACED"),
        (with_step("wait, until: 'workflow.'"), 4, 47, "STEPS_EXPRESSION_INVALID"),
        (with_step("wait, event: completed"), 4, 38, "STEPS_NAME_RESERVED"),
        (with_step("wait, event: 'a b'"), 4, 38, "STEPS_VALUE_INVALID"),
        (with_step("terminal"), 7, 9, "STEPS_TERMINAL_LEFT"),
        (with_step("terminal, timeout: 1h"), 4, 35, "STEPS_KEY_MISPLACED"),
        (with_transition("from: ask, to: over"), 8, 9, "STEPS_KEY_MISSING"),
        (with_transition("from: ask, too: over, event: x"), 8, 21, "STEPS_KEY_UNKNOWN"),
        (with_transition("from: aks, to: over, event: x"), 8, 16, "STEPS_TARGET_UNKNOWN"),
        (with_transition("from: ask, to: ovre, event: x"), 8, 25, "STEPS_TARGET_UNKNOWN"),
        (with_transition("from: ask, to: over, event: error"), 8, 38, "STEPS_EVENT_UNEXPECTED"),
        (with_transition("from: ask, to: over, event: timeout"), 8, 38, "STEPS_TIMEOUT_UNUSED"),
        (with_transition("from: ask, to: over, event: x, condition: '1 >'"), 8, 56, "STEPS_EXPRESSION_INVALID"),
        (with_transition("from: ask, to: over, event: x, condition: input.a"), 8, 0, ""),
        (with_transition("from: ask, to: over, event: x, guard: ' '"), 8, 48, "STEPS_VALUE_INVALID"),
    ],
)
def test_each_mistake_is_found_at_its_place(text: str, line: int, column: int, code: str) -> None:
    found = problems(text)
    if code:
        assert (line, column, code) in found
    else:
        assert [each for each in found if each[2] != "STEPS_NO_DEFAULT"] == []


def test_all_mistakes_are_found_at_once() -> None:
    text = f"""\
workflows:
  - id: w
    version: x
    timeout: soon
    steps:
      - {{id: ask, type: action, form: {{type: 5}}}}
      - {{id: ask, type: action}}
      - {{id: lost, type: terminal, form: {{}}}}
      - {{type: terminal}}
{ENDS}      - {{from: ask, to: nowhere, event: x, condition: "a +"}}
  - id: v
    steps: 5
"""
    found = [code for _, _, code in problems(text)]
    assert found == [
        "STEPS_TYPE_WRONG",
        "STEPS_DURATION_INVALID",
        "STEPS_SCHEMA_INVALID",
        "STEPS_DUPLICATE",
        "STEPS_KEY_MISPLACED",
        "STEPS_KEY_MISSING",
        "STEPS_TARGET_UNKNOWN",
        "STEPS_EXPRESSION_INVALID",
        "STEPS_TYPE_WRONG",
    ]


def test_the_nearest_key_is_suggested() -> None:
    hints = {each.hint for each in load_steps(with_key("capabilites: [a]")).problems}
    assert hints == {"Did you mean capabilities?"}
    [target] = load_steps(with_transition("from: ask, to: ovre, event: x")).problems
    assert target.hint == "Did you mean over?"
    [far] = load_steps(with_key("zzz: 1")).problems
    assert far.hint.startswith("It takes id, name,")


@pytest.mark.parametrize(
    ("steps", "transitions", "code", "severity"),
    [
        ([call("a"), call("b"), step("z")], [("a", "completed", "b"), ("b", "completed", "a")], "STEPS_CYCLE", "error"),
        ([call("a"), step("z")], [("a", "completed", "a"), ("a", "error", "z")], "STEPS_CYCLE", "error"),
        (
            [call("a"), step("w", "wait", duration="0s"), step("z")],
            [("a", "completed", "w"), ("w", "completed", "a"), ("a", "error", "z")],
            "STEPS_CYCLE",
            "error",
        ),
        (
            [call("a"), call("b"), step("z")],
            [("a", "completed", "b"), ("b", "completed", "z", "workflow.done == true"), ("b", "completed", "a")],
            "STEPS_CYCLE",
            "warning",
        ),
        ([call("a"), call("b"), step("z")], [("a", "completed", "z"), ("a", "error", "b"), ("b", "completed", "a")],
            "STEPS_CYCLE", "warning"),
        ([step("a", "action"), step("y"), step("z")], [("a", "go", "y")], "STEPS_UNREACHABLE", "error"),
        ([step("a", "action"), step("b", "action")], [("a", "x", "b"), ("b", "x", "a")],
            "STEPS_WITHOUT_TERMINAL", "error"),
        ([step("a", "action"), step("z")], [("a", "x", "z"), ("a", "x", "z")], "STEPS_TRANSITION_SHADOWED", "error"),
        ([step("a", "action")], [], "STEPS_TRANSITION_MISSING", "error"),
        ([call("a"), step("z")], [("a", "completed", "z", "workflow.x == 1")], "STEPS_NO_DEFAULT", "error"),
        ([step("a", "action"), step("z")], [("a", "go", "z", "workflow.x == 1")], "STEPS_NO_DEFAULT", "warning"),
    ],
)  # fmt: skip
def test_ways_that_lead_astray(
    steps: list[dict[str, Any]], transitions: list[tuple[str, ...]], code: str, severity: str
) -> None:
    found = load_steps(document(workflow(steps, transitions)))
    assert (code, severity) in {(each.code, each.severity) for each in found.problems}
    assert bool(found.workflows) is (severity == "warning")


def test_a_cycle_that_waits_is_fine() -> None:
    steps = [call("a"), step("w", "wait", duration="1m"), step("z")]
    ways = [("a", "completed", "z"), ("a", "error", "w"), ("w", "completed", "a")]
    assert codes(document(workflow(steps, ways))) == []


def test_guards_are_for_events_that_somebody_sends() -> None:
    steps = [step("a", "action"), call("b"), step("w", "wait", event="paid"), step("z")]
    flow = workflow(steps, [("a", "go", "b"), ("b", "completed", "w"), ("w", "paid", "z")])
    for index, expected in ((0, []), (1, ["STEPS_GUARD_MISPLACED"]), (2, [])):
        lines = [{**line, **({"guard": "g"} if at == index else {})} for at, line in enumerate(flow["transitions"])]
        assert codes(document({**flow, "transitions": lines})) == expected


def test_a_notification_knows_no_error() -> None:
    tell = step("a", "notification", operation="python:tell")
    ways = [("a", "completed", "z"), ("a", "error", "z")]
    assert codes(document(workflow([tell, step("z")], ways))) == ["STEPS_EVENT_UNEXPECTED"]


def test_a_timeout_has_one_target() -> None:
    steps = [step("a", "action", timeout="1h", on_timeout="z"), step("z")]
    ways = [("a", "go", "z"), ("a", "timeout", "z")]
    assert codes(document(workflow(steps, ways))) == ["STEPS_TIMEOUT_AMBIGUOUS"]


def test_the_same_workflow_twice() -> None:
    one = workflow([step("a", "action"), step("z")], [("a", "go", "z")])
    assert codes(document(one, one)) == ["STEPS_DUPLICATE"]
    assert codes(document(one, {**one, "version": 2})) == []
    files = [load_steps(document(one), name=name).workflows[0] for name in ("a.yaml", "b.yaml")]
    [found] = repeated(files)
    assert (found.file, found.code) == ("b.yaml", "STEPS_DUPLICATE")
    assert "a.yaml:" in found.message


def test_sound_workflows_beside_broken_ones_are_kept() -> None:
    one = workflow([step("a", "action"), step("z")], [("a", "go", "z")])
    found = load_steps(document(one, {**one, "id": "broken", "timeout": 5}))
    assert [each.id for each in found.workflows] == ["w"]
    assert not found.is_sound
    with pytest.raises(DefinitionError) as refusal:
        found.require_sound()
    assert (refusal.value.code, refusal.value.diagnostics) == ("STEPS_DURATION_INVALID", found.problems)


def test_a_problem_reads_as_one_line() -> None:
    [found] = load_steps(with_key("verison: 1"), name="orders.yaml").problems
    assert str(found) == "orders.yaml:3:5: STEPS_KEY_UNKNOWN A workflow has no key 'verison'. (Did you mean version?)"


@pytest.mark.parametrize(
    ("written", "column"),
    [
        ("workflow.a >> 1", 53), ("'workflow.a >> 1'", 54), ('"workflow.a >> 1"', 54),
        ("'workflow.a  ==  ''x'' >> 1'", 41), ('"workflow.a\\t>> 1"', 41),
    ],
)  # fmt: skip
def test_the_column_is_that_of_the_expression_where_it_can_be_known(written: str, column: int) -> None:
    text = f"{ASK}      - {{from: ask, to: over, condition: {written}, event: x}}\n".replace("over, ", "over,")
    assert (8, column, "STEPS_EXPRESSION_INVALID") in problems(text)


def test_nobody_reads_more_than_a_thousand_problems() -> None:
    steps = [step("a", "action", **{f"k{n}": 1 for n in range(1200)}), step("z")]
    found = load_steps(document(workflow(steps, [("a", "go", "z")])))
    assert (len(found.problems), found.workflows) == (1000, ())
