"""Shapes as JSON Schema, for editors that complete and check a document while it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.doors.durations import ISO_PATTERN, PATTERN
from holdfast.doors.shapes import (
    Anything,
    Choice,
    Either,
    Expressions,
    Fields,
    Flag,
    Items,
    Json,
    Named,
    Number,
    Shape,
    Span,
    Text,
    Variants,
    Whole,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NOT_ZERO: Final = {"not": {"pattern": "^[^1-9]*$"}}


def schema_of(shape: Shape) -> dict[str, Any]:
    """Build the JSON Schema of the values that fit a shape."""
    return _WRITERS[type(shape)](shape)


def _text(shape: Text) -> dict[str, Any]:
    pattern = shape.pattern or r"\S"
    return {"type": "string", "pattern": pattern, "maxLength": shape.longest}


def _choice(shape: Choice) -> dict[str, Any]:
    return {"enum": list(shape.values)}


def _flag(shape: Flag) -> dict[str, Any]:
    return {"type": "boolean"}


def _whole(shape: Whole) -> dict[str, Any]:
    return {"type": "integer", "minimum": shape.least, "maximum": shape.most}


def _number(shape: Number) -> dict[str, Any]:
    return {"type": "number", "minimum": shape.least, "maximum": shape.most}


def _span(shape: Span) -> dict[str, Any]:
    return {
        "type": "string",
        "pattern": ISO_PATTERN if shape.is_iso else PATTERN,
        **({} if shape.zero_allowed else _NOT_ZERO),
    }


def _expressions(shape: Expressions) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean", "null"], "pattern": r"\S"},
    }


def _json(shape: Json) -> dict[str, Any]:
    return {"type": "object"}


def _anything(shape: Anything) -> dict[str, Any]:
    return {}


def _either(shape: Either) -> dict[str, Any]:
    return {"anyOf": [schema_of(each) for each in shape.of]}


def _items(shape: Items) -> dict[str, Any]:
    return {
        "type": "array",
        "items": schema_of(shape.of),
        "minItems": shape.least,
        "maxItems": shape.most,
        **({"uniqueItems": True} if shape.distinct else {}),
    }


def _named(shape: Named) -> dict[str, Any]:
    return {
        "type": "object",
        "propertyNames": schema_of(shape.key),
        "additionalProperties": schema_of(shape.of),
        "maxProperties": shape.most,
    }


def _fields(shape: Fields) -> dict[str, Any]:
    required = [key for key, field in shape.table.items() if field.required]
    return {
        "type": "object",
        "properties": {
            key: {**schema_of(field.shape), "description": field.about} for key, field in shape.table.items()
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _variants(shape: Variants) -> dict[str, Any]:
    kinds = {"properties": {shape.by: {"enum": list(shape.tables)}}, "required": [shape.by]}
    cases = [
        {
            "if": {"properties": {shape.by: {"const": kind}}, "required": [shape.by]},
            "then": _case(shape.by, kind, table),
        }
        for kind, table in shape.tables.items()
    ]
    return {"type": "object", **kinds, "allOf": cases}


def _case(by: str, kind: str, table: Fields) -> dict[str, Any]:
    written = _fields(table)
    about = table.table[by].about
    written["properties"][by] = {"const": kind, "description": about}
    return written


_WRITERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    Text: _text,
    Choice: _choice,
    Flag: _flag,
    Whole: _whole,
    Number: _number,
    Span: _span,
    Expressions: _expressions,
    Json: _json,
    Anything: _anything,
    Either: _either,
    Items: _items,
    Named: _named,
    Fields: _fields,
    Variants: _variants,
}
