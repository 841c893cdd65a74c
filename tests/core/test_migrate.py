"""Migration: tokens stay where they are and go on in another graph; what would not make sense there is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_graphs import call, chain, edge, end, join, line, split, state, task, timer
from core_graphs import program as unnamed
from core_run import Run

from holdfast.core.decide import decide
from holdfast.core.model.control_rows import Migrated, read_control
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor, Cancel, Migrate, Resume, Suspend
from holdfast.core.signals.migrate import way_back
from holdfast.errors import Conflict, HoldfastError, Refused
from holdfast.graph.model import Child, Edge, Node, Policy, Retry, Wait

ADA = Actor("ada")
DLQ = Policy(on_error="dlq")


def version(number: int, nodes: list[Node], edges: list[Edge], policy: Policy | None = None) -> Program:
    return named(number, unnamed(nodes, edges, policy))


def straight(number: int, *nodes: Node, policy: Policy | None = None) -> Program:
    return named(number, line(*nodes, policy=policy))


def named(number: int, program: Program) -> Program:
    return msgspec.structs.replace(program, definition=b"%016d" % number, version=number, hash=f"hash {number}")


def asked(id: str = "ask", **options: Any) -> Node:
    return state(id, wait=Wait(event="go"), **options)


class Trip(Run):
    """A run that may change its graph on the way."""

    def migrate(self, target: Program, nodes: dict[str, str] | None = None, **options: Any) -> Decision:
        signal = Migrate(target.definition, nodes or {}, reason="fixed", **options)
        decision = decide(self.program, self.instance, signal, Facts(self.now, ADA, target=target))
        self.earlier = {**self.earlier, self.program.definition: self.program}
        self.program = target
        self._commit(decision)
        return decision

    def refusal(self, target: Program, nodes: dict[str, str] | None = None, **options: Any) -> str:
        return self.refused(target, nodes, **options).code

    def refused(self, target: Program, nodes: dict[str, str] | None = None, **options: Any) -> HoldfastError:
        signal = Migrate(target.definition, nodes or {}, **options)
        with pytest.raises(HoldfastError) as refused:
            decide(self.program, self.instance, signal, Facts(self.now, ADA, target=target))
        assert isinstance(refused.value, Conflict | Refused)
        assert refused.value.hint
        return refused.value


ONE = straight(1, task("a"), asked(), task("b"))
TWO = straight(2, task("a"), asked(), task("check"), task("b"))


# --- what goes on --------------------------------------------------------------------------------------------------


def test_a_waiting_instance_goes_on_in_the_new_graph() -> None:
    run = Trip(ONE).start().done("a", {"n": 1})
    decision = run.migrate(TWO)
    assert (run.instance.definition, run.instance.flow_version) == (TWO.definition, 2)
    assert run.tokens["0"].hop == 1
    assert not decision.closed
    assert not decision.dispatches
    run.event("go", {"n": 2}).done("check", {"n": 3}).done("b")
    assert run.status == "completed"
    assert run.input("b") == {"n": 3}


def test_the_row_of_a_migration_names_both_graphs_and_what_became_of_each_token() -> None:
    run = Trip(ONE).start().done("a")
    run.migrate(straight(2, task("a"), asked("question"), task("b")), {"ask": "question"})
    record = read_control(Migrated, run.row("@migrate").detail)
    assert (record.came_from.version, record.came_from.hash, record.went_to.version) == (1, "hash 1", 2)
    assert bytes.fromhex(record.went_to.definition) == run.instance.definition
    assert {token: (s.was, s.now) for token, s in record.tokens.items()} == {"0@1": ("ask", "question")}
    assert (record.by, record.reason) == ("ada", "fixed")


def test_the_audit_trail_tells_who_migrated_it_and_why() -> None:
    run = Trip(ONE).start().done("a")
    [event] = [e for e in run.migrate(TWO).events if e.type == "instance_migrated"]
    assert event.actor == "ada"
    assert msgspec.json.decode(event.detail or b"") == {
        "from": 1,
        "to": 2,
        "by": "ada",
        "reason": "fixed",
        "nodes": {},
    }


def test_a_renamed_node_keeps_its_open_row_and_ends_it() -> None:
    run = Trip(ONE).start().done("a")
    run.migrate(straight(2, task("a"), asked("question"), task("b")), {"ask": "question"})
    run.event("go", {"n": 2})
    assert (run.row("ask").status, run.nodes) == ("completed", ["b"])


def test_a_pending_retry_is_called_again_in_the_new_graph() -> None:
    slow = Retry(calls=3, delay=30)
    run = Trip(straight(1, task("a", retry=slow), task("b"))).start({"n": 1}).fail("a")
    run.migrate(straight(2, task("a", retry=slow), task("c")))
    run.fire("a", "retry").done("a")
    assert run.nodes == ["c"]


def test_a_retry_that_fails_after_the_migration_takes_the_new_error_edge_with_its_input() -> None:
    slow = Retry(calls=2, delay=30)
    run = Trip(straight(1, task("a"), task("b", retry=slow))).start().done("a", {"n": 7}).fail("b")
    target = version(
        2,
        [task("a"), task("b", retry=slow), task("amends"), end()],
        [*chain("a", "b", "end"), edge("b", "amends", "error"), edge("amends", "end")],
    )
    run.migrate(target)
    run.fire("b", "retry").fail("b", calls=2)
    assert run.input("amends") == {"n": 7}


@pytest.mark.parametrize("paused", [False, True])
def test_a_step_without_a_call_left_fails_of_its_last_error_when_the_next_one_is_due(paused: bool) -> None:
    run = Trip(straight(1, task("a", retry=Retry(calls=3, delay=30)))).start().fail("a")
    run.migrate(straight(2, task("a", retry=Retry(calls=1))))
    if paused:
        run.apply(Suspend())
    run.fire("a", "retry")
    if paused:
        run.apply(Resume())
    assert (run.status, run.instance.reason, run.row("a").calls) == ("failed", "BOOM", 1)
    assert b"BOOM" in (run.row("a").error or b"")


def test_a_step_without_a_call_left_takes_its_error_edge_with_its_input() -> None:
    run = Trip(straight(1, task("a"), task("b", retry=Retry(calls=2, delay=30)))).start().done("a", {"n": 7}).fail("b")
    nodes = [task("a"), task("b"), task("amends"), end()]
    run.migrate(version(2, nodes, [*chain("a", "b", "end"), edge("b", "amends", "error"), edge("amends", "end")]))
    run.fire("b", "retry")
    assert run.input("amends") == {"n": 7}


def test_a_dead_step_runs_again_in_the_new_graph() -> None:
    run = Trip(straight(1, task("a"), task("b"), policy=DLQ)).start().done("a", {"n": 7}).fail("b")
    run.migrate(straight(2, task("a"), task("b"), task("c"), policy=DLQ))
    assert run.status == "dlq"
    run.apply(Resume())
    assert run.input("b") == {"n": 7}
    run.done("b")
    assert run.nodes == ["c"]


def test_a_token_that_is_held_before_its_node_may_enter_another_one() -> None:
    run = Trip(straight(1, task("a"), task("b"))).start()
    run.apply(Suspend())
    run.done("a", {"n": 1})
    run.migrate(straight(2, task("a"), timer("pause", 60), task("b")), {"b": "pause"})
    run.apply(Resume())
    run.fire("pause", "timer").done("b", {"n": 2})
    assert (run.status, run.data) == ("completed", {"n": 2})


def test_branches_go_on_when_their_scope_is_the_same() -> None:
    run = Trip(forked(1)).start().done("x", {"x": 1})
    run.migrate(forked(2, last="y2"))
    run.event("go", {"y": 1}).done("y2", {"y": 2})
    assert run.input("after")["outputs"] == {"x": {"x": 1}, "y2": {"y": 2}}


def test_a_split_and_its_join_may_have_other_names() -> None:
    run = Trip(forked(1)).start().done("x", {"x": 1})
    run.migrate(forked(2, fork="part", meet="together"), {"fork": "part", "meet": "together"})
    run.event("go", {"y": 1})
    assert run.nodes == ["after"]


def test_one_migration_after_the_other() -> None:
    run = Trip(ONE).start().done("a")
    run.migrate(TWO)
    run.event("go").done("check")
    run.apply(Suspend())
    run.done("b")
    assert run.status == "suspended"
    run.migrate(straight(3, task("a"), asked(), task("b"), task("c"), task("d")), {"end": "c"})
    run.apply(Resume())
    run.done("c").done("d")
    assert run.status == "completed"


def test_a_deadline_the_new_node_does_not_have_is_lifted() -> None:
    run = Trip(straight(1, asked(deadline=60.0))).start()
    [wait] = [w for w in run.at("ask")[1].waits if w.kind == "deadline"]
    decision = run.migrate(straight(2, asked()))
    assert decision.timers_ended == [wait.ref]
    assert [w.kind for w in run.at("ask")[1].waits] == ["event"]


@pytest.mark.parametrize(
    ("before", "after", "due"), [(900.0, 60.0, 900), (900.0, None, None), (None, 60.0, 60), (None, None, None)]
)
def test_the_timeout_of_an_instance_runs_on_is_lifted_or_begins(
    before: float | None, after: float | None, due: int | None
) -> None:
    run = Trip(straight(1, asked(), policy=Policy(timeout=before))).start()
    run.migrate(straight(2, asked(), policy=Policy(timeout=after)))
    expires = run.instance.state.expires
    assert (None if expires is None or expires.due is None else (expires.due - run.now) // 1_000_000) == due


def test_a_migration_can_be_taken_back_with_what_it_recorded() -> None:
    first = version(
        1,
        [split("s"), asked("left"), asked("right"), join("j"), end()],
        [edge("s", "left"), edge("s", "right"), edge("left", "j"), edge("right", "j"), edge("j", "end")],
    )
    second = version(
        2,
        [split("s"), asked("both"), asked("other"), join("j"), end()],
        [edge("s", "both"), edge("s", "other"), edge("both", "j"), edge("other", "j"), edge("j", "end")],
    )
    run = Trip(first).start()
    run.migrate(second, {"left": "both", "right": "both"})
    assert run.nodes == ["both", "both"]
    nodes, tokens = way_back(read_control(Migrated, run.row("@migrate").detail))
    run.migrate(first, nodes, tokens=tokens)
    assert run.nodes == ["left", "right"]
    run.event("go", node="left").event("go", node="right")
    assert run.status == "completed"


# --- what is refused -----------------------------------------------------------------------------------------------


def forked(number: int, fork: str = "fork", meet: str = "meet", last: str | None = None, mode: str = "all") -> Program:
    more = [task(last)] if last else []
    way = chain("y", last, meet) if last else chain("y", meet)
    return version(
        number,
        [split(fork), task("x"), asked("y"), *more, join(meet, mode), task("after"), end()],
        [edge(fork, "x"), edge(fork, "y"), edge("x", meet), *way, *chain(meet, "after", "end")],
    )


def test_work_that_is_queued_or_running_blocks() -> None:
    run = Trip(ONE).start()
    assert run.refusal(TWO) == "MIGRATION_WORK_RUNNING"
    assert "suspend the instance" in run.refused(TWO).hint
    run.apply(Suspend())
    assert run.refusal(TWO) == "MIGRATION_WORK_RUNNING"
    assert "resume the instance" in run.refused(TWO).hint


def test_a_node_that_is_gone_blocks() -> None:
    run = Trip(ONE).start().done("a")
    target = straight(2, task("a"), asked("question"), task("b"))
    assert run.refusal(target) == "MIGRATION_NODE_MISSING"
    assert run.refusal(target, {"ask": "nowhere"}) == "MIGRATION_NODE_MISSING"


def test_another_behaviour_blocks() -> None:
    run = Trip(ONE).start().done("a")
    assert run.refusal(straight(2, task("a"), timer("ask", 60), task("b"))) == "MIGRATION_BEHAVIOUR_CHANGED"


def test_an_event_that_is_not_taken_any_more_blocks() -> None:
    nodes, way = [state("s"), end()], [edge("s", "end", "yes"), edge("s", "end", "no")]
    run = Trip(version(1, nodes, way)).start()
    assert run.refusal(version(2, nodes, way[:1])) == "MIGRATION_WAIT_CHANGED"
    other = straight(2, state("s", wait=Wait(event="come")))
    assert Trip(straight(1, state("s", wait=Wait(event="go")))).start().refusal(other) == "MIGRATION_WAIT_CHANGED"


def test_another_sub_flow_blocks() -> None:
    def parent(number: int, flow: str) -> Program:
        return straight(number, Node(id="sub", kind="sub_flow", child=Child(flow=flow)))

    run = Trip(parent(1, "one")).start()
    assert run.refusal(parent(2, "two")) == "MIGRATION_WAIT_CHANGED"
    run.migrate(parent(3, "one"))


@pytest.mark.parametrize(
    "target",
    [
        forked(2, mode="any"),
        version(
            2,
            [split("fork"), task("x"), asked("y"), task("z"), join("meet"), task("after"), end()],
            [edge("fork", t) for t in "xyz"] + [edge(t, "meet") for t in "xyz"] + chain("meet", "after", "end"),
        ),
        version(
            2,
            [split("fork"), task("x"), task("z"), join("meet"), asked("y"), task("after"), end()],
            [edge("fork", t) for t in "xz"] + [edge(t, "meet") for t in "xz"] + chain("meet", "y", "after", "end"),
        ),
        straight(2, task("x"), asked("y"), task("after")),
    ],
    ids=["another mode", "another branch", "outside of it", "no split"],
)
def test_a_token_in_a_changed_scope_blocks(target: Program) -> None:
    run = Trip(forked(1)).start().done("x")
    assert run.refusal(target) in ("MIGRATION_SCOPE_CHANGED", "MIGRATION_NODE_MISSING")


def test_a_node_that_moved_into_a_branch_blocks() -> None:
    run = Trip(straight(1, task("x"), asked("y"), task("after"))).start().done("x")
    assert run.refusal(forked(2)) == "MIGRATION_SCOPE_CHANGED"


def test_a_retry_under_another_name_blocks() -> None:
    run = Trip(straight(1, task("a", retry=Retry(calls=2, delay=30)))).start().fail("a")
    assert run.refusal(straight(2, task("z", retry=Retry(calls=2))), {"a": "z"}) == "MIGRATION_RETRY_RENAMED"


def test_a_first_call_that_is_still_to_come_is_not_called_another() -> None:
    run = Trip(straight(1, task("a", delay=30))).start()
    with pytest.raises(Conflict, match="'a' is about to be called under the key of its name"):
        run.migrate(straight(2, task("z", delay=30)), {"a": "z"})


def test_a_step_that_could_not_be_taken_back_blocks() -> None:
    def saga(number: int, undo: str | None, name: str = "a") -> Program:
        more = [] if undo is None else [Node(id=undo, kind="compensation", handler=undo)]
        nodes = [task(name, undo=undo), asked(), end(), *more]
        return version(number, nodes, chain(name, "ask", "end"), Policy(on_error="rollback"))

    run = Trip(saga(1, "free")).start().done("a")
    assert run.refusal(saga(2, None)) == "MIGRATION_UNDO_LOST"
    assert run.refusal(saga(2, "free", "reserve")) == "MIGRATION_UNDO_LOST"
    run.migrate(saga(2, "free", "reserve"), {"a": "reserve"})


def test_what_an_instance_has_not_done_need_not_be_taken_back() -> None:
    def saga(number: int, undo: str | None) -> Program:
        more = [] if undo is None else [Node(id=undo, kind="compensation", handler=undo)]
        nodes = [asked(), task("b", undo=undo), end(), *more]
        return version(number, nodes, chain("ask", "b", "end"), Policy(on_error="rollback"))

    run, target = Trip(saga(1, "free")).start(), saga(2, None)
    signal = Migrate(target.definition)
    with pytest.raises(Conflict, match="MIGRATION_UNDO_LOST"):
        decide(run.program, run.instance, signal, Facts(run.now, ADA, target=target, visited=frozenset({"ask", "b"})))
    decide(run.program, run.instance, signal, Facts(run.now, ADA, target=target, visited=frozenset({"ask"})))


def test_data_that_is_passed_on_in_another_way_blocks() -> None:
    run = Trip(ONE).start().done("a")
    target = straight(2, task("a"), asked(), task("b"), policy=Policy(data="context"))
    assert run.refusal(target) == "MIGRATION_DATA_CHANGED"


def test_a_dead_step_blocks_when_only_one_version_has_a_dead_letter_queue() -> None:
    run = Trip(straight(1, task("a"), policy=DLQ)).start().fail("a")
    assert run.refusal(straight(2, task("a"))) == "MIGRATION_POLICY_CHANGED"


def test_a_step_that_failed_during_a_pause_meets_its_fate_only_where_failures_mean_the_same() -> None:
    run = Trip(straight(1, task("a"))).start()
    run.apply(Suspend())
    run.fail("a")
    for policy in (DLQ, Policy(on_error="suspend"), Policy(on_error="rollback")):
        assert run.refusal(straight(2, task("a"), policy=policy)) == "MIGRATION_POLICY_CHANGED"
    run.migrate(straight(2, task("again")), {"a": "again"})
    run.apply(Resume())
    assert (run.status, run.instance.reason) == ("failed", "BOOM")


def test_the_same_version_and_a_missing_one_are_refused() -> None:
    run = Trip(ONE).start().done("a")
    assert run.refusal(ONE) == "MIGRATION_ALREADY_THERE"
    with pytest.raises(Refused, match="MIGRATION_TARGET_MISSING"):
        decide(run.program, run.instance, Migrate(TWO.definition), Facts(run.now))


def test_an_instance_that_is_over_or_about_to_be_is_left_alone() -> None:
    run = Trip(straight(1, call("a"), asked(), task("b"))).start()
    run.apply(Cancel())
    assert run.refusal(TWO) == "INSTANCE_STOPPING"
    over = Trip(ONE).start().done("a").event("go").done("b")
    assert over.refusal(TWO) == "INSTANCE_OVER"


def test_another_version_than_the_one_that_was_looked_at_blocks() -> None:
    run = Trip(ONE).start().done("a")
    assert run.refusal(TWO, if_version=1) == "VERSION_CONFLICT"
