"""What an operator does to a whole instance."""

from __future__ import annotations

import pytest
from core_graphs import chain, condition, edge, end, join, line, program, split, state, task, timer
from core_run import Run

from holdfast.core.model.program import Program
from holdfast.core.model.signals import Abort, Actor, Cancel, ForceFail, Resume, Suspend, TimerDue, WorkDone
from holdfast.errors import Conflict, Refused
from holdfast.graph.model import Policy, Retry, Wait

ADA = Actor("ada")
TWO = line(task("a"), task("b"))


def _busy() -> Program:
    again = task("again", retry=Retry(calls=2, delay=9))
    return program(
        [split("fork"), task("out"), task("idle"), state("rest"), again, join("meet"), end()],
        [
            edge("fork", "out"), edge("fork", "idle"), edge("fork", "rest"), edge("fork", "again"), edge("out", "meet"),
            edge("idle", "meet"), edge("rest", "meet", "go"), edge("again", "meet"), edge("meet", "end"),
        ],
    )  # fmt: skip


# --- suspend and resume -----------------------------------------------------------------------------------------------


def test_a_suspended_instance_records_results_but_its_tokens_do_not_move() -> None:
    run = Run(TWO).start()
    run.apply(Suspend("AUDIT"))
    run.done("a", {"v": 1})
    assert (run.status, run.instance.reason, run.row("a").status) == ("suspended", "AUDIT", "completed")
    assert (run.at("b")[1].phase, run.last.dispatches, len(run.last.released)) == ("held", [], 1)
    run.apply(Resume())
    assert (run.input("b"), run.last.dispatches[0].fence) == ({"v": 1}, 2)


def test_resuming_twice_is_a_conflict_and_so_is_suspending_twice() -> None:
    run = Run(TWO).start()
    with pytest.raises(Conflict, match="INSTANCE_NOT_SUSPENDED"):
        run.apply(Resume())
    run.apply(Suspend())
    with pytest.raises(Conflict, match="INSTANCE_SUSPENDED"):
        run.apply(Suspend())


def test_a_resume_that_meets_the_chain_limit_suspends_again() -> None:
    steps = program(
        [split("fork"), condition("c1"), condition("c2"), task("a"), task("b"), join("meet"), end()],
        [
            edge("fork", "c1"),
            edge("fork", "c2"),
            *chain("c1", "a", "meet"),
            *chain("c2", "b", "meet"),
            edge("meet", "end"),
        ],
        Policy(data="context", chain_limit=1),
    )
    run = Run(steps).start()
    laps = 0
    while run.status == "suspended":
        run.apply(Resume())
        laps += 1
    assert (laps, run.nodes) == (4, ["a", "b"])


def test_the_actor_and_the_reason_stand_in_the_audit_trail() -> None:
    run = Run(TWO).start()
    run.apply(Suspend("AUDIT"), ADA)
    assert [(e.type, e.actor, e.detail) for e in run.last.events] == [
        ("instance_suspended", "ada", b'{"by":"ada","reason":"AUDIT"}')
    ]


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancel_with_nothing_running_is_over_at_once() -> None:
    run = Run(line(state("ask", wait=Wait(event="go")))).start()
    run.apply(Cancel("not needed"), ADA)
    assert (run.status, run.instance.reason, run.row("ask").status) == ("cancelled", "not needed", "skipped")


def test_a_cancel_awaits_handlers_that_are_out_and_stops_everything_else() -> None:
    run = Run(_busy()).start().fail("again")
    run.apply(Cancel("stop"), idle=frozenset({run.at("idle")[0]}))
    assert (run.status, run.nodes, run.at("out")[1].phase) == ("running", ["out"], "cancelling")
    assert [run.row(node).status for node in ("idle", "rest", "again")] == ["skipped"] * 3
    run.done("out", {"v": 1})
    assert (run.status, run.row("out").status, run.row("out").outcome) == ("cancelled", "completed", "after_cancel")


def test_a_handler_that_fails_after_the_cancel_is_recorded_too() -> None:
    run = Run(line(task("a", retry=Retry(calls=5)))).start()
    run.apply(Cancel())
    run.fail("a")
    assert (run.status, run.row("a").status, run.row("a").outcome) == ("cancelled", "skipped", "after_cancel")
    assert b"BOOM" in (run.row("a").error or b"")


