"""Schemas and data that once held up everybody else."""

from __future__ import annotations

from typing import Any, NamedTuple


class Attack(NamedTuple):
    schema: dict[str, Any]
    data: Any


def nested(levels: int) -> dict[str, Any]:
    """Each level holds the next one twice: two to the power of `levels` in all."""
    parts: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**parts, f"a{levels}": {"type": "object"}}, "$ref": "#/$defs/a0"}


def by_anchor(levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"a{n}": {"$anchor": f"a{n}", "allOf": [{"$ref": f"#a{n + 1}"}] * 2} for n in range(levels)
    }
    return {"$defs": {**parts, f"a{levels}": {"$anchor": f"a{levels}", "type": "object"}}, "$ref": "#a0"}


def with_itself(levels: int) -> dict[str, Any]:
    """As `nested`, in a schema that contains itself further down."""
    return {**nested(levels), "properties": {"child": {"$ref": "#"}}}


def of_the_rest(levels: int, keyword: str) -> dict[str, Any]:
    """Each level asks what the level below left unevaluated."""
    found: dict[str, Any] = {"properties": {"x": True}, keyword: False}
    for _ in range(levels):
        found = {"if": found, "then": True, keyword: False}
    return found


def contained(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        found = {"contains": found, "unevaluatedItems": False}
    return found


def lists(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


# Refused where they are published.
UNPUBLISHABLE: dict[str, dict[str, Any]] = {
    "59 nested references": nested(59),
    "59 nested references of a schema with itself": with_itself(59),
    "an enum of a megabyte": {"enum": ["x" * 60 + str(n) for n in range(16_000)]},
    "a part used a thousand times a thousand times": {
        "$defs": {"leaf": {"type": "string"}, "row": {"allOf": [{"$ref": "#/$defs/leaf"}] * 1000}},
        "allOf": [{"$ref": "#/$defs/row"}] * 1000,
    },
    "repetitions of repetitions": {"pattern": "((a{100}){100}){100}"},
    "four thousand classes in a row": {"pattern": "\\w" * 4000},
    "two hundred of each class": {"patternProperties": {f"\\{one}" * 200: True for one in "dDwWsSc"}},
    "a thousand long patterns": {"patternProperties": {f"{n}(a|b){{30}}": True for n in range(1000)}},
}

# They may be published, or come with a document; only together with such data they take long.
COSTLY: dict[str, Attack] = {
    "references by anchors": Attack(by_anchor(45), {}),
    "references of a schema with itself": Attack(with_itself(45), {}),
    "an enum of objects held against an array": Attack(
        {"items": {"enum": [{"a": {"b": n}} for n in range(8000)]}}, [{"a": {"b": -1}}] * 40_000
    ),
    "errors that each quote the whole": Attack({"allOf": [{"type": "string"}] * 8000}, ["x"] * 50_000),
    "lookahead in every key": Attack(
        {"patternProperties": {f"^(?=(a|aa)+{n})(a|aa)+\\1b$": True for n in range(100)}},
        {"a" * 36 + str(n): 1 for n in range(5000)},
    ),
    "properties that nobody evaluated": Attack(of_the_rest(28, "unevaluatedProperties"), {"x": 1, "y": 2}),
    "items that nobody evaluated": Attack(of_the_rest(28, "unevaluatedItems"), [1, 2]),
    "items that lists in lists contain": Attack(contained(28), lists(28)),
    "numbers divided": Attack({"items": {"multipleOf": 0.01}}, [1e-308] * 40_000),
}
