"""Sub-flows and effects: what an instance starts outside itself and waits for."""

from __future__ import annotations

import msgspec
import pytest
from core_graphs import edge, end, join, line, program, split, state, task
from core_run import BOOM, ID, Run

from holdfast.core.model.ids import derived_id
from holdfast.core.model.signals import Abort, Actor, Cancel, ChildFinished, Decided, Failure, ReceiptArrived, Resume
from holdfast.errors import Refused
from holdfast.graph.model import Child, Node, Policy


def _sub(id: str = "sub", **options: object) -> Node:
    return Node(id=id, kind="sub_flow", child=Child(flow="invoice", version=2), **options)


def _effect(**options: object) -> Node:
    return Node(id="mail", kind=str(options.pop("kind", "effect")), handler="email", **options)


def test_a_sub_flow_starts_a_child_whose_id_follows_from_the_step() -> None:
    run = Run(line(_sub())).start({"n": 1})
    [child] = run.last.children
    assert (child.flow, child.version, child.input, child.token) == ("invoice", 2, b'{"n":1}', "0@0")
    assert child.id == derived_id(ID[15], ID, b"0@0", b"0")
    assert child.id[15] == ID[15], "it shares the parent's bucket"


def test_the_childs_result_is_the_steps_output() -> None:
    run = Run(line(_sub(), task("after"))).start().child_finished("sub", output={"paid": True})
    assert run.input("after") == {"paid": True}


def test_a_failed_child_takes_the_error_edge() -> None:
    graph = program(
        [_sub(), task("repair"), end()], [edge("sub", "end"), edge("sub", "repair", "error"), edge("repair", "end")]
    )
    run = Run(graph).start({"n": 1}).child_finished("sub", "failed", failure=BOOM)
    assert (run.nodes, run.input("repair"), run.row("sub").status) == (["repair"], {"n": 1}, "failed")


@pytest.mark.parametrize("status", ["failed", "cancelled", "aborted"])
def test_without_an_error_edge_the_parent_fails_with_its_child(status: str) -> None:
    run = Run(line(_sub())).start().child_finished("sub", status)
    assert (run.status, run.instance.reason) == ("failed", f"CHILD_{status.upper()}")


@pytest.mark.parametrize(("signal", "kind"), [(Cancel("he left"), "cancel"), (Abort("he left"), "abort")])
@pytest.mark.parametrize("on_cancel", ["rollback", "stop"])
def test_a_stop_cascades_to_the_child_and_says_who_and_why(signal: Cancel | Abort, kind: str, on_cancel: str) -> None:
    run = Run(line(_sub(), policy=Policy(on_cancel=on_cancel))).start()
    child = run.last.children[0].id
    run.apply(signal, Actor("ops"))
    [outgoing] = run.last.outgoing
    assert (outgoing.instance, outgoing.kind) == (child, kind)
    assert msgspec.json.decode(outgoing.payload) == {"actor": {"id": "ops"}, "reason": "parent: he left"}


def test_a_stop_without_a_reason_tells_the_child_what_became_of_its_parent() -> None:
    assert _told(Run(line(_sub())).start(), Abort()) == ("abort", "parent: aborted")
    assert _told(Run(line(_sub())).start(), Cancel()) == ("cancel", "parent: cancelled")


def test_a_child_of_a_child_is_told_the_same() -> None:
    assert _told(Run(line(_sub())).start(), Abort("parent: he left")) == ("abort", "parent: he left")


def test_an_abort_reaches_a_child_that_is_being_cancelled() -> None:
    run = Run(line(_sub())).start()
    run.apply(Cancel("slowly"))
    cancelled = run.last.outgoing[0].id
    assert _told(run, Abort("now")) == ("abort", "parent: now")
    assert run.last.outgoing[0].id != cancelled


def test_a_rejection_aborts_the_children_in_other_branches() -> None:
    graph = program(
        [split("fork"), _sub(), Node(id="ask", kind="human"), join("meet"), end()],
        [edge("fork", "sub"), edge("fork", "ask"), edge("sub", "meet"), edge("ask", "meet"), edge("meet", "end")],
    )
    run = Run(graph).start()
    task = next(wait.ref for wait in run.at("ask")[1].waits if wait.kind == "task")
    run.apply(Decided(b"decision" * 2, task or b"", "rejected"), Actor("ann"))
    [outgoing] = run.last.outgoing
    assert (run.status, outgoing.kind) == ("aborted", "abort")
    assert msgspec.json.decode(outgoing.payload) == {"actor": {"id": "ann"}, "reason": "parent: REJECTED"}


def _told(run: Run, signal: Cancel | Abort) -> tuple[str, str]:
    run.apply(signal)
    [outgoing] = run.last.outgoing
    return outgoing.kind, msgspec.json.decode(outgoing.payload)["reason"]


