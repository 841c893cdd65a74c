"""Going backwards, decided by hand: what is taken back, in which order, and what stops it."""

from __future__ import annotations

from typing import Any

import pytest
from core_graphs import chain, condition, edge, end, join, program, split, state, task
from core_run import BOOM, Run
from core_world import World

from holdfast.core.model.decision import Release
from holdfast.core.model.program import Program
from holdfast.core.model.signals import (
    Abort,
    Actor,
    Cancel,
    Failure,
    Requeue,
    RequeueMany,
    Resume,
    Suspend,
    WorkDone,
    WorkFailed,
)
from holdfast.core.rollback import rollback as rolling
from holdfast.core.rollback.pending import Undo
from holdfast.errors import Conflict, Refused
from holdfast.graph.model import Child, Edge, Node, Policy, Retry

SAGA = Policy(on_error="rollback", on_cancel="rollback", data="value", missing="zero")
ADA = Actor("ada")


def undoable(*names: str, **options: Any) -> list[Node]:
    """Tasks that can be taken back: `a` by `un-a`."""
    return [task(name, undo=f"un-{name}", **options) for name in names]


def saga(nodes: list[Node], edges: list[Edge], policy: Policy = SAGA, **undo: Any) -> Program:
    """The compensations of the nodes are added; `undo` are their options."""
    compensations = [
        Node(id=node.undo, kind="compensation", handler="undo", **undo) for node in nodes if node.undo is not None
    ]
    return program([*nodes, end(), *compensations], edges, policy)


def line(*nodes: Node, policy: Policy = SAGA, **undo: Any) -> Program:
    return saga(list(nodes), chain(*(node.id for node in nodes), "end"), policy, **undo)


def point(id: str = "point") -> Node:
    return Node(id=id, kind="save_point")


def take_back(run: Run) -> list[str]:
    """Let every compensation succeed; answers them in the order they were called."""
    order: list[str] = []
    while run.status == "rolling_back" and run.tokens:
        [node] = run.nodes
        order.append(node)
        run.done(node)
    return order


def forked(*branches: list[str], mode: str = "all", last: tuple[str, ...] = ("last",)) -> Program:
    """A first step, branches of steps side by side, their join, and what comes after: all of it undoable."""
    names = ["first", *(name for branch in branches for name in branch), *last]
    edges = [*chain("first", "fork"), *chain("meet", *last, "end")]
    for branch in branches:
        edges += [edge("fork", branch[0], priority=len(edges)), *chain(*branch, "meet")]
    return saga([*undoable(*names), split("fork"), join("meet", mode)], edges)


# --- the order --------------------------------------------------------------------------------------------------------


def test_the_failed_step_comes_first_and_then_everything_backwards() -> None:
    run = Run(line(*undoable("a", "b", "c"))).start().done("a").done("b").fail("c")
    assert (run.status, take_back(run)) == ("rolling_back", ["un-c", "un-b", "un-a"])
    assert (run.status, run.instance.reason) == ("failed", "BOOM")
    assert set(run.statuses().values()) == {"rolled_back"}


def test_compensations_have_rows_with_their_place_before_the_first_is_called() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a").fail("b")
    rows = sorted((r for r in run.table.rows.values() if r.kind == "compensate"), key=lambda r: r.opened_ordinal)
    assert [(row.node, row.path, row.hop, str(row.status)) for row in rows] == [
        ("un-b", "0", 1, "running"),
        ("un-a", "0", 0, "pending"),
    ]


def test_a_compensation_gets_the_input_and_the_output_of_its_step() -> None:
    run = Run(line(*undoable("a", "b"))).start({"v": 1}).done("a", {"v": 2}).fail("b")
    assert run.input("un-b") == {"input": {"v": 2}, "output": None}
    assert run.input("un-a") == {"input": {"v": 1}, "output": {"v": 2}}


def test_branches_are_taken_back_in_declaration_order_whatever_order_they_ran_in() -> None:
    run = Run(forked(["a1", "a2"], ["b1", "b2"])).start().done("first")
    for node in ("b1", "b2", "a1", "a2"):
        run.done(node)
    run.fail("last")
    assert take_back(run) == ["un-last", "un-a2", "un-a1", "un-b2", "un-b1", "un-first"]


