"""Verbs and edits of a document, at every place where its instance may be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_documents import (
    APPROVE,
    BEN,
    CANCELLED,
    DRAFT,
    IN,
    OUT,
    POLICY,
    REJECT,
    SLOT,
    Document,
    approval,
    asks,
    document,
    gate,
    step,
    usr,
)
from core_graphs import edge, line, start, state, task, terminal
from core_run import ID, new_instance

from holdfast.core.documents.stance import Stance, stance
from holdfast.core.model.control_rows import EntityFollowed, Interrupted, read_control
from holdfast.core.model.decision import TaskClosed
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import Cancel, Decided, Resume, Suspend, TimerDue, WorkDone
from holdfast.core.model.state import ROOT
from holdfast.core.model.status import Phase
from holdfast.errors import Conflict, Forbidden, HoldfastError, Refused
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Child, Graph, Node, Policy, Region, Wait

DLQ = Policy(on_error="dlq", on_cancel="stop", data="context")


def node(name: str, kind: str, **options: Any) -> Node:
    return Node(id=usr(name), kind=kind, slot="review", **options)


def one(**options: Any) -> Program:
    """One approval."""
    return document([approval("a")], [step(IN, "a"), *asks("a")], **options)


def busy(mode: str = "all", **options: Any) -> Program:
    """Everything at once: two approvals, one of them in a nested split, and each kind of wait beside them."""
    nodes = [
        node("s", "split"), node("j", "join", mode=mode), node("s2", "split"), node("j2", "join", mode=mode),
        approval("a"), approval("b", due=60.0), node("work", "task", handler="h"),
        node("pause", "wait_timer", delay=60.0), node("ping", "wait_event", wait=Wait(event="ping")),
        node("key", "wait_event", wait=Wait(event="pod", key="'k'")), node("sub", "sub_flow", child=Child(flow="c")),
        node("post", "effect", handler="mail", awaits=True),
    ]  # fmt: skip
    inner = ("b", "pause", "ping", "key")
    outer = ("a", "work", "sub", "post", "s2")
    edges = [
        step(IN, "s"), *(step("s", name) for name in outer), *(step("s2", name) for name in inner), step("j2", "j"),
        *asks("a", "j"), *asks("b", "j2"), *(step(name, "j2") for name in inner[1:]),
        *(step(name, "j") for name in outer[1:4]), step("j", OUT),
    ]  # fmt: skip
    return document(nodes, edges, **options)


def code_of(run: Document, name: str, **options: Any) -> str:
    with pytest.raises(HoldfastError) as refused:
        run.verb(name, **options)
    return refused.value.code


# --- verbs that rest on an edge -------------------------------------------------------------------------------------


def test_a_verb_takes_the_edge_of_the_state_the_token_rests_at() -> None:
    run = Document(one())
    run.start()
    run.verb("submit", {"note": "please"}, comment="soon")
    assert run.nodes == [usr("a")]
    assert run.told[:3] == ["entity_changed", "verb_called", "event_received"]
    assert (run.data, run.instance.entity_version) == ({"note": "please"}, 1)
    assert run.row(DRAFT).status == "completed"
    assert not run.rows("@interrupt")


def test_the_whole_way_through_both_gates() -> None:
    run = Document(one()).submitted().decide("a", "rejected").pass_gate(REJECT)
    assert run.nodes == [DRAFT]
    run.verb("submit").decide("a").pass_gate()
    assert (run.status, len(run.rows(APPROVE)), len(run.rows(REJECT))) == ("completed", 1, 1)


def test_the_guard_of_the_edge_is_asked() -> None:
    run = Document(one())
    run.start()
    with pytest.raises(Forbidden) as refused:
        run.verb("submit", actor=BEN)
    assert refused.value.code == "GUARD_REFUSED"


def test_a_verb_that_nothing_offers_is_refused_with_what_is_offered() -> None:
    run = Document(one())
    run.start()
    with pytest.raises(Refused) as refused:
        run.verb("withdraw")
    assert (refused.value.code, refused.value.detail["offered"]) == ("VERB_NOT_OFFERED", ["cancel", "submit"])
    assert "cancel, submit" in refused.value.hint


def test_a_verb_names_the_version_it_was_based_on() -> None:
    run = Document(one())
    run.start()
    assert code_of(run, "submit", if_version=7) == "VERSION_CONFLICT"
    run.verb("submit", if_version=1)


def test_a_flow_without_regions_offers_no_verb() -> None:
    run = Document(line(state("rest", wait=Wait(event="go"))))
    run.start()
    assert code_of(run, "go") == "VERB_NOT_OFFERED"


# --- interrupts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_verb_inside_a_region_ends_everything_in_it(mode: str) -> None:
    run = Document(busy(mode)).submitted()
    assert len(run.tokens) == 8
    work = run.dispatched[run.at(usr("work"))[0]]
    timers = [wait.ref for token in run.tokens.values() for wait in token.waits if wait.kind in ("timer", "due")]
    decision = run.verb("withdraw").last
    assert decision is not None
    assert (run.nodes, run.instance.state.scopes, list(run.tokens)) == ([DRAFT], {}, [ROOT])
    assert {c.status for c in decision.closed} == {"cancelled"}
    assert {c.outcome for c in decision.closed} == {"interrupted"}
    assert len(decision.closed) == 8
    assert set(timers) <= set(decision.timers_ended)
    assert [(w.event, w.key) for w in decision.key_waits_ended] == [("pod", "k")]
    assert [out.kind for out in decision.outgoing] == ["cancel"]
    assert sorted(t.status for t in decision.tasks if isinstance(t, TaskClosed)) == ["cancelled", "cancelled"]
    assert [released.path for released in decision.released] == [work.path]
    assert not run.dispatched
    with pytest.raises(Refused) as late:
        run.apply(WorkDone(work.path, work.step, work.fence, b"{}"))
    assert late.value.code == "STALE_RESULT"
    row = read_control(Interrupted, run.row("@interrupt").detail)
    assert (row.verb, row.regions, row.goes_to) == ("withdraw", (SLOT,), DRAFT)
    run.verb("submit")
    assert len(run.tokens) == 8


def test_a_verb_reaches_a_token_that_waits_at_a_gate() -> None:
    run = Document(one()).submitted().decide("a")
    assert run.nodes == [APPROVE]
    run.verb("withdraw")
    assert (run.nodes, run.row(APPROVE).status) == ([DRAFT], "cancelled")


def test_a_verb_may_end_the_instance() -> None:
    run = Document(busy()).submitted().verb("cancel", {"why": "no need"})
    assert (run.status, run.data) == ("completed", {"why": "no need"})
    assert code_of(run, "cancel") == "INSTANCE_OVER"


def test_an_instance_that_has_not_begun_takes_no_verb() -> None:
    assert code_of(Document(one()), "submit") == "INSTANCE_PENDING"


def test_the_verb_of_a_region_has_a_guard_and_a_condition() -> None:
    guards = {"guards": {"cancel": "invoice:cancel"}, "conditions": {"withdraw": "input.sure == true"}}
    run = Document(one(**guards)).submitted()
    assert code_of(run, "cancel", actor=BEN) == "GUARD_REFUSED"
    assert code_of(run, "withdraw") == "NO_EDGE_MATCHED"
    assert code_of(run, "withdraw", payload={"sure": 1}) == "NO_EDGE_MATCHED"
    run.verb("withdraw", {"sure": True})
    row = read_control(Interrupted, run.row("@interrupt").detail)
    assert (run.nodes, row.evaluated[0]["result"]) == ([DRAFT], True)


def test_a_guarded_condition_tells_which_of_them_refused() -> None:
    guards = {"guards": {"cancel": "invoice:cancel"}, "conditions": {"cancel": "input.sure == true"}}
    run = Document(one(**guards)).submitted()
    assert code_of(run, "cancel", actor=BEN, payload={"sure": True}) == "GUARD_REFUSED"
    assert code_of(run, "cancel", actor=BEN, payload={}) == "NO_EDGE_MATCHED"


@pytest.mark.parametrize("name", ["withdraw", "cancel", "submit", "approved", "nonsense"])
def test_a_suspended_instance_takes_no_verb(name: str) -> None:
    for program in (one(), busy()):
        run = Document(program).submitted()
        run.apply(Suspend())
        assert code_of(run, name) == "INSTANCE_SUSPENDED"


def test_a_held_token_waits_for_the_resume_and_is_interrupted_then() -> None:
    run = Document(
        document([node("work", "task", handler="h"), approval("a")], [step(IN, "work"), step("work", "a"), *asks("a")])
    )
    run.submitted()
    run.apply(Suspend())
    run.done(usr("work"))
    assert run.tokens[ROOT].phase is Phase.HELD
    assert code_of(run, "withdraw") == "INSTANCE_SUSPENDED"
    run.apply(Resume())
    assert run.verb("withdraw").nodes == [DRAFT]


def test_a_dead_token_is_interrupted_and_its_letter_is_discarded() -> None:
    work = node("work", "task", handler="h")
    run = Document(document([work, approval("a")], [step(IN, "work"), step("work", "a"), *asks("a")], policy=DLQ))
    run.submitted().fail(usr("work"))
    assert run.status == "dlq"
    decision = run.verb("withdraw").last
    assert decision is not None
    assert (run.status, run.nodes) == ("running", [DRAFT])
    assert [a.resolution for a in decision.letters_resolved] == ["discarded"]


def test_an_instance_that_is_being_cancelled_takes_no_verb_and_follows_edits() -> None:
    work = node("work", "task", handler="h")
    run = Document(document([work], [step(IN, "work"), step("work", OUT)], stable=True, amendment=DRAFT)).submitted()
    run.apply(Cancel())
    assert code_of(run, "withdraw") == "INSTANCE_STOPPING"
    run.edit()
    assert (run.instance.entity_version, run.nodes) == (2, [usr("work")])


def test_the_timeout_of_the_instance_goes_on_after_an_interrupt() -> None:
    policy = msgspec.structs.replace(POLICY, timeout=600.0, on_timeout=CANCELLED)
    run = Document(one(policy=policy)).submitted().verb("withdraw")
    assert run.instance.state.expires is not None
    run.expire()
    assert run.status == "completed"


def test_a_timer_that_fires_after_the_interrupt_is_stale() -> None:
    run = Document(
        document([node("pause", "wait_timer", delay=60.0)], [step(IN, "pause"), step("pause", OUT)])
    ).submitted()
    path, token = run.at(usr("pause"))
    run.verb("withdraw")
    with pytest.raises(Refused) as stale:
        run.apply(TimerDue(path, token.waits[0].id, "timer"))
    assert stale.value.code == "STALE_TIMER"


def test_a_verb_with_two_targets_is_refused() -> None:
    nodes = (start(), Node(id="s", kind="split"), state("a"), state("b"), gate("g"), terminal())
    edges = (
        edge("start", "s"), edge("s", "a"), edge("s", "b"), edge("a", "g", "go"), edge("b", "g", "on"),
        edge("g", "terminal"),
    )  # fmt: skip
    regions = (
        Region(id="a", nodes=("a",), verbs={"stop": "g", "go": "g"}),
        Region(id="b", nodes=("b",), verbs={"stop": "terminal", "on": "g"}),
    )
    graph = Graph(name="two", kind="effective", entry="start", nodes=nodes, edges=edges, regions=regions, policy=POLICY)
    run = Document(link(compile_graph(graph)))
    run.start()
    assert code_of(run, "stop") == "VERB_AMBIGUOUS"
    run.verb("go")
    assert (run.nodes, list(run.tokens)) == (["g"], [ROOT]), "an edge that leaves the branches ends the others"


# --- edits ----------------------------------------------------------------------------------------------------------


def test_an_edit_of_a_draft_is_followed() -> None:
    run = Document(one())
    run.start()
    before = run.tokens
    run.edit()
    assert (run.instance.entity_version, run.tokens, run.told) == (1, before, ["entity_changed"])
    told = read_control(EntityFollowed, run.row("@entity").detail)
    assert (told.version, told.action, told.material, told.asked) == (1, "update", True, ())


def test_an_edit_asks_the_approvers_again() -> None:
    run = Document(busy()).submitted()
    first = dict(run.open)
    decision = run.edit().last
    assert decision is not None
    assert [t.reason for t in decision.tasks if isinstance(t, TaskClosed)] == ["asked_again", "asked_again"]
    assert {name: len(run.rows(usr(name))) for name in ("a", "b", "ping")} == {"a": 2, "b": 2, "ping": 1}
    was, now = run.rows(usr("a"))
    assert (was.status, was.outcome, now.status, now.run, now.hop) == (
        "cancelled", "asked_again", "waiting_decision", 1, was.hop,
    )  # fmt: skip
    assert (was.entity_version, now.entity_version) == (1, 2)
    with pytest.raises(Conflict) as over:
        run.apply(Decided(b"decision" * 2, first[usr("a")], "approved"), BEN)
    assert over.value.code == "TASK_OVER"
    assert run.open[usr("a")] != first[usr("a")]


def test_an_edit_that_is_not_material_asks_nobody() -> None:
    run = Document(one()).submitted().edit(material=False)
    assert (run.instance.entity_version, len(run.rows(usr("a")))) == (2, 1)


def test_two_edits_ask_twice_and_a_late_one_not_again() -> None:
    run = Document(one()).submitted().edit(3).edit(4)
    assert len(run.rows(usr("a"))) == 3
    run.edit(2)
    assert (run.instance.entity_version, len(run.rows(usr("a")))) == (4, 3)


def test_a_material_edit_known_after_a_later_one_still_asks_again() -> None:
    run = Document(one()).submitted().edit(3, material=False)
    assert len(run.rows(usr("a"))) == 1
    run.edit(2)
    assert (run.instance.entity_version, len(run.rows(usr("a")))) == (3, 2)


@pytest.mark.parametrize("options", [{"stable": True}, {"window": "amend_only"}, {"window": "locked"}])
def test_an_edit_where_the_document_must_not_change_amends_it(options: dict[str, Any]) -> None:
    run = Document(busy(amendment=DRAFT, **options)).submitted().edit()
    assert (run.nodes, run.instance.entity_version) == ([DRAFT], 2)
    row = read_control(Interrupted, run.row("@interrupt").detail)
    assert (row.verb, row.regions) == (None, (SLOT,))
    run.verb("submit")
    run.edit(2)
    assert len(run.tokens) == 8, "what was known before the region was entered is no drift"


def test_an_edit_that_nothing_amends_is_a_drift() -> None:
    run = Document(one(stable=True)).submitted()
    with pytest.raises(Conflict) as refused:
        run.edit()
    assert refused.value.code == "WORKFLOW_VERSION_DRIFT"
    assert run.edit(material=False).nodes == [usr("a")]


def test_the_instances_own_edit_amends_nothing_and_asks_again() -> None:
    run = Document(one(stable=True, amendment=DRAFT)).submitted().edit(origin=ID)
    assert (run.nodes, len(run.rows(usr("a")))) == ([usr("a")], 2)
    assert read_control(EntityFollowed, run.rows("@entity")[-1].detail).origin == ID.hex()
    assert run.edit(origin=b"other instance..").nodes == [DRAFT]


def test_a_suspended_instance_follows_an_edit_and_asks_again_after_the_resume() -> None:
    run = Document(one()).submitted()
    run.apply(Suspend())
    run.edit()
    assert (run.status, run.tokens[ROOT].phase) == ("suspended", Phase.HELD)
    run.apply(Resume())
    assert (run.nodes, len(run.rows(usr("a")))) == ([usr("a")], 2)
    assert run.rows(usr("a"))[-1].entity_version == 2


def test_a_suspended_instance_is_amended_and_goes_on_after_the_resume() -> None:
    run = Document(busy(stable=True, amendment=DRAFT)).submitted()
    run.apply(Suspend())
    run.edit()
    assert (run.status, run.nodes, run.tokens[ROOT].phase) == ("suspended", [DRAFT], Phase.HELD)
    run.apply(Resume())
    assert run.verb("submit").status == "running"


def test_a_dead_token_in_a_stable_slot_is_amended() -> None:
    work = node("work", "task", handler="h")
    program = document([work], [step(IN, "work"), step("work", OUT)], stable=True, amendment=DRAFT)
    run = Document(program).submitted().fail(usr("work"))
    assert run.status == "suspended"
    run.edit()
    run.apply(Resume())
    assert (run.status, run.nodes) == ("running", [DRAFT])


# --- the stance -----------------------------------------------------------------------------------------------------


def test_the_stance_follows_the_instance() -> None:
    program = one(window="amend_only", stable=True)
    run = Document(program)
    at_draft = Stance(window="editable", verbs=("cancel", "submit"))
    assert stance(program, new_instance(program)) == at_draft, "pending: before long it is at the first state"
    run.start()
    assert run.stance == at_draft
    run.verb("submit")
    assert run.stance == Stance(window="amend_only", verbs=("cancel", "withdraw"), stable=True, asks=True)
    run.apply(Suspend())
    assert run.stance == Stance(window="amend_only", stable=True, asks=True)
    run.apply(Resume())
    run.decide("a")
    assert run.stance == Stance(window="amend_only", verbs=("cancel", "withdraw"))
    run.pass_gate()
    assert run.stance is None


def test_the_strictest_window_of_all_tokens_counts_and_events_are_listed() -> None:
    run = Document(busy(window="locked", amendment=DRAFT)).submitted()
    assert run.stance == Stance(window="locked", verbs=("cancel", "withdraw"), asks=True, listens=("ping", "pod"))


@pytest.mark.parametrize(
    ("region", "own", "window"), [("editable", "locked", "locked"), ("editable", None, "editable")]
)
def test_a_node_may_be_stricter_than_its_region(region: str, own: str | None, window: str) -> None:
    asked = msgspec.structs.replace(approval("a"), edit_window=own)
    run = Document(document([asked], [step(IN, "a"), *asks("a")], window=region, stable=False, amendment=DRAFT))
    run.submitted()
    assert run.stance is not None
    assert run.stance.window == window
    run.edit()
    assert (run.tokens[ROOT].node == DRAFT) is (window == "locked"), "an edit where none is allowed amends"


def test_a_token_outside_of_every_region_locks_the_document() -> None:
    run = Document(one()).submitted()
    run.instance = msgspec.structs.replace(
        run.instance,
        state=msgspec.structs.replace(
            run.instance.state, tokens={ROOT: msgspec.structs.replace(run.tokens[ROOT], node="sys:end")}
        ),
    )
    assert run.stance == Stance(window="locked")


def test_other_flows_have_no_stance() -> None:
    run = Document(line(task("a")))
    run.start()
    assert run.stance is None


def test_snapshots_name_the_version_of_the_document_only_in_regions() -> None:
    run = Document(one()).submitted()
    assert b'"entity_version":1' in msgspec.json.encode(run.tokens[ROOT])
    assert b"entity_version" not in msgspec.json.encode(msgspec.structs.replace(run.tokens[ROOT], entity_version=0))


# --- every verb at every place --------------------------------------------------------------------------------------

PLACES = ("draft", "asked", "gate", "reject", "busy", "suspended", "dead", "over", "pending")
OFFERED = {"draft": ("submit", "cancel")}
REFUSED = {"suspended": "INSTANCE_SUSPENDED", "over": "INSTANCE_OVER", "pending": "INSTANCE_PENDING"}
GOES_TO = {"submit": [usr("a")], "withdraw": [DRAFT], "cancel": list[str]()}


def at(place: str) -> Document:
    run = Document(busy() if place == "busy" else one(policy=DLQ))
    if place == "pending":
        return run
    if place == "draft":
        run.start()
        return run
    run.submitted()
    if place == "gate":
        run.decide("a")
    elif place == "reject":
        run.decide("a", "rejected")
    elif place == "suspended":
        run.apply(Suspend())
    elif place == "dead":
        run.decide("a").fail(APPROVE)
    elif place == "over":
        run.verb("cancel")
    return run


@pytest.mark.parametrize("name", ["submit", "withdraw", "cancel", "approve", "approved"])
@pytest.mark.parametrize("place", PLACES)
def test_every_verb_at_every_place(place: str, name: str) -> None:
    run = at(place)
    before = run.instance
    if place not in REFUSED and name in OFFERED.get(place, ("withdraw", "cancel")):
        run.verb(name)
        assert run.nodes == GOES_TO[name]
    else:
        assert code_of(run, name) == REFUSED.get(place, "VERB_NOT_OFFERED")
        assert run.instance == before
