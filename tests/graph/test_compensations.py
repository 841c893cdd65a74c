"""What undoes what: the graphs that are refused, and what a sound one looks like."""

from __future__ import annotations

import pytest
from graph_samples import chain, edge, graph, node, shape

from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph
from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.graph.model import Graph, Policy

UNDO = node("undo", "compensation", handler="undo")
END = node("end", "end")


def with_nodes(*more: object, **fields: object) -> Graph:
    """A step that leads to an end, and nodes no edge leads to."""
    return graph([node("a", **fields), END, *more], [edge("a", "end")])  # type: ignore[list-item,arg-type]


def told(graph: Graph) -> list[tuple[str, str]]:
    return [(found.code, found.place) for found in check(graph)]


@pytest.mark.parametrize("kind", ["task", "action", "wait_event", "human", "sub_flow"])
def test_what_does_something_can_be_undone(kind: str) -> None:
    sound = with_nodes(UNDO, kind=kind, undo="undo")
    assert told(sound) == []
    compiled = compile_graph(sound)
    assert (compiled.nodes["a"].undo, compiled.adjacency["undo"], compiled.depth["undo"]) == ("undo", (), 0)


@pytest.mark.parametrize(
    ("code", "place", "wrong"),
    [
        ("UNKNOWN_UNDO", "nodes.a.undo", with_nodes(undo="nobody")),
        ("UNDO_MISMATCH", "nodes.a.undo", chain(node("a", undo="b"), node("b"))),
        ("UNDO_MISMATCH", "nodes.a.undo", chain(node("a", undo="a"))),
        ("UNDO_MISPLACED", "nodes.c.undo", chain(node("c", "wait_timer", undo="undo"))),
        ("UNDO_MISPLACED", "nodes.c.undo", chain(node("c", "effect", undo="undo"))),
        ("COMPENSATION_UNUSED", "nodes.undo", with_nodes(UNDO)),
        ("COMPENSATION_ON_PATH", "edges.a-undo", chain(node("a", undo="undo"), UNDO)),
        ("COMPENSATION_ON_PATH", "edges.undo-end", chain(node("a", undo="undo"), UNDO)),
        ("MISSING_HANDLER", "nodes.undo", with_nodes(node("undo", "compensation", handler=None), undo="undo")),
        ("SAVE_POINT_IN_SCOPE", "nodes.s", shape("f:split a s:save_point end:end", "f>a f>s a>end s>end")),
    ],
)
def test_what_is_refused(code: str, place: str, wrong: Graph) -> None:
    assert (code, place) in told(wrong)


def test_one_compensation_undoes_one_node() -> None:
    nodes = [node("a", undo="undo"), node("b", undo="undo"), END, UNDO]
    assert told(graph(nodes, [edge("a", "b"), edge("b", "end")])) == [("COMPENSATION_SHARED", "nodes.undo")]


def test_a_compensation_is_not_undone_itself() -> None:
    again = node("undo", "compensation", handler="x", undo="more")
    wrong = with_nodes(again, node("more", "compensation", handler="x"), undo="undo")
    assert told(wrong) == [("UNDO_MISPLACED", "nodes.undo.undo")]


def test_instances_neither_begin_nor_expire_at_a_compensation() -> None:
    nodes, edges = [node("a", undo="undo"), END, UNDO], [edge("a", "end")]
    assert ("COMPENSATION_ON_PATH", "nodes.undo") in told(graph(nodes, edges, entry="undo"))
    expiring = graph(nodes, edges, policy=Policy(timeout=5.0, on_timeout="undo"))
    assert ("COMPENSATION_ON_PATH", "nodes.undo") in told(expiring)


def test_a_save_point_may_stand_outside_of_branches() -> None:
    assert told(chain(node("a"), node("s", "save_point"), node("b"))) == []


def test_it_is_drawn_with_a_dotted_line() -> None:
    drawn = to_mermaid(with_nodes(UNDO, undo="undo"))
    assert 'n3["undo<br/>compensation"]' in drawn
    assert '    n1 -.-|"undone by"| n3\n' in drawn
    assert 'n3>"nobody<br/>unknown node"]' in to_mermaid(with_nodes(undo="nobody"))
