"""Re-run: a token goes back to a step it has been at; what followed ends, what was done stays done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_graphs import chain, condition, edge, end, join, line, program, split, state, task, timer
from core_run import Run, new_instance
from test_migrate import Trip, asked, straight

from holdfast.core.decide import decide
from holdfast.core.model.decision import Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor, Cancel, Rerun, Resume, Started, Suspend
from holdfast.core.signals.rerun import Past, begun_again, rerun_of
from holdfast.errors import Conflict, HoldfastError
from holdfast.graph.model import Node, Policy, Retry, Wait

ADA = Actor("ada")
DLQ = Policy(on_error="dlq")
ORDER = line(task("a"), task("b"), asked(), task("c"))
FORKED = program(
    [task("first"), split("fork"), task("x"), asked("x2"), task("y"), asked("y2"), join("meet"), task("after"), end()],
    [
        *chain("first", "fork"), edge("fork", "x"), edge("fork", "y"), *chain("x", "x2", "meet"),
        *chain("y", "y2", "meet"), *chain("meet", "after", "end"),
    ],
)  # fmt: skip


def past_of(run: Run) -> Past:
    identity = new_instance(run.program, **run.options)
    return Past(run.program, list(run.table.rows.values()), identity, run.earlier)


def signal_for(run: Run, node: str, given: Any = None, token: str | None = None) -> Rerun:
    raw = None if given is None else msgspec.json.encode(given)
    return rerun_of(past_of(run), run.instance.state, run.instance.version, node, token, raw, "again")


def again(run: Run, node: str, given: Any = None, token: str | None = None) -> Run:
    run.apply(signal_for(run, node, given, token), ADA)
    return run


def refusal(run: Run, node: str, token: str | None = None) -> str:
    with pytest.raises(HoldfastError) as refused:
        decide(run.program, run.instance, signal_for(run, node, None, token), Facts(run.now, ADA))
    assert refused.value.hint
    return refused.value.code


# --- what happens --------------------------------------------------------------------------------------------------


def test_a_step_that_was_done_is_done_again_with_what_it_got() -> None:
    run = Run(ORDER).start({"n": 0}).done("a", {"n": 1}).done("b", {"n": 2})
    again(run, "b")
    assert (run.nodes, run.input("b")) == (["b"], {"n": 1})
    assert [(row.hop, row.run, row.status) for row in run.rows("b")] == [(1, 0, "completed"), (3, 1, "running")]
    assert run.row("ask").status == "skipped"
    run.done("b", {"n": 5}).event("go").done("c", {"n": 6})
    assert (run.status, run.data) == ("completed", {"n": 6})


def test_a_step_is_run_again_with_edited_input() -> None:
    run = again(Run(ORDER).start().done("a", {"n": 1}).done("b"), "b", {"n": 9})
    assert run.input("b") == {"n": 9}
    assert msgspec.json.decode(run.rows("b")[0].input or b"") == {"n": 1}


def test_the_visits_that_follow_have_receipts_of_their_own() -> None:
    run = Run(ORDER).start().done("a").done("b")
    for _ in range(3):
        again(run, "a").done("a").done("b")
    assert run.nodes == ["ask"]
    assert len({(row.path, row.hop) for row in run.rows("b")}) == 4


def test_a_dead_step_is_run_again_where_it_stands() -> None:
    run = Run(line(task("a"), task("b"), policy=DLQ)).start().done("a", {"n": 1}).fail("b")
    again(run, "b", {"n": 2})
    first, second = run.rows("b")
    assert (first.status, second.status, second.hop, second.run) == ("superseded", "running", first.hop, 1)
    assert (run.status, run.input("b")) == ("running", {"n": 2})
    assert run.last is not None
    assert [a.resolution for a in run.last.letters_resolved] == ["replayed"]


def test_a_step_before_the_dead_one_is_run_again_and_the_dead_one_is_let_go() -> None:
    run = Run(line(task("a"), task("b"), policy=DLQ)).start({"n": 0}).done("a").fail("b")
    again(run, "a")
    assert (run.status, run.nodes, run.input("a")) == ("running", ["a"], {"n": 0})
    assert run.last is not None
    assert [a.resolution for a in run.last.letters_resolved] == ["discarded"]
    run.done("a").done("b")
    assert run.status == "completed"


def test_a_failure_that_took_its_edge_is_superseded() -> None:
    graph = program(
        [task("a"), task("b"), asked("amends"), end()],
        [*chain("a", "b", "end"), edge("b", "amends", "error"), edge("amends", "end")],
    )
    run = Run(graph).start().done("a", {"n": 1}).fail("b")
    again(run, "b").done("b")
    assert [row.status for row in run.rows("b")] == ["superseded", "completed"]
    assert (run.status, run.row("amends").status) == ("completed", "skipped")


def test_a_step_before_a_split_ends_every_branch() -> None:
    run = Run(FORKED).start().done("first").done("x").done("y")
    assert run.nodes == ["x2", "y2"]
    again(run, "first").done("first").done("x")
    assert (run.nodes, list(run.instance.state.scopes)) == (["x2", "y"], ["0/3"])


def test_a_step_in_a_branch_leaves_its_siblings_alone() -> None:
    run = Run(FORKED).start().done("first").done("x", {"x": 1}).done("y")
    again(run, "x", {"n": 3})
    assert run.nodes == ["x", "y2"]
    run.done("x", {"x": 2}).event("go", {"x": 3}, node="x2").event("go", {"y": 1}, node="y2")
    assert run.input("after")["outputs"] == {"x2": {"x": 3}, "y2": {"y": 1}}


def test_a_branch_that_has_arrived_comes_back_from_its_join() -> None:
    run = Run(FORKED).start().done("first").done("x").done("y").event("go", {"x": 1}, node="x2")
    assert list(run.instance.state.scopes["0/1"].done) == ["0"]
    again(run, "x")
    assert run.instance.state.scopes["0/1"].done == {}
    run.done("x").event("go", {"x": 2}, node="x2").event("go", {"y": 1}, node="y2")
    assert run.input("after")["outputs"] == {"x2": {"x": 2}, "y2": {"y": 1}}


def test_tasks_timers_and_waits_that_followed_end() -> None:
    human = Node(id="sign", kind="human", due=60.0)
    run = Run(line(task("a"), human)).start().done("a")
    decision = again(run, "a").last
    assert decision is not None
    assert [t.status for t in decision.tasks if hasattr(t, "status")] == ["cancelled"]
    assert len(decision.timers_ended) == 1


def test_a_wait_a_timer_and_a_decision_can_be_run_again() -> None:
    graph = line(timer("pause", 60), condition("which"), asked())
    run = Run(graph).start({"n": 1}).fire("pause", "timer")
    for node in ("which", "ask", "pause"):
        again(run, node)
    run.fire("pause", "timer").event("go")
    assert run.status == "completed"


def test_a_suspended_instance_stays_suspended_and_begins_there_when_it_is_resumed() -> None:
    run = Run(ORDER).start().done("a", {"n": 1}).done("b")
    run.apply(Suspend())
    again(run, "b", {"n": 4})
    assert (run.status, str(run.tokens["0"].phase)) == ("suspended", "held")
    run.apply(Resume())
    assert run.input("b") == {"n": 4}


def test_in_a_graph_of_steps_the_edited_input_merges_into_the_context() -> None:
    run = Run(line(task("a"), task("b"), asked(), policy=Policy(data="context"))).start({"n": 0, "m": 0})
    run.done("a", {"n": 1}).done("b", {"n": 2})
    again(run, "b", {"n": 9})
    assert run.input("b") == {"n": 9, "m": 0}


def test_a_mapping_is_evaluated_anew_over_what_arrives() -> None:
    run = Run(line(task("a"), task("b", input={"k": "input.n"}), asked())).start().done("a", {"n": 1}).done("b")
    again(run, "b")
    assert run.input("b") == {"k": 1}
    run.done("b")
    again(run, "b", {"n": 3})
    assert run.input("b") == {"k": 3}


def test_a_step_under_its_new_name_is_found_after_a_migration() -> None:
    run = Trip(straight(1, task("a"), task("b"), asked())).start().done("a", {"n": 1}).done("b")
    run.migrate(straight(2, task("a"), task("b2"), asked()), {"b": "b2"})
    again(run, "b2")
    assert run.input("b2") == {"n": 1}


def test_the_audit_trail_tells_who_ran_it_again_and_why() -> None:
    run = again(Run(ORDER).start().done("a").done("b"), "b", {"n": 1})
    assert run.last is not None
    [event] = [e for e in run.last.events if e.type == "step_rerun"]
    told = msgspec.json.decode(event.detail or b"")
    assert (event.actor, told["reason"], told["new_input"]) == ("ada", "again", True)


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_step_that_was_never_reached() -> None:
    run = Run(ORDER).start().done("a").done("b")
    assert refusal(run, "c") == "RERUN_NEVER_REACHED"
    assert refusal(run, "b", token="0@7") == "RERUN_NEVER_REACHED"
    assert refusal(run, "nowhere") == "NODE_UNKNOWN"


def test_while_work_is_queued_or_running() -> None:
    assert refusal(Run(ORDER).start().done("a"), "a") == "RERUN_WORK_RUNNING"
    run = Run(FORKED).start().done("first").done("x")
    assert refusal(run, "x") == "RERUN_WORK_RUNNING"


def test_a_step_in_a_branch_that_has_been_joined() -> None:
    graph = program(
        [split("fork"), task("x"), task("y"), join("meet"), asked("after"), end()],
        [edge("fork", "x"), edge("fork", "y"), edge("x", "meet"), edge("y", "meet"), *chain("meet", "after", "end")],
    )
    run = Run(graph).start().done("x").done("y")
    assert refusal(run, "x") == "RERUN_SCOPE_CLOSED"
    assert refusal(run, "meet") == "RERUN_NODE_UNFIT"
    again(run, "fork").done("x").done("y")
    assert run.nodes == ["after"]


def test_a_step_that_several_branches_have_been_at_needs_its_token() -> None:
    graph = program(
        [split("fork"), task("x"), task("y"), asked("same"), join("meet"), end()],
        [edge("fork", "x"), edge("fork", "y"), *chain("x", "same", "meet"), *chain("y", "same"), edge("meet", "end")],
    )
    run = Run(graph).start().done("x").done("y")
    assert refusal(run, "same") == "RERUN_AMBIGUOUS"
    again(run, "same", token="0/0.1@1")
    assert {path: token.hop for path, token in run.tokens.items()} == {"0/0.0": 1, "0/0.1": 2}


def test_an_instance_that_is_stopping_or_changed_meanwhile() -> None:
    run = Run(ORDER).start().done("a").done("b")
    stale = signal_for(run, "b")
    run.apply(Suspend())
    with pytest.raises(Conflict, match="VERSION_CONFLICT"):
        decide(run.program, run.instance, stale, Facts(run.now))
    stopping = Run(ORDER).start().done("a")
    found = signal_for(stopping, "a")
    stopping.apply(Cancel())
    with pytest.raises(Conflict, match="INSTANCE_STOPPING"):
        decide(stopping.program, stopping.instance, msgspec.structs.replace(found, if_version=None), Facts(run.now))


def test_a_pending_retry_does_not_stand_in_the_way() -> None:
    run = Run(line(task("a"), task("b", retry=Retry(calls=2, delay=9)))).start().done("a").fail("b")
    again(run, "a")
    assert (run.nodes, [row.status for row in run.rows("b")]) == (["a"], ["skipped"])


# --- one that is over ----------------------------------------------------------------------------------------------


def begun(run: Run, node: str, given: Any = None) -> Any:
    raw = None if given is None else msgspec.json.encode(given)
    return msgspec.json.decode(begun_again(past_of(run), run.instance.data, node, None, raw))


def test_a_new_instance_begins_at_the_step_with_what_it_got() -> None:
    run = Run(ORDER).start().done("a", {"n": 1}).done("b").event("go").done("c")
    assert (begun(run, "b"), begun(run, "b", {"n": 2})) == ({"n": 1}, {"n": 2})
    new = Run(ORDER)
    new.options = {"input": {"n": 1}}
    new.instance = new_instance(ORDER, {"n": 1})
    new.apply(Started(b'{"n":1}', "b", "0190-old"))
    assert (new.nodes, new.tokens["0"].hop) == (["b"], 0)
    assert new.last is not None
    assert msgspec.json.decode(new.last.events[0].detail or b"") == {"origin": "0190-old"}
    new.done("b").event("go").done("c")
    assert new.status == "completed"


def test_in_a_graph_of_steps_the_new_instance_begins_with_the_context() -> None:
    run = Run(line(task("a"), task("b"), policy=Policy(data="context"))).start({"n": 0})
    run.done("a", {"n": 1}).done("b", {"m": 1})
    assert begun(run, "b", {"k": 1}) == {"n": 1, "m": 1, "k": 1}


def test_a_new_instance_cannot_begin_inside_a_branch() -> None:
    run = Run(FORKED).start().done("first").done("x").done("y")
    run.apply(Cancel())
    with pytest.raises(Conflict, match="RERUN_NODE_UNFIT"):
        begun(run, "x")
    assert begun(run, "fork") == {}


def saga() -> Program:
    return program(
        [
            task("reserve", undo="release"), Node(id="paid", kind="save_point"), task("pack", undo="unpack"),
            task("ship"), end(), *(Node(id=id, kind="compensation", handler=id) for id in ("release", "unpack")),
        ],
        chain("reserve", "paid", "pack", "ship", "end"),
        Policy(on_error="rollback"),
    )  # fmt: skip


def test_what_came_before_must_not_have_been_taken_back() -> None:
    run = Run(saga()).start().done("reserve", {"n": 1}).done("pack").fail("ship")
    run.done("unpack")
    assert run.status == "failed"
    with pytest.raises(Conflict, match="RERUN_TAKEN_BACK"):
        begun(run, "ship")
    assert begun(run, "pack") == {"n": 1}


def test_a_rollback_takes_back_both_runs() -> None:
    graph = program(
        [task("a", undo="z"), asked(), task("b"), end(), Node(id="z", kind="compensation", handler="z")],
        chain("a", "ask", "b", "end"),
        Policy(on_error="rollback"),
    )
    run = Run(graph).start().done("a", {"n": 1})
    again(run, "a").done("a", {"n": 2}).event("go").fail("b")
    taken = [msgspec.json.decode(row.input or b"")["output"] for row in sorted(run.rows("z"), key=lambda r: -r.hop)]
    assert taken == [{"n": 2}, {"n": 1}]
    run.done("z").done("z")
    assert (run.status, {row.status for row in run.rows("a")}) == ("failed", {"rolled_back"})


def test_an_instance_that_goes_backwards_is_left_alone() -> None:
    run = Run(saga()).start().done("reserve").done("pack").fail("ship")
    assert run.status == "rolling_back"
    assert refusal(run, "pack") == "INSTANCE_ROLLING_BACK"


def test_a_rollback_after_a_migration_knows_steps_by_their_new_names() -> None:
    def order(number: int, name: str, undo: str) -> Program:
        nodes = [task(name, undo=undo), asked(), task("b"), end(), Node(id=undo, kind="compensation", handler=undo)]
        graph = program(nodes, chain(name, "ask", "b", "end"), Policy(on_error="rollback"))
        return msgspec.structs.replace(graph, definition=b"%016d" % number, version=number)

    run = Trip(order(1, "a", "undo_a")).start().done("a", {"n": 1})
    run.migrate(order(2, "z", "undo_z"), {"a": "z"})
    run.event("go").fail("b")
    run.done("undo_z")
    assert (run.status, run.row("a").status, run.row("undo_z").status) == ("failed", "rolled_back", "completed")


def test_a_state_without_edges_for_it_waits_again() -> None:
    run = Run(line(state("s", wait=Wait(event="go"), deadline=60.0))).start()
    again(run, "s")
    assert [w.kind for w in run.at("s")[1].waits] == ["event", "deadline"]
