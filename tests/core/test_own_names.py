"""The names that only the engine writes into the data of an instance, tried at every door through which data comes in.

Each run begins with names that the engine has signed. Every decision is replayed from its rows as well (`core_run`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from core_desk import Desk
from core_graphs import call, edge, end, line, program, task
from core_run import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rerun import past_of, signal_for

from holdfast.core.kernel.builder import without_own
from holdfast.core.model.signals import Actor, Failure, Requeue, Resume, Started
from holdfast.core.signals.rerun import begun_again
from holdfast.graph.model import Child, Node, Policy, Wait

BEN = Actor("ben")
KEPT = {"code": "BOOM", "message": "It went wrong.", "step": "before"}
SIGNED = {"order": 1, "approved_by": "ada", "_last_error": KEPT}
FORGED = {"approved_by": "eve", "rejected_by": "eve", "_last_error": {"code": "FAKE"}, "note": "n"}
OWN = {"approved_by", "rejected_by", "_last_error"}

LIMITED = Policy(on_error="suspend", data="context", keeps_error=True, chain_limit=10)
SHORT = Policy(on_error="suspend", data="context", keeps_error=True)  # decided the short way
DEAD = Policy(on_error="dlq", data="context", keeps_error=True)

Door = Callable[[Any, Policy], Run]


def signed(graph: Any) -> Desk:
    run = Desk(graph, input=SIGNED)
    run.apply(Started(msgspec.json.encode(SIGNED), origin="0190-old"), BEN)
    return run


def steps(*nodes: Node, policy: Policy) -> Any:
    return line(*nodes, policy=policy, kind="steps")


def answered(sent: Any, policy: Policy) -> Run:
    return signed(steps(task("work"), task("next"), policy=policy)).done("work", sent)


def answered_at_the_end(sent: Any, policy: Policy) -> Run:
    return signed(steps(task("work"), policy=policy)).done("work", sent)


def mapped(sent: Any, policy: Policy) -> Run:
    names = {name: f"response.{name}" for name in sent}
    return signed(steps(task("work", output=names), task("next"), policy=policy)).done("work", sent)


def passed(sent: Any, policy: Policy) -> Run:
    names = {name: f"input.{name}" for name in sent}
    gate = Node(id="gate", kind="script", input=names)
    pay = Node(id="pay", kind="wait_event", wait=Wait(event="paid"))
    return signed(steps(pay, gate, task("next"), policy=policy)).event("paid", sent)


def called(sent: Any, policy: Policy) -> Run:
    run = signed(steps(task("first"), call("work"), task("next"), policy=policy)).done("first")
    run.run_call("work", sent)
    return run


def receipted(sent: Any, policy: Policy) -> Run:
    mail = Node(id="mail", kind="effect", handler="mail", awaits=True)
    return signed(steps(mail, task("next"), policy=policy)).receipt("mail", sent)


def from_a_sub_flow(sent: Any, policy: Policy) -> Run:
    child = Node(id="sub", kind="sub_flow", child=Child(flow="other"))
    return signed(steps(child, task("next"), policy=policy)).child_finished("sub", output=sent)


def by_an_event(sent: Any, policy: Policy) -> Run:
    pay = Node(id="pay", kind="wait_event", wait=Wait(event="paid"))
    return signed(steps(pay, task("next"), policy=policy)).event("paid", sent)


def by_a_person(sent: Any, policy: Policy) -> Run:
    form = Node(id="form", kind="human")
    graph = program([form, task("next"), end()], [edge("form", "next"), edge("next", "end")], policy, kind="steps")
    return signed(graph).decide("form", "completed", BEN, payload=sent)


def by_a_rerun(sent: Any, policy: Policy) -> Run:
    run = signed(steps(task("work"), Node(id="pay", kind="wait_event", wait=Wait(event="paid")), policy=policy))
    run.done("work")
    run.apply(signal_for(run, "work", sent), BEN)
    return run


def by_a_new_instance(sent: Any, policy: Policy) -> Run:
    over = signed(steps(task("work"), policy=policy)).done("work")
    given = begun_again(past_of(over), over.instance.data, "work", None, msgspec.json.encode(sent))
    run = Desk(over.program, input=msgspec.json.decode(given))
    run.apply(Started(given, origin="0190-old"), BEN)
    return run


DOORS: list[Door] = [
    answered, answered_at_the_end, mapped, passed, called, receipted, from_a_sub_flow, by_an_event, by_a_person,
    by_a_rerun, by_a_new_instance,
]  # fmt: skip


def unsigned(value: Any) -> bool:
    return not isinstance(value, dict) or value.keys().isdisjoint(OWN)


@pytest.mark.parametrize("policy", [LIMITED, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("door", DOORS)
def test_the_engines_own_names_stay_the_engines(door: Door, policy: Policy) -> None:
    run = door(FORGED, policy)
    assert run.data == {**SIGNED, "note": "n"}
    rows = [row for row in run.table.rows.values() if row.node not in ("end", "@rerun")]
    assert rows
    assert all(unsigned(msgspec.json.decode(row.output)) for row in rows if row.output is not None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab_", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab_", max_size=3), inner, max_size=2),
    max_leaves=4,
)
GIVEN = st.dictionaries(st.sampled_from(sorted(OWN)) | st.sampled_from(["order", "a", "b"]), JSON, max_size=5)


@settings(max_examples=60, deadline=None)
@given(door=st.sampled_from(DOORS), policy=st.sampled_from([LIMITED, SHORT]), sent=GIVEN)
def test_whatever_is_given_merges_but_for_the_engines_own_names(door: Door, policy: Policy, sent: Any) -> None:
    run = door(sent, policy)
    counts = {name: value for name, value in sent.items() if name not in OWN}
    assert run.data == {**SIGNED, **counts}


def test_what_a_dead_step_is_run_again_with_signs_nothing() -> None:
    graph = program([task("work"), end()], [edge("work", "end")], DEAD, kind="steps")
    run = signed(graph).fail("work", retryable=False)
    assert run.last is not None
    [letter] = run.last.letters
    run.apply(Requeue(letter.id, letter.step, msgspec.json.encode(FORGED)), BEN)
    failed = {"code": "BOOM", "message": "It went wrong.", "step": "work"}
    assert run.data == {**SIGNED, "note": "n", "_last_error": failed}
    assert run.input("work") == run.data


@pytest.mark.parametrize("policy", [LIMITED, SHORT], ids=["long", "short"])
def test_nothing_is_signed_before_it_starts(policy: Policy) -> None:
    run = Run(steps(task("work"), policy=policy)).start(FORGED)
    assert run.data == run.input("work") == {"note": "n"}


def test_the_engine_still_writes_its_own_names() -> None:
    review = Node(id="review", kind="approval")
    graph = program([review, task("work"), end()], [edge("review", "work", "approved"), edge("work", "end")], LIMITED,
                    kind="steps")  # fmt: skip
    run = signed(graph).decide("review", "approved", BEN, payload=FORGED)
    assert run.data == {**SIGNED, "approved_by": "ben", "note": "n"}
    run.fail("work", Failure("LATE", "Too late."), retryable=False)
    assert run.data["_last_error"] == {"code": "LATE", "message": "Too late.", "step": "work"}
    run.apply(Resume(), BEN)
    assert run.done("work", FORGED).data["_last_error"]["code"] == "LATE"


def test_in_other_graphs_the_last_error_alone_is_the_engines_and_only_where_it_is_kept() -> None:
    kept = Run(line(task("work"), task("next"), policy=SHORT)).start().done("work", FORGED)
    assert kept.data == {"approved_by": "eve", "rejected_by": "eve", "note": "n"}
    plain = Run(line(task("work"), task("next"), policy=Policy(data="context"))).start().done("work", FORGED)
    assert plain.data == FORGED
    saga = Run(line(task("work"), task("next"))).start().done("work", FORGED)
    assert saga.input("next") == FORGED


@pytest.mark.parametrize(
    "given", [b"null", b"[1]", b'"approved_by"', b'{"approved_bye":1}', b'{"a":{"approved_by":1}}']
)
def test_what_names_nothing_of_the_engine_is_not_written_anew(given: bytes) -> None:
    assert without_own(frozenset(OWN), given) is given


def test_an_escaped_name_is_the_same_name() -> None:
    assert without_own(frozenset(OWN), b'{"approved\\u005fby":"eve","a":1}') == b'{"a":1}'