def test_nested_forks_are_taken_back_from_the_inside() -> None:
    nodes = undoable("a", "x", "y", "z", "b", "last")
    edges = [
        edge("outer", "a"), edge("outer", "b", priority=1), *chain("a", "inner"), edge("inner", "x"),
        edge("inner", "y", priority=1), *chain("x", "meet"), *chain("y", "meet"), *chain("meet", "z", "join"),
        *chain("b", "join", "last", "end"),
    ]  # fmt: skip
    run = Run(saga([split("outer"), split("inner"), join("meet"), join("join"), *nodes], edges)).start()
    for node in ("b", "a", "y", "x", "z"):
        run.done(node)
    run.fail("last")
    assert take_back(run) == ["un-last", "un-z", "un-x", "un-y", "un-a", "un-b"]


def test_a_branch_inside_a_fork_fails_and_its_own_step_still_comes_first() -> None:
    run = Run(forked(["a1", "a2"], ["b1", "b2"])).start().done("first").done("a1").done("a2").done("b1").fail("b2")
    assert take_back(run) == ["un-b2", "un-a2", "un-a1", "un-b1", "un-first"]


def test_only_the_way_a_condition_took_is_taken_back() -> None:
    nodes = [condition("c"), *undoable("yes", "no", "last")]
    edges = [
        edge("c", "yes", when="input.n > 1"),
        edge("c", "no", priority=1),
        *chain("yes", "last", "end"),
        edge("no", "last"),
    ]
    run = Run(saga(nodes, edges)).start({"n": 0}).done("no").fail("last")
    assert take_back(run) == ["un-last", "un-no"]
    assert (run.row("c").status, "yes" in run.statuses()) == ("rolled_back", False)


def test_a_loop_takes_back_every_lap() -> None:
    nodes = [*undoable("a", "b"), condition("again")]
    edges = [
        *chain("a", "again"),
        edge("again", "a", when="input.n < 3"),
        edge("again", "b", priority=1),
        edge("b", "end"),
    ]
    run = Run(saga(nodes, edges)).start({"n": 0})
    for n in (1, 2, 3):
        run.done("a", {"n": n})
    run.fail("b")
    undone = []
    while run.status == "rolling_back":
        [node] = run.nodes
        undone.append((node, run.at(node)[1].hop))
        run.done(node)
    assert undone == [("un-b", 6), ("un-a", 4), ("un-a", 2), ("un-a", 0)]


def test_steps_without_a_compensation_are_taken_back_by_the_plan_itself() -> None:
    run = Run(line(task("a"), *undoable("b"), task("c"))).start().done("a").done("b").fail("c")
    assert (run.row("a").status, run.row("c").status, run.row("b").status) == (
        "rolled_back",
        "rolled_back",
        "compensation",
    )
    assert (take_back(run), run.status) == (["un-b"], "failed")


def test_a_saga_with_nothing_to_undo_fails_in_one_go() -> None:
    run = Run(line(task("a"))).start().fail("a")
    assert (run.status, run.row("a").status, run.tokens) == ("failed", "rolled_back", {})


# --- save points ------------------------------------------------------------------------------------------------------


def test_the_nearest_save_point_ends_the_chain_and_stands() -> None:
    steps = [undoable(name)[0] for name in "abc"]
    run = Run(line(steps[0], point("p"), steps[1], point("q"), steps[2])).start().done("a").done("b").fail("c")
    assert take_back(run) == ["un-c"]
    assert run.statuses() == {
        "a": "completed", "p": "completed", "b": "completed", "q": "completed", "c": "rolled_back",
    }  # fmt: skip


def test_a_save_point_that_was_not_reached_ends_nothing() -> None:
    a, b = undoable("a", "b")
    run = Run(line(a, b, point(), task("c"))).start().done("a").fail("b")
    assert take_back(run) == ["un-b", "un-a"]


def test_a_cancel_goes_past_every_save_point() -> None:
    a, b = undoable("a", "b")
    run = Run(line(a, point(), b, state("rest"))).start().done("a").done("b")
    run.apply(Cancel("enough"), ADA)
    assert (take_back(run), run.status, run.row("point").status) == (["un-b", "un-a"], "cancelled", "rolled_back")
    assert run.instance.reason == "enough"


