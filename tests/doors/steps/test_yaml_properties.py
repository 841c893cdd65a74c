"""Whatever is written, the reader answers; whatever it takes, the kernel compiles."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st
from steps_yaml import EXAMPLES, FULL

from holdfast.doors.steps import steps_schema
from holdfast.doors.steps.load import load_steps, to_graph
from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph

VALIDATOR = jsonschema_rs.validator_for(steps_schema())
ORDER = (EXAMPLES / "order_approval.yaml").read_text()

TOKENS = st.sampled_from(
    ["workflows", "id", "type", ":", ": ", "- ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ",", "'", '"', "|",
     ">", "&a", "*a", "!", "!!str", "%", "#", "?", "~", "no", "1e9", "\t", "\ufeff", "\x00", "😀", "---", "...", "<<",
     "action", "\\", "@", "`", "0x", "\u2028", "\x85"]
)  # fmt: skip
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), TOKENS)
KEYS = st.sampled_from(
    ["id", "type", "name", "version", "steps", "transitions", "from", "to", "event", "condition", "guard", "timeout",
     "on_timeout", "form", "input", "output", "operation", "assignee", "role", "retry", "calls", "duration", "until",
     "capabilities", "metadata", "initial_step", "input_schema", "key", "nonsense", "self_approval", "$ref"]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        SCALARS, st.sampled_from(["ask", "over", "action", "terminal", "system", "72h", "python:x", "workflow.a"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=20,
)
STEP = st.dictionaries(KEYS, VALUES, max_size=5).flatmap(
    lambda rest: st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b", "c"]), "type": st.sampled_from(["action", "system", "wait", "terminal"])}
    ).map(lambda head: {**rest, **head})
)
LINE = st.fixed_dictionaries(
    {
        "from": st.sampled_from("abc"),
        "to": st.sampled_from("abc"),
        "event": st.sampled_from(["completed", "go", "error"]),
    },
    optional={"condition": VALUES, "guard": VALUES},
)


def read(text: str) -> None:
    """It answers, its places lie in the text, and what it calls sound is sound."""
    found = load_steps(text, name="f.yaml")
    lines = text.count("\n") + text.count("\r") + text.count("\x85") + text.count("\u2028") + text.count("\u2029") + 2
    for problem in found.problems:
        assert problem.code
        assert problem.message
        assert 1 <= problem.line <= lines
        assert problem.column >= 1
    for workflow in found.workflows:
        compile_graph(to_graph(workflow))


@settings(deadline=None, max_examples=60)
@given(st.lists(TOKENS, max_size=40).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, len(ORDER)), st.integers(0, 5), TOKENS)
def test_any_slip_of_the_keyboard_is_read_or_refused(at: int, gone: int, put: str) -> None:
    read(ORDER[:at] + put + ORDER[at + gone :])


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_any_values_are_read_or_refused(value: Any) -> None:
    read(json.dumps({"workflows": value}))


@settings(deadline=None, max_examples=60)
@given(st.lists(STEP, min_size=1, max_size=4), st.lists(LINE, max_size=6), st.dictionaries(KEYS, VALUES, max_size=3))
def test_anything_like_a_workflow_is_read_or_refused(steps: Any, lines: Any, rest: Any) -> None:
    read(json.dumps({"workflows": [{**rest, "id": "w", "steps": steps, "transitions": lines}]}))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_part_may_be_exchanged(data: st.DataObject) -> None:
    document: Any = json.loads(json.dumps(FULL))
    place = document["workflows"][0]
    for _ in range(data.draw(st.integers(0, 3))):
        inner = [
            item for item in (place.values() if isinstance(place, dict) else place) if isinstance(item, dict | list)
        ]
        inner = [item for item in inner if item]
        if not inner:
            break
        place = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(VALUES)
    read(json.dumps(document))


# --- sound files ----------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)
SPANS = st.sampled_from(["5s", "72h", "1d12h", "P3D", "PT15M"])
CONDITIONS = st.sampled_from(["input.a == 1", "workflow.b != null", "!context.c", "workflow.n > 5 && input.m <= 3"])
MAPPINGS = st.dictionaries(
    NAMES, st.sampled_from(["workflow.a", "context.tenant_id", "input.b", 5, True, None]), max_size=3
)
OUTPUTS = st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["response.a", "response", "now"]), max_size=2)
CALL = st.fixed_dictionaries(
    {"operation": st.sampled_from(["python:a", "openapi:b.c"])},
    optional={
        "input": MAPPINGS,
        "output": OUTPUTS,
        "retry": st.fixed_dictionaries({"calls": st.integers(1, 9)}, optional={"delay": SPANS}),
        "call_timeout": SPANS,
    },
)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "form": st.just({"type": "object"}),
        "capabilities": st.lists(NAMES, max_size=2, unique=True),
        "assignee": st.one_of(st.fixed_dictionaries({k: NAMES}) for k in ("user", "role")),
        "name": NAMES,
    },
)
KINDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "action": st.builds(lambda asked, call: {**asked, **call}, ASKED, st.one_of(st.just({}), CALL)),
    "system": CALL,
    "wait": st.one_of(
        st.fixed_dictionaries({"duration": SPANS}),
        st.fixed_dictionaries({"until": st.sampled_from(["workflow.when", "2026-12-24T18:00:00Z"])}),
        st.fixed_dictionaries({"event": st.just("paid")}, optional={"key": st.just("workflow.k")}),
    ),
}
KINDS |= {"approval": KINDS["action"], "notification": KINDS["system"]}


@st.composite
def workflows(draw: st.DrawFn) -> dict[str, Any]:
    """A row of steps that ends in a terminal; people may also send things back or end them early."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6))
    steps: list[dict[str, Any]] = [{"id": f"s{n}", "type": kind, **draw(KINDS[kind])} for n, kind in enumerate(kinds)]
    lines: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        following = f"s{number + 1}" if number + 1 < len(steps) else "over"
        line = {"from": step["id"], "to": following, "event": "completed"}
        if draw(st.booleans()):
            lines.append({**line, "condition": draw(CONDITIONS)})
        lines.append(line)
        if step["type"] in ("action", "approval"):
            back = draw(st.sampled_from([f"s{n}" for n in range(number + 1)] + ["over"]))
            lines.append({"from": step["id"], "to": back, "event": "sent", "guard": draw(NAMES)})
        if step["type"] == "system" and draw(st.booleans()):
            lines.append({"from": step["id"], "to": "over", "event": "error"})
        if step["type"] != "wait" and draw(st.booleans()):
            step |= {"timeout": draw(SPANS), "on_timeout": "over"}
    flow: dict[str, Any] = {"id": "w", "steps": [*steps, {"id": "over", "type": "terminal"}], "transitions": lines}
    return {**flow, **draw(st.fixed_dictionaries({}, optional={"name": NAMES, "version": st.integers(1, 99)}))}


@settings(deadline=None, max_examples=30)
@given(st.lists(workflows(), min_size=1, max_size=2))
def test_sound_files_compile_and_fit_the_schema(found: list[dict[str, Any]]) -> None:
    document = {"workflows": [{**flow, "id": f"w{n}"} for n, flow in enumerate(found)]}
    assert VALIDATOR.is_valid(document), [error.message for error in VALIDATOR.iter_errors(document)]
    for workflow in load_steps(json.dumps(document, indent=1)).require_sound():
        graph = to_graph(workflow)
        compile_graph(graph)
        assert [found for found in check(graph) if found.severity == "error"] == []
        # Alone, or among the others of its file where its lines cannot be moved.
        [again] = [one for one in load_steps(workflow.text).require_sound() if one.id == workflow.id]
        assert to_graph(again) == graph
