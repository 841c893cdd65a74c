"""Events that come before their wait, or while the instance is suspended: kept by default, bounded, asked for again."""

from __future__ import annotations

from typing import Any

import pytest
from core_graphs import edge, end, join, line, program, split, state, task, timer
from core_run import SECOND, Run

from holdfast.core.model.decision import EarlyEvents, ParkedTimers
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor, Cancel, EventsExpired, Resume, Suspend
from holdfast.core.model.state import Parked
from holdfast.core.signals.early import MOST_KEPT
from holdfast.errors import Forbidden, HoldfastError
from holdfast.graph.model import Node, Policy, Wait

PAID = line(task("pack"), state("paid", wait=Wait(event="payment")))
STATES = program(
    [task("write"), state("draft"), state("review"), end()],
    [
        edge("write", "draft"), edge("draft", "review", "submit"), edge("review", "end", "accept"),
        edge("review", "draft", "return"),
    ],
)  # fmt: skip
THERE_AND_AFTER = line(state("paid", wait=Wait(event="payment")), task("ship"))


def refusal(run: Run, event: str, **options: Any) -> str:
    before = run.instance
    with pytest.raises(HoldfastError) as refused:
        run.event(event, **options)
    assert run.instance is before
    return refused.value.code


def asked(run: Run) -> list[tuple[str, str, str | None]]:
    assert run.last is not None
    return [(n.token, n.event, n.key) for n in run.last.needs if isinstance(n, EarlyEvents)]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_an_event_that_comes_before_its_wait_is_kept_without_being_declared() -> None:
    run = Run(PAID).start().event("payment", {"n": 1})
    assert run.last is not None
    assert (run.last.keep, run.instance.state.early, run.nodes) == (True, 1, ["pack"])
    assert asked(run.done("pack")) == [("0@1", "payment", None)]
    run.event("payment", {"n": 1}, kept=True, token="0@1")
    assert (run.status, run.data, run.instance.state.early) == ("completed", {"n": 1}, 0)


def test_a_state_asks_for_every_event_on_its_edges() -> None:
    run = Run(STATES).start().event("submit").done("write")
    assert asked(run) == [("0@1", "submit", None)]
    run.event("submit", kept=True, token="0@1")
    run = Run(STATES).start().event("accept").done("write").event("submit")
    assert asked(run) == [("0@2", "accept", None), ("0@2", "return", None)]


def test_a_name_that_no_step_ever_takes_is_refused_at_once() -> None:
    assert refusal(Run(PAID).start(), "paymnet") == "EVENT_NOT_EXPECTED"
    assert refusal(Run(PAID).start(), "pack") == "EVENT_NOT_EXPECTED"


def test_what_no_step_still_to_come_takes_is_refused() -> None:
    run = Run(THERE_AND_AFTER).start().event("payment")
    assert (run.nodes, refusal(run, "payment")) == (["ship"], "EVENT_NOT_EXPECTED")


def test_what_a_loop_leads_back_to_is_kept() -> None:
    run = Run(STATES).start().done("write").event("submit").event("submit")
    assert (run.nodes, run.instance.state.early) == (["review"], 1)


def test_the_step_where_an_expired_instance_goes_on_is_still_to_come() -> None:
    graph = program(
        [task("work"), end(), state("late"), end("over")], [edge("work", "end"), edge("late", "over", "settled")],
        Policy(timeout=60, on_timeout="late"),
    )  # fmt: skip
    assert Run(graph).start().event("settled").instance.state.early == 1


@pytest.mark.parametrize("kind", ["human", "approval"])
def test_nothing_is_decided_for_a_person_before_they_are_asked(kind: str) -> None:
    graph = program(
        [task("write"), Node(id="check", kind=kind), end()], [edge("write", "check"), edge("check", "end", "approved")]
    )
    assert refusal(Run(graph).start(), "approved") == "EVENT_NOT_EXPECTED"


@pytest.mark.parametrize(
    "graph",
    [
        line(task("pack"), state("paid", wait=Wait(event="payment", early=False))),
        program(
            [task("pack"), state("paid"), end()], [edge("pack", "paid"), edge("paid", "end", "payment")],
            Policy(early=False),
        ),
    ],
)  # fmt: skip
def test_a_flow_may_ask_for_refusal(graph: Program) -> None:
    assert refusal(Run(graph).start(), "payment") == "EVENT_NOT_EXPECTED"


def test_a_wait_may_keep_what_the_policy_does_not() -> None:
    graph = line(task("pack"), state("paid", wait=Wait(event="payment", early=True)), policy=Policy(early=False))
    assert Run(graph).start().event("payment").instance.state.early == 1


@pytest.mark.parametrize("option", [{"early": False}, {"if_version": 1}, {"token": "0@1"}])
def test_a_sender_may_ask_for_now_or_not_at_all(option: dict[str, Any]) -> None:
    assert refusal(Run(PAID).start(), "payment", **option) == "EVENT_NOT_EXPECTED"


