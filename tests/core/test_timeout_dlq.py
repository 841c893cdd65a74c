"""Out of time in DLQ mode: what is out then is told, awaited and counts; nothing begins after it (decision 0014)."""

from __future__ import annotations

import msgspec
import pytest
from core_graphs import chain, edge, end, join, line, program, split, state, task, timer
from core_run import BOOM, Run

from holdfast import Branch, Flow
from holdfast.core.model.program import link
from holdfast.core.model.signals import Abort, Cancel, Failure, Requeue, Resume, Suspend, WorkDone
from holdfast.doors.saga.lowering import lower
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Child, Node, Policy, Retry

LATE = Policy(on_error="dlq", timeout=60)
MAIL = Node(id="d", kind="notification", handler="mail")


def test_a_handler_that_is_out_when_the_time_is_over_is_told_and_its_success_counts() -> None:
    run = Run(line(task("a"), task("b"), policy=LATE)).start().expire()
    assert (run.status, run.last.stops, run.last.letters, run.last.released) == ("running", ("0",), (), [])
    assert (run.row("a").status, run.at("a")[1].phase) == ("running", "expiring")
    run.done("a", {"v": 1})
    assert (run.status, run.instance.reason) == ("dlq", "WORKFLOW_TIMEOUT")
    assert (run.row("a").status, run.row("b").status, run.last.dispatches) == ("completed", "paused", [])
    [letter] = run.last.letters
    assert (letter.node, letter.reason, letter.input, letter.calls) == ("b", "WORKFLOW_TIMEOUT", b'{"v":1}', 0)
    run.apply(Requeue(letter.id, letter.step))
    assert (run.status, run.done("b").status) == ("running", "completed")


def test_a_late_success_ends_the_instance_where_nothing_is_left_to_begin() -> None:
    graph = line(task("a"), Node(id="map", kind="script", input={"v": "2"}), policy=LATE)
    run = Run(graph).start().expire().done("a")
    assert (run.status, run.data, run.last.letters) == ("completed", {"v": 2}, ())


def test_every_branch_that_a_late_success_would_begin_is_a_letter() -> None:
    fork = program(
        [task("first"), split("fork"), task("a"), state("b"), timer("c", 90), MAIL, join("meet"), end()],
        [
            *chain("first", "fork"), edge("b", "meet", "go"),
            *(edge("fork", n) for n in "abcd"), *(edge(n, "meet") for n in "acd"), *chain("meet", "end"),
        ],
        LATE,
    )  # fmt: skip
    run = Run(fork).start().expire().done("first")
    assert (run.status, sorted(letter.node for letter in run.last.letters)) == ("dlq", ["a", "b", "c", "d"])
    assert (run.last.effects, run.last.timers, run.last.dispatches) == ([], [], [])
    for letter in run.last.letters:
        run.apply(Requeue(letter.id, letter.step))
    assert (run.status, run.done("a").event("go").fire("c", "timer").status) == ("running", "completed")


@pytest.mark.parametrize(
    ("failure", "code"),
    [(BOOM, "BOOM"), (Failure("STOPPED", "It was told to."), "WORKFLOW_TIMEOUT")],
    ids=["of its own", "because it was told to stop"],
)
def test_a_handler_that_comes_back_late_without_success_is_not_called_again(failure: Failure, code: str) -> None:
    run = Run(line(task("a", retry=Retry(calls=5)), policy=LATE)).start({"v": 1}).expire().fail("a", failure)
    [letter] = run.last.letters
    assert (run.status, letter.reason, letter.input) == ("dlq", "WORKFLOW_TIMEOUT", b'{"v":1}')
    assert msgspec.json.decode(letter.error or b"")["code"] == code
    assert [(r.path, r.fence) for r in run.last.released] == [("0", 1)]


def test_what_may_fail_leads_on_even_late() -> None:
    graph = line(task("a", best_effort=True), task("b"), policy=LATE)
    run = Run(graph).start().expire().fail("a", retryable=False)
    assert (run.row("a").status, [letter.node for letter in run.last.letters]) == ("completed", ["b"])


