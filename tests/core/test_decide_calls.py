"""Calls: they run inside the engine's transaction, so `decide` asks for them and is asked again with the answer."""

from __future__ import annotations

import pytest
from core_graphs import call, edge, end, join, line, program, split, state, task
from core_run import BOOM, Run

from holdfast.core.model.decision import Call
from holdfast.core.model.signals import CallDue, Cancel, Suspend
from holdfast.errors import Refused
from holdfast.graph.model import Policy, Retry


def test_a_batch_commits_up_to_the_call_and_enqueues_it() -> None:
    run = Run(line(task("a"), call("book"))).start().done("a", {"n": 1})
    [dispatch] = run.last.dispatches
    assert (dispatch.call, dispatch.queue, run.last.needs) == (True, "call:book", [])


def test_the_call_is_a_need_and_its_answer_a_fact() -> None:
    run = Run(line(call("book"), task("after"))).start({"n": 1})
    token = run.at("book")[1]
    decision = run.apply(CallDue("0", token.step, token.fence, 1, b'{"n":1}'), inline_calls=True)
    assert decision.needs == [Call(token.step, "0", "book", "book", "0@0", b'{"n":1}', 1)]
    run.run_call("book", {"booked": True})
    assert run.input("after") == {"booked": True}


def test_two_calls_in_a_row_run_in_one_transaction() -> None:
    run = Run(line(call("book"), call("check"), task("after"))).start()
    decision = run.run_call("book", {"ok": True})
    assert (run.nodes, [row.node for row in decision.opened]) == (["after"], ["check", "after"])
    assert (run.row("book").status, run.row("check").status) == ("completed", "completed")
    assert [(d.node, d.fence) for d in decision.dispatches] == [("after", 3)]


def test_a_call_that_is_not_run_inline_is_dispatched() -> None:
    run = Run(line(call("book"), call("check"))).start()
    path, token = run.at("book")
    run.apply(CallDue(path, token.step, token.fence, 1, b"{}"), answers={token.step: b"{}"})
    assert [d.node for d in run.last.dispatches] == ["check"]


def test_a_branch_that_is_cancelled_takes_its_need_along() -> None:
    graph = program(
        [call("first"), split("fork"), call("book"), state("ask"), join("meet", "any"), end()],
        [
            edge("first", "fork"), edge("fork", "book"), edge("fork", "meet", priority=1),
            edge("fork", "ask", priority=2), edge("book", "meet"), edge("ask", "meet", "go"), edge("meet", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start()
    path, token = run.at("first")
    run.apply(CallDue(path, token.step, token.fence, 1, b"{}"), inline_calls=True, answers={token.step: b"{}"})
    assert (run.status, run.last.needs, run.row("book").status) == ("completed", [], "cancelled")


def test_a_failed_call_is_retried_and_then_meets_the_policy() -> None:
    run = Run(line(call("book", retry=Retry(calls=2)), policy=Policy(on_error="suspend"))).start().fail("book")
    assert run.last.dispatches[0].call
    assert run.fail("book").status == "suspended"


def test_a_call_whose_turn_comes_after_the_cancel_is_skipped() -> None:
    run = Run(line(call("book"))).start()
    path, token = run.at("book")
    run.apply(Cancel())
    run.apply(CallDue(path, token.step, token.fence, 1, b"{}"), inline_calls=True)
    assert (run.status, run.row("book").status) == ("cancelled", "skipped")


def test_a_call_under_suspension_is_recorded_and_the_token_held() -> None:
    run = Run(line(call("book"), task("after"))).start()
    run.apply(Suspend())
    run.run_call("book", {"ok": True})
    assert (run.at("after")[1].phase, run.row("book").status) == ("held", "completed")


def test_a_call_due_for_another_step_is_stale() -> None:
    run = Run(line(call("book"))).start()
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(CallDue("0", b"x" * 16, 1, 1, b"{}"))


def test_a_failed_call_without_retry_fails_the_instance() -> None:
    assert Run(line(call("book"))).start().fail("book", BOOM).status == "failed"
