"""Moments: timers, deadlines, expiry; a message for a wait that is over is stale."""

from __future__ import annotations

import pytest
from core_graphs import chain, edge, end, join, line, program, split, state, task, timer
from core_run import SECOND, Run

from holdfast import Flow
from holdfast.core.model.ids import timer_id
from holdfast.core.model.program import link
from holdfast.core.model.signals import Cancel, Requeue, Resume, Suspend, TimerDue
from holdfast.core.model.timestamps import from_datetime, from_json, to_datetime, to_iso
from holdfast.doors.saga.lowering import lower
from holdfast.errors import Refused
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Policy, Retry, Wait


def test_a_timer_waits_for_its_delay_and_passes_the_value_on() -> None:
    run = Run(line(timer("nap", 90), task("a"))).start({"v": 1})
    [set_timer] = run.last.timers
    assert (set_timer.due, set_timer.wait, set_timer.path) == (run.now + 90 * SECOND, "0@0:timer", "0")
    assert run.fire("nap", "timer").input("a") == {"v": 1}


def test_a_timer_can_wait_until_a_moment_in_the_data() -> None:
    run = Run(line(timer("nap", until="input.at"))).start({"at": "2030-01-02T03:04:05+00:00"})
    assert to_iso(run.last.timers[0].due) == "2030-01-02T03:04:05.000000+00:00"


@pytest.mark.parametrize("value", ["soon", 5, None, "0001-01-01T00:00:00+14:00"])
def test_what_is_no_moment_fails_the_step(value: object) -> None:
    run = Run(line(timer("nap", until="input.at"))).start({"at": value})
    assert (run.status, run.instance.reason) == ("failed", "TIMER_NOT_A_MOMENT")


def test_moments_survive_the_way_there_and_back() -> None:
    moment = 812_345_678_901_234
    assert from_datetime(to_datetime(moment)) == moment
    assert from_json(to_iso(moment)) == moment


def test_a_timer_does_not_touch_the_context() -> None:
    graph = program(
        [split("fork"), timer("nap", 5), task("a"), join("meet"), end()],
        [edge("fork", "nap"), edge("fork", "a"), edge("nap", "meet"), edge("a", "meet"), edge("meet", "end")],
        Policy(data="context"),
    )
    run = Run(graph).start({"k": "old"}).done("a", {"k": "new"}).fire("nap", "timer")
    assert run.data == {"k": "new"}


def test_a_timer_that_fires_twice_is_stale_the_second_time() -> None:
    run = Run(line(timer("nap", 5), task("a"))).start()
    run.fire("nap", "timer")
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:timer", "timer"))


def test_a_lap_later_the_old_waiting_token_is_stale() -> None:
    graph = program([task("a"), state("ask", deadline=60), end()], [
        edge("a", "ask"), edge("ask", "a", "again"), edge("ask", "end", "timeout"),
    ])  # fmt: skip
    run = Run(graph).start().done("a").event("again").done("a")
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@1:deadline", "deadline"))
    assert run.fire("ask", "deadline").status == "completed"


def test_a_run_later_the_old_waiting_token_is_stale() -> None:
    run = Run(line(task("a", deadline=60), policy=Policy(on_error="suspend"))).start().fail("a")
    run.apply(Resume())
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:deadline", "deadline"))
    assert run.at("a")[1].waits[0].id == "0@0#1:deadline"


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_a_missed_deadline_takes_the_timeout_edge() -> None:
    graph = program(
        [task("a", deadline=10), task("late"), end()],
        [edge("a", "end"), edge("a", "late", "timeout"), edge("late", "end")],
    )
    run = Run(graph).start({"v": 1}).fire("a", "deadline")
    assert (run.nodes, run.input("late")) == (["late"], {"v": 1})
    assert (run.row("a").status, run.row("a").outcome) == ("failed", "timeout")
    assert [(r.path, r.fence) for r in run.last.released] == [("0", 0)], "whoever holds the work row loses it"


def test_without_a_timeout_edge_a_missed_deadline_is_an_error() -> None:
    graph = program(
        [state("a", deadline=10, wait=Wait(event="go")), task("repair"), end()],
        [edge("a", "end"), edge("a", "repair", "error"), edge("repair", "end")],
    )
    assert Run(graph).start().fire("a", "deadline").nodes == ["repair"]