def test_a_deadline_ends_the_wait_for_a_handler_that_does_not_come_back() -> None:
    graph = program(
        [task("a", deadline=9), task("late"), end()],
        [edge("a", "end"), edge("a", "late", "timeout"), edge("late", "end")],
    )
    run = Run(graph).start()
    run.apply(Cancel())
    run.fire("a", "deadline")
    assert (run.status, run.row("a").status) == ("cancelled", "skipped")


def test_a_result_after_the_cancel_changes_no_data() -> None:
    run = Run(line(task("a"), policy=Policy(data="context"))).start({"v": 1})
    run.apply(Cancel())
    assert run.done("a", {"v": 2}).data == {"v": 1}


def test_a_second_cancel_and_any_event_meet_a_conflict() -> None:
    run = Run(TWO).start()
    run.apply(Cancel())
    for signal in (Cancel(), Suspend()):
        with pytest.raises(Conflict, match="INSTANCE_STOPPING"):
            run.apply(signal)
    with pytest.raises(Conflict, match="INSTANCE_STOPPING"):
        run.event("go")


def test_a_cancel_reaches_a_suspended_instance_with_held_and_dead_tokens() -> None:
    run = Run(_busy()).start()
    run.apply(Suspend())
    run.done("out").fail("idle")
    run.apply(Cancel(), idle=frozenset({run.at("again")[0]}))
    assert (run.status, run.tokens) == ("cancelled", {})


@pytest.mark.parametrize(("signal", "ended"), [(Cancel("late"), "cancelled"), (Abort("late"), "aborted")])
@pytest.mark.parametrize("on_cancel", ["rollback", "stop"])
def test_the_end_of_a_stop_says_who_and_why_and_its_steps_that_all_stopped(
    signal: Cancel | Abort, ended: str, on_cancel: str
) -> None:
    run = Run(line(state("ask", wait=Wait(event="go")), policy=Policy(on_cancel=on_cancel))).start()
    run.apply(signal, ADA)
    told = {e.type: e.detail for e in (*getattr(run, "asked", run.last).events, *run.last.events)}
    assert told["step_skipped"] == b'{"reason":"workflow_stopped"}'
    assert told[f"instance_{ended}"] == b'{"by":"ada","reason":"late"}'
    assert run.row("ask").outcome == ended


# --- abort and force-fail ---------------------------------------------------------------------------------------------


def test_an_abort_ends_everything_now() -> None:
    run = Run(_busy()).start()
    token = run.at("out")
    run.apply(Abort("broken"))
    assert (run.status, run.instance.reason, run.table.open_rows) == ("aborted", "broken", [])
    with pytest.raises(Conflict, match="INSTANCE_OVER"):
        run.apply(WorkDone(token[0], token[1].step, token[1].fence, b"{}"))


def test_an_abort_ends_a_cancel_that_takes_too_long() -> None:
    run = Run(TWO).start()
    run.apply(Cancel())
    run.apply(Abort())
    assert (run.status, run.row("a").status) == ("aborted", "skipped")


def test_a_forced_failure_says_why() -> None:
    run = Run(TWO).start()
    run.apply(ForceFail("wrong customer"))
    assert (run.status, run.instance.reason) == ("failed", "wrong customer")
    assert run.last.error == b'{"code":"FORCED","message":"wrong customer"}'


def test_control_rows_have_receipts_and_no_path() -> None:
    run = Run(TWO).start()
    run.apply(Suspend())
    run.done("a")
    run.apply(Resume())
    rows = [row for row in run.table.rows.values() if row.kind == "control"]
    assert [(row.node, row.path, row.hop, row.run) for row in rows] == [
        ("@suspend", "", 2, 0), ("@hold", "", 3, 0), ("@resume", "", 4, 0),
    ]  # fmt: skip


def test_timers_of_a_cancelled_instance_are_stale() -> None:
    run = Run(program([split("s"), timer("nap", 5), task("a"), join("j"), end()], [
        edge("s", "nap"), edge("s", "a"), edge("nap", "j"), edge("a", "j"), edge("j", "end"),
    ])).start()  # fmt: skip
    run.apply(Cancel())
    assert len(run.last.timers_ended) == 1
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0/0.1", "0/0.1@0:timer", "timer"))
