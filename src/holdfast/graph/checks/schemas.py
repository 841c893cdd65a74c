"""Check of JSON Schemas where they are written: a broken one would later refuse every value, or none."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from holdfast.graph.checks.schema_cost import cost_of

LARGEST: Final = 256 * 1024  # bytes of JSON
MOST_WEIGHT: Final = 100_000  # parts, with every reference written out
MOST_PATTERNS: Final = 20_000  # characters of all patterns, with every repetition written out


class SchemaProblem(NamedTuple):
    message: str
    path: tuple[str | int, ...]  # within the schema


def schema_problem(schema: dict[str, Any]) -> SchemaProblem | None:
    too_much = _too_much(schema)
    if too_much is not None:
        return SchemaProblem(f"This schema is too costly to check data with: {too_much}.", ())
    try:
        jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except jsonschema_rs.ValidationError as error:
        return SchemaProblem(f"This is no JSON Schema: {_line(error.message)}.", tuple(error.instance_path))
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return SchemaProblem(f"This is no JSON Schema: {_line(str(error))}.", ())
    return None


def _too_much(schema: dict[str, Any]) -> str | None:
    """Asked before anything is compiled: one schema must not take the time of everybody else."""
    size = len(msgspec.json.encode(schema))
    if size > LARGEST:
        return f"it has {size} bytes of JSON, and at most {LARGEST} are allowed"
    cost = cost_of(schema)
    if cost.weight > MOST_WEIGHT:
        return f"with its references written out it has more than {MOST_WEIGHT} parts"
    if cost.patterns > MOST_PATTERNS:
        return f"with their repetitions written out its patterns have more than {MOST_PATTERNS} characters"
    return None


def _line(text: str) -> str:
    return text.splitlines()[0][:300].rstrip(".") if text else "it cannot be read"