# --- siblings ---------------------------------------------------------------------------------------------------------


def test_siblings_that_run_may_finish_and_are_taken_back() -> None:
    run = Run(forked(["a1", "a2"], ["b1"])).start().done("first").fail("b1")
    assert (run.status, run.nodes, run.at("a1")[1].phase) == ("rolling_back", ["a1"], "cancelling")
    assert (run.last.halts, run.last.stops) == (("0/1.0",), ())
    run.done("a1", {"v": 1})
    assert take_back(run) == ["un-b1", "un-a1", "un-first"]
    assert "a2" not in run.statuses()


def test_a_sibling_that_fails_late_is_taken_back_in_its_place() -> None:
    run = Run(forked(["a1"], ["b1"])).start().done("first").fail("b1").fail("a1", Failure("LATE", "too"))
    assert (take_back(run), run.instance.reason) == (["un-b1", "un-a1", "un-first"], "BOOM")


def test_siblings_that_nobody_has_begun_are_skipped() -> None:
    run = Run(forked(["a1"], ["b1"])).start().done("first")
    path, token = run.at("b1")
    failed = WorkFailed(path, token.step, token.fence, BOOM, 1, True, b"{}")
    run.apply(failed, idle=frozenset({run.at("a1")[0]}))
    assert (run.row("a1").status, take_back(run)) == ("skipped", ["un-b1", "un-first"])


def test_siblings_that_wait_are_skipped_unless_they_were_called_before() -> None:
    nodes = [
        split("fork"),
        state("rest"),
        *undoable("again", retry=Retry(calls=3, delay=9)),
        *undoable("bad"),
        join("meet"),
    ]
    edges = [
        edge("fork", "rest"), edge("fork", "again", priority=1), edge("fork", "bad", priority=2),
        edge("rest", "meet", "go"), *chain("again", "meet"), *chain("bad", "meet", "end"),
    ]  # fmt: skip
    run = Run(saga(nodes, edges)).start().fail("again").fail("bad")
    assert take_back(run) == ["un-bad", "un-again"]
    assert (run.row("rest").status, run.row("again").status) == ("skipped", "rolled_back")


def test_nothing_goes_forward_any_more() -> None:
    run = Run(forked(["a1", "a2"], ["b1"])).start().done("first").fail("b1").done("a1")
    assert run.nodes == ["un-b1"]
    for signal in (Cancel(), Requeue(b"l" * 16, b"s" * 16)):
        with pytest.raises(Conflict, match="INSTANCE_ROLLING_BACK"):
            run.apply(signal)
    with pytest.raises(Conflict, match="INSTANCE_ROLLING_BACK"):
        run.event("go")


# --- races ------------------------------------------------------------------------------------------------------------


def test_what_a_loser_had_completed_stays_in_the_plan() -> None:
    run = Run(forked(["a1", "a2"], ["b1"], mode="any")).start().done("first").done("a1").done("b1").fail("last")
    path, ghost = next(iter(run.instance.state.ghosts.items()))
    run.apply(WorkFailed(path, ghost.step, ghost.fence, BOOM, 1, False, b"{}"))
    assert (take_back(run), run.row("a2").status) == (["un-last", "un-a1", "un-b1", "un-first"], "cancelled")


def test_a_loser_that_succeeds_late_is_evidence_and_taken_back_too() -> None:
    run = Run(forked(["a1"], ["b1"], mode="any")).start().done("first")
    path, token = run.at("a1")
    run.done("b1")
    assert (run.row("a1").status, run.last.stops, run.nodes) == ("cancelled", (path,), ["last"])
    run.apply(WorkDone(path, token.step, token.fence, b'{"v":9}'))
    run.fail("last")
    assert run.input("un-a1")["output"] == {"v": 9}
    assert take_back(run) == ["un-last", "un-a1", "un-b1", "un-first"]
    assert (run.status, run.row("a1").status) == ("failed", "cancelled")


