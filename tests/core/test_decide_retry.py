"""Failures: when a step is called again, and what happens when it may not be."""

from __future__ import annotations

import pytest
from core_graphs import chain, edge, end, join, line, program, split, state, task
from core_run import BOOM, SECOND, Run
from msgspec import json

import holdfast
from holdfast import Branch, Flow, Undo
from holdfast.core.kernel.retry import delay_before
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import Cancel, Failure, Requeue, Resume, Suspend, WorkDone, WorkFailed
from holdfast.doors.saga.lowering import lower
from holdfast.errors import Conflict, Refused
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Policy, Retry

STEP = b"a step's id"


def _flow(flow: Flow) -> Program:
    return link(compile_graph(lower(flow.build())))


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("fixed", [10, 10, 10, 10]), ("linear", [10, 20, 30, 35]), ("exponential", [10, 20, 35, 35])],
)
def test_delays_grow_as_told_up_to_the_limit(backoff: str, delays: list[int]) -> None:
    retry = Retry(calls=9, delay=10, backoff=backoff, max_delay=35)
    assert [delay_before(retry, calls, STEP) // SECOND for calls in (1, 2, 3, 4)] == delays


def test_jitter_spreads_by_id_and_never_by_chance() -> None:
    retry = Retry(calls=9, delay=100, jitter=0.5)
    delays = {delay_before(retry, 1, b"%d" % i) for i in range(50)}
    assert len(delays) == 50
    assert all(50 * SECOND < delay <= 100 * SECOND for delay in delays)
    assert delay_before(retry, 1, STEP) == delay_before(retry, 1, STEP) != delay_before(retry, 2, STEP)


def test_exponential_backoff_does_not_overflow() -> None:
    assert delay_before(Retry(calls=10_000, delay=1, backoff="exponential"), 9_999, STEP) == 3600 * SECOND


def test_a_retry_without_delay_keeps_the_lease_and_the_row() -> None:
    run = Run(line(task("a", retry=Retry(calls=3)))).start({"v": 1})
    step = run.at("a")[1].step
    run.fail("a")
    [again] = run.last.dispatches
    assert (again.step, again.calls, again.fence, again.held, again.input) == (step, 2, 2, 1, b'{"v":1}')
    assert (run.last.opened, len(run.rows("a"))) == ([], 1)


def test_a_retry_with_delay_waits_on_a_timer_without_a_work_row() -> None:
    run = Run(line(task("a", retry=Retry(calls=3, delay=30)))).start().fail("a")
    token = run.at("a")[1]
    assert (token.phase, token.waits[0].id, token.waits[0].due) == ("retrying", "0@0:retry:1", run.now + 30 * SECOND)
    assert [(r.path, r.fence) for r in run.last.released] == [("0", 1)]
    run.fire("a", "retry")
    [again] = run.last.dispatches
    assert (again.calls, again.fence, again.held, again.input) == (2, 2, 0, None)
    assert run.done("a").status == "completed"


def test_a_result_that_comes_after_its_attempt_was_given_up_is_stale() -> None:
    run = Run(line(task("a", retry=Retry(calls=3, delay=30)))).start()
    token = run.at("a")[1]
    run.fail("a")
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(WorkDone("0", token.step, token.fence, b"{}"))
    run.fire("a", "retry")
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(WorkDone("0", token.step, token.fence, b"{}"))


def test_a_failure_reported_twice_counts_once() -> None:
    run = Run(line(task("a", retry=Retry(calls=3)))).start()
    token = run.at("a")[1]
    signal = WorkFailed("0", token.step, token.fence, BOOM, 1, True, b"{}")
    run.apply(signal)
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(signal)


def test_when_the_calls_are_used_up_the_instance_fails() -> None:
    run = Run(line(task("a", retry=Retry(calls=3)))).start().fail("a").fail("a").fail("a")
    assert (run.status, run.instance.reason, run.row("a").calls) == ("failed", "BOOM", 3)
    assert run.last.error == b'{"code":"BOOM","message":"It went wrong."}'


def test_what_cannot_be_retried_fails_at_the_first_call() -> None:
    run = Run(line(task("a", retry=Retry(calls=3)))).start().fail("a", retryable=False)
    assert run.status == "failed"


def test_a_step_that_is_not_idempotent_is_called_once() -> None:
    assert Run(line(task("a", retry=Retry(calls=3), idempotent=False))).start().fail("a").status == "failed"


def test_a_lost_lease_burns_a_call() -> None:
    run = Run(line(task("a", retry=Retry(calls=3)))).start().fail("a", calls=3)
    assert run.status == "failed"


def test_a_failure_takes_the_error_edge_with_the_value_the_step_began_with() -> None:
    graph = program(
        [task("a"), task("repair"), end()], [edge("a", "end"), edge("a", "repair", "error"), edge("repair", "end")]
    )
    run = Run(graph).start({"v": 1}).fail("a")
    assert (run.nodes, run.input("repair"), run.chosen("a")) == (["repair"], {"v": 1}, ["a-error-repair"])
    [dispatch] = run.last.dispatches
    assert (dispatch.held, dispatch.fence) == (1, 2), "the work row is handed on"
    assert run.done("repair").status == "completed"


# --- suspend and dlq --------------------------------------------------------------------------------------------------


def test_a_policy_of_suspend_keeps_the_token_and_a_resume_runs_the_node_again_as_a_new_row() -> None:
    run = Run(line(task("a"), task("b"), policy=Policy(on_error="suspend"))).start().done("a", {"v": 1}).fail("b")
    assert (run.status, run.instance.reason, run.at("b")[1].phase) == ("suspended", "BOOM", "dead")
    run.apply(Resume())
    assert [(row.run, row.status) for row in run.rows("b")] == [(0, "superseded"), (1, "running")]
    assert (run.input("b"), run.status) == ({"v": 1}, "running")
    run.fail("b")
    run.apply(Resume())
    assert [row.run for row in run.rows("b")] == [0, 1, 2]
    assert run.done("b").status == "completed"


def test_a_resumed_step_continues_the_fences() -> None:
    run = Run(line(task("a"), policy=Policy(on_error="suspend"))).start().fail("a")
    run.apply(Resume())
    assert (run.last.dispatches[0].fence, run.last.dispatches[0].held) == (2, 0)


def test_a_resumed_mapping_is_evaluated_on_the_value_not_on_its_own_result() -> None:
    graph = line(task("a", input={"n": "input.order.n"}), policy=Policy(on_error="suspend"))
    run = Run(graph).start({"order": {"n": 5}}).fail("a")
    run.apply(Resume())
    assert run.input("a") == {"n": 5}


FORK = {
    "nodes": [split("fork"), task("a"), task("b"), join("meet"), task("last"), end()],
    "edges": [
        edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet"), *chain("meet", "last", "end"),
    ],
}  # fmt: skip


def test_in_dlq_mode_only_the_failed_token_is_dead_and_the_join_waits() -> None:
    run = Run(program(**FORK, policy=Policy(on_error="dlq"))).start().fail("a")
    assert (run.status, run.instance.reason) == ("dlq", "BOOM")
    run.done("b")
    assert (run.status, run.nodes) == ("dlq", ["a"])
    run.apply(Resume())
    assert (run.status, run.done("a").nodes) == ("running", ["last"])


def test_status_leaves_dlq_when_no_dead_token_remains() -> None:
    graph = program(
        [task("out"), split("fork"), task("a"), state("b"), join("meet"), end()],
        [
            edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet", "go"), edge("meet", "end"),
            edge("b", "out", "leave"), edge("out", "fork"),
        ],
        Policy(on_error="dlq"),
    )  # fmt: skip
    run = Run(graph).start().done("out").fail("a")
    assert run.status == "dlq"
    assert run.event("leave").status == "running"


def test_a_failure_while_suspended_fails_the_instance_when_it_is_resumed() -> None:
    run = Run(line(task("a", idempotent=False))).start({"v": 1})
    run.apply(Suspend())
    run.fail("a")
    assert (run.status, run.at("a")[1].phase, run.row("a").status) == ("suspended", "dead", "failed")
    run.apply(Resume())
    assert (run.status, run.instance.reason, run.last.dispatches, len(run.rows("a"))) == ("failed", "BOOM", [], 1)
    assert run.last.error == b'{"code":"BOOM","message":"It went wrong."}'


def test_a_failure_while_suspended_begins_the_rollback_when_it_is_resumed() -> None:
    run = Run(_flow(Flow("f").step("pay", "pay", undo="refund").step("ship", "ship", retry=holdfast.Retry(attempts=2))))
    run.start().done("pay").fail("ship")
    run.apply(Suspend())
    run.fail("ship")
    assert (run.status, run.row("ship").status, run.row("ship").calls) == ("suspended", "failed", 2)
    run.apply(Resume())
    assert (run.status, run.nodes, len(run.rows("ship"))) == ("rolling_back", ["refund"], 1)
    run.done("refund")
    assert (run.status, run.instance.reason, run.row("pay").status) == ("failed", "BOOM", "rolled_back")


def test_of_several_failures_while_suspended_the_first_is_what_the_instance_fails_of() -> None:
    branches = (Branch().step(name, name, undo=Undo(name, name=f"un{name}")) for name in "abc")
    run = Run(_flow(Flow("f").fork("k", *branches).join("j").step("last", "last"))).start()
    run.apply(Suspend())
    run.fail("b", Failure("FIRST", "b")).done("c").fail("a", Failure("SECOND", "a"))
    run.apply(Resume())
    assert (run.status, run.instance.reason, run.nodes) == ("rolling_back", "FIRST", ["unb"])
    assert [json.decode(run.row(name).detail or b"{}")["ordinal"] for name in ("unb", "una", "unc")] == [0, 1, 2]
    assert b"FIRST" in (run.asked.error or b"")
    skipped = [e.node for e in run.asked.events if e.type == "step_skipped"]
    assert skipped == ["j"], "only who was held in front of the join: what has failed is not skipped"
    assert run.done("unb").done("una").done("unc").status == "failed"


def test_a_held_token_does_not_go_on_when_another_has_failed_meanwhile() -> None:
    run = Run(program(**FORK)).start()
    run.apply(Suspend())
    run.done("a").fail("b")
    run.apply(Resume())
    assert (run.status, run.tokens, run.rows("meet")) == ("failed", {}, [])


@pytest.mark.parametrize("policy", ["rollback", "fail", "dlq", "suspend"])
def test_the_last_hope_of_a_race_that_failed_while_suspended_loses_it_when_resumed(policy: str) -> None:
    race = program(
        [*FORK["nodes"][:3], join("meet", "any"), *FORK["nodes"][4:], task("repair")],
        [*FORK["edges"], edge("meet", "repair", "error"), edge("repair", "end")],
        Policy(on_error=policy),
    )
    run = Run(race).start()
    run.apply(Suspend())
    run.fail("a").fail("b")
    assert (run.status, run.nodes, run.last.letters) == ("suspended", ["b"], ())
    run.apply(Resume())
    assert (run.status, run.nodes, len(run.rows("b"))) == ("running", ["repair"], 1)


def test_what_failed_while_suspended_can_still_be_cancelled_and_taken_back() -> None:
    run = Run(_flow(Flow("f").step("a", "a", undo="una"))).start()
    run.apply(Suspend())
    run.fail("a")
    run.apply(Cancel("enough"))
    assert run.nodes == ["una"]
    assert (run.done("una").status, run.row("a").status) == ("cancelled", "rolled_back")


# --- a pause of an instance that waits in the dead letter queue -------------------------------------------------------


def test_a_pause_does_not_answer_the_letters_of_a_dead_step() -> None:
    run = Run(line(task("a"), policy=Policy(on_error="dlq"))).start({"v": 1}).fail("a")
    [letter] = run.last.letters
    run.apply(Suspend("LUNCH"))
    run.apply(Resume())
    assert (run.status, run.instance.reason, run.row("a").status) == ("dlq", "BOOM", "paused")
    assert (run.last.letters_resolved, run.last.dispatches) == ((), [])
    run.apply(Requeue(letter.id, letter.step, b'{"v":2}'))
    assert (run.status, run.input("a")) == ("running", {"v": 2})


def test_a_step_that_dies_during_a_pause_waits_for_a_person_after_it() -> None:
    run = Run(program(**FORK, policy=Policy(on_error="dlq"))).start()
    run.apply(Suspend())
    run.fail("a")
    [letter] = run.last.letters
    assert (run.status, run.row("a").status) == ("suspended", "paused")
    run.fail("b", Failure("LATER", "b"))
    run.apply(Resume())
    assert (run.status, run.instance.reason, run.nodes) == ("dlq", "BOOM", ["a", "b"])
    assert [e.type for e in run.last.events] == ["instance_resumed", "instance_dlq"]
    run.apply(Requeue(letter.id, letter.step))
    assert run.status == "dlq"


def test_a_requeue_during_a_pause_is_refused_and_works_after_the_resume_it_asks_for() -> None:
    run = Run(line(task("a"), policy=Policy(on_error="dlq"))).start().fail("a")
    [letter] = run.last.letters
    run.apply(Suspend())
    with pytest.raises(Conflict, match="INSTANCE_SUSPENDED"):
        run.apply(Requeue(letter.id, letter.step))
    run.apply(Resume())
    run.apply(Requeue(letter.id, letter.step))
    assert run.done("a").status == "completed"


def test_a_resume_out_of_the_dead_letter_queue_itself_runs_what_is_dead() -> None:
    run = Run(line(task("a"), policy=Policy(on_error="dlq"))).start().fail("a")
    run.apply(Suspend())
    run.apply(Resume())
    run.apply(Resume())
    assert (run.status, [row.status for row in run.rows("a")]) == ("running", ["superseded", "running"])
    assert [answer.resolution for answer in run.last.letters_resolved] == ["replayed"]


def test_a_dead_token_without_its_input_could_never_run_again_so_it_is_asked_for() -> None:
    run = Run(line(task("a"))).start()
    run.apply(Suspend())
    token = run.at("a")[1]
    with pytest.raises(Refused, match="INPUT_MISSING"):
        run.apply(WorkFailed("0", token.step, token.fence, BOOM, 1))


def test_a_retry_while_suspended_waits_for_the_resume() -> None:
    run = Run(line(task("a", retry=Retry(calls=2)))).start()
    run.apply(Suspend())
    run.fail("a")
    assert (run.at("a")[1].phase, run.last.dispatches) == ("retrying", [])
    run.fire("a", "retry")
    assert run.at("a")[1].phase == "retrying"
    run.apply(Resume())
    assert (run.at("a")[1].phase, run.last.dispatches[0].calls) == ("working", 2)
