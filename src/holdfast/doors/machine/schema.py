"""The formats as JSON Schemas, for editors that complete and check blueprints and policies while they are written."""

from __future__ import annotations

from typing import Any

from holdfast.doors.json_schema import DIALECT, schema_of
from holdfast.doors.machine.format import BLUEPRINT, POLICY


def blueprint_schema() -> dict[str, Any]:
    """Build the JSON Schema of a blueprint."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast blueprint",
        "description": "The states, events and transitions of a machine.",
        **schema_of(BLUEPRINT),
    }


def policy_schema() -> dict[str, Any]:
    """Build the JSON Schema of a policy."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast policy",
        "description": "The hooks, parameters, completions and timeouts of a machine's states.",
        **schema_of(POLICY),
    }
