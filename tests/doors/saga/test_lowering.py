from __future__ import annotations

import pytest

import holdfast
from holdfast.doors.saga import Branch, Definition, Flow, Step, Undo
from holdfast.doors.saga.lowering import lower
from holdfast.doors.saga.model import Fork
from holdfast.errors import DefinitionError
from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Child, Graph, Node, Policy, Retry, Wait, dump_graph, load_graph

ORDER = (
    Flow("order", version=3)
    .step("reserve", "reserve_funds", retry=holdfast.Retry(attempts=3, delay=2))
    .step("ship", "ship")
)


def clean(flow: Flow) -> Graph:
    graph = lower(flow.build())
    assert check(graph) == ()
    compile_graph(graph)
    return graph


def test_steps_become_tasks_in_a_row_with_an_end() -> None:
    graph = clean(ORDER)
    assert (graph.name, graph.version, graph.kind, graph.entry) == ("order", 3, "saga", "reserve")
    assert graph.policy == Policy(on_error="rollback", on_cancel="rollback", data="value", missing="zero")
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
        retry=holdfast.Retry(attempts=5, delay=1, max_delay=60, backoff="linear", jitter=0.2),
        timeout=30,
        delay=4,
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
        delay=4.0,
        priority=10,
        queue="warehouse",
        metadata={"team": "logistics"},
    )


def test_a_step_that_may_not_be_repeated_has_one_call() -> None:
    flow = Flow("order", attempts=5).step("ship", "ship", idempotent=False).step("note", "note")
    ship, note, _ = clean(flow).nodes
    assert (ship.retry, ship.idempotent, note.retry) == (None, False, Retry(calls=5))


def test_a_compensation_hangs_on_its_step_and_no_edge_leads_there() -> None:
    undo = Undo(
        "give_back", name="release", retry=holdfast.Retry(attempts=3, delay=1), timeout=9, idempotent=True, priority=90,
        queue="q", metadata={"k": 1},
    )  # fmt: skip
    flow = Flow("order", attempts=2).step("reserve", "take", undo=undo)
    graph = clean(flow.step("ship", "ship", undo=Undo("unship", idempotent=False)))
    nodes = {node.id: node for node in graph.nodes}
    assert (nodes["reserve"].undo, nodes["ship"].undo) == ("release", "unship")
    assert nodes["release"] == Node(
        id="release", kind="compensation", handler="give_back", retry=Retry(calls=3, delay=1.0), timeout=9.0,
        priority=90, queue="q", metadata={"k": 1},
    )  # fmt: skip
    assert nodes["unship"] == Node(id="unship", kind="compensation", handler="unship", idempotent=False)
    assert {end for edge in graph.edges for end in (edge.source, edge.target)} == {"reserve", "ship", "end"}


def test_the_options_of_the_flow_become_its_policy() -> None:
    graph = clean(Flow("order", dlq=True, timeout=60).step("a", "a"))
    assert graph.policy == Policy(on_error="dlq", on_cancel="rollback", data="value", missing="zero", timeout=60.0)


def test_waits_and_sub_flows_become_nodes() -> None:
    flow = (
        Flow("order")
        .wait_event("paid", key="input.order", early=True, metadata={"k": 1})
        .wait_event("packed", "parcel_ready", undo="unpack", deadline=60)
        .sleep("pause", 5)
        .sleep("rest", after="input.seconds")
        .sleep("morning", until="input.day", timezone="Europe/Berlin")
        .sleep("weekly", cron="0 9 * * 1", timezone="Europe/Berlin")
        .sub_flow("child", "other", 3, undo="undo_child", input={"id": "input.id"})
    )
    graph = lower(flow.build())
    assert {found.code for found in check(graph)} == {"TIMEOUT_EDGE_MISSING"}
    assert list(graph.nodes) == [
        Node(id="paid", kind="wait_event", wait=Wait(event="paid", key="input.order", early=True), metadata={"k": 1}),
        Node(id="packed", kind="wait_event", wait=Wait(event="parcel_ready"), deadline=60.0, undo="unpack"),
        Node(id="unpack", kind="compensation", handler="unpack"),
        Node(id="pause", kind="wait_timer", delay=5.0),
        Node(id="rest", kind="wait_timer", after="input.seconds"),
        Node(id="morning", kind="wait_timer", until="input.day", timezone="Europe/Berlin"),
        Node(id="weekly", kind="wait_timer", cron="0 9 * * 1", timezone="Europe/Berlin"),
        Node(
            id="child", kind="sub_flow", child=Child(flow="other", version=3), input={"id": "input.id"},
            undo="undo_child",
        ),
        Node(id="undo_child", kind="compensation", handler="undo_child"),
        Node(id="end", kind="end"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flow", "place"),
    [
        (Flow("f").step("a", "a").condition("big", "input.amount >"), "steps.big.expression@14"),
        (Flow("f").step("a", "a").condition("big", "'text'"), "steps.big.expression@0"),
        (Flow("f").condition("big", "input.a", otherwise=Branch().condition("in", "a ++ b")), "steps.in.expression@"),
        (Flow("f").wait_event("paid", key="input..id"), "steps.paid.key@"),
        (Flow("f").sleep("pause", after="input."), "steps.pause.after@"),
        (Flow("f").sleep("pause", until="f(x)"), "steps.pause.until@"),
        (Flow("f").sub_flow("child", "other", input={"id": "entity.x"}), "steps.child.input.id@"),
    ],
)
def test_a_bad_expression_names_its_step(flow: Flow, place: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be built") as caught:
        lower(flow.build())
    [problem] = caught.value.diagnostics
    assert problem.code == caught.value.code == "STEP_EXPRESSION_INVALID"
    assert problem.place.startswith(place)
    assert repr(place.split(".")[1]) in problem.message


def test_a_definition_that_build_never_saw_is_refused_by_the_checks() -> None:
    with pytest.raises(DefinitionError, match="UNKNOWN_ENTRY"):
        compile_graph(lower(Definition(name="f", version=1, items=())))
    unclosed = Definition(name="f", version=1, items=(Fork(name="split", branches=((Step(name="a", handler="a"),),)),))
    with pytest.raises(DefinitionError, match="SPLIT_TOO_NARROW"):
        compile_graph(lower(unclosed))


def test_all_bad_expressions_are_told_together() -> None:
    flow = Flow("f").condition("one", "1 +").condition("two", "2 +").step("a", "a")
    with pytest.raises(DefinitionError, match="2 problems"):
        lower(flow.build())


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
