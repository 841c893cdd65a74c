"""The formats as JSON Schemas, for editors that complete and check files of contracts and patches."""

from __future__ import annotations

from typing import Any

from holdfast.doors.envelope.decision_tables.format import TABLE
from holdfast.doors.envelope.reading.format import CONTRACT, OF_CONTRACTS, OF_PATCHES, OF_TABLES, PATCH
from holdfast.doors.json_schema import DIALECT, schema_of
from holdfast.doors.shapes import Field, Fields, Items


def contract_schema() -> dict[str, Any]:
    """Build the JSON Schema of a file of contracts."""
    about = "The lifecycle of a type of documents: its fields, states, verbs, gates and slots."
    return _file("contract", about, CONTRACT, OF_CONTRACTS)


def patch_schema() -> dict[str, Any]:
    """Build the JSON Schema of a file of patches."""
    return _file("patch", "The steps that an organisation adds to the slots of a contract.", PATCH, OF_PATCHES)


def table_schema() -> dict[str, Any]:
    """Build the JSON Schema of a file of decision tables."""
    return _file("table", "What `rule` steps decide: rows of conditions with outcomes.", TABLE, OF_TABLES)


def _file(noun: str, about: str, shape: Fields, keys: dict[str, Field]) -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": f"Holdfast {noun}",
        "description": about,
        "type": "object",
        "properties": {key: {**_entry(noun, field), "description": field.about} for key, field in keys.items()},
        "additionalProperties": False,
        "minProperties": 1,
        "$defs": {noun: schema_of(shape)},
    }


def _entry(noun: str, field: Field) -> dict[str, Any]:
    """Refer to the noun's own schema, or to a list of such."""
    reference = {"$ref": f"#/$defs/{noun}"}
    if not isinstance(field.shape, Items):
        return reference
    return {"type": "array", "items": reference, "minItems": field.shape.least, "maxItems": field.shape.most}
