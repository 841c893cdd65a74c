"""Machines in the core: triggers, facts, gates, timeouts."""

from __future__ import annotations

import pytest
from core_machines import MachineRun, body, machine, ruled, timed

from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor, Cancel, EventArrived, GateDone, Resume, Suspend
from holdfast.core.model.status import InstanceStatus
from holdfast.errors import Forbidden, Refused
from holdfast.graph.machine import Completion, Hook, Param, Rule
from holdfast.graph.model import Edge

ANN = Actor("ann", ("approve",))
PARAM = Param(code="LIMITS", data={"most": 5})


def order(rule: Rule | None = None) -> Program:
    return machine(
        {"new": None, "open": ruled(**({"go": rule} if rule else {})), "done": None},
        [("new", "go", "open"), ("open", "back", "new"), ("open", "again", "open"), ("open", "end", "done")],
        ends=("done",),
        codes={"go": 1001, "end": 1009},
    )


# --- triggers -------------------------------------------------------------------------------------------------------


def test_the_first_trigger_begins_the_instance_and_moves_it() -> None:
    run = MachineRun(order())
    answer = run.send(1001, {"n": 1}, by=ANN)
    assert (answer.applied, answer.reason, answer.from_state, answer.to_state) == (True, None, "new", "open")
    assert (answer.event, answer.lifecycle) == ("go", 1)
    assert (run.state, run.instance.data, run.instance.starter) == ("open", b'{"n":1}', "ann")


def test_a_first_trigger_that_does_not_apply_leaves_the_instance_at_its_first_state() -> None:
    run = MachineRun(order())
    answer = run.send("end")
    assert (answer.applied, answer.reason, answer.from_state, answer.to_state) == (False, "not_applicable", "new", None)
    assert (run.state, run.instance.status, run.instance.version) == ("new", InstanceStatus.RUNNING, 1)


def test_what_does_not_apply_changes_nothing() -> None:
    run = MachineRun(order())
    run.send("go")
    before = run.instance
    assert run.send("go").reason == "not_applicable"
    assert run.send("end", expected=0).reason == "overtaken"
    assert run.instance is before
    assert run.send("end", expected=1).applied


def test_what_is_over_answers_that_it_is() -> None:
    run = MachineRun(order())
    run.send("go")
    assert run.send("end").to_state == "done"
    assert run.instance.status is InstanceStatus.COMPLETED
    answer = run.send("go")
    assert (answer.applied, answer.reason, answer.from_state) == (False, "terminal", None)


def test_a_suspended_instance_takes_no_trigger() -> None:
    run = MachineRun(order())
    run.send("go")
    run.decide(Suspend("AUDIT"))
    assert run.send("end").reason == "not_active"
    run.decide(Resume())
    assert run.send("end").applied


def test_an_event_nobody_knows_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(Refused, match="has no event 7") as caught:
        MachineRun(order()).send(7)
    assert caught.value.code == "EVENT_UNKNOWN"
    assert "go (1001)" in caught.value.hint


def test_a_code_may_come_as_text() -> None:
    assert MachineRun(order()).send("1001").event == "go"


def test_conditions_read_the_payload_and_guards_the_actor() -> None:
    ways = [
        Edge(id="a", source="new", on="go", target="open", when="input.ok == true"),
        Edge(id="b", source="new", on="force", target="open", guard="approve"),
        ("open", "back", "new"),
    ]
    run = MachineRun(machine({"new": None, "open": None}, ways))
    assert run.send("go", {"ok": False}).reason == "condition"
    with pytest.raises(Forbidden) as caught:
        run.send("force")
    assert caught.value.code == "GUARD_REFUSED"
    assert run.send("force", by=ANN).applied
    run.send("back")
    assert run.send("go", {"ok": True}).applied


def test_a_plain_event_is_refused_because_nobody_would_be_told() -> None:
    run = MachineRun(order())
    run.send("go")
    with pytest.raises(Refused) as caught:
        run.decide(EventArrived(bytes(16), "end"))
    assert caught.value.code == "TRIGGER_NEEDED"


def test_a_self_loop_is_a_new_entry() -> None:
    run = MachineRun(order())
    run.send("go")
    assert [run.send("again").lifecycle for _ in range(3)] == [2, 3, 4]
    assert run.state == "open"
    assert [kind for kind, _ in run.facts()] == ["transition"] * 4


# --- facts ----------------------------------------------------------------------------------------------------------


