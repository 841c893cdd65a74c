"""`make house`: the sources meet every aim of it, and it finds what it counts."""

from __future__ import annotations

import ast

import pytest
from tests.house import components, imports, is_graph_question, measure, names_a_kind, read_modules, table

KINDS = {"split", "join", "steps"}


def test_the_sources_meet_every_aim() -> None:
    numbers = measure()
    assert len([number for number in numbers if number.aim]) == 7
    assert [(number.title, number.value, number.worst) for number in numbers if not number.is_met] == []


def test_modules_that_import_each_other_are_one_group() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert sorted(map(sorted, components(edges))) == [["a", "b", "c"], ["d"]]


def test_an_import_for_types_counts_like_any_other() -> None:
    modules = read_modules()
    names = {module.name for module in modules}
    [module] = [module for module in modules if module.name == "holdfast.testing"]
    source = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from holdfast.testing import clock\n")
    assert list(imports(module._replace(nodes=list(ast.walk(source))), names)) == ["holdfast.testing.clock"]


def test_the_tables_of_kinds_are_found() -> None:
    modules = read_modules()
    assert {"split", "join", "end"} <= table(modules, "graph/kinds.py", "KINDS")[1]
    assert {"saga", "steps"} <= table(modules, "graph/rules.py", "RULES")[1]


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("node.kind == 'join'", True),
        ("topology.nodes[name].kind in ('join', 'split')", True),
        ("graph.kind != 'steps'", True),
        ("frozenset({'join', 'split'})", True),
        ("step.kind == 'join'", False),
        ("node.kind == other.kind", False),
        ("frozenset({'join', 'or so'})", False),
    ],
)
def test_a_site_that_names_a_kind(code: str, counts: bool) -> None:
    assert names_a_kind(ast.parse(code, mode="eval").body, KINDS) is counts


@pytest.mark.parametrize(
    ("code", "counts"),
    [("turn.program.is_steps", True), ("compiled.kind", True), ("step.kind", False), ("program.policy", False)],
)
def test_a_question_for_the_kind_of_a_graph(code: str, counts: bool) -> None:
    node = ast.parse(code, mode="eval").body
    assert isinstance(node, ast.Attribute)
    assert is_graph_question(node) is counts
