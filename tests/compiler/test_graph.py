"""Reading and writing graphs: nothing is lost, and what does not fit is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from graph_samples import ANY_GRAPH, chain, node
from hypothesis import given

from holdfast.compiler.graph import KINDS, Graph, dump_graph, load_graph
from holdfast.errors import DefinitionError

MINIMAL: dict[str, Any] = {"name": "order", "entry": "end", "nodes": [{"id": "end", "kind": "end"}]}


def refusal(data: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        load_graph(data)
    return caught.value


@given(ANY_GRAPH)
def test_a_graph_survives_json(graph: Graph) -> None:
    dumped = dump_graph(graph)
    text = json.dumps(dumped)
    assert load_graph(dumped) == load_graph(text) == load_graph(text.encode()) == graph
    assert dump_graph(load_graph(text)) == dumped == json.loads(text)


def test_defaults_are_left_out() -> None:
    assert dump_graph(load_graph(MINIMAL)) == MINIMAL


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"colour": "red"}, ""),
        ({"name": 5}, "name"),
        ({"nodes": [{"id": "end", "kind": "end", "colour": "red"}]}, "nodes[0]"),
        ({"nodes": [{"id": "end"}]}, "nodes[0]"),
        ({"nodes": [{"id": "end", "kind": "end", "retry": {"calls": "3"}}]}, "nodes[0].retry.calls"),
        ({"edges": [{"id": "e", "source": "a", "target": "b", "priority": 1.5}]}, "edges[0].priority"),
        ({"policy": {"timeout": "soon"}}, "policy.timeout"),
        ({"variables": {"input.a": 1}}, "variables[...]"),
    ],
)
def test_a_misfit_names_its_place(change: dict[str, Any], place: str) -> None:
    error = refusal(MINIMAL | change)
    assert error.code == "GRAPH_INVALID"
    assert error.detail["place"] == place
    assert place in error.message
    assert error.hint


@pytest.mark.parametrize("data", ["", "{", "[]", "null", "7", b"\xff", "[" * 100_000, '{"name": "\\ud800"}', []])
def test_what_is_no_graph_at_all_is_refused(data: Any) -> None:
    assert refusal(data).code == "GRAPH_INVALID"


@pytest.mark.parametrize("version", [0, 2, 99, "1", True, 1.0, None])
def test_another_format_is_refused_before_anything_else(version: Any) -> None:
    error = refusal({"format": version, "unknown": "to this release"})
    assert error.code == "GRAPH_FORMAT_UNSUPPORTED"
    assert error.detail["place"] == "format"


def test_what_json_cannot_hold_is_not_dumped() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    for config in ({"value": object()}, endless):
        with pytest.raises(DefinitionError) as caught:
            dump_graph(chain(node("a", config=config)))
        assert caught.value.code == "GRAPH_INVALID"


def test_every_kind_has_a_behaviour() -> None:
    assert {node("n", kind).behaviour for kind in KINDS} == set(KINDS.values())
