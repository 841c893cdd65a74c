"""The format as a JSON Schema, for editors that complete and check a file while it is written."""

from __future__ import annotations

from typing import Any

from holdfast.doors.json_schema import DIALECT, schema_of
from holdfast.doors.steps.format import FILE


def steps_schema() -> dict[str, Any]:
    """Build the JSON Schema of a file of steps."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast steps",
        "description": "Workflows of steps: what people do, what the system does, and what leads from one to the next.",
        **schema_of(FILE),
    }