def test_a_handler_that_does_not_come_back_has_its_own_deadline_still() -> None:
    graph = line(task("a", deadline=90), policy=LATE)
    run = Run(graph).start().expire().fire("a", "deadline")
    assert (run.status, [(x.node, x.reason) for x in run.last.letters]) == ("dlq", [("a", "WORKFLOW_TIMEOUT")])
    assert [(r.path, r.fence) for r in run.last.released] == [("0", 0)], "whoever runs it loses it"


@pytest.mark.parametrize(
    ("ended", "status", "letters"),
    [("completed", "completed", []), ("cancelled", "dlq", ["sub"]), ("failed", "dlq", ["sub"])],
)
def test_a_sub_flow_that_is_out_when_the_time_is_over_is_cancelled_and_awaited(
    ended: str, status: str, letters: list[str]
) -> None:
    graph = line(Node(id="sub", kind="sub_flow", child=Child(flow="invoice")), policy=LATE)
    run = Run(graph).start().expire()
    assert (run.status, [signal.kind for signal in run.last.outgoing]) == ("running", ["cancel"])
    run.child_finished("sub", ended)
    assert (run.status, [letter.node for letter in run.last.letters]) == (status, letters)


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_cancel_awaits_what_was_out_of_time_before_it(succeeds: bool) -> None:
    flow = Flow("f", dlq=True, timeout=60).step("pay", "pay", undo="refund").step("ship", "ship")
    run = Run(link(compile_graph(lower(flow.build())))).start().expire()
    run.apply(Cancel("too late"))
    assert (run.status, run.at("pay")[1].phase) == ("rolling_back", "cancelling")
    run = run.done("pay").done("refund") if succeeds else run.fail("pay")
    assert (run.status, run.row("pay").status) == ("cancelled", "rolled_back" if succeeds else "skipped")


def test_an_abort_does_not_wait_for_what_was_out_of_time() -> None:
    run = Run(line(task("a"), policy=LATE)).start().expire()
    run.apply(Abort("enough"))
    assert (run.status, [(r.path, r.fence) for r in run.last.released]) == ("aborted", [("0", 0)])


def test_what_comes_back_late_to_a_suspended_instance_is_held_like_anything_else() -> None:
    run = Run(line(task("a"), task("b"), policy=LATE)).start().expire()
    run.apply(Suspend())
    run.done("a")
    assert (run.status, run.at("b")[1].phase) == ("suspended", "held")
    run.apply(Resume())
    assert (run.status, run.done("b").status) == ("running", "completed")


def test_the_loser_of_a_race_may_be_out_of_time_and_is_taken_back_if_it_succeeds() -> None:
    flow = Flow("f", dlq=True, timeout=60).fork("f", Branch().step("a", "a", undo="una"), Branch().step("b", "b"))
    run = Run(link(compile_graph(lower(flow.join("j", "any").step("after", "after").build())))).start()
    path, slow = run.at("a")
    run.expire().done("b")
    assert (run.status, run.nodes, run.row("a").status) == ("dlq", ["after"], "cancelled")
    run.apply(WorkDone(path, slow.step, slow.fence, b"{}", 1))
    run.apply(Cancel("too late"))
    assert (run.nodes, run.done("una").status) == (["una"], "cancelled")


def test_giving_up_what_is_late_ends_the_chain_of_automatic_steps() -> None:
    fork = program(
        [split("fork"), task("a"), state("b"), task("c"), join("meet"), end()],
        [edge("fork", "a"), edge("fork", "b"), edge("b", "c", "go"), edge("a", "meet"), *chain("c", "meet", "end")],
        Policy(on_error="dlq", timeout=60, chain_limit=5),
    )
    run = Run(fork).start().expire()
    [letter] = run.last.letters
    run.apply(Requeue(letter.id, letter.step))
    assert run.event("go").instance.state.chain == 1
    run.fail("a")
    assert run.instance.state.chain == 0