def test_a_step_that_is_done_in_time_ends_its_deadline() -> None:
    run = Run(line(task("a", deadline=10))).start()
    wait = run.at("a")[1].waits[0]
    run.done("a")
    assert run.last.timers_ended == [wait.ref]


def test_a_token_may_hold_several_waits_at_once() -> None:
    run = Run(line(state("ask", deadline=10, wait=Wait(event="go", key="input.k")))).start({"k": "1"})
    assert [wait.kind for wait in run.at("ask")[1].waits] == ["event", "deadline"]


def test_a_deadline_covers_the_retries_too() -> None:
    run = Run(line(task("a", deadline=10, retry=Retry(calls=5, delay=60)))).start().fail("a")
    assert [wait.kind for wait in run.at("a")[1].waits] == ["deadline", "retry"]
    run.fire("a", "deadline")
    assert (run.status, len(run.last.timers_ended)) == ("failed", 2)


# --- expiry -----------------------------------------------------------------------------------------------------------


def _expiring(**policy: object) -> object:
    return program(
        [task("first"), split("fork"), task("a"), state("b"), join("meet"), task("late"), end()],
        [
            *chain("first", "fork"), edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet", "go"),
            *chain("meet", "end"), *chain("late", "end"), edge("first", "late", "error"),
        ],
        Policy(timeout=3600, **policy),
    )  # fmt: skip


def test_expiry_fails_the_instance_and_cancels_every_token() -> None:
    run = Run(_expiring()).start().done("first").expire()
    assert (run.status, run.instance.reason) == ("failed", "WORKFLOW_TIMEOUT")
    assert run.row("a").status == run.row("b").status == "skipped"


def test_expiry_with_a_place_to_go_puts_a_root_token_there() -> None:
    run = Run(_expiring(on_timeout="late")).start({"v": 1}).done("first").expire()
    assert (run.nodes, list(run.tokens), run.at("late")[1].hop, run.instance.state.scopes) == (["late"], ["0"], 2, {})
    assert run.input("late") == {"v": 1}
    assert run.done("late").status == "completed"


def test_expiry_in_dlq_mode_pauses_what_is_open_and_leaves_the_rest_to_a_person() -> None:
    run = Run(_expiring(on_error="dlq")).start().done("first", {"v": 1})
    idle = run.at("a")[0]
    run.expire(idle=frozenset({idle}))
    assert (run.status, run.instance.reason, run.nodes) == ("dlq", "WORKFLOW_TIMEOUT", ["a", "b"])
    assert (run.row("a").status, run.row("b").status, run.row("a").outcome) == ("paused", "paused", "timeout")
    assert [(x.node, x.reason, x.input) for x in run.last.letters] == [
        (node, "WORKFLOW_TIMEOUT", b'{"v":1}') for node in ("a", "b")
    ]
    assert [(r.path, r.fence) for r in run.last.released] == [(idle, 0)], "nobody takes it on any more"
    assert run.instance.state.expires is None
    for letter in run.last.letters:
        run.apply(Requeue(letter.id, letter.step))
    assert (run.status, run.done("a").event("go").status) == ("running", "completed")


def test_a_step_that_was_paused_before_the_time_was_over_keeps_its_letter() -> None:
    run = Run(_expiring(on_error="dlq")).start().done("first").fail("a")
    [letter] = run.last.letters
    run.expire()
    assert (run.status, run.instance.reason, run.last.letters_resolved) == ("dlq", "BOOM", ())
    assert [x.node for x in run.last.letters] == ["b"]
    run.apply(Requeue(letter.id, letter.step))
    assert (run.status, run.done("a").status) == ("dlq", "dlq")


def test_an_instance_that_only_waits_for_a_person_has_its_time_over_and_nothing_else() -> None:
    run = Run(line(task("a"), policy=Policy(on_error="dlq", timeout=60))).start().fail("a").expire()
    assert (run.status, run.row("a").status, run.last.letters) == ("dlq", "paused", ())
    assert [e.type for e in run.last.events] == ["instance_expired"]


