"""Samples of machines: the one of the examples, and small ones to break."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from holdfast.doors.machine import MachineDefinition
from holdfast.doors.machine.definition import read_machine
from holdfast.doors.machine.problems import Problem

EXAMPLES = Path(__file__).parents[3] / "examples" / "machines"
VENDOR = EXAMPLES / "vendor_registration.blueprint.json"
VENDOR_POLICY = EXAMPLES / "vendor_registration.policy.json"

Edit = tuple[tuple[str | int, ...], Any]
REMOVED: Any = object()


def vendor() -> MachineDefinition:
    return MachineDefinition.parse(VENDOR.read_bytes(), VENDOR_POLICY.read_bytes())


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads(VENDOR.read_text()), json.loads(VENDOR_POLICY.read_text())


def blueprint(**changes: Any) -> dict[str, Any]:
    """New → (Go, 1) → Done, and New → (Wait, 2) → New."""
    return {
        "name": "order",
        "environment": "test",
        "version": 1,
        "states": [{"name": "New", "is_initial": True}, {"name": "Open"}, {"name": "Done", "is_final": True}],
        "events": [{"code": 1, "name": "Go"}, {"code": 2, "name": "End"}, {"code": 3, "name": "Again"}],
        "transitions": [
            {"from": "New", "event": "Go", "to": "Open"},
            {"from": "Open", "event": 2, "to": "Done"},
            {"from": "Open", "event": "Again", "to": "Open"},
        ],
        **changes,
    }


def policy(**changes: Any) -> dict[str, Any]:
    return {"for": {"definition": "order"}, **changes}


def edited(document: dict[str, Any], *edits: Edit) -> dict[str, Any]:
    """A copy with values set at paths; REMOVED takes the key away; a position behind the end appends."""
    copied = copy.deepcopy(document)
    for path, value in edits:
        target: Any = copied
        for part in path[:-1]:
            target = target[part]
        if value is REMOVED:
            del target[path[-1]]
        elif isinstance(target, list) and path[-1] == len(target):
            target.append(value)
        else:
            target[path[-1]] = value
    return copied


def problems(plan: Any, rules: Any = None) -> tuple[Problem, ...]:
    return read_machine(plan, rules).problems


def told(plan: Any, rules: Any = None) -> list[tuple[str, str, str]]:
    """File, code and place of every problem."""
    return [(problem.file, problem.code, problem.place) for problem in problems(plan, rules)]
