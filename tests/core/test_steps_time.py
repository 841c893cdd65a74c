"""Workflows that run out of time, and what they know of the request that started them."""

from __future__ import annotations

from typing import Any

import pytest
from core_graphs import edge, end, line, program, task, terminal
from core_run import Run

from holdfast.core.model.program import Program
from holdfast.core.model.signals import Reschedule, Resume, Suspend, TimerDue
from holdfast.core.model.timestamps import seconds
from holdfast.errors import Refused
from holdfast.graph.checks.check import check
from holdfast.graph.model import Edge, Graph, Node, Policy, Retry

DAY = 86_400.0


def policy(**options: Any) -> Policy:
    return Policy(on_error="suspend", data="context", chain_limit=10, keeps_error=True, **options)


def workflow(step: Node, *edges: Edge, kind: str = "steps", **options: Any) -> Program:
    """A step, then an end; beside them a step for what is late and one for what has expired."""
    nodes = [step, end(), task("chase"), terminal("expired"), end("gone")]
    ways = [edge(step.id, "end"), edge("chase", "end"), edge(step.id, "chase", "help"), edge("chase", "gone", "error")]
    return program(nodes, [*ways, *edges], policy(on_timeout="expired", timeout=3 * DAY, **options), kind=kind)


def review(**options: Any) -> Node:
    return Node(id="review", kind="human", **options)


ESCALATED = edge("review", "chase", "timeout")


def events(run: Run) -> list[str]:
    assert run.last is not None
    return [event.type for event in run.last.events]


# --- the workflow's own time ------------------------------------------------------------------------------------------


def test_a_workflow_that_expires_takes_the_timeout_edge_of_its_step() -> None:
    run = Run(workflow(review(), ESCALATED)).start().expire()
    assert (run.status, run.nodes) == ("running", ["chase"])
    assert (run.row("review").status, run.row("review").outcome) == ("failed", "timeout")
    assert events(run)[0] == "instance_expired"
    assert run.data["_last_error"]["code"] == "WORKFLOW_TIMEOUT"
    assert run.done("chase").status == "completed"


def test_a_limit_that_a_step_answered_begins_anew() -> None:
    run = Run(workflow(review(), ESCALATED)).start()
    first = run.instance.state.expires
    run.expire()
    second = run.instance.state.expires
    assert first is not None
    assert second is not None
    assert (second.due, second.ref == first.ref) == (run.now + seconds(3 * DAY), False)
    assert run.last is not None
    assert [(timer.id, timer.due) for timer in run.last.timers] == [(second.ref, second.due)]
    with pytest.raises(Refused) as stale:
        run.apply(TimerDue("", first.id, "expiry"))
    assert stale.value.code == "STALE_TIMER"
    assert run.expire().status == "completed", "the step it is at by then has no answer, so the workflow's own counts"
    assert (run.row("chase").outcome, run.row("expired").status) == ("expired", "completed")


def test_steps_that_answer_every_time_are_asked_every_time() -> None:
    run = Run(workflow(review(), edge("review", "review", "timeout"))).start()
    for _ in range(5):
        assert run.expire().nodes == ["review"]
    assert [row.outcome for row in run.rows("review")] == [*["timeout"] * 5, None]


def test_a_limit_that_began_anew_is_moved_and_lifted_like_the_first() -> None:
    run = Run(workflow(review(), ESCALATED)).start().expire()
    run.apply(Reschedule(None, delay=DAY))
    assert run.instance.state.expires is not None
    assert run.instance.state.expires.due == run.now + seconds(DAY)
    run.apply(Reschedule(None, cancelled=True))
    assert run.instance.state.expires is not None
    assert run.instance.state.expires.due is None


def test_where_the_workflow_goes_in_the_end_nothing_hurries_it() -> None:
    nodes = [review(), end(), task("tidy_up")]
    ways = [edge("review", "end"), edge("tidy_up", "end")]
    graph = program(nodes, ways, policy(on_timeout="tidy_up", timeout=3 * DAY), kind="steps")
    run = Run(graph).start().expire()
    assert (run.nodes, run.instance.state.expires) == (["tidy_up"], None)


def test_work_that_is_out_is_given_up() -> None:
    graph = workflow(task("work", retry=Retry(calls=2, delay=5)), edge("work", "chase", "timeout"))
    run = Run(graph).start().expire()
    assert (run.nodes, set(run.dispatched)) == (["chase"], {"0"})
    assert Run(graph).start().fail("work").expire().nodes == ["chase"]


def test_without_such_an_edge_it_goes_where_the_workflow_says() -> None:
    run = Run(workflow(review())).start({"n": 1}).expire()
    assert (run.status, run.row("review").outcome, run.data) == ("completed", "expired", {"n": 1})
    assert run.row("expired").status == "completed"
    assert "instance_expired" in events(run)


def test_an_edge_whose_condition_does_not_hold_is_none() -> None:
    graph = workflow(review(), edge("review", "chase", "timeout", when="workflow.n > 1"))
    assert Run(graph).start({"n": 1}).expire().status == "completed"
    assert Run(graph).start({"n": 2}).expire().nodes == ["chase"]


