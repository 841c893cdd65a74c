"""What a step of a workflow answers: mapped into the context, kept when it went wrong, shrugged off at best effort."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_graphs import call, chain, edge, end, line, program, start, task
from core_run import BOOM, Run

from holdfast.core.decide import decide
from holdfast.core.model.decision import Facts
from holdfast.core.model.signals import Failure, Requeue, Resume, WorkDone
from holdfast.graph.model import Child, Node, Policy, Retry

STEPS = Policy(on_error="suspend", data="context", keeps_error=True)
PLAIN_STEPS = Policy(data="context")
KEPT = {"code": "BOOM", "message": "It went wrong.", "step": "work"}


def effect(**options: Any) -> Node:
    return Node(id="mail", kind="effect", handler="mail", **options)


def events(run: Run) -> list[str]:
    assert run.last is not None
    return [event.type for event in run.last.events]


# --- output mappings --------------------------------------------------------------------------------------------------


def test_what_a_step_answers_is_mapped_before_it_merges_into_the_context() -> None:
    mapped = {"confirmed_at": "response.receipt.at", "for": "workflow.order_id"}
    run = Run(line(task("work", output=mapped), task("next"), policy=PLAIN_STEPS)).start({"order_id": "o-1"})
    run.done("work", {"receipt": {"at": "noon"}, "secret": 1})
    assert run.data == {"order_id": "o-1", "confirmed_at": "noon", "for": "o-1"}
    assert msgspec.json.decode(run.row("work").output or b"") == {"confirmed_at": "noon", "for": "o-1"}


def test_in_a_saga_the_mapping_makes_the_next_value() -> None:
    mapped = {"was": "input.n", "is": "response.n"}
    run = Run(line(task("first"), task("work", output=mapped), task("next"))).start()
    run.done("first", {"n": 1}).done("work", {"n": 2})
    assert run.input("next") == {"was": 1, "is": 2}


def test_what_an_answer_does_not_have_reads_as_null() -> None:
    run = Run(line(task("work", output={"id": "response.order.id"}), policy=PLAIN_STEPS)).start()
    assert run.done("work", "no object").data == {"id": None}


def test_a_mapping_may_be_the_whole_answer() -> None:
    run = Run(line(task("work", output={"rows": "response"}), policy=PLAIN_STEPS)).start()
    assert run.done("work", [1, 2]).data == {"rows": [1, 2]}


def test_declared_variables_need_not_declare_the_answer() -> None:
    graph = line(task("work", output={"x": "response.y"}), policy=PLAIN_STEPS, variables={"context": "any"})
    assert Run(graph).start().done("work", {"y": 3}).data == {"x": 3}


def test_a_call_is_mapped_in_its_own_transaction() -> None:
    run = Run(line(task("first"), call("work", output={"x": "response.y"}), policy=PLAIN_STEPS)).start()
    run.done("first").run_call("work", {"y": 3, "z": 4})
    assert (run.status, run.data) == ("completed", {"x": 3})


@pytest.mark.parametrize("answer", [None, {"id": "m-1"}])
def test_a_receipt_is_mapped(answer: dict[str, str] | None) -> None:
    graph = line(effect(awaits=True, output={"mail": "response.id"}), policy=PLAIN_STEPS)
    run = Run(graph).start().receipt("mail", answer)
    assert run.data == {"mail": None if answer is None else "m-1"}


def test_the_result_of_a_sub_flow_is_mapped() -> None:
    child = Node(id="sub", kind="sub_flow", child=Child(flow="other"), output={"total": "response.sum"})
    run = Run(line(child, policy=PLAIN_STEPS)).start().child_finished("sub", output={"sum": 7, "parts": [3, 4]})
    assert run.data == {"total": 7}


def test_the_condition_behind_the_step_sees_the_mapped_output() -> None:
    graph = program(
        [task("work", output={"ok": "response.fine"}), end(), end("other")],
        [edge("work", "end", when="input.ok == true && input.fine == null"), edge("work", "other", priority=1)],
    )
    run = Run(graph).start().done("work", {"fine": True})
    assert run.chosen("work") == ["work-completed-end?0"]


def test_a_step_with_a_mapping_is_never_left_the_short_way() -> None:
    graph = line(task("work", output={"x": "response.y"}), task("next"))
    run = Run(graph).start()
    path, token = run.at("work")
    decision = decide(graph, run.instance, WorkDone(path, token.step, token.fence, b'{"y":1}'), Facts(run.now))
    assert decision.plain == ""


# --- the last error ---------------------------------------------------------------------------------------------------


def test_a_step_that_fails_for_good_leaves_its_error_in_the_context() -> None:
    run = Run(line(task("work"), policy=STEPS)).start({"n": 1}).fail("work")
    assert (run.status, run.instance.reason) == ("suspended", "BOOM")
    assert run.data == {"n": 1, "_last_error": KEPT}


def test_a_call_that_is_repeated_is_no_error_yet() -> None:
    run = Run(line(task("work", retry=Retry(calls=2)), policy=STEPS)).start().fail("work")
    assert run.data == {}
    assert run.done("work", {"n": 2}).data == {"n": 2}


def test_a_later_success_leaves_the_error_where_it_is() -> None:
    run = Run(line(task("work"), policy=STEPS)).start().fail("work")
    run.apply(Resume())
    assert run.done("work", {"n": 2}).data == {"_last_error": KEPT, "n": 2}


def test_the_edge_on_error_may_ask_what_the_error_was() -> None:
    graph = program(
        [task("work"), task("repair"), end()],
        [
            edge("work", "end"), edge("repair", "end"),
            edge("work", "repair", "error", when="workflow._last_error.code == 'BOOM'"),
            edge("work", "end", "error", priority=1),
        ],
        STEPS,
    )  # fmt: skip
    run = Run(graph).start().fail("work")
    assert (run.nodes, run.input("repair")) == (["repair"], {"_last_error": KEPT})
    assert Run(graph).start().fail("work", Failure("OTHER", "No.")).status == "completed"


def test_a_node_that_fails_on_entry_leaves_its_error_too() -> None:
    wait = Node(id="nap", kind="wait_timer", until="workflow.at")
    run = Run(line(wait, policy=STEPS)).start({"at": "whenever"})
    assert run.data["_last_error"]["code"] == "TIMER_NOT_A_MOMENT"
    assert run.data["_last_error"]["step"] == "nap"


def test_without_the_policy_nothing_is_kept() -> None:
    run = Run(line(task("work"), policy=Policy(on_error="suspend", data="context"))).start().fail("work")
    assert run.data == {}


# --- best effort ------------------------------------------------------------------------------------------------------

NOTIFY = line(task("work", best_effort=True, retry=Retry(calls=2)), task("next"), policy=STEPS)


def test_what_is_done_at_best_effort_counts_as_completed_when_it_fails() -> None:
    run = Run(NOTIFY).start({"n": 1}).fail("work").fail("work")
    assert (run.status, run.nodes) == ("running", ["next"])
    row = run.row("work")
    assert (row.status, row.outcome, row.output) == ("completed", "completed", None)
    assert msgspec.json.decode(row.error or b"") == {"code": "BOOM", "message": "It went wrong."}
    assert events(run)[:2] == ["step_failed", "step_completed"]
    assert run.data == {"n": 1, "_last_error": KEPT}
    assert run.input("next") == run.data


def test_an_error_that_need_not_be_repeated_is_not() -> None:
    assert Run(NOTIFY).start().fail("work", retryable=False).nodes == ["next"]


def test_a_success_after_a_repeated_call_leaves_no_error() -> None:
    run = Run(NOTIFY).start().fail("work").done("work", {"sent": True})
    assert run.data == {"sent": True}


def test_in_a_saga_best_effort_passes_the_value_on() -> None:
    run = Run(line(task("first"), task("work", best_effort=True), task("next"))).start()
    assert run.done("first", {"n": 1}).fail("work").input("next") == {"n": 1}


def test_an_effect_at_best_effort_that_is_given_up_on_is_completed() -> None:
    run = Run(line(effect(awaits=True, best_effort=True), task("next"), policy=STEPS)).start()
    run.receipt("mail", failure=BOOM)
    assert (run.nodes, run.data) == (["next"], {"_last_error": {**KEPT, "step": "mail"}})
    assert events(run)[:2] == ["step_failed", "step_completed"]


def test_the_edge_on_error_is_not_taken_at_best_effort() -> None:
    graph = program(
        [task("work", best_effort=True), end(), end("sad")], [edge("work", "end"), edge("work", "sad", "error")]
    )
    assert Run(graph).start().fail("work").chosen("work") == ["work-completed-end"]


def test_a_best_effort_without_a_way_on_fails_like_any_other() -> None:
    graph = program([task("work", best_effort=True), end()], [edge("work", "end", guard="act")], STEPS)
    run = Run(graph).start().fail("work")
    assert (run.status, run.data["_last_error"]["code"]) == ("suspended", "NO_EDGE_MATCHED")


# --- the chain of automatic steps -------------------------------------------------------------------------------------


def test_ten_automatic_steps_run_and_the_eleventh_waits_for_a_person_to_resume() -> None:
    names = [f"s{number}" for number in range(1, 13)]
    policy = Policy(on_error="suspend", data="context", chain_limit=10)
    run = Run(program([*map(task, names), end()], chain(*names, "end"), policy)).start()
    for name in names[:10]:
        assert run.status == "running"
        run.done(name)
    assert (run.status, run.instance.reason, run.nodes) == ("suspended", "WORKFLOW_CHAIN_LIMIT", ["s11"])
    assert not run.rows("s11")
    run.apply(Resume())
    assert (run.status, run.instance.state.chain) == ("running", 1)
    assert run.done("s11").done("s12").status == "completed"


@pytest.mark.parametrize("keeps_error", [False, True])
def test_the_state_tells_why_the_eleventh_did_not_begin(keeps_error: bool) -> None:
    names = [f"s{number}" for number in range(1, 13)]
    policy = Policy(on_error="suspend", data="context", chain_limit=10, keeps_error=keeps_error)
    run = Run(program([*map(task, names), end()], chain(*names, "end"), policy)).start({"order": 1})
    for name in names[:10]:
        run.done(name, {name: True})
    message = "More than 10 automatic steps in a row, stopped before 's11'."
    kept = {"code": "WORKFLOW_CHAIN_LIMIT", "message": message, "step": "s11"}
    assert run.data.get("_last_error") == (kept if keeps_error else None)
    assert run.data["s10"] is True


def test_an_event_begins_a_new_chain() -> None:
    policy = Policy(data="context", chain_limit=2)
    ask = Node(id="ask", kind="human")
    graph = program(
        [start(), task("a"), ask, task("b"), task("c"), end()], chain("start", "a", "ask", "b", "c", "end"), policy
    )
    run = Run(graph).start().done("a").event("completed").done("b")
    assert run.done("c").status == "completed"


# --- another input for a dead letter ----------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [{"order_id": "repaired"}, None])
def test_another_input_for_a_dead_letter_reaches_a_step_that_reads_the_context(new: Any) -> None:
    run = Run(line(task("work"), policy=Policy(on_error="dlq", data="context"))).start({"order_id": "o-1", "n": 1})
    run.fail("work", BOOM)
    assert run.last is not None
    [letter] = run.last.letters
    run.apply(Requeue(letter.id, letter.step, None if new is None else msgspec.json.encode(new)))
    assert run.input("work") == {"order_id": "o-1" if new is None else "repaired", "n": 1}