def test_a_transition_tells_where_from_where_to_by_whom_and_what_is_expected() -> None:
    run = MachineRun(order(Rule(params=(PARAM,), complete=Completion(success="end", failure="back"))))
    run.send("go", {"n": 1}, by=ANN)
    told = body(run.told[0])
    assert told | {"occurred_at": "", "instance": ""} == {
        "kind": "transition", "instance": "", "environment": "prod", "definition": "order", "version": 3, "from": "new",
        "to": "open", "event": "go", "code": 1001, "lifecycle": 1, "actor": "ann", "payload": {"n": 1},
        "params": [{"code": "LIMITS", "data": {"most": 5}}], "on_success": "end", "on_failure": "back",
        "occurred_at": "", "needs_ack": True,
    }  # fmt: skip


def test_entering_the_first_state_is_no_transition() -> None:
    run = MachineRun(order())
    run.send("end")
    assert run.facts() == []


def test_the_last_transition_is_told_too() -> None:
    run = MachineRun(order())
    run.send("go")
    run.send("end")
    assert run.facts() == [("transition", "open"), ("transition", "done")]


def test_hooks_without_an_order_go_out_with_their_transition() -> None:
    run = MachineRun(order(Rule(hooks=(Hook(code="A"), Hook(code="B", type="effect", params=(PARAM,))))))
    run.send("go")
    assert [fact.type for fact in run.told[1:]] == ["gate", "effect"]
    assert body(run.told[2])["params"] == [{"code": "LIMITS", "data": {"most": 5}}]
    assert run.facts() == [("transition", "open"), ("hook", "A"), ("hook", "B")]
    assert run.gates == []
    assert run.send("end").applied


def test_a_rule_belongs_to_the_event_that_led_there() -> None:
    run = MachineRun(order(Rule(hooks=(Hook(code="A"),))))
    run.send("go")
    run.facts()
    run.send("again")
    assert run.facts() == [("transition", "open")]


# --- gates ----------------------------------------------------------------------------------------------------------

PHASES = Rule(
    complete=Completion(success="end", failure="back"),
    hooks=(
        Hook(code="A", order=1),
        Hook(code="B", order=1),
        Hook(code="NOTE", order=2, type="effect"),
        Hook(code="C", order=3, complete=Completion(success="again")),
        Hook(code="LAST", order=4, type="effect"),
    ),
)


def test_phases_go_out_one_after_the_other_and_one_completion_at_the_end() -> None:
    run = MachineRun(order(PHASES))
    run.send("go", by=ANN)
    assert run.facts() == [("transition", "open"), ("hook", "A"), ("hook", "B")]
    run.settle("B")
    assert run.facts() == []
    assert run.send("end").reason == "blocked"
    run.settle("A")
    assert run.facts() == [("hook", "NOTE"), ("hook", "C")]
    assert run.send("end").reason == "blocked"
    run.settle("C")
    [last, complete] = run.told
    assert (last.code, complete.kind) == ("LAST", "complete")
    told = body(complete)
    assert (told["verdict"], told["send"], told["on_success"], told["actor"]) == ("success", "again", "again", "ann")
    assert run.gates == []
    assert run.send("end").applied


def test_a_gate_that_says_no_ends_the_phases_once_the_others_have_answered() -> None:
    run = MachineRun(order(PHASES))
    run.send("go")
    run.facts()
    run.settle("A", "failure")
    assert run.facts() == []
    assert run.send("end").reason == "blocked"
    run.settle("B")
    [complete] = run.told
    assert (body(complete)["verdict"], body(complete)["send"]) == ("failure", "back")
    assert run.waits == ()
    assert run.send("back").applied


def test_phases_of_effects_alone_hold_nothing() -> None:
    run = MachineRun(
        order(Rule(hooks=(Hook(code="A", order=2, type="effect"), Hook(code="B", order=1, type="effect"))))
    )
    run.send("go")
    assert run.facts() == [("transition", "open"), ("hook", "B"), ("hook", "A")]
    assert run.send("end").applied


def test_a_gate_of_a_stay_that_is_over_settles_nothing() -> None:
    run = MachineRun(
        machine({"new": None, "open": timed(60, "back", go=PHASES)}, [("new", "go", "open"), ("open", "back", "new")])
    )
    run.send("go")
    gate = run.gates[0].ref
    run.fire("prompt")
    assert run.state == "new"
    assert gate is not None
    with pytest.raises(Refused) as caught:
        run.decide(GateDone(gate, "success"))
    assert caught.value.code == "STALE_GATE"