def test_with_neither_it_fails() -> None:
    graph = program([review(), end()], [edge("review", "end")], policy(timeout=DAY), kind="steps")
    run = Run(graph).start().expire()
    assert (run.status, run.instance.reason) == ("failed", "WORKFLOW_TIMEOUT")
    assert (run.row("review").status, run.row("review").outcome) == ("cancelled", "expired")


def test_in_other_graphs_the_whole_instance_expires() -> None:
    run = Run(workflow(review(), ESCALATED, kind="machine")).start().expire()
    assert (run.status, run.row("review").outcome) == ("completed", "expired")


def test_what_expired_while_it_was_suspended_does_so_on_resume() -> None:
    run = Run(workflow(review(), ESCALATED)).start()
    run.apply(Suspend())
    assert run.expire().nodes == ["review"]
    run.apply(Resume())
    assert run.nodes == ["chase"]


# --- the time of a step -----------------------------------------------------------------------------------------------


def test_a_step_that_runs_out_of_time_takes_its_edge() -> None:
    run = Run(workflow(review(deadline=DAY), ESCALATED)).start().fire("review", "deadline")
    assert (run.nodes, run.data["_last_error"]["code"]) == (["chase"], "STEP_TIMEOUT")
    assert run.instance.state.expires is not None


def test_without_an_edge_the_workflow_s_own_timeout_takes_over() -> None:
    run = Run(workflow(review(deadline=DAY), edge("review", "gone", "error"))).start({"n": 1})
    run.fire("review", "deadline")
    assert (run.status, run.row("expired").status, run.row("review").outcome) == ("completed", "completed", "expired")
    assert run.last is not None
    assert len(run.last.timers_ended) == 2, "that of the step, and that of the workflow"


def test_work_without_an_edge_is_given_up_too() -> None:
    run = Run(workflow(task("work", deadline=DAY))).start().fire("work", "deadline")
    assert (run.status, run.dispatched) == ("completed", {})


def test_a_step_timeout_that_leads_nowhere_fails_the_workflow() -> None:
    graph = program([review(deadline=DAY), end()], [edge("review", "end")], policy(), kind="steps")
    run = Run(graph).start().fire("review", "deadline")
    assert (run.status, run.instance.reason) == ("failed", "STEP_TIMEOUT")


def test_a_step_may_outlive_a_timeout_that_was_lifted() -> None:
    run = Run(workflow(review(deadline=DAY))).start()
    run.apply(Reschedule(None, cancelled=True))
    assert run.fire("review", "deadline").status == "completed"


def test_only_workflows_may_leave_the_edge_on_timeout_out() -> None:
    nodes = (review(deadline=DAY), Node(id="end", kind="end"))
    edges = (edge("review", "end", "go"),)
    for kind, codes in (("steps", []), ("machine", ["TIMEOUT_EDGE_MISSING"])):
        graph = Graph(name="x", entry="review", nodes=nodes, edges=edges, kind=kind)
        assert [found.code for found in check(graph)] == codes


# --- the request ------------------------------------------------------------------------------------------------------

ASKED = {
    "tenant": "context.tenant_id",
    "subject": "context.subject_id",
    "partition": "context.partition_id",
    "correlation": "context.correlation_id",
    "own": "workflow.tenant_id",
    "order": "context.order_id",
}
REQUEST = {"starter": "ann", "partition": "eu", "correlation": "c-1"}
STATE = {"tenant_id": "theirs", "subject_id": "eve", "order_id": "o-1"}


def test_the_context_of_a_workflow_tells_the_request_and_the_state_keeps_its_own_names() -> None:
    run = Run(line(task("work", input=ASKED), policy=policy(), kind="steps"), **REQUEST).start(STATE)
    assert run.input("work") == {
        "tenant": "acme", "subject": "ann", "partition": "eu", "correlation": "c-1", "own": "theirs", "order": "o-1",
    }  # fmt: skip
    assert run.data == STATE


def test_what_the_request_did_not_say_is_null_whatever_the_state_says() -> None:
    run = Run(line(task("work", input=ASKED), policy=policy(), kind="steps")).start(STATE)
    assert run.input("work")["subject"] is None


def test_in_other_graphs_the_context_is_the_state() -> None:
    run = Run(line(task("work", input=ASKED), policy=policy()), **REQUEST).start(STATE)
    assert (run.input("work")["tenant"], run.input("work")["subject"]) == ("theirs", "eve")


@pytest.mark.parametrize(("path", "value"), [("context.subject_id", "ann"), ("workflow.subject_id", "eve")])
def test_the_record_of_a_condition_tells_what_was_read(path: str, value: str) -> None:
    graph = program(
        [task("work"), end(), end("other")],
        [edge("work", "other", when=f"{path} == 'nobody'"), edge("work", "end", priority=1)],
        policy(),
        kind="steps",
    )
    run = Run(graph, **REQUEST).start(STATE).done("work")
    assert f'"{path}":"{value}"'.encode() in (run.row("work").closing or b"")
