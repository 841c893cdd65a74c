"""Moments an operator moves: a new waiting token each time, so that what was set before is stale."""

from __future__ import annotations

import pytest
from core_graphs import edge, end, join, line, program, split, state, task, timer
from core_run import SECOND, Run

from holdfast.core.model.ids import timer_id
from holdfast.core.model.signals import Actor, Reschedule, Resume, Suspend, TimerDue
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.graph.model import Policy

ANN = Actor("ann")


def test_a_timer_moves_and_the_old_message_is_stale() -> None:
    run = Run(line(timer("nap", 90), task("a"))).start({"v": 1})
    run.apply(Reschedule("nap", delay=10, reason="hurry"), ANN)
    [moved] = run.last.timers
    assert (moved.wait, moved.due, moved.purpose) == ("0@0:timer~1", run.now + 10 * SECOND, "timer")
    assert run.last.timers_ended == [timer_id(run.instance.id, "0@0:timer")]
    [event] = run.last.events
    assert (event.type, event.node, event.actor) == ("timer_rescheduled", "nap", "ann")
    assert b'"reason":"hurry"' in (event.detail or b"")
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:timer", "timer"))
    run.apply(TimerDue("0", "0@0:timer~1", "timer"))
    assert run.nodes == ["a"]


def test_a_timer_can_be_moved_any_number_of_times() -> None:
    run = Run(line(timer("nap", 90))).start()
    for lap in range(1, 4):
        run.apply(Reschedule("nap", at=run.now + lap))
        assert run.last.timers[0].wait == f"0@0:timer~{lap}"
        with pytest.raises(Refused, match="STALE_TIMER"):
            run.apply(TimerDue("0", f"0@0:timer{f'~{lap - 1}' if lap > 1 else ''}", "timer"))


def test_a_cancelled_timer_waits_until_it_is_rescheduled() -> None:
    run = Run(line(timer("nap", 90), task("a"))).start()
    run.apply(Reschedule("nap", cancelled=True), ANN)
    assert (run.last.timers, run.last.events[0].type) == ([], "timer_cancelled")
    assert run.at("nap")[1].waits[0].due is None
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:timer", "timer"))
    run.apply(Reschedule("nap", delay=0))
    assert run.last.timers[0].due == run.now
    run.apply(TimerDue("0", "0@0:timer~2", "timer"))
    assert run.nodes == ["a"]


def test_a_deadline_moves_and_can_be_lifted() -> None:
    graph = program(
        [state("ask", deadline=60), task("late"), end()],
        [edge("ask", "end", "ok"), edge("ask", "late", "timeout"), edge("late", "end")],
    )
    run = Run(graph).start()
    run.apply(Reschedule("ask", delay=600))
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:deadline", "deadline"))
    run.apply(Reschedule("ask", cancelled=True))
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", "0@0:deadline~1", "deadline"))
    assert run.event("ok").status == "completed"


def test_the_deadline_of_running_work_moves_with_its_step() -> None:
    run = Run(line(task("a", deadline=10))).start()
    run.apply(Reschedule("a", delay=100))
    assert run.at("a")[1].waits[0].id == "0@0:deadline~1"
    assert run.done("a").status == "completed"
    assert run.last.timers_ended == [timer_id(run.instance.id, "0@0:deadline~1")]


def test_the_timeout_of_the_instance_moves() -> None:
    graph = program([state("ask"), end()], [edge("ask", "end", "ok")], Policy(timeout=100))
    run = Run(graph).start()
    run.apply(Reschedule(None, delay=1000))
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("", "expiry", "expiry"))
    run.apply(TimerDue("", "expiry~1", "expiry"))
    assert (run.status, run.instance.reason) == ("failed", "WORKFLOW_TIMEOUT")


def test_what_fell_due_while_suspended_is_forgotten_when_it_moves() -> None:
    run = Run(line(timer("nap", 90), task("a"))).start()
    run.apply(Suspend())
    run.fire("nap", "timer")
    assert run.instance.state.parked
    run.apply(Reschedule("nap", delay=3600))
    assert not run.instance.state.parked
    run.apply(Resume())
    assert run.nodes == ["nap"]


def test_a_nap_in_two_branches_needs_a_token() -> None:
    graph = program(
        [split("fork"), timer("x", 5), timer("y", 5), join("meet"), end()],
        [edge("fork", "x"), edge("fork", "y"), edge("x", "meet"), edge("y", "meet"), edge("meet", "end")],
    )
    run = Run(graph).start()
    run.apply(Reschedule("x", delay=50, token="0/0.0@0"))
    with pytest.raises(Conflict, match="TIMER_NOT_WAITING"):
        run.apply(Reschedule("x", delay=50, token="0/0.1@0"))
    assert [t.waits[0].id for t in run.instance.state.tokens.values()] == ["0/0.0@0:timer~1", "0/0.1@0:timer"]


@pytest.mark.parametrize("node", ["a", None])
def test_what_waits_for_no_moment_is_told(node: str | None) -> None:
    run = Run(line(task("a"))).start()
    with pytest.raises(Conflict, match="TIMER_NOT_WAITING"):
        run.apply(Reschedule(node, delay=5))
    with pytest.raises(NotFound, match="NODE_UNKNOWN"):
        run.apply(Reschedule("nowhere", delay=5))


def test_an_absurd_moment_changes_nothing() -> None:
    run = Run(line(timer("nap", 90))).start()
    with pytest.raises(Refused, match="TIMER_OUT_OF_RANGE"):
        run.apply(Reschedule("nap", at=run.now + 200 * 366 * 86_400 * SECOND))
    assert run.at("nap")[1].waits[0].id == "0@0:timer"


def test_a_decision_on_an_old_version_is_refused() -> None:
    run = Run(line(timer("nap", 90))).start()
    with pytest.raises(Conflict, match="VERSION_CONFLICT"):
        run.apply(Reschedule("nap", delay=5, if_version=99))
