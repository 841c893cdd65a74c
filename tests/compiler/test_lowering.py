from __future__ import annotations

import pytest

from holdfast.compiler.checks import check
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.graph import Graph, Node, Policy, Retry, dump_graph, load_graph
from holdfast.compiler.lowering import lower
from holdfast.definitions import Flow

ORDER = Flow("order", version=3).step("reserve", "reserve_funds", retries=3, retry_delay=2).step("ship", "ship")


def clean(flow: Flow) -> Graph:
    graph = lower(flow.build())
    assert check(graph) == ()
    compile_graph(graph)
    return graph


def test_steps_become_tasks_in_a_row_with_an_end() -> None:
    graph = clean(ORDER)
    assert (graph.name, graph.version, graph.kind, graph.entry) == ("order", 3, "saga", "reserve")
    assert graph.policy == Policy(on_error="fail", on_cancel="stop", data="value", missing="zero")
    assert graph.nodes == (
        Node(id="reserve", kind="task", handler="reserve_funds", retry=Retry(calls=3, delay=2.0)),
        Node(id="ship", kind="task", handler="ship"),
        Node(id="end", kind="end"),
    )
    assert [(edge.id, edge.source, edge.target, edge.on) for edge in graph.edges] == [
        ("reserve>ship", "reserve", "ship", "completed"),
        ("ship>end", "ship", "end", "completed"),
    ]


def test_every_option_reaches_its_node() -> None:
    flow = Flow("order").step(
        "ship",
        "ship",
        retries=5,
        retry_delay=1,
        max_delay=60,
        backoff="linear",
        jitter=0.2,
        timeout=30,
        idempotent=False,
        priority=10,
        queue="warehouse",
        metadata={"team": "logistics"},
    )
    assert clean(flow).nodes[0] == Node(
        id="ship",
        kind="task",
        handler="ship",
        retry=Retry(calls=5, delay=1.0, max_delay=60.0, backoff="linear", jitter=0.2),
        timeout=30.0,
        idempotent=False,
        priority=10,
        queue="warehouse",
        metadata={"team": "logistics"},
    )


def test_a_deadline_is_kept_and_only_warns_that_it_is_an_error() -> None:
    graph = lower(Flow("order").step("ship", "ship", deadline=60).build())
    assert graph.nodes[0].deadline == 60.0
    assert [(found.code, found.severity) for found in check(graph)] == [("TIMEOUT_EDGE_MISSING", "warning")]
    compile_graph(graph)


@pytest.mark.parametrize("names", [["end"], ["end", "end#1"], ["a", "end", "b"]])
def test_the_end_gives_way_to_steps_of_that_name(names: list[str]) -> None:
    flow = Flow("order")
    for name in names:
        flow = flow.step(name, "work")
    graph = clean(flow)
    assert graph.nodes[-1].id == ("end#2" if "end#1" in names else "end#1")


def test_names_that_would_read_alike_in_edge_ids_stay_apart() -> None:
    flow = Flow("order")
    for name in ("a", "b>c", "a>b", "c"):
        flow = flow.step(name, "work")
    assert len({edge.id for edge in clean(flow).edges}) == 4


def test_the_longest_names_compile() -> None:
    clean(Flow("f" * 200).step("a" * 200, "h" * 200).step("b" * 200, "h", queue="q" * 200))


def test_the_same_flow_gives_the_same_hash_and_survives_json() -> None:
    graph = clean(ORDER)
    assert load_graph(dump_graph(graph)) == graph
    assert compile_graph(graph).hash == compile_graph(lower(ORDER.build())).hash
