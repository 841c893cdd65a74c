"""Nothing but a decision passes an approval of a document, and nothing but an edge enters a gate."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_documents import (
    ANN,
    APPROVE,
    BEN,
    DRAFT,
    IN,
    OUT,
    REJECT,
    SUBMITTED,
    Document,
    approval,
    asks,
    document,
    step,
    usr,
)
from core_run import new_instance

from holdfast.core.decide import decide
from holdfast.core.model.decision import EarlyEvents, Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import EventArrived, Migrate, Requeue, RequeueMany, Resume, Started, Suspend
from holdfast.core.model.state import ROOT
from holdfast.core.signals.rerun import Past, begun_again, rerun_of
from holdfast.errors import HoldfastError
from holdfast.graph.model import Edge, Node, Policy, Wait

DLQ = Policy(on_error="dlq", on_cancel="stop", data="context")


def node(name: str, kind: str, **options: Any) -> Node:
    return Node(id=usr(name), kind=kind, slot="review", **options)


def work(name: str) -> Node:
    return node(name, "task", handler="h")


def chain(*names: str) -> list[Edge]:
    """Approvals and work in a row, from `in` to `out`."""
    edges: list[Edge] = []
    for source, target in zip((IN, *names), (*names, OUT), strict=True):
        edges += asks(source, usr(target)) if source.startswith("ask") else [step(source, target)]
    return edges


def row_of(*names: str, **options: Any) -> Program:
    nodes = [approval(name) if name.startswith("ask") else work(name) for name in names]
    return document(nodes, chain(*names), **options)


def forked(*left: Node, **options: Any) -> Program:
    """Two branches: an approval `ask2`, and the given nodes in a row."""
    nodes = [node("s", "split"), node("j", "join", mode="all"), approval("ask2"), *left]
    names = [found.id.rpartition(":")[2] for found in left]
    edges = [step(IN, "s"), step("s", "ask2"), step("s", names[0]), *asks("ask2", "j"), step("j", OUT)]
    for source, target in zip(names, (*names[1:], "j"), strict=True):
        edges += asks(source, usr(target)) if source.startswith("ask") else [step(source, target)]
    return document(nodes, edges, **options)


def refused(run: Document, signal: Any, **facts: Any) -> str:
    before = run.instance
    with pytest.raises(HoldfastError) as refusal:
        run.apply(signal, BEN, **facts)
    assert run.instance == before
    return refusal.value.code


def event(name: str, **options: Any) -> EventArrived:
    return EventArrived(b"e" * 16, name, **options)


def again(run: Document, node: str, given: Any = None, token: str | None = None) -> Document:
    raw = None if given is None else msgspec.json.encode(given)
    identity = new_instance(run.program, **run.options)
    past = Past(run.program, list(run.table.rows.values()), identity, run.earlier)
    run.apply(rerun_of(past, run.instance.state, run.instance.version, usr(node), token, raw, "why"), BEN)
    return run


def not_again(run: Document, node: str, given: Any = None) -> str:
    before = run.instance
    with pytest.raises(HoldfastError) as refusal:
        again(run, node, given)
    assert run.instance == before
    return refusal.value.code


# --- events ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["approved", "rejected", "completed", "go", "pod"])
@pytest.mark.parametrize("address", ["none", "node", "token", "wait"])
def test_no_event_decides_an_approval(name: str, address: str) -> None:
    """However it is addressed, and also where the step has an edge or a wait of that name."""
    asked = approval("ask", wait=Wait(event="pod", key="'k'"))
    run = Document(document([asked], [step(IN, "ask"), *asks("ask"), step("ask", OUT, "go"), step("ask", OUT)]))
    run.submitted()
    token = {"token": f"{ROOT}@{run.tokens[ROOT].hop}", "wait": run.tokens[ROOT].waits[-1].id}.get(address)
    signal = event(name, node=usr("ask") if address == "node" else None, token=token, keyed=address == "wait")
    assert refused(run, signal) == "DECISION_NEEDED"
    assert refused(run, msgspec.structs.replace(signal, kept=True)) == "DECISION_NEEDED"


def test_no_event_calls_a_verb() -> None:
    run = Document(row_of("ask"))
    run.start()
    assert refused(run, event("submit")) == "VERB_NEEDED"
    assert refused(run, event("submit", node=DRAFT)) == "VERB_NEEDED"
    run.apply(Suspend())
    assert refused(run, event("submit")) == "INSTANCE_SUSPENDED"


@pytest.mark.parametrize("name", ["approved", "submit", "withdraw", "completed"])
def test_no_decision_and_no_verb_is_kept_for_later(name: str) -> None:
    run = Document(row_of("work", "ask")).submitted()
    assert refused(run, event(name)) in ("EVENT_NOT_EXPECTED", "EVENT_RESERVED")
    run.apply(Suspend())
    assert refused(run, event(name)) in ("EVENT_NOT_EXPECTED", "EVENT_RESERVED", "INSTANCE_SUSPENDED")


def test_an_event_still_reaches_the_wait_that_asks_nobody() -> None:
    ping = node("ping", "wait_event", wait=Wait(event="approved"))
    run = Document(forked(ping)).submitted().event("approved")
    assert run.nodes == [usr("ask2")]


def test_an_early_event_is_kept_for_a_wait_and_not_offered_to_a_state() -> None:
    ping = node("ping", "wait_event", wait=Wait(event="submit"))
    run = Document(document([approval("ask"), ping], [step(IN, "ask"), *asks("ask", usr("ping")), step("ping", OUT)]))
    run.submitted()
    run.apply(event("submit"))
    assert run.told == ["event_kept"]
    run.verb("withdraw")
    assert run.last is not None
    assert not run.last.needs
    run.verb("submit").decide("ask")
    assert run.last.needs
    assert [need.event for need in run.last.needs if isinstance(need, EarlyEvents)] == ["submit"]


def test_an_event_kept_behind_an_interrupt_is_kept() -> None:
    ping = node("ping", "wait_event", wait=Wait(event="ping"))
    run = Document(document([ping], [step(IN, "ping"), step("ping", OUT)]))
    run.submitted().event("ping")
    run.apply(EventArrived(b"f" * 16, "ping"))
    assert run.told == ["event_kept"], "a rejection or a withdrawal may lead there again"


# --- re-runs --------------------------------------------------------------------------------------------------------


def test_a_step_of_the_present_lap_is_run_again_and_its_approvals_ask_again() -> None:
    run = Document(row_of("work", "ask", "late")).submitted().done(usr("work")).decide("ask").done(usr("late"))
    assert run.nodes == [APPROVE]
    again(run.fail(APPROVE, calls=9), "work")
    assert run.nodes == [usr("work")]
    run.apply(Resume())
    run.done(usr("work")).decide("ask").done(usr("late")).pass_gate()
    assert run.status == "completed"


def test_an_approval_may_be_asked_again() -> None:
    run = Document(row_of("ask", "late")).submitted().decide("ask").fail(usr("late"))
    again(run, "ask").apply(Resume())
    assert run.nodes == [usr("ask")]


def test_no_step_of_an_earlier_lap_is_run_again() -> None:
    run = Document(row_of("ask", "late")).submitted().decide("ask").done(usr("late")).fail(APPROVE)
    run.apply(Resume())
    assert run.nodes == [APPROVE]
    run.verb("withdraw")
    for name in ("late", "ask", APPROVE, SUBMITTED, IN, OUT):
        assert not_again(run, name) == "APPROVAL_PASSED"
    run.verb("submit")
    for name in ("late", APPROVE, OUT, DRAFT):
        assert not_again(run, name) == "APPROVAL_PASSED"
    assert again(run, "ask").nodes == [usr("ask")]


def test_a_gate_that_was_passed_ends_the_lap() -> None:
    run = Document(row_of("ask")).submitted().decide("ask", "rejected").pass_gate(REJECT)
    for name in ("ask", REJECT):
        assert not_again(run, name) == "APPROVAL_PASSED"
    again(run, DRAFT)
    assert run.nodes == [DRAFT]


def test_a_gate_that_failed_is_entered_again_where_it_stands() -> None:
    run = Document(row_of("ask")).submitted().decide("ask").fail(APPROVE)
    again(run, APPROVE).apply(Resume())
    assert run.pass_gate().status == "completed"


def test_a_step_that_a_rerun_went_back_over_is_out_of_reach() -> None:
    run = Document(row_of("first", "ask", "late")).submitted().done(usr("first")).decide("ask").fail(usr("late"))
    again(run, "first").apply(Resume())
    assert run.nodes == [usr("first")]
    run.fail(usr("first"))
    for name in ("late", "ask"):
        assert not_again(run, name) == "APPROVAL_PASSED"
    again(run, IN)


def test_a_timeout_of_the_instance_ends_the_lap() -> None:
    policy = Policy(on_error="dlq", on_cancel="stop", data="context", timeout=60.0, on_timeout=DRAFT)
    run = Document(row_of("ask", "late", policy=policy)).submitted().decide("ask").fail(usr("late"))
    run.expire()
    assert run.nodes == [DRAFT]
    assert not_again(run, "late") == "APPROVAL_PASSED"


def test_an_instance_that_is_over_is_not_begun_again() -> None:
    run = Document(row_of("ask")).submitted().decide("ask").pass_gate()
    past = Past(run.program, list(run.table.rows.values()), new_instance(run.program, **run.options), {})
    with pytest.raises(HoldfastError) as refusal:
        begun_again(past, b"{}", OUT, None, None)
    assert refusal.value.code == "VERB_NEEDED"


def test_an_instance_begins_at_a_state_and_nowhere_else() -> None:
    program = row_of("ask")
    for name in (OUT, APPROVE, usr("ask"), REJECT):
        with pytest.raises(HoldfastError) as refusal:
            decide(program, new_instance(program), Started(b"{}", name, "old"), Facts(1))
        assert refusal.value.code == "APPROVAL_PASSED"
    run = Document(program)
    run.apply(Started(b"{}", SUBMITTED))
    assert run.nodes == [usr("ask")]


# --- dead letters ---------------------------------------------------------------------------------------------------


def test_a_gate_takes_no_input_from_outside() -> None:
    run = Document(row_of("ask", policy=DLQ)).submitted().decide("ask").fail(APPROVE)
    letter = run.tokens[ROOT].step
    assert refused(run, Requeue(b"l" * 16, letter, b'{"approved":true}')) == "GATE_TAKES_NO_INPUT"
    assert refused(run, RequeueMany((Requeue(b"l" * 16, letter, b"{}"),))) == "GATE_TAKES_NO_INPUT"
    assert not_again(run, APPROVE, {"approved": True}) == "GATE_TAKES_NO_INPUT"
    run.apply(Requeue(b"l" * 16, letter))
    assert run.pass_gate().status == "completed"


def test_a_step_that_failed_takes_another_input() -> None:
    run = Document(row_of("work", "ask", policy=DLQ)).submitted().fail(usr("work"))
    run.apply(Requeue(b"l" * 16, run.tokens[ROOT].step, b'{"n":1}'))
    assert run.done(usr("work")).nodes == [usr("ask")]


# --- migrations -----------------------------------------------------------------------------------------------------


def moves(run: Document, target: Program, nodes: dict[str, str] | None = None, **options: Any) -> Document:
    named = {usr(was): usr(now) for was, now in (nodes or {}).items()}
    signal = Migrate(target.definition, named, **options)
    decision = decide(run.program, run.instance, signal, Facts(run.now, ANN, target=target))
    run.earlier = {**run.earlier, run.program.definition: run.program}
    run.program = target
    run._commit(decision)
    return run


def stays(run: Document, target: Program, nodes: dict[str, str] | None = None) -> str:
    with pytest.raises(HoldfastError) as refusal:
        moves(run, target, nodes)
    return refusal.value.code


def at(program: Program, *done: str) -> Document:
    run = Document(program).submitted()
    for name in done:
        _ = run.decide(name) if name.startswith("ask") else run.done(usr(name))
    return run


def held(program: Program, done: str) -> Document:
    """Work that was done while the instance was suspended: the token is held in front of the next step."""
    run = at(program)
    run.apply(Suspend())
    return run.done(usr(done))


def test_a_token_is_migrated_where_the_approvals_before_it_are_known() -> None:
    run = at(row_of("work", "ask", "late"), "work")
    moves(run, row_of("work", "ask", "audit", "late", version=2)).decide("ask")
    assert run.nodes == [usr("audit")]


def test_a_token_at_the_gate_stays_with_the_approvals_it_has_passed() -> None:
    run = at(row_of("ask"), "ask").fail(APPROVE)
    assert stays(run, row_of("ask", "ask2", version=2)) == "APPROVAL_PASSED"
    moves(run, row_of("work", "ask", version=2)).apply(Resume())
    assert run.pass_gate().status == "completed"


def test_work_may_get_another_name() -> None:
    run = held(row_of("first", "second", "ask"), "first")
    moves(run, row_of("begin", "middle", "ask", version=2), {"first": "begin", "second": "middle"})
    assert run.nodes == [usr("middle")]


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        (("ask", "ask2"), ("ask", "ask2"), {"ask": "ask2"}),  # over an approval
        (("ask",), ("ask0", "ask"), {}),  # a new one before it
        (("ask", "late"), ("ask", "late"), {"ask": "late"}),
        (("ask",), ("ask1",), {"ask": "ask1"}),  # an open question is that question
        (("ask",), ("ask",), {"ask": OUT}),
        (("ask",), ("ask",), {"ask": APPROVE}),
    ],
)
def test_no_token_is_migrated_over_an_approval(
    old: tuple[str, ...], new: tuple[str, ...], nodes: dict[str, str]
) -> None:
    run = at(row_of(*old))
    assert stays(run, row_of(*new, version=2), nodes) in ("APPROVAL_PASSED", "MIGRATION_BEHAVIOUR_CHANGED")


@pytest.mark.parametrize("target", ["late", OUT, APPROVE, REJECT, DRAFT])
def test_what_is_held_before_an_approval_stays_there(target: str) -> None:
    run = held(row_of("work", "ask", "late"), "work")
    assert stays(run, row_of("work", "ask", "late", version=2), {"ask": target}) == "APPROVAL_PASSED"
    moves(run, row_of("work", "ask", "late", version=2)).apply(Resume())
    assert run.nodes == [usr("ask")]


def test_what_is_held_before_work_stays_before_its_approvals() -> None:
    run = held(row_of("work", "middle", "ask", "late"), "work")
    assert stays(run, row_of("work", "ask", "late", version=2), {"middle": "late"}) == "APPROVAL_PASSED"


def test_a_branch_that_is_done_gets_no_new_approval() -> None:
    run = at(forked(work("work")), "work")
    assert run.nodes == [usr("ask2")]
    assert stays(run, forked(work("work"), approval("ask"), version=2)) == "APPROVAL_PASSED"
    moves(run, forked(work("other"), version=2)).decide("ask2").pass_gate()
    assert run.status == "completed"


def test_an_open_branch_may_get_one() -> None:
    run = at(forked(approval("ask")))
    moves(run, forked(approval("ask"), approval("ask3"), version=2)).decide("ask").decide("ask3").decide("ask2")
    assert run.nodes == [APPROVE]


def test_a_document_stays_a_document() -> None:
    run = at(row_of("ask"))
    assert stays(run, row_of("ask", version=2, kind="steps")) == "MIGRATION_KIND_CHANGED"


# --- other graphs ---------------------------------------------------------------------------------------------------


def test_graphs_without_that_rule_go_on_as_before() -> None:
    """Nothing is taken from users of other graphs: the rule is a flag of the kind."""
    run = Document(row_of("ask", kind="saga")).submitted().event("approved")
    assert run.nodes == [APPROVE]
    again(run.fail(APPROVE), OUT)
