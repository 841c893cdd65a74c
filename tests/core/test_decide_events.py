"""Events: which wait they reach, who may send them, what comes too early."""

from __future__ import annotations

import msgspec
import pytest
from core_graphs import edge, end, join, line, program, split, state, task, timer
from core_run import Run

from holdfast.core.model.decision import EarlyEvents, KeyWait
from holdfast.core.model.signals import Actor, EventArrived, Suspend
from holdfast.errors import Conflict, Forbidden, Refused
from holdfast.graph.model import Node, Policy, Wait

ADA = Actor("ada", ("approve",))
REVIEW = program(
    [task("write"), Node(id="review", kind="approval"), end()],
    [edge("write", "review"), edge("review", "end", "approved"), edge("review", "write", "rejected")],
)
TWO_WAITS = program(
    [split("fork"), state("left"), state("right"), join("meet"), end()],
    [
        edge("fork", "left"),
        edge("fork", "right"),
        edge("left", "meet", "go"),
        edge("right", "meet", "go"),
        edge("meet", "end"),
    ],
)


def test_a_named_event_takes_its_edge() -> None:
    run = Run(REVIEW).start().done("write", {"text": "x"}).event("rejected", {"why": "short"})
    assert (run.nodes, run.input("write")) == (["write"], {"why": "short"})
    assert (run.row("review").status, run.row("review").outcome) == ("rejected", "rejected")


def test_an_approval_is_confirmed_and_a_value_without_payload_is_kept() -> None:
    run = Run(REVIEW).start().done("write", {"text": "x"}).event("approved")
    assert (run.status, run.data, run.row("review").status) == ("completed", {"text": "x"}, "confirmed")


def test_a_payload_merges_into_the_context_and_is_the_input_of_the_conditions() -> None:
    graph = program(
        [state("ask"), task("big"), task("small"), end()],
        [
            edge("ask", "big", "answered", when="input.n > 10"), edge("ask", "small", "answered", priority=1),
            edge("big", "end"), edge("small", "end"),
        ],
        Policy(data="context"),
    )  # fmt: skip
    run = Run(graph).start({"n": 1, "keep": True}).event("answered", {"n": 50})
    assert (run.nodes, run.data) == (["big"], {"n": 50, "keep": True})


def test_in_a_saga_conditions_on_events_read_the_value() -> None:
    graph = program(
        [state("ask"), task("big"), task("small"), end()],
        [
            edge("ask", "big", "answered", when="input.n > 10"), edge("ask", "small", "answered", priority=1),
            edge("big", "end"), edge("small", "end"),
        ],
    )  # fmt: skip
    assert Run(graph).start({"n": 1}).event("answered", {"n": 50}).nodes == ["small"]


@pytest.mark.parametrize("name", ["completed", "error", "timeout"])
def test_the_engines_own_names_are_reserved(name: str) -> None:
    with pytest.raises(Refused, match="EVENT_RESERVED"):
        Run(line(state("ask", wait=Wait(event="x")))).start().event(name)


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(Refused, match="EVENT_NOT_EXPECTED"):
        Run(REVIEW).start().done("write").event("shipped")


def test_several_matches_are_ambiguous_unless_the_step_or_the_token_is_named() -> None:
    run = Run(TWO_WAITS).start()
    with pytest.raises(Conflict, match="EVENT_AMBIGUOUS"):
        run.event("go")
    assert run.event("go", node="left").nodes == ["right"]
    assert Run(TWO_WAITS).start().event("go", token="0/0.1@0").nodes == ["left"]


def test_a_token_of_an_earlier_visit_is_not_expected_any_more() -> None:
    run = Run(REVIEW).start().done("write").event("rejected").done("write")
    with pytest.raises(Refused, match="EVENT_NOT_EXPECTED"):
        run.event("approved", token="0@1")
    assert run.event("approved", token="0@3").status == "completed"


def test_a_capability_of_the_step_is_needed_to_act() -> None:
    run = Run(line(state("ask", guard="approve", wait=Wait(event="go")))).start()
    with pytest.raises(Forbidden, match="CAPABILITY_MISSING"):
        run.event("go")
    assert run.event("go", actor=ADA).status == "completed"


def test_a_guard_on_the_edge_is_403_and_a_condition_that_does_not_hold_is_422() -> None:
    graph = program(
        [state("ask"), end()],
        [edge("ask", "end", "go", when="input.n > 1", guard="approve")],
    )
    with pytest.raises(Refused, match="NO_EDGE_MATCHED"):
        Run(graph).start({"n": 1}).event("go")
    with pytest.raises(Forbidden, match="GUARD_REFUSED"):
        Run(graph).start({"n": 2}).event("go")
    assert Run(graph).start({"n": 2}).event("go", actor=ADA).status == "completed"


def test_the_condition_is_asked_before_the_capability_of_the_step() -> None:
    graph = program([state("ask", guard="approve"), end()], [edge("ask", "end", "go", when="input.n > 1")])
    with pytest.raises(Refused, match="NO_EDGE_MATCHED"):
        Run(graph).start({"n": 1}).event("go")


