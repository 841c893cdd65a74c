"""Forks, joins, conditions and save points: what may stand where, and the sentence for what may not."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doors.saga import Branch, Flow, Problem, Undo, model
from holdfast.errors import DefinitionError

MISPLACED: dict[str, Any] = {"undo": "u"}


def step(name: str) -> Branch:
    return Branch().step(name, "work")


def problems_of(flow: Flow) -> list[Problem]:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    return list(refusal.value.diagnostics)


def told(flow: Flow) -> list[tuple[str, str]]:
    return [(problem.code, problem.place) for problem in problems_of(flow)]


def first(ctx: object, data: Any) -> Any:
    return data


def second(ctx: object, data: Any) -> Any:
    return data


# --- what is written ----------------------------------------------------------------------------------------------


def test_branches_are_kept_in_the_order_they_were_given() -> None:
    built = Flow("f").fork("split", step("a").step("b", "work"), step("c")).join("met", "any").build()
    fork, join = built.items
    assert isinstance(fork, model.Fork)
    assert [[item.name for item in branch] for branch in fork.branches] == [["a", "b"], ["c"]]
    assert join == model.Join(name="met", mode="any")


def test_a_branch_grows_into_a_branch_and_a_flow_into_a_flow() -> None:
    assert type(step("a").then("b", "b").rejoin()) is Branch
    assert type(Flow("f").step("a", "a").save_point("here")) is Flow


def test_a_branch_never_changes() -> None:
    common = step("a")
    left, right = common.step("b", "work"), common.step("c", "work")
    Flow("f").fork("split", left, step("d")).build()
    Flow("f").fork("split", right, step("d")).build()


def test_functions_in_branches_and_compensations_are_kept_too() -> None:
    inner = Branch().step("a", first, undo=Undo(second, name="b"))
    assert Flow("f").step("s", "s").condition("c", "true", otherwise=inner).build().handlers == {
        "first": first,
        "second": second,
    }
    assert Flow("f").fork("split", inner, step("x")).build().handlers == {"first": first, "second": second}


def test_parallel_takes_functions_pairs_and_branches() -> None:
    built = Flow("f").parallel("all", first, ("other", second), ("named", "elsewhere"), step("x")).build()
    [parallel] = built.items
    assert isinstance(parallel, model.Parallel)
    assert [(branch[0].name, branch[0].handler) for branch in parallel.branches] == [
        ("first", "first"), ("other", "second"), ("named", "elsewhere"), ("x", "work"),
    ]  # fmt: skip
    assert built.handlers == {"first": first, "second": second}


# --- forks and joins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("branches", [[], [step("a")]])
def test_a_fork_with_one_branch_is_refused(branches: list[Branch]) -> None:
    assert told(Flow("f").fork("split", *branches).join("met")) == [("FORK_TOO_NARROW", "steps.split")]
    assert told(Flow("f").parallel("split", *branches)) == [("FORK_TOO_NARROW", "steps.split")]


@pytest.mark.parametrize("what", [Flow("g").step("x", "x"), "name", None, 5, ("a", "b", "c")])
def test_what_is_no_branch_is_refused(what: Any) -> None:
    [problem] = problems_of(Flow("f").fork("split", what, step("a"), step("b")))
    assert (problem.code, problem.place) == ("BRANCH_INVALID", "steps.split")
    assert f"Branch 1 of 'split' is {type(what).__name__}" in problem.message
    assert told(Flow("f").parallel("split", what, step("a"), step("b"))) == [("BRANCH_INVALID", "steps.split")]
    if what is not None:
        flow = Flow("f").step("s", "s").condition("c", "true", otherwise=what)
        assert told(flow) == [("BRANCH_INVALID", "steps.c")]


def test_an_empty_branch_is_refused() -> None:
    assert told(Flow("f").fork("split", Branch(), step("a")).join("met")) == [("BRANCH_EMPTY", "steps.split")]
    flow = Flow("f").condition("c", "true", otherwise=Branch()).step("a", "a")
    assert told(flow) == [("BRANCH_EMPTY", "steps.c")]
    flow = Flow("f").condition("c", "true", otherwise=Branch().rejoin()).step("a", "a")
    assert told(flow) == [("BRANCH_EMPTY", "steps.c")]


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").join("met"),
        Flow("f").step("a", "a").join("met"),
        Flow("f").condition("c", "true").join("met"),
        Flow("f").fork("split", step("a"), step("b")).join("one").join("met"),
        Flow("f").fork("split", step("a"), step("b").join("met")).join("one"),
    ],
)
def test_a_join_needs_a_fork_right_before_it(flow: Flow) -> None:
    assert told(flow) == [("JOIN_WITHOUT_FORK", "steps.met")]


def test_a_condition_may_come_before_the_fork_or_in_its_branches() -> None:
    Flow("f").condition("c", "true").fork("split", step("a"), step("b")).join("met").build()
    Flow("f").fork("split", Branch().condition("c", "true").step("a", "a"), step("b")).join("met").build()


def test_nothing_stands_between_a_fork_and_its_join() -> None:
    flow = Flow("f").fork("split", step("a"), step("b")).condition("c", "true").join("met")
    assert told(flow) == [("FORK_WITHOUT_JOIN", "steps.split"), ("JOIN_WITHOUT_FORK", "steps.met")]
    assert "the condition 'c' comes next" in problems_of(flow)[0].message


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").fork("split", step("a"), step("b")),
        Flow("f").fork("split", step("a").fork("in", step("b"), step("c")), step("d")),
        Flow("f").condition("c", "true", otherwise=Branch().fork("split", step("a"), step("b"))).step("d", "d"),
        Flow("f").condition("c", "true", otherwise=step("d")).fork("split", step("a"), step("b")),
    ],
)
def test_a_flow_may_end_in_branches(flow: Flow) -> None:
    flow.build()


LOOSE = Branch().fork("in", step("a"), step("b"))


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").fork("in", step("a"), step("b")).step("c", "c"),
        Flow("f").fork("split", LOOSE, step("c")).join("met"),
        Flow("f").parallel("split", LOOSE, step("c")),
        Flow("f").condition("c", "true", otherwise=LOOSE.rejoin()).step("d", "d"),
        Flow("f").condition("c", "true", otherwise=LOOSE).step("d", "d").rejoin(),
        Flow("f").condition("c", "true").fork("in", step("a"), step("b")).rejoin(),
        Flow("f").fork("s", Branch().condition("c", "true", otherwise=LOOSE).step("d", "d"), step("e")).join("m"),
        Flow("f").fork("s", step("x").fork("t", LOOSE, step("d")).join("u"), step("e")),
    ],
)
def test_a_fork_that_something_waits_for_needs_a_join(flow: Flow) -> None:
    assert ("FORK_WITHOUT_JOIN", "steps.in") in told(flow)


def test_a_join_waits_for_all_or_any() -> None:
    flow: Any = Flow("f").fork("split", step("a"), step("b"))
    assert told(flow.join("met", "most")) == [("STEP_OPTION_INVALID", "steps.met.mode")]


# --- conditions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["", "  ", None, 5, True])
def test_a_condition_needs_an_expression(expression: Any) -> None:
    flow = Flow("f").condition("c", expression).step("a", "a")
    assert told(flow) == [("STEP_OPTION_INVALID", "steps.c.expression")]


@pytest.mark.parametrize(
    ("flow", "place"),
    [
        (Flow("f").step("a", "a").rejoin(), "steps"),
        (Flow("f").rejoin(), "steps"),
        (Flow("f").condition("c", "true").step("a", "a").rejoin().rejoin(), "steps"),
        (Flow("f").fork("split", step("a").rejoin(), step("b")).join("met"), "steps.split"),
        (Flow("f").condition("c", "true", otherwise=step("a").rejoin().step("b", "b")).step("d", "d"), "steps.c"),
        (Flow("f").condition("c", "true", otherwise=step("a").rejoin().rejoin()).step("d", "d"), "steps.c"),
    ],
)
def test_a_rejoin_needs_a_condition_to_close(flow: Flow, place: str) -> None:
    assert told(flow) == [("REJOIN_WITHOUT_CONDITION", place)]


def test_a_rejoin_closes_the_innermost_condition() -> None:
    inner = Branch().condition("in", "true", otherwise=step("a")).step("b", "b").rejoin().rejoin()
    Flow("f").condition("out", "true", otherwise=inner).step("c", "c").condition("next", "true").rejoin().build()


# --- save points, names, depth, cycles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").fork("split", step("a").save_point("here"), step("b")).join("met"),
        Flow("f").parallel("split", step("a").save_point("here"), step("b")),
        Flow("f").condition("c", "true", otherwise=step("a").save_point("here")).step("b", "b"),
    ],
)
def test_a_save_point_in_a_branch_is_refused(flow: Flow) -> None:
    assert told(flow) == [("SAVE_POINT_IN_BRANCH", "steps.here")]


def test_a_save_point_may_follow_a_condition_of_the_flow() -> None:
    Flow("f").condition("c", "true", otherwise=step("a")).step("b", "b").save_point("here").step("d", "d").build()


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").step("same", "a").fork("split", step("same"), step("b")).join("met"),
        Flow("f").fork("split", step("same"), step("same")).join("met"),
        Flow("f").fork("same", step("a"), step("b")).join("same"),
        Flow("f").step("same", "a").save_point("same"),
        Flow("f").condition("same", "true", otherwise=step("same")).step("a", "a"),
        Flow("f").step("a", "a", undo=Undo("u", name="same")).step("same", "b"),
        Flow("f").sleep("same", 1).wait_event("same"),
    ],
)
def test_a_name_is_there_once_in_the_whole_flow(flow: Flow) -> None:
    assert told(flow) == [("STEP_DUPLICATE", "steps.same")]
    assert told(Flow("f").step("same", "a", undo=Undo("u", name="same"))) == [("STEP_DUPLICATE", "steps.same.undo")]


@pytest.mark.parametrize("name", ["cond#1", "_root_", "", "a@b"])
def test_names_of_the_engine_are_refused_everywhere(name: str) -> None:
    place = f"steps.{name}"
    for flow in (
        Flow("f").condition(name, "true").step("a", "a"),
        Flow("f").fork(name, step("a"), step("b")).join("met"),
        Flow("f").fork("split", step(name), step("b")).join("met"),
        Flow("f").fork("split", step("a"), step("b")).join(name),
        Flow("f").step("a", "a").save_point(name),
    ):
        assert told(flow) == [("STEP_NAME_RESERVED", place)]
    assert told(Flow("f").step("a", "a", undo=Undo("u", name=name))) == [("STEP_NAME_RESERVED", "steps.a.undo")]


def test_branches_may_stand_in_each_other_sixteen_deep() -> None:
    branch = step("innermost")
    for level in range(15):
        branch = Branch().fork(f"f{level}", branch, step(f"s{level}")).join(f"j{level}")
    Flow("f").fork("outer", branch, step("x")).join("met").build()
    deeper = Branch().fork("more", branch, step("y")).join("even")
    assert told(Flow("f").fork("outer", deeper, step("x")).join("met")) == [("FLOW_TOO_DEEP", "steps")]


def test_a_thousand_levels_are_refused_like_seventeen() -> None:
    branch = step("innermost")
    for level in range(1000):
        branch = Branch().condition(f"c{level}", "true", otherwise=branch)
    assert told(Flow("f").fork("outer", branch, step("x"))) == [("FLOW_TOO_DEEP", "steps")]


def test_metadata_may_be_as_deep_as_the_branches_leave_room_for() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {} if levels == 1 else {"in": nested(levels - 1)}

    Flow("f").step("a", "a", metadata=nested(60)).build()
    branch = Branch().step("a", "a", metadata=nested(59))
    flow = Flow("f").fork("split", branch, step("b"))
    assert told(flow) == [("STEP_OPTION_INVALID", "steps.a.metadata")]


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").sub_flow("again", "f"),
        Flow("f").step("a", "a").sub_flow("again", "f"),
        Flow("f").fork("split", step("a"), Branch().sub_flow("again", "f")),
        Flow("f").sub_flow("again", "f", 1),
    ],
)
def test_a_flow_that_always_starts_itself_is_refused(flow: Flow) -> None:
    assert told(flow) == [("FLOW_CYCLE", "steps.again")]


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").condition("more", "input.n > 0").sub_flow("again", "f"),
        Flow("f").condition("done", "true", otherwise=Branch().sub_flow("again", "f")).step("a", "a"),
        Flow("f").fork("split", step("a"), Branch().human("ask").sub_flow("again", "f")),
        Flow("f", version=2).sub_flow("before", "f", 1),
        Flow("f").sub_flow("other", "g"),
    ],
)
def test_a_flow_may_start_itself_where_something_decides(flow: Flow) -> None:
    flow.build()


def test_everything_wrong_in_branches_is_told_at_once() -> None:
    flow = (
        Flow("f")
        .fork("split", step("a").save_point("here", **MISPLACED), Branch().step("b", "b", timeout=0))
        .step("a", "a")
        .rejoin()
    )
    assert [code for code, _ in told(flow)] == [
        "COMPENSATION_MISPLACED", "REJOIN_WITHOUT_CONDITION", "FORK_WITHOUT_JOIN", "SAVE_POINT_IN_BRANCH",
        "STEP_DUPLICATE", "STEP_OPTION_INVALID",
    ]  # fmt: skip
