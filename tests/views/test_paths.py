"""The path of a graph: one main way, and everything else beside it."""

from __future__ import annotations

from holdfast import Branch, Flow
from holdfast.doors.saga.lowering import lower
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import load_graph
from holdfast.views.labels import promise_of
from holdfast.views.paths import main_path


def test_a_condition_in_a_branch_leads_to_the_join() -> None:
    flow = Flow("f").fork("both", Branch().condition("odd", "input.n > 1").step("a", "do"), Branch().step("b", "do"))
    graph = compile_graph(lower(flow.join("met", "all").build()))
    [both, met] = main_path(graph).items
    assert promise_of(graph.nodes["odd"], graph) == "if input.n > 1"
    assert (both.node.id, met.node.id) == ("both", "met")
    [aside] = both.branches[0].items[0].others
    assert (aside.items, aside.to, aside.meets) == ([], "met", True)


def test_every_node_of_a_loop_is_drawn_once() -> None:
    graph = compile_graph(
        load_graph(
            {
                "name": "loop",
                "entry": "draft",
                "nodes": [
                    {"id": "draft", "kind": "state"},
                    {"id": "review", "kind": "state"},
                    {"id": "end", "kind": "end"},
                ],
                "edges": [
                    {"id": "1", "source": "draft", "target": "review", "on": "submit"},
                    {"id": "2", "source": "review", "target": "end", "on": "accept"},
                    {"id": "3", "source": "review", "target": "draft", "on": "revise"},
                ],
            }
        )
    )
    way = main_path(graph)
    assert [item.node.id for item in way.items] == ["draft", "review"]
    [back] = way.items[1].others
    assert (back.label, back.to, back.items) == ("on revise", "draft", [])
