"""People in a workflow: what they need to act, what they may not decide, whose task it is, how they sign."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_desk import Desk, desk
from core_graphs import edge, end, line, program, state, task
from core_run import Run

from holdfast.core.model.program import Program
from holdfast.core.model.signals import SYSTEM, Actor, Started
from holdfast.errors import Forbidden, Refused
from holdfast.graph.model import Node, Policy, Wait

ANN, BEN = Actor("ann"), Actor("ben")
CHIEF = Actor("eve", ("read", "sign"))
STEPS = Policy(on_error="suspend", data="context", chain_limit=10, keeps_error=True)


def approval(**options: Any) -> Program:
    """An approval with an edge for each answer, in a workflow."""
    review = Node(id="review", kind="approval", **options)
    return program(
        [review, end(), end("no"), end("later")],
        [edge("review", "end", "approved"), edge("review", "no", "rejected"), edge("review", "later", "postponed")],
        STEPS,
        kind="steps",
    )


def started(program: Program, by: Actor, input: Any = None) -> Desk:
    run = Desk(program)
    run.apply(Started(msgspec.json.encode(input or {})), by)
    return run


# --- capabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["event", "decision"])
def test_acting_needs_all_capabilities_of_the_step(way: str) -> None:
    run = desk(approval(capabilities=("read", "sign")))

    def act(actor: Actor) -> None:
        _ = run.event("approved", None, actor) if way == "event" else run.decide("review", "approved", actor)

    with pytest.raises(Forbidden, match=r"CAPABILITY_MISSING.*'read', 'sign'") as refusal:
        act(ANN)
    assert refusal.value.detail["missing"] == ["read", "sign"]
    with pytest.raises(Forbidden, match=r"CAPABILITY_MISSING.*the capability 'sign'"):
        act(Actor("bob", ("read",)))
    act(CHIEF)
    assert run.status == "completed"


def test_the_condition_comes_first_then_the_guard_then_the_capabilities() -> None:
    node = Node(id="review", kind="human", guard="open", capabilities=("sign",))
    graph = program([node, end()], [edge("review", "end", "go", when="input.n > 1", guard="pass")], STEPS)
    with pytest.raises(Refused, match="NO_EDGE_MATCHED"):
        Run(graph).start().event("go", {"n": 1})
    with pytest.raises(Forbidden, match="GUARD_REFUSED"):
        Run(graph).start().event("go", {"n": 2})
    with pytest.raises(Forbidden, match=r"CAPABILITY_MISSING.*'open'"):
        Run(graph).start().event("go", {"n": 2}, Actor("bob", ("pass",)))
    with pytest.raises(Forbidden, match=r"CAPABILITY_MISSING.*'sign'"):
        Run(graph).start().event("go", {"n": 2}, Actor("bob", ("pass", "open")))
    assert Run(graph).start().event("go", {"n": 2}, Actor("bob", ("pass", "open", "sign"))).status == "completed"


# --- self-approval ----------------------------------------------------------------------------------------------------

TWO_EYES = approval(self_approval=False)


def test_whoever_started_it_may_not_decide_it() -> None:
    run = started(TWO_EYES, ANN)
    for refused in (lambda: run.event("approved", None, ANN), lambda: run.decide("review", "rejected", ANN)):
        with pytest.raises(Forbidden, match="SELF_APPROVAL"):
            refused()
    assert run.event("approved", None, BEN).status == "completed"


def test_where_it_is_allowed_they_may() -> None:
    assert started(approval(), ANN).event("approved", None, ANN).status == "completed"


def test_nobody_is_the_system() -> None:
    run = started(TWO_EYES, SYSTEM)
    assert run.instance.starter is None
    assert run.event("approved", None, SYSTEM).status == "completed"
    assert Run(TWO_EYES, starter="system").start().event("approved", None, SYSTEM).status == "completed"


def test_an_instance_that_was_stored_before_its_start_knows_who_stored_it() -> None:
    run = Run(TWO_EYES, starter="ann").start()
    assert run.instance.starter == "ann"
    with pytest.raises(Forbidden, match="SELF_APPROVAL"):
        run.event("approved", None, ANN)


@pytest.mark.parametrize("first", [task("work"), state("wait", wait=Wait(event="go"))])
def test_the_starter_is_known_ever_after(first: Node) -> None:
    run = Run(line(first, task("next"), task("last")))
    run.apply(Started(b"{}"), ANN)
    _ = run.done("work") if first.id == "work" else run.event("go")
    assert run.done("next").instance.starter == "ann"
    assert run.done("last").instance.starter == "ann"


# --- assignees --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [{}, {"roles": ("clerk",)}, {"capabilities": ("sign",)}])
def test_an_assignee_is_read_when_the_task_opens(others: dict[str, Any]) -> None:
    run = desk(approval(assignee="workflow.boss", **others), {"boss": "eve"})
    assert run.task_at("review").assignee == "eve"


@pytest.mark.parametrize("others", [{"roles": ("clerk",)}, {"capabilities": ("sign",)}])
def test_a_task_without_its_assignee_is_for_whoever_else_it_names(others: dict[str, Any]) -> None:
    assert desk(approval(assignee="workflow.boss", **others)).task_at("review").assignee is None


@pytest.mark.parametrize("named", [None, "", 7, ["eve"], "x" * 2001])
def test_what_names_nobody_opens_the_task_to_nobody(named: object) -> None:
    run = desk(approval(assignee="workflow.boss"), {"boss": named})
    assert (run.status, run.instance.reason, run.open) == ("suspended", "ASSIGNEE_INVALID", {})


# --- done, as a person says it ----------------------------------------------------------------------------------------

FORM = program([Node(id="fill", kind="human"), end()], [edge("fill", "end")], STEPS, kind="steps")


def test_a_person_may_say_that_they_are_done() -> None:
    run = desk(FORM).event("completed", {"name": "Ann"}, ANN, comment="at last")
    assert (run.status, run.data, run.row("fill").status) == ("completed", {"name": "Ann"}, "completed")
    [ended] = run.over.values()
    assert (ended.status, ended.decision, ended.comment) == ("completed", "completed", "at last")


def test_so_they_may_by_deciding_the_task() -> None:
    assert desk(FORM).decide("fill", "completed").status == "completed"
    with pytest.raises(Refused, match=r"DECISION_NOT_OFFERED.*completed, confirmed, rejected"):
        desk(FORM).decide("fill", "finished")


@pytest.mark.parametrize("name", ["error", "timeout"])
def test_what_happens_to_a_step_is_nothing_people_say(name: str) -> None:
    graph = program([Node(id="fill", kind="human"), end()], [edge("fill", "end"), edge("fill", "end", name)], STEPS)
    with pytest.raises(Refused, match="EVENT_RESERVED"):
        desk(graph).event(name)


def test_only_a_step_of_people_is_done_by_saying_so() -> None:
    with pytest.raises(Refused, match="EVENT_RESERVED"):
        Run(line(state("wait", wait=Wait(event="go")))).start().event("completed")
    with pytest.raises(Refused, match="EVENT_RESERVED"):
        desk(approval()).event("completed")


# --- signatures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "name"), [("approved", "approved_by"), ("rejected", "rejected_by")])
@pytest.mark.parametrize("way", ["event", "decision"])
@pytest.mark.parametrize("sent", [None, {"notes": "fine"}, {"approved_by": "eve", "rejected_by": "eve"}])
def test_the_engine_signs_what_is_approved_or_rejected(
    way: str, answer: str, name: str, sent: dict[str, str] | None
) -> None:
    run = desk(approval())
    _ = run.event(answer, sent, BEN) if way == "event" else run.decide("review", answer, BEN, payload=sent)
    notes = {"notes": "fine"} if sent == {"notes": "fine"} else {}
    assert run.data == {**notes, name: "ben"}
    assert msgspec.json.decode(run.row("review").output or b"") == run.data


def test_no_other_answer_is_signed_and_nobody_signs_for_themselves() -> None:
    run = desk(approval()).event("postponed", {"approved_by": "eve", "until": "may"}, BEN)
    assert run.data == {"until": "may"}
    assert desk(FORM).event("completed", {"approved_by": "eve"}, BEN).data == {}


FORGED = {"approved_by": "eve", "rejected_by": "eve", "_last_error": {"code": "FAKE"}, "order": 1}


def test_nothing_is_signed_before_it_starts() -> None:
    run = desk(approval(), FORGED)
    assert run.data == {"order": 1}
    assert run.event("rejected", None, BEN).data == {"order": 1, "rejected_by": "ben"}


def test_an_event_from_outside_signs_nothing() -> None:
    paid = Node(id="pay", kind="wait_event", wait=Wait(event="paid"))
    run = Run(program([paid, end()], [edge("pay", "end", "paid")], STEPS, kind="steps")).start()
    assert run.event("paid", FORGED).data == {"order": 1}


def test_a_rerun_keeps_what_was_signed() -> None:
    signed = {"order": 1, "approved_by": "ben"}
    run = Desk(approval(), input=signed)
    run.apply(Started(msgspec.json.encode(signed), origin="0190-old"), ANN)
    assert run.data == signed


def test_a_condition_sees_the_signature_of_the_engine() -> None:
    graph = program(
        [Node(id="review", kind="approval"), end(), end("other")],
        [edge("review", "other", "approved", when="input.approved_by == 'eve'"),
         edge("review", "end", "approved", priority=1)],
        STEPS, kind="steps",
    )  # fmt: skip
    run = desk(graph).event("approved", {"approved_by": "eve"}, BEN)
    assert run.chosen("review") == ["review-approved-end"]


def test_what_is_no_object_is_replaced_by_the_signature() -> None:
    assert desk(approval()).event("approved", [1], BEN).data == {"approved_by": "ben"}
    assert desk(approval()).event("postponed", [1], BEN).row("review").output == b"[1]"


def test_in_other_graphs_a_payload_is_left_as_it_came() -> None:
    graph = program([Node(id="a", kind="approval"), end()], [edge("a", "end", "approved")])
    assert desk(graph).event("approved", {"approved_by": "eve"}, BEN).data == {"approved_by": "eve"}
