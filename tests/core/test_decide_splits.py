"""Splits, joins, escapes: how tokens part, meet and leave their siblings behind."""

from __future__ import annotations

import msgspec
import pytest
from core_graphs import chain, condition, edge, end, join, program, split, state, task, terminal
from core_run import Run

from holdfast.core.model.program import Program
from holdfast.core.model.signals import Resume, Suspend, WorkDone
from holdfast.errors import Refused
from holdfast.graph.model import Node, Policy, Wait


def _fork(mode: str = "all", **policy: str) -> Program:
    return program(
        [task("first"), split("fork"), task("a"), task("b"), join("meet", mode), task("last"), end()],
        [
            *chain("first", "fork"), edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet"),
            *chain("meet", "last", "end"),
        ],
        Policy(**policy),
    )  # fmt: skip


def test_branches_get_a_copy_of_the_value_and_paths_of_their_own() -> None:
    run = Run(_fork()).start().done("first", {"v": 1})
    assert sorted(run.tokens) == ["0/1.0", "0/1.1"]
    assert (run.input("a"), run.input("b")) == ({"v": 1}, {"v": 1})


def test_all_waits_for_everyone_and_passes_outputs_on_in_declaration_order() -> None:
    run = Run(_fork()).start().done("first").done("b", {"b": 2})
    assert run.nodes == ["a"]
    run.done("a", {"a": 1})
    value = run.input("last")
    assert value == {
        "strategy": "all", "status": "completed", "completed": 2, "failed": 0,
        "outputs": {"a": {"a": 1}, "b": {"b": 2}},
    }  # fmt: skip
    assert list(value["outputs"]) == ["a", "b"]
    assert (run.row("meet").hop, run.row("meet").path) == (2, "0")
    assert run.done("last").status == "completed"


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_branch_that_ends_before_any_step_is_named_after_its_condition(mode: str) -> None:
    """In the snapshot and, because every decision is replayed, from the rows."""
    graph = program(
        [
            split("fork"), task("a"), condition("c1"), condition("c2"), task("x"), join("meet", mode), task("last"),
            end(),
        ],
        [
            edge("fork", "a"), edge("fork", "c1"), edge("c1", "c2"), edge("c2", "x", when="input.n > 1", priority=1),
            edge("c2", "meet", priority=2), edge("a", "meet"), edge("x", "meet"), *chain("meet", "last", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start({"n": 1})
    if mode == "all":
        run.done("a", 2)
    assert run.input("last")["outputs"] == {**({"a": 2} if mode == "all" else {}), "c1": {"n": 1}}


def test_a_branch_of_one_edge_is_named_after_its_split() -> None:
    graph = program(
        [split("fork"), task("a"), join("meet"), task("last"), end()],
        [edge("fork", "a"), edge("fork", "meet"), edge("a", "meet"), *chain("meet", "last", "end")],
    )
    assert Run(graph).start({"n": 1}).done("a", 2).input("last")["outputs"] == {"a": 2, "fork": {"n": 1}}


def test_any_goes_on_with_the_first_and_cancels_the_rest() -> None:
    run = Run(_fork("any")).start().done("first")
    loser = run.at("a")[1]
    run.done("b", {"b": 2})
    assert run.input("last")["outputs"] == {"b": {"b": 2}}
    assert (run.row("a").status, run.row("a").outcome) == ("cancelled", "join_settled")
    assert ("0/1.0", 0) in [(r.path, r.fence) for r in run.last.released]
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(WorkDone("0/1.0", loser.step, loser.fence, b"{}"))


def test_a_failed_branch_just_loses_the_race() -> None:
    run = Run(_fork("any")).start().done("first").fail("a")
    assert (run.status, run.nodes) == ("running", ["b"])
    run.done("b", {"b": 2})
    assert run.input("last") == {
        "strategy": "any", "status": "completed", "completed": 1, "failed": 1, "outputs": {"b": {"b": 2}},
    }  # fmt: skip


def test_when_every_branch_failed_the_join_fails() -> None:
    run = Run(_fork("any")).start().done("first").fail("a").fail("b")
    assert (run.status, run.row("meet").status) == ("failed", "failed")
    assert msgspec.json.decode(run.row("meet").output or b"")["failed"] == 2


def test_a_failed_join_takes_its_error_edge() -> None:
    graph = program(
        [split("fork"), task("a"), task("b"), join("meet", "any"), task("repair"), end()],
        [
            edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet"), edge("meet", "end"),
            edge("meet", "repair", "error"), edge("repair", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start().fail("a").fail("b")
    assert run.nodes == ["repair"]
    assert run.done("repair").status == "completed"


def test_a_race_that_hangs_on_one_branch_suspends_with_it() -> None:
    run = Run(_fork("any", on_error="suspend")).start().done("first").fail("a").fail("b")
    assert (run.status, run.tokens["0/1.1"].phase) == ("suspended", "dead")
    run.apply(Resume())
    assert run.done("b").nodes == ["last"]


def _fork_in_a_race(**policy: str) -> Program:
    """One branch is a task; the other parts once more, and all of that have to meet."""
    return program(
        [split("race"), task("a"), split("both"), task("b"), task("c"), join("met"), join("won", "any"), end()],
        [
            edge("race", "a"), edge("race", "both"), edge("both", "b"), edge("both", "c"), edge("b", "met"),
            edge("c", "met"), edge("met", "won"), edge("a", "won"), edge("won", "end"),
        ],
        Policy(**policy),
    )  # fmt: skip


@pytest.mark.parametrize("on_error", ["fail", "rollback", "suspend", "dlq"])
def test_a_branch_that_fails_deep_inside_its_forks_just_loses_the_race(on_error: str) -> None:
    run = Run(_fork_in_a_race(on_error=on_error)).start().fail("b")
    assert (run.status, run.nodes, run.row("b").status) == ("running", ["a"], "failed")
    assert (run.row("c").status, run.row("c").outcome) == ("cancelled", "branch_failed")
    assert run.done("a", {"a": 1}).status == "completed"
    assert (run.data["failed"], run.data["outputs"]) == (1, {"a": {"a": 1}})


def test_a_race_whose_last_branch_fails_deep_inside_its_forks_is_lost() -> None:
    run = Run(_fork_in_a_race()).start().fail("a").fail("c")
    assert (run.status, run.row("won").status, "met" in run.statuses()) == ("failed", "failed", False)
    assert (run.row("b").status, run.row("b").outcome) == ("cancelled", "branch_failed")


def test_what_fails_deep_inside_the_last_branch_of_a_race_waits_for_a_person() -> None:
    run = Run(_fork_in_a_race(on_error="suspend")).start().fail("a").fail("b")
    assert (run.status, run.nodes) == ("suspended", ["b", "c"])
    run.apply(Resume())
    assert run.done("b").done("c").status == "completed"


def test_what_fails_deep_inside_a_race_in_a_pause_takes_its_siblings_along_when_that_is_over() -> None:
    run = Run(_fork_in_a_race()).start().fail("a")
    run.apply(Suspend())
    run.fail("b").fail("c")
    assert (run.status, run.nodes) == ("suspended", ["b", "c"])
    run.apply(Resume())
    assert (run.status, run.statuses()["won"]) == ("failed", "failed")


@pytest.mark.parametrize(("beside", "status"), [("b", "cancelled"), ("z", None)])
def test_what_fails_at_once_deep_inside_a_race_takes_along_what_has_not_begun(beside: str, status: str | None) -> None:
    """All in one decision; edges are taken by name, so what stands beside it was about to be handed out, or to come."""
    graph = program(
        [
            split("race"), split("both"), Node(id="keyless", kind="wait_event", wait=Wait(event="paid", key="input.k")),
            task(beside), join("met"), task("a"), join("won", "any"), end(),
        ],
        [
            edge("race", "a"), edge("race", "both"), edge("both", "keyless"), edge("both", beside),
            edge("keyless", "met"), edge(beside, "met"), edge("met", "won"), edge("a", "won"), edge("won", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start()
    assert (run.status, run.nodes, [d.node for d in run.last.dispatches]) == ("running", ["a"], ["a"])
    assert (run.row("keyless").status, run.statuses().get(beside)) == ("failed", status)
    assert run.done("a").status == "completed"


def test_a_failed_branch_of_an_all_join_fails_the_instance_and_stops_its_siblings() -> None:
    run = Run(_fork()).start().done("first").fail("a")
    assert (run.status, run.instance.reason) == ("failed", "BOOM")
    assert run.statuses() == {"first": "completed", "fork": "completed", "a": "failed", "b": "skipped"}


def test_a_join_fires_once_per_split_on_every_lap() -> None:
    graph = program(
        [split("fork"), task("a"), task("b"), join("meet"), state("ask"), end()],
        [
            edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet"), edge("meet", "ask"),
            edge("ask", "fork", "again"), edge("ask", "end", "enough"),
        ],
    )  # fmt: skip
    run = Run(graph).start()
    for _ in range(3):
        run.done("a").done("b").event("again")
    assert [row.hop for row in run.rows("meet")] == [1, 4, 7]
    assert run.done("b").done("a").event("enough").status == "completed"


NESTED = program(
    [split("outer"), split("inner"), task("a"), task("b"), join("in", "any"), task("c"), join("out"), end()],
    [
        edge("outer", "inner"), edge("outer", "c"), edge("inner", "a"), edge("inner", "b"), edge("a", "in"),
        edge("b", "in"), edge("in", "out"), edge("c", "out"), edge("out", "end"),
    ],
)  # fmt: skip


def test_scopes_nest() -> None:
    run = Run(NESTED).start()
    assert sorted(run.tokens) == ["0/0.0", "0/0.1/0.0", "0/0.1/0.1"]
    run.done("c", {"c": 1}).done("a", {"a": 1})
    assert run.status == "completed"
    assert run.data["outputs"]["in"]["outputs"] == {"a": {"a": 1}}
    assert run.data["outputs"]["c"] == {"c": 1}


def _with_escape(target: str = "draft") -> Program:
    """Two reviews in parallel; a rejection leaves the scope."""
    return program(
        [task("draft"), split("fork"), state("a"), state("b", deadline=60), join("meet"), terminal("cancelled"), end()],
        [
            edge("draft", "fork"), edge("fork", "a"), edge("fork", "b"), edge("a", "meet", "approved"),
            edge("b", "meet", "approved"), edge("a", target, "rejected"), edge("b", "meet", "timeout"),
            edge("a", "cancelled", "withdrawn"), edge("meet", "end"),
        ],
    )  # fmt: skip


def test_an_edge_that_leaves_the_scope_cancels_the_siblings_and_continues_the_parent() -> None:
    run = Run(_with_escape()).start().done("draft").event("rejected", {"why": "typo"})
    assert (run.nodes, list(run.tokens), run.instance.state.scopes) == (["draft"], ["0"], {})
    assert run.rows("draft")[-1].hop == 2
    assert run.row("b").outcome == "escaped"
    assert len(run.last.timers_ended) == 1, "the sibling's deadline ends with it"
    assert run.input("draft") == {"why": "typo"}


def test_join_and_escape_exclude_each_other() -> None:
    run = Run(_with_escape()).start().done("draft").event("approved", node="b").event("rejected").done("draft")
    assert run.rows("fork")[-1].hop == 3
    assert run.event("approved", node="a").event("approved", node="b").status == "completed"
    assert len(run.rows("meet")) == 1


def test_a_terminal_ends_the_whole_instance_from_inside_a_scope() -> None:
    run = Run(_with_escape()).start().done("draft").event("withdrawn")
    assert (run.status, run.row("b").status) == ("completed", "cancelled")


def test_an_end_inside_a_scope_ends_only_its_branch() -> None:
    graph = program(
        [split("fork"), task("a"), task("b"), join("meet"), end("stop"), end()],
        [edge("fork", "a"), edge("fork", "b"), edge("a", "stop"), edge("b", "meet"), edge("meet", "end")],
    )
    run = Run(graph).start().done("b", {"b": 1}).done("a")
    assert run.status == "completed"
    assert run.data["outputs"] == {"b": {"b": 1}}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_split_without_a_join_is_over_when_its_branches_are(order: tuple[str, str]) -> None:
    graph = program(
        [split("fork"), task("a"), task("b"), end("end_a"), end("end_b")],
        [edge("fork", "a"), edge("fork", "b"), edge("a", "end_a"), edge("b", "end_b")],
    )
    run = Run(graph).start().done(order[0], {"n": 1})
    assert run.status == "running"
    run.done(order[1], {"n": 2})
    assert (run.status, run.data) == ("completed", {"n": 2})


def test_work_dispatched_in_a_scope_that_is_left_in_the_same_breath_never_runs() -> None:
    graph = program(
        [split("fork"), task("a"), join("meet"), task("b"), end(), terminal("stop")],
        [
            edge("fork", "a"), edge("fork", "stop", priority=1), edge("a", "meet"), edge("fork", "b", priority=2),
            edge("b", "meet"), edge("meet", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start()
    assert (run.status, run.last.dispatches, run.statuses()) == (
        "completed", [], {"fork": "completed", "a": "cancelled", "stop": "completed"},
    )  # fmt: skip


def test_a_suspended_branch_waits_in_front_of_its_join() -> None:
    run = Run(_fork()).start().done("first").done("a", {"a": 1})
    run.apply(Suspend())
    run.done("b", {"b": 2})
    assert (run.tokens["0/1.1"].phase, run.tokens["0/1.1"].node) == ("held", "meet")
    run.apply(Resume())
    assert run.input("last")["completed"] == 2


def test_context_is_shared_and_the_last_closing_commit_wins() -> None:
    run = Run(_fork(data="context")).start({"k": 0}).done("first").done("b", {"k": 2, "b": 1}).done("a", {"k": 1})
    assert run.done("last").data == {"k": 1, "b": 1}