def test_what_is_meant_for_one_step_is_kept_for_a_step_that_takes_it() -> None:
    run = Run(PAID).start()
    assert refusal(run, "payment", node="pack") == "EVENT_NOT_EXPECTED"
    assert run.event("payment", node="paid").instance.state.early == 1


def test_who_may_act_on_none_of_the_steps_is_told_at_once() -> None:
    graph = program(
        [task("work"), state("ask", guard="sign"), state("tell"), end()],
        [edge("work", "ask"), edge("ask", "tell", "go"), edge("tell", "end", "stop", guard="sign")],
    )
    for event in ("go", "stop"):
        with pytest.raises(Forbidden):
            Run(graph).start().event(event)
        assert Run(graph).start().event(event, actor=Actor("ada", ("sign",))).instance.state.early == 1


def test_no_more_than_so_many_are_kept_at_a_time() -> None:
    run = Run(PAID).start()
    for _ in range(MOST_KEPT):
        run.event("payment")
    assert refusal(run, "payment") == "EARLY_EVENTS_FULL"
    run.apply(EventsExpired(({"event": "payment"},)))
    assert run.event("payment").instance.state.early == MOST_KEPT


def test_what_has_expired_is_not_counted_and_is_in_the_audit_trail() -> None:
    run = Run(PAID).start().event("payment").event("payment")
    decision = run.apply(EventsExpired(({"event": "payment", "id": "x"},)))
    assert ([e.type for e in decision.events], run.instance.state.early) == (["event_expired"], 1)


def test_an_instance_that_is_over_or_goes_backwards_keeps_nothing() -> None:
    run = Run(line(state("paid", wait=Wait(event="payment")))).start().event("payment")
    assert refusal(run, "payment") == "INSTANCE_OVER"
    run = Run(PAID).start()
    run.apply(Cancel())
    assert refusal(run, "payment") == "INSTANCE_STOPPING"


# --- while it is suspended --------------------------------------------------------------------------------------------


def suspended(run: Run) -> Run:
    run.apply(Suspend())
    return run


def test_an_event_for_an_open_wait_is_kept_and_asked_for_on_resume() -> None:
    run = suspended(Run(PAID).start().done("pack")).event("payment", {"n": 2})
    assert (run.status, run.nodes, run.instance.state.early) == ("suspended", ["paid"], 1)
    run.apply(Resume())
    assert asked(run) == [("0@1", "payment", None)]
    assert run.event("payment", {"n": 2}, kept=True, token="0@1").data == {"n": 2}


def test_a_resume_with_nothing_kept_asks_for_nothing() -> None:
    run = suspended(Run(PAID).start().done("pack"))
    assert run.apply(Resume()).needs == []


def test_a_wait_by_key_asks_for_its_key_on_resume() -> None:
    run = Run(line(task("ship"), state("there", wait=Wait(event="pod", key="input.key")))).start()
    suspended(run.done("ship", {"key": "K"})).apply(Resume())
    assert asked(run) == [("0@1", "pod", "K")]


def test_a_kept_event_does_not_move_a_suspended_instance() -> None:
    run = suspended(Run(PAID).start().event("payment").done("pack"))
    assert refusal(run, "payment", kept=True, token="0@1") == "INSTANCE_SUSPENDED"


def test_what_cannot_be_kept_is_refused_while_it_is_suspended() -> None:
    run = suspended(Run(PAID).start().done("pack"))
    assert refusal(run, "nonsense") == "EVENT_NOT_EXPECTED"
    for option in ({"early": False}, {"if_version": run.instance.version}, {"token": "0@1"}):
        assert refusal(run, "payment", **option) == "INSTANCE_SUSPENDED"


def test_a_timer_that_fell_due_meanwhile_waits_for_the_events_that_came_before_it() -> None:
    graph = program(
        [state("paid", deadline=60.0), end(), end("late")],
        [edge("paid", "end", "payment"), edge("paid", "late", "timeout")],
    )
    run = suspended(Run(graph).start()).event("payment").fire("paid", "deadline")
    due = run.now
    run.now += 60 * SECOND
    decision = run.apply(Resume())
    parked = Parked("0", "0@0:deadline", "deadline")
    assert [n for n in decision.needs if isinstance(n, ParkedTimers)] == [ParkedTimers(((due, parked),))]
    assert (run.status, run.instance.state.parked) == ("running", ())


def test_timers_of_steps_that_wait_for_no_event_fire_with_the_resume() -> None:
    run = Run(line(timer("nap", 60), task("work"), state("paid", wait=Wait(event="payment")))).start().event("payment")
    suspended(run).fire("nap", "timer")
    run.apply(Resume())
    assert run.nodes == ["work"]


def test_two_branches_ask_each_for_their_own() -> None:
    graph = program(
        [split("fork"), state("left"), state("right"), join("meet"), end()],
        [
            edge("fork", "left"), edge("fork", "right"), edge("left", "meet", "a"), edge("right", "meet", "b"),
            edge("meet", "end"),
        ],
    )  # fmt: skip
    run = suspended(Run(graph).start()).event("b")
    run.apply(Resume())
    assert asked(run) == [("0/0.0@0", "a", None), ("0/0.1@0", "b", None)]
