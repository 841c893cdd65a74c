"""Human steps: the task a step opens, the decision that ends it, and every other way it can end."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from core_desk import Desk, desk
from core_graphs import call, edge, end, join, line, program, split, task, terminal

from holdfast.core.model.decision import TaskFacts
from holdfast.core.model.signals import Abort, Actor, Cancel, Decided, ForceFail, Resume, Suspend, TimerDue
from holdfast.core.people.ownership import Held, TaskStatus, assign, claim, delegate, release
from holdfast.errors import Conflict, Forbidden, Refused
from holdfast.graph.model import Node, Policy

ANN, BEN = Actor("ann"), Actor("ben")
SECOND = 1_000_000


def human(id: str = "ask", **options: Any) -> Node:
    return Node(id=id, kind="human", **options)


SIGN = line(task("write"), human(), task("print"))
REVIEW = program(
    [human("review", roles=("editor",), form={"type": "object"}, priority=80, due=3600.0), end(), task("rework")],
    [edge("review", "end", "approved"), edge("review", "rework", "rejected"), edge("rework", "review")],
)
RACE = program(
    [split("fork"), human("left"), human("right"), join("first", "any"), end(), terminal()],
    [
        edge("fork", "left"), edge("fork", "right"), edge("left", "first"), edge("right", "first"),
        edge("right", "terminal", "escalate"), edge("first", "end"),
    ],
)  # fmt: skip


# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_human_step_opens_a_task_with_what_the_person_needs() -> None:
    run = desk(REVIEW, {"text": "x"})
    opened = run.task_at("review")
    assert (opened.roles, opened.priority, opened.form) == (("editor",), 80, b'{"type":"object"}')
    assert msgspec.json.decode(opened.payload) == {"text": "x"}
    assert opened.due == run.now + 3600 * SECOND
    assert (opened.token, opened.step) == ("0@0", run.at("review")[1].step)
    assert run.row("review").status == "waiting_decision"


def test_a_mapping_decides_what_the_person_sees() -> None:
    run = desk(line(human(input={"sum": "input.amount"})), {"amount": 5, "secret": 1})
    assert msgspec.json.decode(run.task_at("ask").payload) == {"sum": 5}


def test_a_deadline_is_a_due_time_too() -> None:
    graph = program([human(deadline=60.0), end(), end("late")], [edge("ask", "end"), edge("ask", "late", "timeout")])
    run = desk(graph)
    assert run.task_at("ask").due == run.now + 60 * SECOND


def test_an_approval_is_human_work_and_other_waits_are_not() -> None:
    assert desk(program([Node(id="a", kind="approval"), end()], [edge("a", "end", "approved")])).task_at("a")
    assert desk(program([Node(id="s", kind="state"), end()], [edge("s", "end", "go")])).open == {}


def test_each_lap_opens_a_task_of_its_own() -> None:
    run = desk(REVIEW)
    first = run.task_at("review").id
    run.decide("review", "rejected").done("rework")
    assert run.task_at("review").id != first


# --- deciding ---------------------------------------------------------------------------------------------------------


def test_a_decision_takes_its_edge() -> None:
    run = desk(REVIEW).decide("review", "rejected", comment="too short", payload={"why": "short"})
    assert (run.nodes, run.input("rework")) == (["rework"], {"why": "short"})
    assert (run.row("review").status, run.row("review").outcome) == ("rejected", "rejected")
    [ended] = run.over.values()
    assert (ended.status, ended.decision, ended.comment) == ("completed", "rejected", "too short")
    assert ended.data == b'{"why":"short"}'


def test_without_an_edge_of_its_own_a_decision_takes_completed() -> None:
    run = desk(SIGN)
    run.done("write", {"n": 1})
    run.decide("ask", "confirmed")
    assert (run.nodes, run.input("print"), run.row("ask").status) == (["print"], {"n": 1}, "confirmed")


@pytest.mark.parametrize(
    ("decision", "status"),
    [("confirmed", "confirmed"), ("approved", "confirmed"), ("completed", "completed")],
)
def test_the_status_of_the_step_follows_the_decision(decision: str, status: str) -> None:
    run = desk(line(human())).decide("ask", decision)
    assert (run.row("ask").status, run.row("ask").outcome, run.status) == (status, decision, "completed")


def test_a_rejection_never_goes_on_as_a_success() -> None:
    run = desk(SIGN)
    run.done("write").decide("ask", "rejected")  # type: ignore[attr-defined]
    assert (run.status, run.instance.reason) == ("aborted", "REJECTED")
    assert (run.row("ask").status, run.ends) == ("rejected", [("completed", "rejected")])


def test_a_rejection_in_a_branch_ends_the_others_with_it() -> None:
    run = desk(RACE).decide("left", "rejected")
    assert run.status == "aborted"
    assert sorted(run.ends) == [("cancelled", "aborted"), ("completed", "rejected")]


def test_a_decision_the_step_does_not_offer_is_refused() -> None:
    run = desk(REVIEW)
    with pytest.raises(Refused, match=r"DECISION_NOT_OFFERED.*approved, rejected"):
        run.decide("review", "postponed")
    with pytest.raises(Refused, match="DECISION_NOT_OFFERED"):
        run.decide("review", "timeout")
    assert run.task_at("review")


@pytest.mark.parametrize("decision", ["postponed", "rejcted", "maybe"])
def test_what_is_neither_yes_nor_no_is_refused_where_nothing_else_is_offered(decision: str) -> None:
    run = desk(line(human()))
    with pytest.raises(Refused, match=r"DECISION_NOT_OFFERED.*confirmed, rejected"):
        run.decide("ask", decision)


def test_a_task_is_decided_once() -> None:
    run = desk(REVIEW)
    late = Decided(b"e" * 16, run.task_at("review").id, "approved")
    run.decide("review", "rejected")
    with pytest.raises(Conflict, match="TASK_OVER"):
        run.apply(late, ANN)
    run.done("rework")
    with pytest.raises(Conflict, match="TASK_OVER"):  # also when the same step waits again
        run.apply(late, ANN)


def test_a_decision_for_an_instance_that_is_over_is_a_conflict() -> None:
    run = desk(line(human()))
    late = Decided(b"e" * 16, run.task_at("ask").id, "confirmed")
    run.decide("ask", "confirmed")
    with pytest.raises(Conflict, match="INSTANCE_OVER"):
        run.apply(late, ANN)


def test_a_decision_may_name_the_version_it_was_made_on() -> None:
    run = desk(REVIEW)
    with pytest.raises(Conflict, match="VERSION_CONFLICT"):
        run.decide("review", "approved", if_version=7)
    assert run.decide("review", "approved", if_version=1).status == "completed"


def test_a_suspended_instance_takes_no_decision() -> None:
    run = desk(REVIEW)
    run.apply(Suspend())
    with pytest.raises(Conflict, match="INSTANCE_SUSPENDED"):
        run.decide("review", "approved")
    run.apply(Resume())
    assert run.decide("review", "approved").status == "completed"


def test_guards_and_conditions_hold_for_decisions_too() -> None:
    graph = program([human(guard="approve"), end()], [edge("ask", "end", "approved", when="input.n > 1", guard="sign")])
    with pytest.raises(Refused, match="NO_EDGE_MATCHED"):
        desk(graph, {"n": 1}).decide("ask", "approved")
    with pytest.raises(Forbidden, match="GUARD_REFUSED"):
        desk(graph, {"n": 2}).decide("ask", "approved")
    with pytest.raises(Forbidden, match="CAPABILITY_MISSING"):
        desk(graph, {"n": 2}).decide("ask", "approved", Actor("ann", ("sign",)))
    assert desk(graph, {"n": 2}).decide("ask", "approved", Actor("ann", ("sign", "approve"))).status == "completed"


def test_in_a_graph_of_steps_the_data_merges_into_the_context() -> None:
    run = desk(line(human(), policy=Policy(data="context")), {"a": 1}).decide("ask", "confirmed", payload={"b": 2})
    assert run.data == {"a": 1, "b": 2}


@pytest.mark.parametrize("decision", ["confirmed", "completed"])
def test_a_decision_begins_a_new_chain(decision: str) -> None:
    graph = line(call("a"), human(), call("b"), policy=Policy(chain_limit=1))
    run = desk(graph)
    run.run_call("a", {})
    assert run.instance.state.chain == 1
    assert run.decide("ask", decision).nodes == ["b"]


def test_the_trail_says_who_decided_what_and_why() -> None:
    run = desk(REVIEW).decide("review", "approved", comment="good")
    [event] = [e for e in run.last.events if e.type == "decision_made"]  # type: ignore[union-attr]
    detail = msgspec.json.decode(event.detail or b"")
    assert (event.actor, detail["decision"], detail["comment"]) == ("ann", "approved", "good")
    assert msgspec.json.decode(run.row("review").closing or b"") == {"decision": "approved", "comment": "good"}


def test_an_event_on_an_edge_ends_the_task_as_well() -> None:
    run = desk(REVIEW)
    run.event("approved", {"ok": True}, actor=BEN)
    [ended] = run.over.values()
    assert (ended.status, ended.decision, ended.data) == ("completed", "approved", b'{"ok":true}')


# --- who may decide ---------------------------------------------------------------------------------------------------


def test_what_somebody_holds_nobody_else_decides() -> None:
    run = desk(REVIEW)
    with pytest.raises(Conflict, match=r"TASK_CLAIMED.*'ben'") as refusal:
        run.decide("review", "approved", ANN, facts=TaskFacts("ben"))
    assert refusal.value.detail["assignee"] == "ben"
    assert run.decide("review", "approved", BEN, facts=TaskFacts("ben")).status == "completed"


def test_roles_are_checked_when_they_are_given() -> None:
    facts = TaskFacts(None, ("editor",))
    for roles in ((), ("author",)):
        with pytest.raises(Forbidden, match=r"TASK_ROLE_MISSING.*editor"):
            desk(REVIEW).decide("review", "approved", roles=roles, facts=facts)
    assert desk(REVIEW).decide("review", "approved", roles=("x", "editor"), facts=facts).status == "completed"
    assert desk(REVIEW).decide("review", "approved", facts=facts).status == "completed"


def test_whoever_was_given_a_task_needs_no_role() -> None:
    facts = TaskFacts("ann", ("editor",))
    assert desk(REVIEW).decide("review", "approved", roles=(), facts=facts).status == "completed"


# --- every other end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "reason"), [(Cancel("x"), "cancelled"), (Abort("x"), "aborted"), (ForceFail("x"), "failed")]
)
def test_the_end_of_the_instance_cancels_its_tasks(signal: Any, reason: str) -> None:
    run = desk(REVIEW)
    run.apply(signal)
    assert run.ends == [("cancelled", reason)]


def test_the_loser_of_a_race_is_cancelled() -> None:
    run = desk(RACE).decide("left", "confirmed")
    assert run.status == "completed"
    assert sorted(run.ends) == [("cancelled", "join_settled"), ("completed", "confirmed")]


def test_an_escape_cancels_what_stays_behind() -> None:
    run = desk(RACE).decide("right", "escalate")
    assert sorted(run.ends) == [("cancelled", "escaped"), ("completed", "escalate")]


def test_a_task_that_is_opened_and_cancelled_at_once_is_both() -> None:
    graph = program(
        [split("fork"), human("slow"), Node(id="zip", kind="start"), join("first", "any"), end()],
        [edge("fork", "slow"), edge("fork", "zip"), edge("slow", "first"), edge("zip", "first"), edge("first", "end")],
    )
    run = desk(graph)
    assert (run.status, run.ends) == ("completed", [("cancelled", "join_settled")])


def test_an_expired_instance_takes_its_tasks_with_it() -> None:
    run = desk(program([human(), end()], [edge("ask", "end", "go")], Policy(timeout=60)))
    run.expire()
    assert (run.status, run.ends) == ("failed", [("cancelled", "failed")])
    run = desk(
        program(
            [human(), human("again"), end()],
            [edge("ask", "end"), edge("ask", "again", "more"), edge("again", "end")],
            Policy(timeout=60, on_timeout="again"),
        )
    )
    run.expire()
    assert (run.nodes, run.ends) == (["again"], [("expired", "expired")])


def test_a_missed_deadline_expires_the_task() -> None:
    graph = program([human(deadline=60.0), end(), end("late")], [edge("ask", "end"), edge("ask", "late", "timeout")])
    run = desk(graph)
    run.fire("ask", "deadline")
    assert (run.status, run.chosen("ask"), run.ends) == ("completed", ["ask-timeout-late"], [("expired", "timeout")])


def test_a_due_time_takes_the_timeout_edge() -> None:
    graph = program([human(due=60.0), end(), end("late")], [edge("ask", "end"), edge("ask", "late", "timeout")])
    run = desk(graph)
    late = Decided(b"e" * 16, run.task_at("ask").id, "confirmed")
    run.fire("ask", "due")
    assert (run.status, run.chosen("ask"), run.ends) == ("completed", ["ask-timeout-late"], [("expired", "timeout")])
    assert msgspec.json.decode(run.row("ask").error or b"")["code"] == "TASK_EXPIRED"
    with pytest.raises(Conflict, match="INSTANCE_OVER"):
        run.apply(late, ANN)


def test_without_a_timeout_edge_a_late_task_stays_open() -> None:
    run = desk(REVIEW)
    due = next(w for w in run.at("review")[1].waits if w.kind == "due")
    run.fire("review", "due")
    assert [e.type for e in run.last.events] == ["timer_fired", "task_overdue"]  # type: ignore[union-attr]
    with pytest.raises(Refused, match="STALE_TIMER"):
        run.apply(TimerDue("0", due.id, "due"))
    assert run.decide("review", "approved").status == "completed"


def test_a_deadline_keeps_the_timeout_edge_for_itself() -> None:
    graph = program(
        [human(due=30.0, deadline=60.0), end(), end("late")], [edge("ask", "end"), edge("ask", "late", "timeout")]
    )
    run = desk(graph)
    run.fire("ask", "due")
    assert run.nodes == ["ask"]
    run.fire("ask", "deadline")
    assert run.ends == [("expired", "timeout")]


def test_a_decision_ends_the_due_timer() -> None:
    run = desk(REVIEW).decide("review", "approved")
    assert len(run.last.timers_ended) == 1  # type: ignore[union-attr]


def test_a_due_time_that_passes_while_suspended_counts_on_resume() -> None:
    graph = program([human(due=60.0), end(), end("late")], [edge("ask", "end"), edge("ask", "late", "timeout")])
    run = desk(graph)
    run.apply(Suspend())
    run.fire("ask", "due")
    assert run.task_at("ask")
    run.apply(Resume())
    assert run.ends == [("expired", "timeout")]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_tasks_and_tokens_agree(seed: int) -> None:
    """Two people, timers and interventions in random order; after each, replay equals the live instance (see Run)."""
    random = Random(seed)
    graph = program(
        [
            split("fork"), human("a", due=60.0), human("b", due=60.0, roles=("x",)), join("meet", "all"), human("c"),
            task("redo"), end(), terminal(),
        ],
        [
            edge("fork", "a"), edge("fork", "b"), edge("a", "meet"), edge("b", "meet"), edge("b", "redo", "timeout"),
            edge("a", "terminal", "drop"), edge("meet", "c"), edge("c", "end"), edge("c", "redo", "rejected"),
            edge("redo", "fork"),
        ],
    )  # fmt: skip
    run = desk(graph, {"n": 1})
    for _ in range(30):
        if run.instance.status in ("completed", "aborted", "cancelled", "failed"):
            break
        try:
            _act(run, random)
        except (Conflict, Refused):
            continue
    if run.instance.status not in ("completed", "aborted", "cancelled", "failed"):
        run.apply(Abort("enough"))
    assert not run.open


def _act(run: Desk, random: Random) -> None:
    chosen = random.random()
    if chosen < 0.5 and run.open:
        task = random.choice(sorted(run.open.values(), key=lambda t: t.id))
        decision = random.choice(["confirmed", "completed", "drop", "rejected"])
        run.decide(task.node, decision, payload=random.choice([None, {"k": 1}]))
    elif chosen < 0.7:
        due = [t.node for t in run.tokens.values() if any(w.kind == "due" for w in t.waits)]
        if due:
            run.fire(random.choice(sorted(due)), "due")
    elif chosen < 0.8:
        run.apply(random.choice([Suspend(), Resume(), Resume()]))
    elif run.dispatched:
        run.done("redo", {"n": 2})


# --- hands ------------------------------------------------------------------------------------------------------------

OPEN = Held(TaskStatus.OPEN, roles=("editor",))
ANNS = Held(TaskStatus.CLAIMED, "ann", ("editor",))
GIVEN = Held(TaskStatus.ASSIGNED, "ann", ("editor",))
DONE = Held(TaskStatus.COMPLETED, "ann", (), "ann")


def test_claiming() -> None:
    change = claim(OPEN, "ann", ("editor",))
    assert change is not None
    assert (change.status, change.assignee, change.event) == ("claimed", "ann", "claimed")
    assert claim(OPEN, "ann", None) == change
    assert claim(GIVEN, "ann", ()) == change
    assert claim(ANNS, "ann", ()) is None
    with pytest.raises(Conflict, match=r"TASK_CLAIMED.*'ann'"):
        claim(ANNS, "ben", ("editor",))
    with pytest.raises(Conflict, match=r"TASK_CLAIMED.*'ann'"):
        claim(GIVEN, "ben", ("editor",))
    with pytest.raises(Forbidden, match="TASK_ROLE_MISSING"):
        claim(OPEN, "ben", ("author",))


def test_releasing() -> None:
    for task_ in (ANNS, GIVEN):
        change = release(task_, "ann")
        assert change is not None
        assert (change.status, change.assignee, change.event) == ("open", None, "released")
        with pytest.raises(Conflict, match="TASK_CLAIMED"):
            release(task_, "ben")
    assert release(OPEN, "ann") is None


def test_assigning() -> None:
    for task_, event in ((OPEN, "assigned"), (ANNS, "reassigned"), (GIVEN, "reassigned")):
        change = assign(task_, "ben", "holiday")
        assert change is not None
        assert (change.status, change.assignee, change.event, change.reason) == ("assigned", "ben", event, "holiday")
    assert assign(GIVEN, "ann", None) is None


def test_delegating() -> None:
    change = delegate(ANNS, "ben", "ann", "holiday")
    assert change is not None
    assert (change.status, change.assignee, change.event) == ("assigned", "ben", "delegated")
    assert delegate(ANNS, "ann", "ann", None) is None
    with pytest.raises(Conflict, match="TASK_NOT_HELD"):
        delegate(OPEN, "ben", "ann", None)
    with pytest.raises(Conflict, match="TASK_CLAIMED"):
        delegate(ANNS, "cy", "ben", None)


def test_nothing_can_be_done_with_a_task_that_is_over() -> None:
    acts = [
        lambda: claim(DONE, "ann", None), lambda: release(DONE, "ann"), lambda: assign(DONE, "ben", None),
        lambda: delegate(DONE, "ben", "ann", None),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(Conflict, match=r"TASK_OVER.*completed by 'ann'"):
            act()