def test_a_rollback_waits_for_a_loser_that_may_still_succeed() -> None:
    run = Run(forked(["a1"], ["b1"], mode="any")).start().done("first")
    path, token = run.at("a1")
    run.done("b1").fail("last")
    assert (run.status, run.nodes) == ("rolling_back", [])
    run.apply(WorkDone(path, token.step, token.fence, b"{}"))
    assert take_back(run) == ["un-last", "un-a1", "un-b1", "un-first"]


def test_a_loser_that_nobody_has_begun_is_not_waited_for() -> None:
    """Its work may have been queued in the very batch that decided the race: no worker would ever answer for it."""
    run = Run(forked(["a1"], ["b1"], mode="any")).start().done("first")
    path, _ = run.at("a1")
    winner, token = run.at("b1")
    run.apply(WorkDone(winner, token.step, token.fence, b"{}"), idle=frozenset({path}))
    assert (run.instance.state.ghosts, run.last.stops, Release(path, 0) in run.last.released) == ({}, (), True)
    run.fail("last")
    assert take_back(run) == ["un-last", "un-b1", "un-first"]


def test_a_loser_with_an_old_fence_is_no_evidence() -> None:
    run = Run(forked(["a1"], ["b1"], mode="any")).start().done("first")
    path, token = run.at("a1")
    run.done("b1")
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(WorkDone(path, token.step, token.fence - 1, b"{}"))


def test_a_saga_that_completes_lets_its_losers_go() -> None:
    run = Run(forked(["a1"], ["b1"], mode="any")).start().done("first")
    path, _ = run.at("a1")
    run.done("b1").done("last")
    assert (run.status, run.instance.state.ghosts) == ("completed", {})
    assert Release(path, 0) in run.last.released


def test_a_race_that_everybody_loses_fails_at_its_join() -> None:
    run = Run(forked(["a1"], ["b1"], mode="any")).start().done("first").fail("b1")
    assert (run.status, run.row("b1").status) == ("running", "failed")
    run.fail("a1")
    assert take_back(run) == ["un-a1", "un-b1", "un-first"]
    assert run.row("meet").status == "rolled_back"


# --- compensations that do not work -----------------------------------------------------------------------------------


def test_a_compensation_is_called_as_often_as_it_says_and_the_row_stays_the_same() -> None:
    other = Failure("OTHER", "not now")
    run = Run(line(*undoable("a"), retry=Retry(calls=3))).start().fail("a").fail("un-a", other).fail("un-a", other)
    assert (run.row("un-a").calls, run.row("a").status) == (3, "compensation")
    assert (b"BOOM" in (run.row("a").error or b""), run.last.error) == (True, None)
    run.done("un-a")
    assert (run.status, run.row("a").status, len(run.rows("un-a"))) == ("failed", "rolled_back", 1)


def test_a_compensation_out_of_calls_leaves_a_letter_and_the_chain_goes_on() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a").fail("b").fail("un-b")
    [letter] = run.last.letters
    assert (letter.source, letter.node, letter.reason) == ("compensation", "un-b", "COMPENSATION_EXHAUSTED")
    assert (run.row("b").status, run.nodes) == ("failed", ["un-a"])
    assert (take_back(run), run.status) == (["un-a"], "failed")


def test_a_cancel_whose_compensation_fails_ends_failed() -> None:
    run = Run(line(*undoable("a"), state("rest"))).start().done("a")
    run.apply(Cancel())
    assert run.fail("un-a").status == "failed"


def test_a_dead_compensation_runs_again_and_the_instance_stays_what_it_is() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a").fail("b").fail("un-b")
    [letter] = run.last.letters
    take_back(run)
    row = run.row("un-b")
    undo = Undo("un-b", row.path, row.hop, row.id, row.created_at, run.row("b").id, run.row("b").created_at, row.fence)
    run.apply(Requeue(letter.id, letter.step, letter.input, undo=undo), ADA)
    assert (run.status, run.nodes) == ("failed", ["un-b"])
    run.done("un-b")
    assert (run.status, run.row("b").status, run.tokens) == ("failed", "rolled_back", {})
    assert [str(row.status) for row in run.rows("un-b")] == ["superseded", "completed"]


