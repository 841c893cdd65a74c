"""The published JSON Schemas and the reader agree: what one of them takes or refuses, so does the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from machine_samples import blueprint, documents, edited, policy
from test_findings import BLUEPRINTS, POLICIES

from holdfast.doors.machine import blueprint_schema, policy_schema
from holdfast.doors.machine.definition import read_machine

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas"
SCHEMAS = {"blueprint": blueprint_schema(), "policy": policy_schema()}
VALIDATORS = {name: jsonschema_rs.validator_for(schema) for name, schema in SCHEMAS.items()}
STRUCTURAL = {
    "MACHINE_KEY_MISSING", "MACHINE_KEY_UNKNOWN", "MACHINE_TYPE_WRONG", "MACHINE_VALUE_INVALID",
    "MACHINE_NAME_INVALID", "MACHINE_ORDER_INVALID", "MACHINE_DURATION_INVALID",
}  # fmt: skip
# Bounds that JSON Schema cannot express: bytes of a name, exact numbers, one of two keys.
BEYOND = {"states[2].name", "params[0].data", "timeouts[0]"}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_the_one_of_the_format(name: str) -> None:
    assert json.loads((PUBLISHED / f"{name}.schema.json").read_text()) == SCHEMAS[name]
    jsonschema_rs.meta.validate(SCHEMAS[name])


def test_the_examples_fit() -> None:
    for name, document in zip(SCHEMAS, documents(), strict=True):
        VALIDATORS[name].validate(document)


@pytest.mark.parametrize(("code", "place", "edits"), BLUEPRINTS)
def test_findings_of_the_blueprint(code: str, place: str, edits: Any) -> None:
    agree("blueprint", code, place, edited(blueprint(), *edits))


@pytest.mark.parametrize(("code", "place", "changes"), POLICIES)
def test_findings_of_the_policy(code: str, place: str, changes: dict[str, Any]) -> None:
    agree("policy", code, place, policy(**changes))


def agree(name: str, code: str, place: str, document: Any) -> None:
    if place not in BEYOND:
        assert VALIDATORS[name].is_valid(document) == (code not in STRUCTURAL)


VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 1.0, 1.5, -1, 2**31 - 2, 2**31 - 1, 2**31, "", " ", "x", "x ", " x", "x\n", "a@b"),
    *("1001", "-5", "Go", "Open", "once", "gate", "all", "P1D", "PT0S", "P1Y", "P1DT2H", "48h", [], ["P"], ["P", "P"]),
    *({}, {"success": "Go"}, {"success": 1, "failure": "End"}, {"success": None}, {"definition": "order"}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_any_value_at_any_key(value: Any) -> None:
    plan = blueprint()
    for path in (
        *(
            ("name",),
            ("environment",),
            ("version",),
            ("states",),
            ("states", 0, "is_initial"),
            ("states", 0, "category"),
        ),
        *(("events", 0, "code"), ("events", 0, "name"), ("transitions", 0, "event"), ("transitions", 0, "from")),
        *(("transitions", 0, "when"), ("transitions", 0, "guard"), ("$schema",)),
    ):
        compare("blueprint", edited(plan, (path, value)))
    hook = {"event": "CALL"}
    rules = policy(params=[{"code": "P"}], rules=[{"state": "Open", "emit": [hook]}], timeouts=[{"state": "Open"}])
    for path in (
        *(("for",), ("policy_name",), ("rules",), ("rules", 0, "via"), ("rules", 0, "complete"), ("stale",)),
        *(("rules", 0, "params"), ("params", 0, "data"), ("params", 0, "code"), ("stale_minutes",)),
        *(("timeouts", 0, key) for key in ("state", "timeout", "timeout_minutes", "timeout_mode", "timeout_event")),
        *(("rules", 0, "emit", 0, key) for key in ("event", "type", "order", "ack", "not_before", "label", "complete")),
    ):
        compare("policy", edited(rules, (path, value)))


def compare(name: str, document: Any) -> None:
    pair = (document, None) if name == "blueprint" else (blueprint(), document)
    found = {
        problem.code
        for problem in read_machine(*pair).problems
        if problem.file == name and problem.place not in ("timeouts[0]", "params[0].data")
    }
    assert VALIDATORS[name].is_valid(document) == (not found & STRUCTURAL), (document, found)
