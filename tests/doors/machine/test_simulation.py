"""Events tried on a machine without a database."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from machine_samples import VENDOR, VENDOR_POLICY, blueprint, edited

from holdfast import Machine
from holdfast.errors import NotFound, PayloadError
from holdfast.graph.machine import Param

MACHINE = Machine.load(VENDOR, VENDOR_POLICY)


def test_events_by_code_by_name_and_with_a_payload() -> None:
    run = MACHINE.simulate([1000, "Validated", ("Validated", {"score": 95})])
    assert run.states == ("Submitted", "CheckVendorRegistered", "PendingPQValidation", "Registered")
    assert (run.state, run.is_over, run.data) == ("Registered", True, {"score": 95})


def test_entries_carry_the_rule_of_the_state() -> None:
    first, second = MACHINE.simulate([1000, 1001]).entries
    assert (first.from_state, first.to_state, first.event, first.code) == (
        "Submitted",
        "CheckVendorRegistered",
        "Received",
        1000,
    )
    assert (first.applied, first.reason, first.on_success, first.on_failure) == (True, None, "Validated", "Refused")
    assert [hook.code for hook in first.hooks] == ["APP.REG.CHECK.VENDOR_REGISTERED"]
    [param] = second.params
    assert isinstance(param, Param)
    assert param.code == "PARAMS.REG.PQ.VALIDATE"
    assert [hook.order for hook in second.hooks] == [1, 2, 2]


def test_an_event_that_does_not_apply_is_an_answer() -> None:
    run = MACHINE.simulate([1003, 1000])
    assert [(entry.applied, entry.reason, entry.to_state) for entry in run.entries] == [
        (False, "not_applicable", "Submitted"),
        (True, None, "CheckVendorRegistered"),
    ]
    assert run.states == ("Submitted", "CheckVendorRegistered")
    assert run.entries[0].rule is None
    assert (run.entries[0].hooks, run.entries[0].params, run.entries[0].on_success) == ((), (), None)


def test_nothing_leaves_a_final_state() -> None:
    run = MACHINE.simulate([1000, 1002, 1000])
    assert (run.entries[-1].reason, run.is_over) == ("terminal", True)


def test_a_self_loop_is_an_entry() -> None:
    run = MACHINE.simulate([1000, 1001, 1001, 1011, 1011])
    assert run.states[-3:] == ("AwaitingApproval",) * 3
    assert [hook.code for hook in run.entries[-1].hooks] == ["APP.REG.APPROVAL.REMIND"]


def test_guards_ask_for_capabilities() -> None:
    way = [1000, 1001, 1001, 1003]
    assert MACHINE.simulate(way).entries[-1].reason == "guard_refused"
    assert MACHINE.simulate(way, actor="ann", capabilities=["vendors.approve"]).state == "Registered"


def test_payloads_merge_into_the_context() -> None:
    plan = edited(blueprint(), (("transitions", 1, "when"), "context.paid && input.ok && actor.id == 'ann'"))
    machine = Machine.load(plan)
    run = machine.simulate([("Go", {"paid": True}), ("End", {"ok": True})], actor="ann", data={"n": 1})
    assert (run.state, run.data) == ("Done", {"n": 1, "paid": True, "ok": True})
    assert machine.simulate(["Go", ("End", {"ok": True})], actor="ann").entries[-1].reason == "condition"


@pytest.mark.parametrize(("year", "state"), [(2025, "Open"), (2027, "Done")])
def test_conditions_read_the_given_time(year: int, state: str) -> None:
    plan = edited(blueprint(), (("transitions", 1, "when"), "now > '2026-01-01T00:00:00+00:00'"))
    assert Machine.load(plan).simulate(["Go", "End"], now=datetime(year, 6, 1, tzinfo=UTC)).state == state


def test_no_events_leave_it_where_it_begins() -> None:
    run = MACHINE.simulate([])
    assert (run.states, run.entries, run.is_over) == (("Submitted",), (), False)


def test_an_event_the_machine_does_not_have_is_an_error() -> None:
    with pytest.raises(NotFound, match=r"MACHINE_EVENT_UNKNOWN.*Received \(1000\)"):
        MACHINE.simulate(["Nope"])
    with pytest.raises(PayloadError):
        MACHINE.simulate([(1000, {"x": object()})])
