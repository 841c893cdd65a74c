"""The plain turn backwards: the short way gives what the long way gives, and is taken where nothing stands in it."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from core_graphs import chain, edge, join, split, task
from core_run import BOOM, Run
from core_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rollback import SAGA, line, point, saga, take_back, undoable

from holdfast.core.model.program import Program
from holdfast.core.model.signals import Started, WorkDone, WorkFailed
from holdfast.core.model.status import TERMINAL
from holdfast.graph.model import Node, Policy, Retry

KINDS = st.sampled_from(["undoable", "undoable", "plain", "point"])
LINES = st.lists(KINDS, min_size=1, max_size=6).filter(lambda kinds: kinds[-1] != "point")
ONCE_MORE = Retry(calls=2)
plain = Counter[str]()


def node(kind: str, number: int) -> Node:
    name = f"n{number}"
    if kind == "point":
        return point(name)
    return undoable(name)[0] if kind == "undoable" else task(name)


@settings(max_examples=600, deadline=None, database=None, derandomize=True)
@given(kinds=LINES, done=st.integers(0, 5), calls=st.integers(1, 2), seed=st.integers(0, 2**32))
def _turn_back(kinds: list[str], done: int, calls: int, seed: int) -> None:
    """A line of steps and save points, one of which fails; its compensations succeed or not. The world compares."""
    world = World(line(*(node(kind, n) for n, kind in enumerate(kinds)), retry=Retry(calls=calls)), seed)
    assert world.deliver(Started(msgspec.json.encode(world.input)))
    for _ in range(min(done, sum(kind != "point" for kind in kinds) - 1)):
        work = world.work["0"]
        assert world.deliver(WorkDone("0", work.step, work.fence, b'{"n":1}', work.calls))
    work = world.work["0"]
    assert world.deliver(WorkFailed("0", work.step, work.fence, BOOM, work.calls, False, work.input))
    while world.instance.status not in TERMINAL:
        world.finish_work()
        world.fire_timer()
    world.check_taken_back()
    plain.update(world.plain)


def test_both_ways_give_the_same_rollback() -> None:
    plain.clear()
    _turn_back()
    assert min(plain[kind] for kind in ("fail", "plan", "undo", "undone")) >= 50, f"hardly compared: {plain}"


def fails(program: Program, *done: str) -> tuple[str, str]:
    """How the failure of the last step, and the plan behind it, were decided."""
    run = Run(program).start()
    for name in done:
        run.done(name)
    run.fail(run.nodes[0], retryable=False)
    assert run.last is not None
    return run.asked.plain, run.last.plain


def test_steps_one_after_another_go_the_short_way() -> None:
    assert fails(line(*undoable("a", "b", "c")), "a", "b") == ("fail", "plan")


def test_so_does_what_lies_behind_a_save_point() -> None:
    run = Run(line(*undoable("a"), point(), *undoable("b", "c"))).start()
    run.done("a")
    run.done("b")
    run.fail("c", retryable=False)
    assert run.last is not None
    assert run.last.plain == "plan"
    assert take_back(run) == ["un-c", "un-b"]


def test_a_fork_that_is_over_is_planned_at_length() -> None:
    nodes = [*undoable("a"), split("fork"), *undoable("b", "c"), join("join"), *undoable("d")]
    edges = [*chain("a", "fork"), edge("fork", "b"), edge("fork", "c"), edge("b", "join"), edge("c", "join")]
    program = saga(nodes, [*edges, *chain("join", "d", "end")])
    assert fails(program, "a", "b", "c") == ("fail", "")


def test_nothing_to_run_is_planned_at_length() -> None:
    run = Run(line(task("a"), task("b"))).start()
    run.done("a")
    run.fail("b", retryable=False)
    assert run.asked.plain == "fail"
    assert run.status == "failed"


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(line(*undoable("a", retry=ONCE_MORE)), id="a call is left"),
        pytest.param(line(*undoable("a"), policy=Policy(on_error="dlq")), id="another policy"),
        pytest.param(line(*undoable("a"), policy=msgspec.structs.replace(SAGA, timeout=9.0)), id="a timer to be ended"),
        pytest.param(
            saga(undoable("a", "b"), [*chain("a", "b", "end"), edge("a", "b", "error")]), id="an edge leads on"
        ),
    ],
)
def test_anything_else_fails_at_length(program: Program) -> None:
    run = Run(program).start()
    run.fail("a")
    assert run.last is not None
    assert run.last.plain != "fail"
