"""The formats as JSON Schemas, for editors that complete and check files of contracts and patches."""

from __future__ import annotations

from typing import Any

from holdfast.doors.envelope.format import OF_CONTRACTS, OF_PATCHES
from holdfast.doors.json_schema import DIALECT, schema_of
from holdfast.doors.shapes import Fields


def contract_schema() -> dict[str, Any]:
    """Build the JSON Schema of a file of contracts."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast contract",
        "description": "The lifecycle of a type of documents: its fields, states, verbs, gates and slots.",
        **schema_of(Fields("file", OF_CONTRACTS)),
        "minProperties": 1,
    }


def patch_schema() -> dict[str, Any]:
    """Build the JSON Schema of a file of patches."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast patch",
        "description": "The steps that an organisation adds to the slots of a contract.",
        **schema_of(Fields("file", OF_PATCHES)),
        "minProperties": 1,
    }