def test_several_dead_compensations_run_again_one_after_another() -> None:
    run = Run(line(*undoable("a", "b", "c"))).start().done("a").done("b").fail("c")
    letters = [run.fail(f"un-{step}").last.letters[0] for step in ("c", "b")]
    run.done("un-a")
    undos = [_undo(run, step, fence=run.row("un-a").fence) for step in ("c", "b")]
    parts = [
        Requeue(letter.id, letter.step, letter.input, undo=undo) for letter, undo in zip(letters, undos, strict=True)
    ]
    run.apply(RequeueMany(tuple(parts)), ADA)
    assert (run.status, run.nodes, len(run.last.letters_resolved)) == ("failed", ["un-c"], 2)
    assert (run.done("un-c").nodes, run.done("un-b").nodes) == (["un-b"], [])
    assert (run.status, run.row("b").status, run.row("c").status) == ("failed", "rolled_back", "rolled_back")


def _undo(run: Run, step: str, fence: int) -> Undo:
    row, of = run.row(f"un-{step}"), run.row(step)
    return Undo(row.node, row.path, row.hop, row.id, row.created_at, of.id, of.created_at, fence)


# --- cancel, abort, suspend, time -------------------------------------------------------------------------------------


def test_a_cancel_tells_handlers_to_stop_and_takes_back_what_they_still_complete() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a")
    run.apply(Cancel("enough"), ADA)
    assert (run.last.stops, run.at("b")[1].phase) == (("0",), "cancelling")
    run.done("b", {"v": 1})
    assert (take_back(run), run.status) == (["un-b", "un-a"], "cancelled")


def test_a_handler_that_obeys_a_cancel_has_nothing_to_take_back() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a")
    run.apply(Cancel())
    run.fail("b", Failure("STOPPED", "told to"), retryable=False)
    assert (run.row("b").status, take_back(run), run.status) == ("skipped", ["un-a"], "cancelled")


def test_an_abort_ends_a_rollback_and_says_what_was_not_taken_back() -> None:
    run = Run(line(*undoable("a", "b", "c"))).start().done("a").done("b").fail("c").done("un-c")
    run.apply(Abort("stop it"), ADA)
    assert (run.status, run.table.open_rows) == ("aborted", [])
    assert run.statuses() == {"a": "completed", "b": "failed", "c": "rolled_back"}
    assert (run.row("un-b").status, run.row("un-a").status) == ("skipped", "skipped")


def test_an_abort_compensates_nothing() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a")
    run.apply(Abort())
    assert (run.status, run.statuses()) == ("aborted", {"a": "completed", "b": "skipped"})


def test_a_rollback_that_is_suspended_holds_between_two_compensations() -> None:
    run = Run(line(*undoable("a", "b"))).start().done("a").fail("b")
    run.apply(Suspend("AUDIT"), ADA)
    run.done("un-b")
    assert (run.status, run.nodes, run.row("un-a").status) == ("suspended", [], "pending")
    run.apply(Resume(), ADA)
    assert (run.status, run.instance.reason) == ("rolling_back", "BOOM")
    assert (take_back(run), run.status) == (["un-a"], "failed")


def test_the_pause_of_a_compensation_that_falls_due_while_suspended_is_caught_up() -> None:
    run = Run(line(*undoable("a"), retry=Retry(calls=2, delay=9))).start().fail("a").fail("un-a")
    run.apply(Suspend())
    run.fire("un-a", "retry")
    assert run.at("un-a")[1].phase == "retrying"
    run.apply(Resume())
    assert (run.at("un-a")[1].phase, take_back(run)) == ("working", ["un-a"])


def test_an_instance_out_of_time_tells_its_handlers_and_rolls_back() -> None:
    policy = Policy(on_error="rollback", on_cancel="rollback", data="value", timeout=60)
    run = Run(line(*undoable("a", "b"), policy=policy)).start().done("a").expire()
    assert (run.last.stops, run.status, run.instance.reason) == (("0",), "rolling_back", "WORKFLOW_TIMEOUT")
    run.done("b")
    assert (take_back(run), run.status) == (["un-b", "un-a"], "failed")


