"""Forks, joins and conditions as a graph: where each way leads, and what a join waits for."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from cProfile import Profile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_flows import flows

from holdfast.doors.printed import picture_of
from holdfast.doors.saga import Branch, Flow, Undo
from holdfast.doors.saga.lowering import lower
from holdfast.doors.saga.model import Condition, Definition, Fork, Items, Join, Parallel, Rejoin
from holdfast.doors.saga.printing import code_of
from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Graph, Node


def step(name: str) -> Branch:
    return Branch().step(name, "work")


def clean(flow: Flow) -> Graph:
    graph = lower(flow.build())
    assert [found for found in check(graph) if found.severity == "error"] == []
    compile_graph(graph)
    return graph


def ways(flow: Flow) -> set[str]:
    """The edges as `source>target`, those of a false condition as `source/target`."""
    return {f"{e.source}{'/' if e.label == 'otherwise' else '>'}{e.target}" for e in clean(flow).edges}


def waits_for(flow: Flow) -> dict[str, list[str]]:
    return {node.id: node.config["waits_for"] for node in clean(flow).nodes if node.kind == "join"}


# --- forks --------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_split_and_a_join() -> None:
    graph = clean(
        Flow("f")
        .fork("split", step("a").step("b", "b"), step("c"), metadata={"k": 1})
        .join("met", "any")
        .step("d", "d")
    )
    assert [(node.id, node.kind) for node in graph.nodes] == [
        ("split", "split"), ("a", "task"), ("b", "task"), ("c", "task"), ("met", "join"), ("d", "task"), ("end", "end"),
    ]  # fmt: skip
    assert [(e.source, e.target, e.priority) for e in graph.edges] == [
        ("split", "a", 0), ("a", "b", 0), ("split", "c", 1), ("b", "met", 0), ("c", "met", 0), ("met", "d", 0),
        ("d", "end", 0),
    ]  # fmt: skip
    nodes = {node.id: node for node in graph.nodes}
    assert (nodes["split"].metadata, nodes["met"].mode) == ({"k": 1}, "any")


def test_branches_keep_the_order_they_were_written_in() -> None:
    branches = [step(f"s{number}") for number in range(12)]
    graph = clean(Flow("f").fork("split", *branches).join("met"))
    order = [compile_graph(graph).edges[id].target for id in compile_graph(graph).adjacency["split"]]
    assert order == [f"s{number}" for number in range(12)]


def test_parallel_waits_for_all_by_itself() -> None:
    flow = Flow("f").parallel("both", ("a", "x"), ("b", "x")).step("c", "c")
    assert ways(flow) == {"both>a", "both>b", "a>both#join", "b>both#join", "both#join>c", "c>end"}
    assert next(node for node in clean(flow).nodes if node.kind == "join").mode == "all"


def test_parallel_may_have_a_join_of_its_own() -> None:
    flow = Flow("f").parallel("both", ("a", "x"), ("b", "x")).join("met", "any")
    assert ways(flow) == {"both>a", "both>b", "a>met", "b>met", "met>end"}


def test_the_engines_own_names_give_way_to_those_of_steps() -> None:
    flow = Flow("f").parallel("both", ("a", "x"), ("b", "x")).step("both#join", "x").step("end", "x")
    assert {"a>both#join#1", "both#join#1>both#join", "end>end#1"} <= ways(flow)
    long = "p" * 200
    assert "join" in {node.id for node in clean(Flow("f").parallel(long, ("a", "x"), ("b", "x"))).nodes}


def test_branches_without_a_join_end_inside_their_fork() -> None:
    flow = Flow("f").condition("c", "input.x", otherwise=step("d")).fork("split", step("a"), step("b"))
    assert ways(flow) == {"c>split", "c/d", "split>a", "split>b", "a>end", "b>end", "d>end#1"}
    assert compile_graph(clean(flow)).splits == {"split": None}


def test_a_fork_in_a_fork_joins_inside_its_branch() -> None:
    inner = Branch().fork("in", step("a"), step("b")).join("in_met")
    flow = Flow("f").fork("out", inner, step("c")).join("out_met")
    assert waits_for(flow) == {"in_met": ["a", "b"], "out_met": ["in_met", "c"]}
    assert compile_graph(clean(flow)).depth["a"] == 2


# --- conditions ---------------------------------------------------------------------------------------------------


def test_a_false_condition_ends_the_path() -> None:
    assert ways(Flow("f").condition("c", "input.x").step("a", "a")) == {"c>a", "c/end", "a>end"}
    edges = {e.target: e for e in clean(Flow("f").condition("c", "input.x").step("a", "a")).edges if e.source == "c"}
    assert (edges["a"].when, edges["a"].priority, edges["end"].when, edges["end"].priority) == ("input.x", 0, None, 1)


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        # the other branch ends its path
        (Flow("f").condition("c", "true", otherwise=step("o")).step("a", "a"), "c>a c/o a>end o>end"),
        # it comes back right behind the condition
        (Flow("f").condition("c", "true", otherwise=step("o").rejoin()).step("a", "a"), "c>a c/o o>a a>end"),
        # a marker: it comes back there, whether it says so itself or not
        (
            Flow("f").condition("c", "true", otherwise=step("o")).step("a", "a").rejoin().step("b", "b"),
            "c>a c/o a>b o>b b>end",
        ),
        (
            Flow("f").condition("c", "true", otherwise=step("o").rejoin()).step("a", "a").rejoin().step("b", "b"),
            "c>a c/o a>b o>b b>end",
        ),
        # without another branch the steps up to the marker are left out
        (Flow("f").condition("c", "true").step("a", "a").rejoin().step("b", "b"), "c>a c/b a>b b>end"),
        # brackets: the inner marker closes the inner condition
        (
            Flow("f")
            .condition("c", "true")
            .step("a", "a")
            .condition("d", "true")
            .step("b", "b")
            .rejoin()
            .step("e", "e"),
            "c>a c/end a>d d>b d/e b>e e>end",
        ),
        (
            Flow("f").condition("c", "true").condition("d", "true").step("b", "b").rejoin().rejoin().step("e", "e"),
            "c>d c/e d>b d/e b>e e>end",
        ),
        # a way that is over inside the other branch does not come back with it
        (
            Flow("f")
            .condition("c", "true", otherwise=Branch().condition("d", "true", otherwise=step("p")).step("o", "o"))
            .step("a", "a")
            .rejoin()
            .step("b", "b"),
            "c>a c/d d>o d/p o>b p>end a>b b>end",
        ),
        # unless its own condition was closed before the branch comes back
        (
            Flow("f")
            .condition(
                "c",
                "true",
                otherwise=Branch().condition("d", "true", otherwise=step("p")).step("o", "o").rejoin().rejoin(),
            )
            .step("a", "a"),
            "c>a c/d d>o d/p o>a p>a a>end",
        ),
        # nothing behind the condition
        (Flow("f").step("a", "a").condition("c", "true", otherwise=step("o")), "a>c c>end c/o o>end"),
    ],
)
def test_where_a_condition_leads(flow: Flow, expected: str) -> None:
    assert ways(flow) == set(expected.split())


def test_otherwise_in_a_branch_ends_at_the_join_of_its_fork() -> None:
    branch = Branch().condition("c", "true", otherwise=step("o")).step("a", "a")
    flow = Flow("f").fork("split", branch, step("b")).join("met").step("last", "x")
    assert {"c>a", "c/o", "a>met", "o>met", "b>met"} <= ways(flow)


def test_otherwise_in_a_branch_may_come_back() -> None:
    branch = Branch().condition("c", "true", otherwise=step("o").rejoin()).step("a", "a")
    flow = Flow("f").fork("split", branch, step("b")).join("met")
    assert {"c>a", "c/o", "o>a", "a>met", "b>met"} <= ways(flow)


# --- what a join waits for ----------------------------------------------------------------------------------------


def test_a_join_waits_for_the_last_step_of_each_branch() -> None:
    flow = Flow("f").fork("split", step("a").step("b", "b"), step("c")).join("met")
    assert waits_for(flow) == {"met": ["b", "c"]}


def test_a_condition_makes_the_last_step_a_virtual_one() -> None:
    one = Branch().step("a", "a").condition("c", "true", otherwise=step("o")).step("b", "b")
    two = Branch().condition("d", "true").step("e", "e")
    assert waits_for(Flow("f").fork("split", one, two).join("met")) == {"met": ["cond#c", "cond#d"]}


def test_several_and_nested_conditions_are_all_listed() -> None:
    nested = Branch().condition("in", "true", otherwise=step("p")).step("o", "o")
    one = Branch().condition("c", "true", otherwise=nested).step("a", "a").condition("d", "true").step("b", "b")
    assert waits_for(Flow("f").fork("split", one, step("x")).join("met")) == {
        "met": ["cond#c", "cond#in", "cond#d", "x"]
    }


def test_two_conditions_in_a_row_are_both_listed() -> None:
    one = (
        Branch().condition("c", "true", otherwise=step("o")).condition("d", "true", otherwise=step("p")).step("a", "a")
    )
    assert waits_for(Flow("f").fork("split", one, step("x")).join("met")) == {"met": ["cond#c", "cond#d", "x"]}


def test_conditions_nested_three_deep_are_listed_from_the_outside_in() -> None:
    deepest = Branch().condition("third", "true", otherwise=step("p")).step("q", "q")
    deeper = Branch().condition("second", "true", otherwise=deepest).step("o", "o")
    one = Branch().condition("first", "true", otherwise=deeper).step("a", "a")
    assert waits_for(Flow("f").fork("split", step("x"), one).join("met")) == {
        "met": ["x", "cond#first", "cond#second", "cond#third"]
    }


def test_every_branch_lists_its_own_conditions() -> None:
    def branch(n: int) -> Branch:
        inner = Branch().condition(f"in{n}", "true", otherwise=step(f"p{n}")).step(f"o{n}", "o")
        return Branch().condition(f"c{n}", "true", otherwise=inner).step(f"a{n}", "a")

    assert waits_for(Flow("f").fork("split", branch(1), branch(2)).join("met", "any")) == {
        "met": ["cond#c1", "cond#in1", "cond#c2", "cond#in2"]
    }


def test_a_join_knows_nothing_of_conditions_inside_another_fork() -> None:
    """That fork has a join of its own, and this is what the outer one waits for."""
    inner = Branch().condition("c", "true", otherwise=step("o")).step("a", "a")
    one = step("first").fork("in", inner, step("b")).join("in_met")
    two = Branch().condition("d", "true", otherwise=step("p")).fork("in2", step("e"), step("g")).join("in2_met")
    assert waits_for(Flow("f").fork("out", one, two).join("out_met")) == {
        "in_met": ["cond#c", "b"], "in2_met": ["e", "g"], "out_met": ["in_met", "cond#d"],
    }  # fmt: skip


def test_a_condition_whose_ways_have_met_decides_nothing() -> None:
    one = Branch().condition("c", "true", otherwise=step("o")).step("a", "a").rejoin().step("b", "b")
    two = Branch().condition("d", "true", otherwise=step("p")).step("e", "e").rejoin()
    assert waits_for(Flow("f").fork("split", one, two).join("met")) == {"met": ["b", "cond#d"]}


# --- against a reading of the words -------------------------------------------------------------------------------

Decide = Callable[[str], bool]


def read(items: Items, decide: Decide) -> tuple[list[Any], str]:
    """What a person would expect to run: names in order, a list per branch; and how the path ends."""
    trace: list[Any] = []
    position = 0
    while position < len(items):
        item = items[position]
        if isinstance(item, Rejoin):
            if not _open_before(items, position):
                return trace, "back"
        elif isinstance(item, Condition):
            trace.append(item.name)
            if not decide(item.name):
                inner, how = read(item.otherwise or (), decide)
                trace += inner
                marker = _marker(items, position)
                if how == "over" or (marker is None and how != "back"):
                    return trace, "over"
                position = position if marker is None else marker
        elif isinstance(item, Fork | Parallel):
            trace += [item.name, [read(branch, decide)[0] for branch in item.branches]]
            following = items[position + 1] if position + 1 < len(items) else None
            if not isinstance(following, Join) and isinstance(item, Fork):
                return trace, "over"
        else:
            trace.append(item.name)
        position += 1
    return trace, "on"


def _open_before(items: Items, position: int) -> int:
    count = 0
    for item in items[:position]:
        count += isinstance(item, Condition)
        count -= isinstance(item, Rejoin) and count > 0
    return count


def _marker(items: Items, condition: int) -> int | None:
    level = 0
    for position in range(condition + 1, len(items)):
        level += isinstance(items[position], Condition)
        if isinstance(items[position], Rejoin):
            level -= 1
        if level < 0:
            return position
    return None


class Walker:
    """Follows the edges of the graph and knows nothing of how it was written."""

    def __init__(self, definition: Definition, decide: Decide) -> None:
        self.graph = compile_graph(lower(definition))
        self.decide = decide

    def walk(self, id: str, stop: str | None) -> list[Any]:
        trace: list[Any] = []
        while id != stop:
            node = self.graph.nodes[id]
            if node.kind == "end":
                break
            if not (node.kind == "join" and node.id.endswith("#join")):
                trace.append(node.id)
            edges = [self.graph.edges[edge] for edge in self.graph.adjacency[id]]
            if node.kind == "split":
                join = self.graph.splits[id]
                trace.append([self.walk(edge.target, join) for edge in edges])
                if join is None:
                    break
                id = join
                continue
            id = self._next(node, edges)
        return trace

    def _next(self, node: Node, edges: list[Any]) -> str:
        if node.kind != "condition":
            assert len(edges) == 1
            return edges[0].target
        taken, otherwise = edges
        assert (taken.when is None, otherwise.when is None) == (False, True)
        return taken.target if self.decide(node.id) else otherwise.target


@settings(deadline=None, max_examples=80)
@given(flows(), st.integers(0, 2**16))
def test_the_graph_runs_what_the_words_say(flow: Flow, seed: int) -> None:
    def decide(name: str) -> bool:
        return zlib.crc32(f"{seed}{name}".encode()) % 2 == 0

    definition = flow.build()
    walker = Walker(definition, decide)
    assert walker.walk(walker.graph.entry, None) == read(definition.items, decide)[0]


@settings(deadline=None, max_examples=80)
@given(flows())
def test_every_random_flow_compiles(flow: Flow) -> None:
    graph = clean(flow)
    assert {found.code for found in check(graph)} <= {"TIMEOUT_EDGE_MISSING"}


def wide(branches: int) -> Definition:
    return (
        Flow("f")
        .fork(
            "split",
            *(
                Branch()
                .step(f"s{n}", "work", undo=Undo("u", name=f"u{n}"))
                .condition(f"c{n}", "true")
                .step(f"t{n}", "t")
                for n in range(branches)
            ),
        )
        .join("met")
        .build()
    )


def long(conditions: int) -> Definition:
    flow = Flow("f")
    for number in range(conditions):
        other = Branch().fork(f"f{number}", step(f"a{number}"), step(f"b{number}")).join(f"j{number}")
        flow = flow.condition(f"c{number}", "true", otherwise=other).step(f"s{number}", "s").rejoin()
    return flow.build()


@pytest.mark.parametrize("write", [wide, long])
def test_the_cost_grows_with_the_size_and_no_faster(write: Callable[[int], Definition]) -> None:
    """Calls are counted, not seconds: they are the same on every machine."""

    def calls(size: int) -> int:
        profile = Profile()
        profile.runcall(lambda: (compile_graph(lower(write(size))), picture_of(write(size)), code_of(write(size))))
        return sum(entry.callcount for entry in profile.getstats())

    calls(5)  # what is made once, such as the parser of expressions
    assert calls(48) / calls(12) < 4.4