def test_expiry_in_dlq_mode_pauses_every_branch_of_a_race_and_asks_no_edge() -> None:
    race = program(
        [split("fork"), task("a"), task("b"), join("meet", "any"), task("late"), end()],
        [
            edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet"), edge("a", "late", "error"),
            *chain("meet", "late", "end"),
        ],
        Policy(timeout=60, on_error="dlq"),
    )  # fmt: skip
    run = Run(race).start()
    run.expire(idle=frozenset(run.tokens))
    assert (run.status, run.nodes, len(run.last.letters)) == ("dlq", ["a", "b"], 2)


def test_what_ran_out_of_time_in_dlq_mode_can_be_cancelled_and_taken_back() -> None:
    flow = Flow("f", dlq=True, timeout=60).step("pay", "pay", undo="refund").human("approve")
    run = Run(link(compile_graph(lower(flow.build())))).start().done("pay").expire()
    assert [(task.status, task.reason) for task in run.last.tasks] == [("expired", "timeout")]
    run.apply(Cancel("too late"))
    assert (run.nodes, run.row("approve").status) == (["refund"], "skipped")
    assert (run.done("refund").status, run.row("pay").status) == ("cancelled", "rolled_back")


def test_expiry_that_waited_for_a_resume_pauses_what_the_resume_began() -> None:
    graph = line(task("a"), task("b"), policy=Policy(on_error="dlq", timeout=60))
    run = Run(graph).start()
    run.apply(Suspend())
    run.done("a", {"v": 1}).expire()
    run.apply(Resume())
    assert (run.status, run.row("b").status, run.last.dispatches, run.dispatched) == ("dlq", "paused", [], {})


def test_an_instance_expires_once() -> None:
    run = Run(_expiring(on_timeout="late")).start().expire()
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("", "expiry", "expiry"))


def test_an_instance_that_is_done_ends_its_expiry() -> None:
    run = Run(line(task("a"), policy=Policy(timeout=60))).start()
    run.done("a")
    assert run.last.timers_ended == [timer_id(run.instance.id, "expiry")]


def test_an_instance_that_is_being_cancelled_does_not_expire() -> None:
    run = Run(_expiring(on_timeout="late")).start()
    run.apply(Cancel())
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("", "expiry", "expiry"))


# --- suspended --------------------------------------------------------------------------------------------------------


def test_timers_that_fall_due_while_suspended_park_and_fire_in_order_on_resume() -> None:
    graph = program(
        [split("fork"), timer("one", 10), timer("two", 20), join("meet"), task("after"), end()],
        [
            edge("fork", "one"),
            edge("fork", "two"),
            edge("one", "meet"),
            edge("two", "meet"),
            *chain("meet", "after", "end"),
        ],
    )
    run = Run(graph).start()
    run.apply(Suspend())
    run.fire("one", "timer").fire("two", "timer")
    assert [p.wait for p in run.instance.state.parked] == ["0/0.0@0:timer", "0/0.1@0:timer"]
    run.apply(Resume())
    assert (run.nodes, run.instance.state.parked) == (["after"], ())


def test_a_parked_timer_that_is_delivered_again_is_stale() -> None:
    run = Run(line(timer("nap", 10))).start()
    run.apply(Suspend())
    run.fire("nap", "timer")
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.fire("nap", "timer")


def test_expiry_parks_too() -> None:
    run = Run(_expiring(on_timeout="late")).start()
    run.apply(Suspend())
    run.expire()
    assert run.status == "suspended"
    run.apply(Resume())
    assert run.nodes == ["late"]


def test_a_stale_timer_does_not_park() -> None:
    run = Run(line(timer("nap", 10), state("ask", wait=Wait(event="go")))).start().fire("nap", "timer")
    run.apply(Suspend())
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:timer", "timer"))


def test_a_loop_of_nodes_that_fail_on_entry_is_stopped() -> None:
    graph = program([timer("nap", until="input.at"), end()], [edge("nap", "end"), edge("nap", "nap", "error")])
    run = Run(graph).start()
    assert (run.status, run.instance.reason, run.tokens["0"].phase) == ("suspended", "WORKFLOW_CHAIN_LIMIT", "held")