def test_a_rollback_does_not_expire() -> None:
    policy = Policy(on_error="rollback", on_cancel="rollback", data="value", timeout=60)
    run = Run(line(*undoable("a"), policy=policy)).start().fail("a")
    assert run.instance.state.expires is None
    assert take_back(run) == ["un-a"]


def test_a_missed_deadline_rolls_back_like_any_failure() -> None:
    run = Run(line(*undoable("a"), *undoable("b", deadline=9))).start().done("a").fire("b", "deadline")
    assert (take_back(run), run.status) == (["un-b", "un-a"], "failed")


def test_a_compensation_has_a_fence_that_no_step_of_its_path_has_had() -> None:
    """A handler is told to stop by path and fence: the compensation of an earlier step must not be meant."""
    run = Run(line(*undoable("a"), task("b"), task("c"))).start().done("a").done("b")
    fences = [row.fence for row in run.table.rows.values()]
    run.apply(Cancel())
    run.fail("c")
    [dispatch] = run.last.dispatches
    assert (dispatch.node, max(fences)) == ("un-a", 3)
    assert dispatch.fence == 4


def test_nor_has_a_compensation_that_comes_back_to_its_path() -> None:
    run = Run(forked(["a1", "a2"], ["b1", "b2"])).start().done("first")
    run.done("a1").done("a2").done("b1").fail("b2")
    used: dict[str, list[int]] = {}
    while run.status == "rolling_back":
        [dispatch] = run.last.dispatches
        used.setdefault(dispatch.path, []).append(dispatch.fence)
        run.done(dispatch.node)
    assert used == {"0/1.1": [3, 4], "0/1.0": [3, 4], "0": [2]}


# --- sub-flows --------------------------------------------------------------------------------------------------------


def _with_a_child() -> Program:
    return line(*undoable("a"), Node(id="sub", kind="sub_flow", child=Child(flow="child")), task("b"))


def test_a_sub_flow_that_fails_rolls_its_parent_back() -> None:
    run = Run(_with_a_child()).start().done("a").child_finished("sub", "failed")
    assert (take_back(run), run.instance.reason) == (["un-a"], "CHILD_FAILED")


def test_a_cancel_cascades_to_a_sub_flow_and_waits_for_its_end() -> None:
    run = Run(_with_a_child()).start().done("a")
    run.apply(Cancel())
    assert [outgoing.kind for outgoing in run.last.outgoing] == ["cancel"]
    assert (run.status, run.nodes) == ("rolling_back", ["sub"])
    run.child_finished("sub", "cancelled")
    assert (run.row("sub").status, take_back(run), run.status) == ("skipped", ["un-a"], "cancelled")


def test_a_sub_flow_that_completes_after_the_cancel_is_undone_by_its_own_compensation() -> None:
    sub = Node(id="sub", kind="sub_flow", child=Child(flow="child"), undo="un-sub")
    run = Run(line(sub, task("b"))).start()
    run.apply(Cancel())
    run.child_finished("sub", "completed", {"v": 1})
    assert run.input("un-sub")["output"] == {"v": 1}
    assert (take_back(run), run.row("sub").status) == (["un-sub"], "rolled_back")


# --- the world that checks all this would notice ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda order: reversed(order),
        lambda order: order[:-1],
        lambda order: [*order[1:], *order[:1]],
    ],
    ids=["oldest first", "one is forgotten", "the failed step last"],
)
def test_the_random_worlds_turn_red_for_a_wrong_order(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    right = rolling.backwards
    monkeypatch.setattr(rolling, "backwards", lambda *known: iter(list(wrong(list(right(*known))))))
    with pytest.raises(AssertionError, match=r"promised order|left behind|may not become"):
        _many_worlds()


def test_the_random_worlds_are_green_for_the_right_one() -> None:
    _many_worlds()


def _many_worlds() -> None:
    for mode in ("all", "any"):
        known = forked(["a1", "a2"], ["b1", "b2"], mode=mode)
        for seed in range(100):
            World(known, seed).run(steps=30)


def test_a_cancel_skips_what_is_between_two_calls() -> None:
    run = Run(line(*undoable("a", retry=Retry(calls=3, delay=60)))).start().fail("a")
    run.apply(Cancel("x"), ADA)
    assert (run.status, run.row("a").status) == ("cancelled", "skipped")
