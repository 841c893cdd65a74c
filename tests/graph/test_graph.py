"""Reading and writing graphs: nothing is lost, and what does not fit is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from graph_samples import ANY_GRAPH, chain, node
from hypothesis import given

from holdfast.errors import DefinitionError
from holdfast.graph.decode_errors import find_misfits, read_complaint
from holdfast.graph.kinds import KINDS, Behaviour
from holdfast.graph.model import Graph, dump_graph, load_graph

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


def test_all_misfits_are_told_at_once_each_with_its_place() -> None:
    nodes: list[Any] = [
        {"id": "a", "kind": 5, "retry": {"calls": "3", "delay": "soon"}, "child": 7, "config": {"anything": [1]}},
        "no node",
        {"id": "end", "kind": "end"},
        {"kind": "end", "colour": "red", "input": {"x": 1}},
    ]
    edges = [{"id": "e", "source": "a", "target": "end", "priority": 1.5}, {"id": "f"}]
    broken = {"entry": 1, "nodes": nodes, "edges": edges, "policy": {"timeout": "soon", "data": 4}, "colour": "red"}
    error = refusal(broken)
    assert [found.place for found in error.diagnostics] == [
        "graph",  # an unknown field
        "graph",  # and one that is missing
        "entry",
        "nodes[0].kind",
        "nodes[0].retry.calls",
        "nodes[0].retry.delay",
        "nodes[0].child",
        "nodes[1]",
        "nodes[3]",
        "nodes[3]",
        "nodes[3].input[...]",
        "edges[0].priority",
        "edges[1]",
        "edges[1]",
        "policy.data",
        "policy.timeout",
    ]
    assert all(found.code == "GRAPH_INVALID" and found.hint for found in error.diagnostics)
    assert "`colour`" in error.message
    assert error.message.endswith("(16 misfits in all)")


def test_what_the_decoder_complains_about_is_among_all_misfits() -> None:
    for field in ("nodes", "edges", "policy", "variables", "version", "name", "entry", "kind"):
        for value in (None, 7, "x", [], [None], [[]], {}, {"x": None}, True):
            document = MINIMAL | {field: value}
            try:
                msgspec.convert(document, Graph)
                complaint = None
            except msgspec.ValidationError as error:
                complaint = read_complaint(error)
            found = list(find_misfits(document, Graph))
            assert (complaint in found) if complaint else not found


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
    assert {node("n", kind).behaviour for kind in KINDS} == set(Behaviour)