def test_the_actor_is_the_authenticated_one() -> None:
    graph = program(
        [state("ask"), end()], [edge("ask", "end", "go", when="actor.id == 'ada'")], variables={"actor": "any"}
    )
    with pytest.raises(Refused):
        Run(graph).start({"actor": {"id": "ada"}}).event("go", {"approved_by": "ada"})
    assert Run(graph).start().event("go", actor=ADA).status == "completed"


def test_a_refused_event_leaves_the_wait_open() -> None:
    run = Run(REVIEW).start().done("write")
    before = run.instance
    with pytest.raises(Refused):
        run.event("nonsense")
    assert run.instance is before
    assert run.event("approved").status == "completed"


def test_a_suspended_instance_answers_events_with_a_conflict() -> None:
    run = Run(REVIEW).start().done("write")
    run.apply(Suspend())
    with pytest.raises(Conflict, match="INSTANCE_SUSPENDED"):
        run.event("approved")


def test_a_timer_can_be_cut_short_by_an_event_on_its_edges() -> None:
    graph = program([timer("nap", 60), end(), end("early")], [edge("nap", "end"), edge("nap", "early", "wake")])
    run = Run(graph).start().event("wake")
    assert (run.status, len(run.last.timers_ended)) == ("completed", 1)


# --- early and by key -------------------------------------------------------------------------------------------------

EARLY = line(task("pack"), state("paid", wait=Wait(event="payment", early=True)))


def test_a_declared_event_that_comes_early_is_kept() -> None:
    run = Run(EARLY).start().event("payment", {"n": 1})
    assert (run.last.keep, run.instance.state.early) == (True, 1)


def test_the_commit_that_opens_the_wait_asks_for_what_came_early() -> None:
    run = Run(EARLY).start().event("payment", {"n": 1}).done("pack")
    token = run.at("paid")[1]
    assert run.last.needs == [EarlyEvents("0@1", token.step, "payment")]
    run.event("payment", {"n": 1}, kept=True, token="0@1")
    assert (run.status, run.data, run.instance.state.early) == ("completed", {"n": 1}, 0)


def test_without_an_early_event_nothing_is_asked_for() -> None:
    assert Run(EARLY).start().done("pack").last.needs == []


BY_KEY = line(task("ship"), state("delivered", wait=Wait(event="pod", key="input.shipment")))


def test_a_wait_by_key_is_registered_and_looks_for_early_events() -> None:
    run = Run(BY_KEY).start().done("ship", {"shipment": "S-1"})
    step = run.at("delivered")[1].step
    assert run.last.key_waits == [KeyWait("pod", "S-1", "0@1", step)]
    assert run.last.needs == [EarlyEvents("0@1", step, "pod", "S-1")]
    run.event("pod", {"signed": True}, token="0@1")
    assert run.last.key_waits_ended == [KeyWait("pod", "S-1", "0@1", step)]
    assert run.status == "completed"


@pytest.mark.parametrize(("value", "key"), [(7, "7"), (True, "true"), (["a", 1], '["a",1]')])
def test_a_key_that_is_no_text_is_its_json(value: object, key: str) -> None:
    assert Run(BY_KEY).start().done("ship", {"shipment": value}).last.key_waits[0].key == key


def test_a_key_without_a_value_could_never_be_met() -> None:
    run = Run(BY_KEY).start().done("ship", {})
    assert (run.status, run.instance.reason) == ("failed", "WAIT_KEY_MISSING")


@pytest.mark.parametrize("value", ["", "k" * 501, "ü" * 251, ["k" * 500]])
def test_a_key_nobody_could_send_to_fails_its_wait_and_not_the_step_before(value: object) -> None:
    run = Run(BY_KEY).start().done("ship", {"shipment": value})
    assert (run.status, run.instance.reason) == ("failed", "WAIT_KEY_INVALID")
    assert run.row("ship").status == "completed"
    assert run.row("delivered").status == "failed"


@pytest.mark.parametrize("key", ["k", "k" * 500, "ü" * 250])
def test_a_key_may_be_as_long_as_one_that_is_sent(key: str) -> None:
    assert Run(BY_KEY).start().done("ship", {"shipment": key}).last.key_waits[0].key == key


def test_an_event_by_key_that_comes_twice_is_taken_once() -> None:
    run = Run(BY_KEY).start().done("ship", {"shipment": "S-1"})
    signal = EventArrived(b"e" * 16, "pod", b"{}", token="0@1")
    run.apply(signal)
    with pytest.raises(Conflict, match="INSTANCE_OVER"):
        run.apply(signal)


def test_the_waits_stand_in_the_row() -> None:
    run = Run(BY_KEY).start().done("ship", {"shipment": "S-1"})
    detail = msgspec.json.decode(run.row("delivered").detail or b"")
    assert detail == {"waits": [{"id": "0@1:event", "kind": "event", "event": "pod", "key": "S-1"}]}