def test_an_event_or_a_deadline_that_moves_the_parent_on_stops_the_child() -> None:
    graph = program([_sub(deadline=5), end(), end("late"), end("skip")], [
        edge("sub", "end"), edge("sub", "late", "timeout"), edge("sub", "skip", "skip"),
    ])  # fmt: skip
    assert [o.kind for o in Run(graph).start().fire("sub", "deadline").last.outgoing] == ["cancel"]
    assert [o.kind for o in Run(graph).start().event("skip").last.outgoing] == ["cancel"]


def test_a_child_that_is_run_again_is_another_one_and_the_first_is_stale() -> None:
    run = Run(line(_sub(), policy=Policy(on_error="suspend"))).start()
    first = run.last.children[0].id
    run.child_finished("sub", "failed", child=first)
    run.apply(Resume())
    second = run.last.children[0].id
    assert first != second
    with pytest.raises(Refused, match="STALE_ANSWER"):
        run.apply(ChildFinished("0@0", "completed", b"{}", child=first))
    assert run.child_finished("sub", child=second).status == "completed"


def test_an_answer_for_a_wait_that_is_over_is_stale() -> None:
    run = Run(line(_sub(), task("a"))).start().child_finished("sub")
    for signal in (
        ChildFinished("0@0", "completed", b"{}"),
        ReceiptArrived("0@0"),
        ChildFinished("nonsense", "completed"),
    ):
        with pytest.raises(Refused, match="STALE_ANSWER"):
            run.apply(signal)


def test_a_child_tells_its_parent_how_it_ended() -> None:
    parent = bytes(15) + b"\x01"
    run = Run(line(task("a")), parent=parent, parent_token="0@3").start().done("a", {"n": 1})
    [outgoing] = run.last.outgoing
    assert (outgoing.instance, outgoing.kind) == (parent, "child_finished")
    assert msgspec.json.decode(outgoing.payload) == {
        "token": "0@3", "child": ID.hex(), "status": "completed", "output": {"n": 1}, "error": None,
    }  # fmt: skip


def test_a_failed_child_sends_its_error_along() -> None:
    run = Run(line(task("a")), parent=bytes(16), parent_token="0@3").start().fail("a")
    payload = msgspec.json.decode(run.last.outgoing[0].payload)
    assert (payload["status"], payload["error"]["code"]) == ("failed", "BOOM")


# --- effects ----------------------------------------------------------------------------------------------------------


def test_an_effect_is_written_to_the_outbox_and_the_token_moves_on() -> None:
    run = Run(line(_effect(config={"to": "ada"}), task("a"))).start({"n": 1})
    [effect] = run.last.effects
    assert (effect.type, effect.awaited) == ("email", False)
    assert msgspec.json.decode(effect.payload) == {"config": {"to": "ada"}, "data": {"n": 1}}
    assert (run.nodes, run.input("a")) == (["a"], {"n": 1})


def test_an_awaited_effect_rests_until_its_receipt() -> None:
    run = Run(line(_effect(awaits=True), task("a"))).start({"n": 1})
    assert (run.nodes, run.last.effects[0].awaited) == (["mail"], True)
    assert run.receipt("mail", {"id": 7}).input("a") == {"id": 7}


def test_a_receipt_without_content_passes_the_value_on() -> None:
    assert Run(line(_effect(awaits=True), task("a"))).start({"n": 1}).receipt("mail").input("a") == {"n": 1}


def test_an_effect_that_is_given_up_fails_the_step() -> None:
    run = Run(line(_effect(awaits=True))).start().receipt("mail", failure=BOOM)
    assert (run.status, run.instance.reason) == ("failed", "BOOM")


def test_a_notification_counts_an_error_as_completed_and_remembers_it() -> None:
    steps = line(_effect(kind="notification", awaits=True), task("a"), policy=Policy(data="context"))
    run = Run(steps).start({"n": 1}).receipt("mail", failure=Failure("BOUNCED", "No such box."))
    assert run.nodes == ["a"]
    assert run.data == {"n": 1, "_last_error": {"code": "BOUNCED", "message": "No such box."}}
    saga = line(_effect(kind="notification", awaits=True), task("a"))
    assert Run(saga).start({"n": 1}).receipt("mail", failure=BOOM).input("a") == {"n": 1}


def test_an_effect_emitted_again_after_a_resume_has_another_key() -> None:
    run = Run(line(_effect(awaits=True), policy=Policy(on_error="suspend"))).start()
    first = run.last.effects[0].key
    run.receipt("mail", failure=BOOM)
    run.apply(Resume())
    assert run.last.effects[0].key != first


def test_a_rest_node_with_only_events_needs_no_rows_of_its_own() -> None:
    run = Run(program([state("ask"), end()], [edge("ask", "end", "go")])).start()
    assert (run.last.key_waits, run.last.timers, run.last.needs) == ([], [], [])
