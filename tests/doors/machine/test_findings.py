"""Every finding has its code, file, place and hint, and all come at once."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from machine_samples import REMOVED, Edit, blueprint, edited, policy, problems, told

from holdfast.doors.machine import MachineDefinition
from holdfast.doors.machine.problems import MOST_PROBLEMS, REMEDIES
from holdfast.doors.machine.reading import LARGEST
from holdfast.errors import DefinitionError

ISOLATED = {"name": "Far"}
BLUEPRINTS: list[tuple[str, str, list[Edit]]] = [
    ("MACHINE_KEY_MISSING", "$", [(("environment",), REMOVED)]),
    ("MACHINE_KEY_MISSING", "states[1]", [(("states", 1), {}), (("transitions",), [])]),
    ("MACHINE_KEY_UNKNOWN", "stats", [(("stats",), [])]),
    ("MACHINE_KEY_UNKNOWN", "states[1]['is final']", [(("states", 1, "is final"), True)]),
    ("MACHINE_TYPE_WRONG", "states", [(("states",), {})]),
    ("MACHINE_TYPE_WRONG", "states[1].is_final", [(("states", 1, "is_final"), 1)]),
    ("MACHINE_TYPE_WRONG", "version", [(("version",), True)]),
    ("MACHINE_TYPE_WRONG", "version", [(("version",), 1.5)]),
    ("MACHINE_TYPE_WRONG", "transitions[0].event", [(("transitions", 0, "event"), None)]),
    ("MACHINE_VALUE_INVALID", "version", [(("version",), 0)]),
    ("MACHINE_VALUE_INVALID", "events[0].code", [(("events", 0, "code"), -1)]),
    ("MACHINE_VALUE_INVALID", "states[1].category", [(("states", 1, "category"), "a\nb")]),
    ("MACHINE_NAME_INVALID", "environment", [(("environment",), "prod.eu")]),
    ("MACHINE_NAME_INVALID", "environment", [(("environment",), "")]),
    ("MACHINE_NAME_INVALID", "name", [(("name",), "a b")]),
    ("MACHINE_NAME_INVALID", "name", [(("name",), "a" * 91)]),
    ("MACHINE_NAME_INVALID", "states[2].name", [(("states", 2, "name"), "a@b"), (("transitions", 1, "to"), "Open")]),
    ("MACHINE_NAME_INVALID", "states[2].name", [(("states", 2, "name"), "€" * 90), (("transitions", 1, "to"), "Open")]),
    ("MACHINE_NAME_INVALID", "events[2].name", [(("events", 2, "name"), "e" * 101), (("transitions", 2), REMOVED)]),
    ("MACHINE_NAME_INVALID", "events[2].name", [(("events", 2, "name"), "1001"), (("transitions", 2), REMOVED)]),
    ("MACHINE_INITIAL_MISSING", "states", [(("states", 0, "is_initial"), False)]),
    ("MACHINE_INITIAL_AMBIGUOUS", "states[1].is_initial", [(("states", 1, "is_initial"), True)]),
    ("MACHINE_DUPLICATE_STATE", "states[3].name", [(("states", 3), {"name": "Open"})]),
    ("MACHINE_DUPLICATE_EVENT_CODE", "events[3].code", [(("events", 3), {"code": 1, "name": "Other"})]),
    ("MACHINE_DUPLICATE_EVENT_NAME", "events[3].name", [(("events", 3), {"code": 9, "name": "Go"})]),
    ("MACHINE_EVENT_RESERVED", "events[3].name", [(("events", 3), {"code": 9, "name": "timeout"})]),
    ("MACHINE_EVENT_RESERVED", "events[3].name", [(("events", 3), {"code": 9, "name": "completed"})]),
    ("MACHINE_EVENT_RESERVED", "events[3].name", [(("events", 3), {"code": 9, "name": "error"})]),
    ("MACHINE_STATE_UNKNOWN", "transitions[1].to", [(("transitions", 1, "to"), "Dune")]),
    ("MACHINE_STATE_UNKNOWN", "transitions[1].from", [(("transitions", 1, "from"), "Opn")]),
    ("MACHINE_EVENT_UNKNOWN", "transitions[1].event", [(("transitions", 1, "event"), 7)]),
    ("MACHINE_EVENT_UNKNOWN", "transitions[1].event", [(("transitions", 1, "event"), "Endd")]),
    ("MACHINE_DUPLICATE_TRANSITION", "transitions[3]", [
        (("transitions", 3), {"from": "New", "event": 1, "to": "Done"}),
    ]),
    ("MACHINE_FINAL_LEFT", "transitions[3].from", [(("transitions", 3), {"from": "Done", "event": 1, "to": "New"})]),
    ("MACHINE_STATE_STUCK", "states[1]", [(("transitions", 2), REMOVED), (("transitions", 1, "from"), "New")]),
    ("MACHINE_STATE_UNREACHABLE", "states[3]", [
        (("states", 3), ISOLATED), (("transitions", 3), {"from": "Far", "event": 1, "to": "Open"}),
    ]),
    ("MACHINE_EXPRESSION_INVALID", "transitions[1].when", [(("transitions", 1, "when"), "input.n >")]),
    ("MACHINE_EXPRESSION_INVALID", "transitions[1].when", [(("transitions", 1, "when"), "entity.n > 1")]),
    ("MACHINE_EXPRESSION_INVALID", "transitions[1].when", [(("transitions", 1, "when"), "now > 1")]),
    ("MACHINE_VALUE_INVALID", "transitions[1].guard", [(("transitions", 1, "guard"), " ")]),
    ("CIRCULAR_ONLY", "states", [(("states", 2), REMOVED), (("transitions", 1), REMOVED)]),
]  # fmt: skip

HOOK = {"event": "CALL"}
RULE: dict[str, Any] = {"state": "Open", "complete": {"success": 2, "failure": "Again"}, "emit": [HOOK]}


def gate(**changes: Any) -> dict[str, Any]:
    return {"event": "CALL", "order": 1, **changes}


POLICIES: list[tuple[str, str, dict[str, Any]]] = [
    ("MACHINE_KEY_MISSING", "for", {"for": {}}),
    ("MACHINE_KEY_UNKNOWN", "rule", {"rule": []}),
    ("MACHINE_KEY_UNKNOWN", "rules[0].emit[0].when", {"rules": [{**RULE, "emit": [{**HOOK, "when": "x"}]}]}),
    ("MACHINE_POLICY_FOREIGN", "for.definition", {"for": {"definition": "other"}}),
    ("MACHINE_POLICY_VERSION", "for.version", {"for": {"definition": "order", "version": 2}}),
    ("MACHINE_POLICY_STATE_UNKNOWN", "rules[0].state", {"rules": [{**RULE, "state": "Opn"}]}),
    ("MACHINE_POLICY_STATE_UNKNOWN", "timeouts[0].state", {"timeouts": [{"state": "Opn", "timeout": "P1D"}]}),
    ("MACHINE_EVENT_UNKNOWN", "rules[0].via", {"rules": [{**RULE, "via": 9}]}),
    ("MACHINE_EVENT_UNKNOWN", "rules[0].complete.success", {
        "rules": [{**RULE, "complete": {"success": "Nope", "failure": 2}}],
    }),
    ("MACHINE_EVENT_UNKNOWN", "rules[0].emit[0].complete.failure", {
        "rules": [{**RULE, "emit": [{**HOOK, "complete": {"failure": 99}}]}],
    }),
    ("MACHINE_RULE_UNREACHED", "rules[0]", {"rules": [{**RULE, "via": "End"}]}),
    ("MACHINE_RULE_UNREACHED", "rules[0]", {"rules": [RULE, RULE]}),
    ("MACHINE_RULE_UNREACHED", "rules[0]", {"rules": [{"state": "New"}]}),
    ("MACHINE_FAILURE_MISSING", "rules[0].complete", {"rules": [{**RULE, "complete": {"success": 2}}]}),
    ("MACHINE_FAILURE_MISSING", "rules[0].emit[0].complete", {
        "rules": [{**RULE, "emit": [gate(complete={"success": 2})]}],
    }),
    ("MACHINE_COMPLETE_UNTAKEN", "rules[0].complete.success", {
        "rules": [{**RULE, "complete": {"success": 1, "failure": 2}}],
    }),
    ("MACHINE_PARAM_UNKNOWN", "rules[0].params[0]", {"rules": [{**RULE, "params": ["P"]}]}),
    ("MACHINE_PARAM_UNKNOWN", "rules[0].emit[0].params[1]", {
        "params": [{"code": "P"}], "rules": [{**RULE, "emit": [{**HOOK, "params": ["P", "Q"]}]}],
    }),
    ("MACHINE_DUPLICATE_PARAM", "params[1].code", {"params": [{"code": "P", "data": 1}, {"code": "P"}]}),
    ("MACHINE_VALUE_INVALID", "params[0].data", {"params": [{"code": "P", "data": {"n": 2**60}}]}),
    ("MACHINE_VALUE_INVALID", "params[0].data", {"params": [{"code": "P", "data": [1e300]}]}),
    ("MACHINE_VALUE_INVALID", "rules[0].params[1]", {
        "params": [{"code": "P"}], "rules": [{**RULE, "params": ["P", "P"]}],
    }),
    ("MACHINE_ORDER_INVALID", "rules[0].emit[0].order", {"rules": [{**RULE, "emit": [gate(order=0)]}]}),
    ("MACHINE_ORDER_INVALID", "rules[0].emit[0].order", {"rules": [{**RULE, "emit": [gate(order=2**31 - 1)]}]}),
    ("MACHINE_ORDER_INVALID", "rules[0].emit[0].order", {"rules": [{**RULE, "emit": [gate(order=True)]}]}),
    ("MACHINE_ORDER_INVALID", "rules[0].emit[0].order", {"rules": [{**RULE, "emit": [gate(order=1.5)]}]}),
    ("MACHINE_ORDER_INVALID", "rules[0].emit[0].order", {"rules": [{**RULE, "emit": [gate(order="1")]}]}),
    ("MACHINE_ORDER_INVALID", "rules[0].emit[0].order", {"rules": [{**RULE, "emit": [gate(order=None)]}]}),
    ("MACHINE_EFFECT_COMPLETES", "rules[0].emit[0].complete", {
        "rules": [{**RULE, "emit": [{**HOOK, "type": "effect", "complete": {"success": 2}}]}],
    }),
    ("MACHINE_GATES_DIFFER", "rules[0].emit[1]", {
        "rules": [{**RULE, "emit": [gate(complete={"failure": 2}), gate(complete={"failure": 3})]}],
    }),
    ("MACHINE_GATES_DIFFER", "rules[0].emit[1]", {
        "rules": [{**RULE, "emit": [gate(complete={"success": 2, "failure": 2}), gate()]}],
    }),
    ("MACHINE_GATE_UNORDERED", "rules[0].emit[0].type", {"rules": [{**RULE, "emit": [{**HOOK, "type": "gate"}]}]}),
    ("MACHINE_HOOK_AMBIGUOUS", "rules[0].emit[0]", {"rules": [{**RULE, "emit": [{**HOOK, "route": "B"}]}]}),
    ("MACHINE_HOOK_AMBIGUOUS", "rules[0].emit[0]", {"rules": [{**RULE, "emit": [{"order": 1}]}]}),
    ("MACHINE_VALUE_INVALID", "rules[0].emit[0].type", {"rules": [{**RULE, "emit": [{**HOOK, "type": "gates"}]}]}),
    ("MACHINE_VALUE_INVALID", "rules[0].emit[0].ack", {"rules": [{**RULE, "emit": [{**HOOK, "ack": "some"}]}]}),
    ("MACHINE_DUPLICATE_TIMEOUT", "timeouts[1].state", {
        "timeouts": [{"state": "Open", "timeout": "P1D"}, {"state": "Open", "timeout_minutes": 5}],
    }),
    ("MACHINE_TIMEOUT_AMBIGUOUS", "timeouts[0].timeout_minutes", {
        "timeouts": [{"state": "Open", "timeout": "P1D", "timeout_minutes": 5}],
    }),
    ("MACHINE_TIMEOUT_AMBIGUOUS", "stale_minutes", {"stale": "P1D", "stale_minutes": 5}),
    ("MACHINE_KEY_MISSING", "timeouts[0]", {"timeouts": [{"state": "Open"}]}),
    ("MACHINE_TIMEOUT_UNTAKEN", "timeouts[0].timeout_event", {
        "timeouts": [{"state": "Open", "timeout": "P1D", "timeout_event": 1}],
    }),
    ("MACHINE_TIMEOUT_UNUSED", "timeouts[0].state", {"timeouts": [{"state": "Done", "timeout": "P1D"}]}),
    ("MACHINE_VALUE_INVALID", "timeouts[0].timeout_mode", {
        "timeouts": [{"state": "Open", "timeout": "P1D", "timeout_mode": 2}],
    }),
    ("MACHINE_TYPE_WRONG", "timeouts[0].timeout_mode", {
        "timeouts": [{"state": "Open", "timeout": "P1D", "timeout_mode": True}],
    }),
    ("MACHINE_DURATION_INVALID", "timeouts[0].timeout_minutes", {
        "timeouts": [{"state": "Open", "timeout_minutes": 0}],
    }),
]  # fmt: skip


def test_the_samples_are_sound() -> None:
    assert problems(blueprint(), policy(rules=[RULE])) == ()


@pytest.mark.parametrize(("code", "place", "edits"), BLUEPRINTS)
def test_a_finding_of_the_blueprint(code: str, place: str, edits: list[Edit]) -> None:
    found = problems(edited(blueprint(), *edits))
    assert [(each.file, each.code, each.place) for each in found] == [("blueprint", code, place)]
    assert all(each.hint and re.fullmatch(r"[A-Z'`\[].*\.", each.message, re.DOTALL) for each in found), found


@pytest.mark.parametrize(("code", "place", "changes"), POLICIES)
def test_a_finding_of_the_policy(code: str, place: str, changes: dict[str, Any]) -> None:
    found = problems(blueprint(), policy(**changes))
    assert [(each.file, each.code, each.place) for each in found] == [("policy", code, place)]
    assert all(each.hint for each in found)


WARNINGS = {
    "CIRCULAR_ONLY", "MACHINE_POLICY_STATE_UNKNOWN", "MACHINE_RULE_UNREACHED", "MACHINE_FAILURE_MISSING",
    "MACHINE_GATE_UNORDERED", "MACHINE_POLICY_VERSION", "MACHINE_TIMEOUT_UNUSED", "MACHINE_COMPLETE_UNTAKEN",
}  # fmt: skip


def test_warnings_let_a_machine_pass() -> None:
    seen = [(code, problems(edited(blueprint(), *edits))) for code, _, edits in BLUEPRINTS]
    seen += [(code, problems(blueprint(), policy(**changes))) for code, _, changes in POLICIES]
    assert {code for code, found in seen if found[0].severity == "warning"} == WARNINGS
    assert all(found[0].severity == "warning" for code, found in seen if code in WARNINGS)


def test_every_code_of_the_format_has_a_test() -> None:
    tested = {code for code, _, _ in [*BLUEPRINTS, *POLICIES]}
    assert set(REMEDIES) - tested == {"MACHINE_INITIAL_FINAL", "MACHINE_TOO_LARGE"}


def test_an_initial_state_is_not_final() -> None:
    plan = blueprint(states=[{"name": "A", "is_initial": True, "is_final": True}], transitions=[])
    assert told(plan) == [("blueprint", "MACHINE_INITIAL_FINAL", "states[0].is_final")]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("P1Y", "no fixed length"),
        ("P2M", "no fixed length"),
        ("P1Y2M3D", "no fixed length"),
        ("PT0S", "ISO 8601"),
        ("P0D", "ISO 8601"),
        ("-P1D", "ISO 8601"),
        ("P", "ISO 8601"),
        ("PT", "ISO 8601"),
        ("2 days", "ISO 8601"),
        ("48h", "ISO 8601"),
        ("P36526D", "100 years"),
        (5, "ISO 8601"),
        (None, "ISO 8601"),
    ],
)
def test_a_bad_duration(written: Any, hint: str) -> None:
    [found] = problems(blueprint(), policy(timeouts=[{"state": "Open", "timeout": written}]))
    assert (found.code, found.place) == ("MACHINE_DURATION_INVALID", "timeouts[0].timeout")
    assert hint in found.hint


@pytest.mark.parametrize("key", ["not_before", "deadline"])
def test_durations_of_hooks(key: str) -> None:
    [found] = problems(blueprint(), policy(rules=[{**RULE, "emit": [{**HOOK, key: "P1Y"}]}]))
    assert (found.code, found.place) == ("MACHINE_DURATION_INVALID", f"rules[0].emit[0].{key}")


def test_all_findings_come_at_once_and_in_the_order_of_the_documents() -> None:
    plan = edited(
        blueprint(),
        (("environment",), "a.b"),
        (("transitions", 0, "to"), "Oppen"),
        (("transitions", 1, "event"), 77),
        (("states", 2, "colour"), "red"),
    )
    rules = policy(rules=[{**RULE, "params": ["P"]}], timeouts=[{"state": "Open", "timeout": "P1Y"}])
    with pytest.raises(DefinitionError) as caught:
        MachineDefinition.parse(plan, rules)
    assert [(each.file, each.code) for each in caught.value.diagnostics] == [
        ("blueprint", "MACHINE_NAME_INVALID"),
        ("blueprint", "MACHINE_KEY_UNKNOWN"),
        ("blueprint", "MACHINE_STATE_UNKNOWN"),
        ("blueprint", "MACHINE_EVENT_UNKNOWN"),
        ("policy", "MACHINE_PARAM_UNKNOWN"),
        ("policy", "MACHINE_DURATION_INVALID"),
    ]
    assert caught.value.code == "MACHINE_NAME_INVALID"
    assert "6 problems in all" in caught.value.message


def test_the_nearest_name_is_guessed() -> None:
    hints = [each.hint for each in problems(edited(blueprint(), (("transitions", 1, "to"), "Dne"), (("stats",), 1)))]
    assert sorted(hints) == ["Did you mean Done?", "Did you mean states?"]


def test_text_gives_lines() -> None:
    text = json.dumps(edited(blueprint(), (("states", 1, "nam"), "x")), indent=2)
    [found] = problems(text)
    assert text.splitlines()[found.line - 1][found.column - 1 :].startswith('"x"')
    assert str(found).startswith(f"blueprint:{found.line}:{found.column}: MACHINE_KEY_UNKNOWN ")


def test_data_gives_places() -> None:
    [found] = problems(edited(blueprint(), (("states", 1, "nam"), "x")))
    assert (found.line, str(found).split(" ")[0]) == (None, "blueprint:states[1].nam:")


def test_both_in_one_document_have_places_in_it() -> None:
    text = json.dumps({"blueprint": blueprint(), "policy": policy(timeouts=[{"state": "Open", "timeout": "P1Y"}])})
    [found] = problems(text)
    assert (found.code, found.place, found.line) == ("MACHINE_DURATION_INVALID", "policy.timeouts[0].timeout", 1)
    assert text[found.column - 1 :].startswith('"P1Y"')


def test_a_document_that_is_too_large_is_refused_unread() -> None:
    assert told(" " * LARGEST + "{}") == [("blueprint", "MACHINE_TOO_LARGE", "$")]


def test_rules_that_multiply_are_refused() -> None:
    rules = policy(
        params=[{"code": "P", "data": "x" * 60_000}],
        rules=[{"state": "Open", "emit": [{"event": str(n), "params": ["P"]} for n in range(20)]}],
    )
    assert told(blueprint(), rules) == [("policy", "MACHINE_TOO_LARGE", "rules")]


def test_no_more_problems_are_kept_than_anybody_reads() -> None:
    plan = blueprint(**{f"key{n}": n for n in range(MOST_PROBLEMS + 500)})
    assert len(problems(plan)) == MOST_PROBLEMS


def test_every_remedy_is_a_sentence() -> None:
    assert all(text.endswith(".") for text in REMEDIES.values())
