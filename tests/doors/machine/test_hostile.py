"""No document makes the reader raise anything but its own error, with a place."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_samples import blueprint, documents, edited, policy

from holdfast.doors.machine import MachineDefinition
from holdfast.doors.machine.definition import read_machine, read_policy
from holdfast.doors.machine.places import offsets, spelled
from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
WRONG: list[Any] = [None, True, 0, -1, 1.5, 2**40, "", " ", "x", [], [[]], [None], {}, {"a": 1}, {"success": []}]


def complaint(plan: Any, rules: Any = None) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        MachineDefinition.parse(plan, rules)
    assert caught.value.diagnostics
    assert all(each.place and each.hint and each.code for each in caught.value.diagnostics)
    return caught.value


def reads(plan: Any, rules: Any = None) -> None:
    """Sound or not, it says so."""
    found = read_machine(plan, rules)
    assert all(each.place and each.code for each in found.problems)
    if not any(each.severity == "error" for each in found.problems):
        compile_graph(MachineDefinition.parse(plan, rules).graph())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "PAYLOAD_NOT_JSON"),
        ("{", "PAYLOAD_NOT_JSON"),
        (b"\xff\xfe{}", "PAYLOAD_NOT_JSON"),
        ('{"a": NaN}', "PAYLOAD_NOT_FINITE"),
        ('{"a": Infinity}', "PAYLOAD_NOT_FINITE"),
        ('{"a": 1, "a": 2}', "PAYLOAD_DUPLICATE_KEY"),
        ('{"a": "\\u0000"}', "PAYLOAD_NUL"),
        ('{"a": "\\ud800"}', "PAYLOAD_SURROGATE"),
        ("[" * 100_000, "PAYLOAD_TOO_DEEP"),
        ("[" * 70 + "]" * 70, "PAYLOAD_TOO_DEEP"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "PAYLOAD_TOO_DEEP"),
        ('{"a": 99999999999999999999999}', "PAYLOAD_INTEGER"),
        ("[]", "MACHINE_TYPE_WRONG"),
        ("null", "MACHINE_TYPE_WRONG"),
        ('"text"', "MACHINE_TYPE_WRONG"),
        ("1", "MACHINE_TYPE_WRONG"),
    ],
)
def test_text_that_is_no_blueprint(text: str | bytes, code: str) -> None:
    assert complaint(text).code == code
    assert complaint(blueprint(), text).code == code


@pytest.mark.parametrize("data", [{"a": float("nan")}, {"a": {1: 2}}, {"a": object()}, {"a": b"x"}, {"a": "\ud800"}])
def test_data_that_is_no_json(data: Any) -> None:
    assert complaint(data).code.startswith("PAYLOAD_")


@given(ANYTHING)
def test_any_json_is_refused_in_order(value: Any) -> None:
    complaint(json.dumps(value))
    read_policy(json.dumps(value))
    if isinstance(value, dict):
        complaint(value)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_type_at_any_place(wrong: Any) -> None:
    plan, rules = documents()
    for path in places(plan)[1::2]:
        reads(edited(plan, (path, wrong)), rules)
    for path in places(rules)[1:]:
        reads(plan, edited(rules, (path, wrong)))


@settings(max_examples=50)
@given(st.data())
def test_anything_at_any_place(data: st.DataObject) -> None:
    plan, rules = documents()
    value = data.draw(ANYTHING)
    reads(edited(plan, (data.draw(st.sampled_from(places(plan)[1:])), value)), rules)
    reads(plan, edited(rules, (data.draw(st.sampled_from(places(rules)[1:])), value)))


def test_a_parameter_may_not_be_too_deep_for_the_graph() -> None:
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    found = complaint(blueprint(), policy(params=[{"code": "P", "data": deep}]))
    assert [(each.code, each.place) for each in found.diagnostics] == [("MACHINE_VALUE_INVALID", "params[0].data")]


def test_the_largest_machine_is_read_in_seconds() -> None:
    states = [{"name": f"s{n}", "is_initial": n == 0} for n in range(500)]
    events = [{"code": n, "name": f"e{n}"} for n in range(1000)]
    transitions = [{"from": f"s{n % 500}", "event": n % 997, "to": f"s{(n * 7 + 1) % 500}"} for n in range(5000)]
    rules = policy(
        rules=[{"state": f"s{n % 500}", "via": n % 1000, "emit": [{"event": "X"}]} for n in range(2000)],
        timeouts=[{"state": f"s{n}", "timeout": "P1D"} for n in range(500)],
    )
    began = time.perf_counter()
    reads(blueprint(states=states, events=events, transitions=transitions), rules)
    reads(blueprint(states=states, events=events, transitions=[{"from": "x", "event": "y", "to": "z"}] * 5000), rules)
    assert time.perf_counter() - began < 20


@given(
    st.recursive(
        st.none() | st.integers(0, 9) | st.text(max_size=4),
        lambda i: st.lists(i) | st.dictionaries(st.text(max_size=4), i),
    )
)
def test_offsets_find_every_value(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        found = offsets(text)
        for path in places(value):
            item = value
            for part in path:
                item = item[part]
            assert json.JSONDecoder().raw_decode(text, found[path])[0] == item


def test_places_are_spelled() -> None:
    assert [spelled(path) for path in [(), ("a",), ("a", 2, "b c"), ("$x", "é")]] == [
        "$",
        "a",
        "a[2]['b c']",
        "$x['\\xe9']",
    ]
