"""The hash is that of the content that matters, however it was written."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_samples import Edit, blueprint, documents, edited, policy, vendor

from holdfast.doors.machine import MachineDefinition
from holdfast.graph.compile import compile_graph

RULES = policy(
    policy_name="p",
    params=[{"code": "P", "data": {"a": 1, "b": 2}}],
    rules=[{"state": "Open", "params": ["P"], "emit": [{"event": "CALL", "order": 1}]}],
    timeouts=[{"state": "Open", "timeout": "P1D", "timeout_event": 2}],
)


def hashed(plan: Any, rules: Any = None) -> str:
    return MachineDefinition.parse(plan, rules).hash


def test_it_is_golden() -> None:
    assert vendor().hash == GOLDEN
    assert MachineDefinition.parse(*(json.dumps(each, indent=3) for each in documents())).hash == GOLDEN


GOLDEN = "fad7b3870937fb6c272cf009b55d3cc2849721b66e8ef9f080a6f5c7595caf86"


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_lists_and_keys_has_no_meaning(seed: int) -> None:
    chance = random.Random(seed)
    plan, rules = (shuffled(each, chance) for each in documents())
    machine = MachineDefinition.parse(plan, rules)
    assert machine.hash == GOLDEN
    assert compile_graph(machine.graph(4)).hash == compile_graph(vendor().graph(4)).hash


def shuffled(value: Any, chance: random.Random, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: shuffled(value[name], chance, name) for name in chance.sample(list(value), len(value))}
    if not isinstance(value, list) or key in ("emit", "params", "roles"):
        return value
    items = [shuffled(item, chance) for item in value]
    if key == "rules":  # rules of one state keep their order
        return sorted(items, key=lambda item, ranks={}: ranks.setdefault(item["state"], chance.random()))
    return chance.sample(items, len(items))


@pytest.mark.parametrize(
    "edits",
    [
        [(("$schema",), "x.json")],
        [(("transitions", 0, "event"), 1)],
        [(("states", 1, "is_final"), False)],
    ],
)
def test_another_spelling_is_the_same(edits: list[Edit]) -> None:
    assert hashed(edited(blueprint(), *edits), RULES) == hashed(blueprint(), RULES)


@pytest.mark.parametrize(
    "edits",
    [
        [(("policy_name",), "q")],
        [(("for", "version"), 1)],
        [(("timeouts", 0, "timeout"), "PT24H")],
        [(("timeouts", 0, "timeout_mode"), 0)],
        [(("timeouts", 0, "timeout_event"), "End")],
        [(("params", 1), {"code": "UNUSED", "data": 1})],
        [(("rules", 0, "emit", 0, "type"), "gate")],
        [(("rules", 1), {"state": "Elsewhere"})],
    ],
)
def test_another_spelling_of_the_policy_is_the_same(edits: list[Edit]) -> None:
    assert hashed(blueprint(), edited(RULES, *edits)) == hashed(blueprint(), RULES)


@pytest.mark.parametrize(
    "edits",
    [
        [(("version",), 2)],
        [(("environment",), "prod")],
        [(("events", 0, "code"), 9)],
        [(("states", 1, "category"), "open")],
        [(("transitions", 1, "when"), "input.n > 1")],
        [(("transitions", 1, "guard"), "boss")],
        [(("transitions", 3), {"from": "New", "event": 3, "to": "New"})],
    ],
)
def test_another_blueprint_is_another_content(edits: list[Edit]) -> None:
    assert hashed(edited(blueprint(), *edits), RULES) != hashed(blueprint(), RULES)


@pytest.mark.parametrize(
    "edits",
    [
        [(("stale",), "P1D")],
        [(("timeouts", 0, "timeout"), "P2D")],
        [(("params", 0, "data", "a"), 2)],
        [(("rules", 0, "emit", 0, "order"), 2)],
        [(("rules", 0, "emit", 0, "label"), "Call")],
        [(("rules", 0, "complete"), {"success": 2, "failure": 3})],
    ],
)
def test_another_policy_is_another_content(edits: list[Edit]) -> None:
    assert hashed(blueprint(), edited(RULES, *edits)) != hashed(blueprint(), RULES)
    assert hashed(blueprint(), RULES) != hashed(blueprint())


def test_the_version_of_the_graph_does_not_count() -> None:
    machine = vendor()
    assert machine.graph(1) != machine.graph(2)
    assert MachineDefinition.parse(machine.code()).hash == machine.hash


NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="@"), min_size=1, max_size=20
)
STATES = NAMES.map(lambda name: f"s{name}e")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(st.characters(exclude_categories=("Cs", "Cc"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def machines(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A ring of states with shortcuts, and a policy over it."""
    names = draw(st.lists(STATES, min_size=2, max_size=6, unique=True))
    events = [{"code": n, "name": f"e{n}"} for n in range(draw(st.integers(2, 5)))]
    ring = [{"from": a, "event": 0, "to": b} for a, b in zip(names, [*names[1:], names[0]], strict=True)]
    shortcuts = [
        {"from": draw(st.sampled_from(names)), "event": f"e{n}", "to": draw(st.sampled_from(names))}
        for n in range(1, len(events))
    ]
    plan = blueprint(
        states=[{"name": name, "is_initial": index == 0} for index, name in enumerate(names)],
        events=events,
        transitions=[*ring, *shortcuts],
    )
    refs = st.sampled_from([event["code"] for event in events] + [event["name"] for event in events])
    hook = st.fixed_dictionaries(
        {"event": st.just("CALL"), "params": st.just(["P"])},
        optional={"order": st.integers(1, 3), "ack": st.sampled_from(["all", "any"]), "not_before": st.just("PT5M")},
    )
    rule = st.fixed_dictionaries(
        {"state": st.sampled_from(names)},
        optional={
            "via": refs,
            "complete": st.fixed_dictionaries({"success": refs, "failure": refs}),
            "emit": st.lists(hook, max_size=3),
        },
    )
    rules = policy(
        params=[{"code": "P", "data": draw(JSON)}],
        rules=draw(st.lists(rule, max_size=5)),
        timeouts=[{"state": names[0], "timeout_minutes": draw(st.integers(1, 10_000)), "timeout_event": 0}],
    )
    return plan, rules


@given(machines())
def test_a_machine_printed_and_read_again_is_the_same(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine = MachineDefinition.parse(*pair)
    again = MachineDefinition.parse(machine.code())
    assert (again.hash, again.code()) == (machine.hash, machine.code())
    assert compile_graph(again.graph(2)) == compile_graph(machine.graph(2))
