"""Simulation: the path with its reasons, windows over time, questions, refusals, calls, timers and failures."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from envelope_samples import BOTH, ONE, demanding, edge, patch, step
from msgspec.structs import replace
from typer.testing import CliRunner

from holdfast import DecisionTable
from holdfast.cli.app import app
from holdfast.doors.envelope.decision_tables.building import pin_table
from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.model import PatchDefinition, PatchNode, PolicyRule, SlotPatch
from holdfast.doors.envelope.tables import Tables
from holdfast.errors import DefinitionError, Refused
from holdfast.runtime.envelopes import recording
from holdfast.runtime.envelopes.script import Arrive, CallVerb, Decide, Edit, Elapse, Input
from holdfast.runtime.envelopes.simulated import Interrupt, Simulation
from holdfast.runtime.envelopes.simulation import simulate
from holdfast.runtime.envelopes.templates import read_template

NOW = datetime(2026, 5, 4, 9, tzinfo=UTC)
INVOICE = {"total": 500, "vendor": "v9", "note": ""}
SUBMIT = CallVerb(verb="submit")
LIMITS = Tables(
    [
        pin_table(
            DecisionTable("limits")
            .column("total", "money", least=0)
            .row({"level": "low"}, {"total": {"below": 1000}})
            .row({"level": "high"}, {"total": {"at_least": 1000}})
            .build()
        )
    ]
)


def run(given: PatchDefinition, *script: Input, approvals: int = 0, **options: Any) -> Simulation:
    document = INVOICE | options.pop("document", {})
    return simulate(compile_effective(demanding(approvals), given, tables=LIMITS), document, script, now=NOW, **options)


def steps(*nodes: PatchNode, more: str = "", **fields: Any) -> PatchDefinition:
    """A patch of the review with these steps in a row."""
    names = ["in", *(node.id for node in nodes), "out"]
    onward = {node.id: "approved" if node.kind == "approval" else "completed" for node in nodes}
    row = [edge(f"{one}>{two}", on=onward.get(one, "completed")) for one, two in pairwise(names)]
    return patch(SlotPatch(nodes=nodes, edges=(*row, *map(edge, more.split()))), **fields)


def test_the_path_has_each_node_with_the_reason_of_its_edge() -> None:
    found = run(patch(ONE), SUBMIT, Decide(node="ann", by="eva"), approvals=1)
    assert found.nodes == (
        "sys:start", "sys:state:draft", "sys:state:submitted", "sys:slot:review:in", "usr:review:ann",
        "sys:slot:review:out", "sys:gate:approve", "sys:state:active", "sys:end",
    )  # fmt: skip
    assert (found.status, found.state, found.version, found.waits) == ("completed", "active", 2, ())
    draft = found.visits[1]
    assert [(why.expression, why.values, why.result, why.edges) for why in draft.why] == [
        ("entity.total > 0", {"entity.total": 500}, True, ("sys:state:draft:submit>sys:state:submitted",))
    ]
    assert draft.edges == draft.why[0].edges
    question = found.questions[0]
    assert (question.node, question.roles, question.version) == ("usr:review:ann", ("finance",), 2)
    assert (question.decision, question.by) == ("approved", "eva")


def test_windows_are_told_over_time() -> None:
    found = run(patch(ONE), Elapse(seconds=60), SUBMIT, Elapse(seconds=60), Decide(node="ann"))
    told = [(each.since - NOW, None if each.stance is None else each.stance.window) for each in found.windows]
    minute = timedelta(minutes=1)
    assert told == [(0 * minute, "editable"), (minute, "amend_only"), (2 * minute, "amend_only"), (2 * minute, None)]
    assert [each.stance.asks for each in found.windows if each.stance is not None] == [False, True, False]


def test_what_cannot_be_done_is_refused_and_the_script_goes_on() -> None:
    found = run(
        patch(ONE),
        CallVerb(verb="withdraw"),
        CallVerb(verb="submit", capabilities=()),
        Decide(node="ann"),
        Edit(fields={"size": 1}),
        Arrive(event="paid"),
        Arrive(event="paid", key="k"),
        SUBMIT,
        Decide(node="ann"),
        Edit(fields={"note": "late"}),
        SUBMIT,
    )
    assert [answer.code for answer in found.refused] == [
        "VERB_NOT_OFFERED", "GUARD_REFUSED", "TASK_UNKNOWN", "DOCUMENT_FIELD_UNKNOWN", "EVENT_NOT_EXPECTED",
        "WAIT_NOT_FOUND", "WORKFLOW_EDIT_LOCKED", "VERB_NOT_OFFERED",
    ]  # fmt: skip
    assert found.state == "active"
    assert found.document == INVOICE


def test_a_condition_that_does_not_hold_refuses_the_verb() -> None:
    found = run(patch(ONE), SUBMIT, document={"total": 0})
    assert [answer.code for answer in found.refused] == ["NO_EDGE_MATCHED"]
    assert found.version == 1


def test_policies_of_contract_and_patch_refuse() -> None:
    given = replace(patch(ONE), policies=(PolicyRule(name="ours", on=("submit",), when="entity.vendor == 'v1'"),))
    assert [answer.code for answer in run(given, SUBMIT).refused] == ["POLICY_REFUSED"]
    posting = steps(step("post", "action"), more="post>rejected:error")
    assert "sys:gate:reject" in run(posting, SUBMIT, document={"total": 2_000_000}).nodes
    assert "sys:gate:approve" in run(posting, SUBMIT).nodes


def test_an_edit_amends_a_stable_slot_and_a_note_does_not() -> None:
    both = patch(BOTH)
    edited = run(both, SUBMIT, Decide(node="ann"), Edit(fields={"total": 7}))
    assert [each for each in edited.path if isinstance(each, Interrupt)] == [
        Interrupt(at=NOW, target="sys:state:draft", verb=None)
    ]
    assert edited.questions[1].decision is None
    assert edited.questions[1].closed == NOW
    noted = run(both, SUBMIT, Decide(node="ann"), Edit(fields={"note": "n"}), Decide(node="ben"))
    assert noted.state == "active"


def test_rules_decide_by_their_table_and_none_is_a_failure() -> None:
    given = steps(step("limit", "rule"), more="limit>rejected:error")
    choosing = patch(
        SlotPatch(
            nodes=(step("limit", "rule"), step("boss", "approval")),
            edges=(
                *(edge("in>limit"), edge("limit>boss", when="context.level == 'high'"), edge("limit>out")),
                *(edge("boss>out:approved"), edge("limit>rejected:error")),
            ),
        )
    )
    assert run(choosing, SUBMIT).data == {"level": "low"}
    high = run(choosing, SUBMIT, document={"total": 1000})
    assert high.waits == ("usr:review:boss",)
    limit = next(visit for visit in high.visits if visit.kind == "rule")
    assert [(why.values, why.result) for why in limit.why] == [({"context.level": "high"}, True)]
    assert "sys:gate:reject" in run(given, SUBMIT, document={"total": 0.5}).nodes


def test_a_table_for_other_documents_is_refused() -> None:
    other = DecisionTable("limits").column("total", "string").column("size", "number").row({"a": 1}).build()
    with pytest.raises(DefinitionError) as refused:
        compile_effective(demanding(0), steps(step("limit", "rule")), tables=Tables([pin_table(other)]))
    assert [found.code for found in refused.value.diagnostics] == ["PATCH_TABLE_MISFIT"] * 2


def test_timers_fire_in_their_order_at_their_moment() -> None:
    given = steps(
        step("pause", "wait_timer", delay=60.0), step("boss", "approval", due=30.0), more="boss>rejected:timeout"
    )
    found = run(given, SUBMIT, Elapse(seconds=1000))
    assert found.states == ("draft", "submitted", "draft")
    asked = next(visit for visit in found.visits if visit.node == "usr:review:boss")
    assert (asked.entered - NOW, (asked.left or NOW) - NOW) == (timedelta(seconds=60), timedelta(seconds=90))
    assert "0:01:30" in "\n".join(found.lines())


def test_effects_and_flows_answer_as_they_are_told_to() -> None:
    given = steps(
        step("hook", "webhook_out", awaits=True), step("child", "sub_flow"),
        step("post", "action", payload={"note": "'x'"}),
        more="child>rejected:error",
    )  # fmt: skip
    well = run(given, SUBMIT, outputs={"child": {"score": 3}})
    assert (well.state, well.data["score"], well.document["note"]) == ("active", 3, "x")
    ill = run(given, SUBMIT, failing={"child": "CHILD_LOST"})
    assert ill.states == ("draft", "submitted", "draft")
    lost = run(given, SUBMIT, failing={"post": "LEDGER_CLOSED"})
    assert (lost.status, lost.error, lost.waits) == ("suspended", "LEDGER_CLOSED", ("usr:review:post",))


def test_a_verb_begins_a_new_instance_where_the_document_was_left() -> None:
    found = run(
        patch(ONE), SUBMIT, Decide(node="ann"), CallVerb(verb="cancel", capabilities=()), CallVerb(verb="cancel")
    )
    assert [answer.code for answer in found.refused] == ["GUARD_REFUSED"]
    assert found.states == ("draft", "submitted", "active", "cancelled")


def test_the_same_in_is_the_same_out() -> None:
    script = (SUBMIT, Decide(node="ann"), Edit(fields={"total": 7}), SUBMIT, Elapse(seconds=5))
    assert run(patch(BOTH), *script) == run(patch(BOTH), *script)


# --- the command ------------------------------------------------------------------------------------------------------


def call(tmp_path: Path, *options: str) -> tuple[int, str]:
    file = tmp_path / "invoice.yaml"
    file.write_text(read_template("invoice_approval"))
    done = CliRunner().invoke(app, ["contracts", "simulate", str(file), *options])
    return done.exit_code, done.output


def test_the_command_tells_the_way(tmp_path: Path) -> None:
    document = '{"total": 60000, "vendor": "v", "approver": "eva"}'
    code, told = call(tmp_path, "--document", document, "--do", "submit", "--do", "boss=approved")
    assert code == 0
    assert "usr:review:boss [approval] confirmed" in told
    assert "context.signatures == 1 is True" in told
    assert "completed in the state 'active'" in told


def test_the_command_reads_a_script_and_prints_json(tmp_path: Path) -> None:
    script = json.dumps([{"do": "verb", "verb": "submit"}, {"do": "wait", "seconds": 259_200}])
    code, told = call(tmp_path, "--document", '{"total": 60000}', "--script", script, "--do", "edit={}", "--json")
    found = json.loads(told)
    assert (code, found["state"], found["status"]) == (0, "draft", "running")


def test_the_command_leaves_with_1_if_an_input_is_refused(tmp_path: Path) -> None:
    code, told = call(
        tmp_path, "--document", '{"total": 0}', "--do", "submit", "--do", "event=paid:k", "--do", "wait=1d"
    )
    assert code == 1
    assert "refused: NO_EDGE_MATCHED" in told
    assert "refused: WAIT_NOT_FOUND" in told


@pytest.mark.parametrize("options", [("--do", "boss=maybe"), ("--do", "wait=soon"), ("--script", '[{"do": "fly"}]')])
def test_the_command_refuses_what_is_no_input(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "invoice.yaml"
    file.write_text(read_template("invoice_approval"))
    done = CliRunner().invoke(app, ["contracts", "simulate", str(file), *options])
    assert getattr(done.exception, "code", None) == "INPUT_INVALID"


def test_a_template_is_printed_to_begin_with() -> None:
    done = CliRunner().invoke(app, ["contracts", "new", "--template", "fast_track"])
    assert (done.exit_code, done.output) == (0, read_template("fast_track"))


@pytest.mark.parametrize(("limit", "most"), [("MOST_STEPS", 4), ("MOST_BYTES", 100)])
def test_a_simulation_of_too_many_steps_or_bytes_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    assert run(patch(ONE), SUBMIT, Decide(node="ann")).status == "completed"
    monkeypatch.setattr(recording, limit, most)
    with pytest.raises(Refused, match="The simulation has more than") as refused:
        run(patch(ONE), SUBMIT, Decide(node="ann"))
    assert refused.value.code == "SIMULATION_TOO_LARGE"


def test_no_time_passes_beyond_the_calendar() -> None:
    with pytest.raises(Refused, match="the years that there are"):
        run(patch(ONE), Elapse(seconds=1e300), SUBMIT)