def test_at_an_end_all_phases_go_out_together_in_their_order() -> None:
    rule = Rule(hooks=(Hook(code="B", order=2), Hook(code="A", order=1), Hook(code="Z")))
    run = MachineRun(machine({"new": None, "done": ruled(go=rule)}, [("new", "go", "done")], ends=("done",)))
    run.send("go")
    assert run.facts() == [("transition", "done"), ("hook", "Z"), ("hook", "A"), ("hook", "B")]
    assert run.instance.status is InstanceStatus.COMPLETED


def test_a_cancelled_machine_is_over_with_its_gates() -> None:
    run = MachineRun(order(PHASES))
    run.send("go")
    run.decide(Cancel("enough"))
    assert run.instance.status is InstanceStatus.CANCELLED
    assert run.send("end").reason == "terminal"


# --- timeouts -------------------------------------------------------------------------------------------------------


def clocked(mode: str = "once", event: str | None = "late") -> Program:
    return machine(
        {"new": None, "open": timed(60, event, mode), "old": None},
        [("new", "go", "open"), ("open", "late", "open"), ("open", "end", "old"), ("old", "go", "open")],
    )


def test_a_timeout_is_decided_as_its_event_by_the_system() -> None:
    program = machine(
        {"new": timed(60, "late"), "old": None}, [("new", "late", "old"), ("old", "back", "new"), ("new", "go", "old")]
    )
    run = MachineRun(program)
    run.send("back")
    run.fire("prompt")
    assert (run.state, run.instance.status) == ("old", InstanceStatus.RUNNING)
    told = body(run.told[0])
    assert (told["event"], told["actor"], told["payload"]) == ("late", "system", None)
    assert run.timers == {}


def test_a_timeout_passes_gates_and_guards() -> None:
    ways = [("new", "go", "open"), Edge(id="l", source="open", on="late", target="new", guard="approve")]
    run = MachineRun(machine({"new": None, "open": timed(60, "late", go=PHASES)}, ways))
    run.send("go")
    run.fire("prompt")
    assert (run.state, run.gates) == ("new", [])


def test_once_per_stay_its_own_self_loop_starts_no_new_stay() -> None:
    run = MachineRun(clocked())
    run.send("go")
    run.fire("prompt")
    assert run.state == "open"
    assert run.timers == {}
    run.send("end")
    run.send("go")
    assert len(run.timers) == 1


def test_repeated_it_comes_again() -> None:
    run = MachineRun(clocked("repeat"))
    run.send("go")
    for _ in range(3):
        run.fire("prompt")
    assert run.facts() == [("transition", "open")] * 4


def test_without_an_event_it_is_told_as_a_notice() -> None:
    run = MachineRun(clocked("repeat", None))
    run.send("go")
    run.fire("stale").fire("stale")
    assert [(n.code, n.kind, n.node) for n in run.notices] == [("STATE_STALE", "overdue", "open")] * 2
    assert run.state == "open"
    once = MachineRun(clocked("once", None))
    once.send("go")
    once.fire("stale")
    assert (len(once.notices), once.timers, once.waits) == (1, {}, ())


def test_a_timeout_whose_condition_does_not_hold_changes_no_state() -> None:
    late = Edge(id="l", source="open", on="late", target="new", when="input.ok == true")
    for mode, left in (("once", 0), ("repeat", 1)):
        run = MachineRun(machine({"new": None, "open": timed(60, "late", mode)}, [("new", "go", "open"), late]))
        run.send("go")
        run.fire("prompt")
        assert (run.state, len(run.timers)) == ("open", left)


def test_what_is_due_while_suspended_comes_once_with_the_resume() -> None:
    run = MachineRun(clocked("repeat"))
    run.send("go")
    run.facts()
    run.decide(Suspend("AUDIT"))
    run.fire("prompt")
    assert run.facts() == []
    run.decide(Resume())
    assert run.facts() == [("transition", "open")]
    assert run.instance.status is InstanceStatus.RUNNING


def test_an_event_that_no_transition_takes_is_known_by_name_and_code() -> None:
    """It is part of the blueprint, so it is answered like any that does not apply."""
    ways = [("new", "go", "done"), ("done", "back", "new")]
    run = MachineRun(machine({"new": None, "done": None}, ways, codes={"go": 1, "back": 2, "idle": 99}))
    for event in ("idle", 99, "99"):
        answer = run.send(event)
        assert (answer.applied, answer.reason, answer.event) == (False, "not_applicable", "idle")
