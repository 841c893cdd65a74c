"""Is this a JSON Schema? Asked where it is written, because later it would refuse everybody, or nobody."""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonschema_rs


class SchemaProblem(NamedTuple):
    message: str
    path: tuple[str | int, ...]  # within the schema


def schema_problem(schema: dict[str, Any]) -> SchemaProblem | None:
    try:
        jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except jsonschema_rs.ValidationError as error:
        return SchemaProblem(f"This is no JSON Schema: {_line(error.message)}.", tuple(error.instance_path))
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return SchemaProblem(f"This is no JSON Schema: {_line(str(error))}.", ())
    return None


def _line(text: str) -> str:
    return text.splitlines()[0][:300].rstrip(".") if text else "it cannot be read"
