"""What a schema may cost is known before anything is checked with it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.schema_attacks import UNPUBLISHABLE, by_anchor, nested

from holdfast.graph.checks.schema_cost import cost_of, written_out
from holdfast.graph.checks.schemas import MOST_WEIGHT, schema_problem


@pytest.mark.parametrize("name", UNPUBLISHABLE)
def test_a_schema_that_costs_too_much_is_refused_where_it_is_published(name: str) -> None:
    begin = time.process_time()
    found = schema_problem(UNPUBLISHABLE[name])
    assert found is not None
    assert "too costly" in found.message
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    "schema",
    [
        nested(10),
        by_anchor(10),
        {"type": "object", "properties": {"lines": {"items": {"$ref": "#/properties/lines"}}}},
        {"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"},
        {"enum": [f"item-{n}" for n in range(2000)]},
        {"properties": {f"p{n}": {"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}\s*\w+$"} for n in range(100)}},
        {"properties": {"price": {"multipleOf": 0.01}}, "unevaluatedProperties": False},
    ],
)
def test_what_people_write_is_not_refused(schema: dict[str, Any]) -> None:
    assert schema_problem(schema) is None


def test_a_reference_counts_each_time_it_is_used() -> None:
    assert cost_of(nested(4)).weight > 2 * cost_of(nested(3)).weight > 2**4
    assert cost_of(nested(59)).weight > MOST_WEIGHT
    assert cost_of(nested(59)).is_bounded


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"$ref": "#"}},
        {"$ref": "#elsewhere"},
        {"$dynamicRef": "#x"},
        {"allOf": [{"unevaluatedProperties": False}]},
        {"unevaluatedItems": {"type": "string"}},
        {"properties": {"a": {"$id": "https://example.com/a"}}},
        {"$ref": "https://example.com/b"},
        {"$ref": "#/$defs/none"},
    ],
)
def test_of_what_is_not_followed_to_its_end_no_figure_is_believed(schema: dict[str, Any]) -> None:
    assert not cost_of(schema).is_bounded


def test_a_reference_finds_its_part_in_lists_and_under_escaped_names() -> None:
    schema = {"$defs": {"a/b~c": {"enum": [1, 2, 3]}}, "allOf": [{"$ref": "#/$defs/a~1b~0c"}, {"$ref": "#/allOf/0"}]}
    assert cost_of(schema).is_bounded


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("ab{3}", 4),
        ("ab{2,5}c", 7),
        ("a{0}", 1),
        (r"\d{4}-\d{2}", 13),
        (r"\p{Greek}{3}", 27),
        ("[a-z{3}]{10}", 80),
        (r"[\]x]{2}", 10),
        ("(ab{3}){2}", 12),
        ("((x{10}){10}){10}", 1220),
        ("(a", 2),
        ("a)", 2),
        ("x{100}{100}", 10_000),
        ("x{999999999}", 999_999_999),
        ("\\", 1),
        ("[a", 2),
    ],
)
def test_repetitions_repeat_what_stands_before_them(pattern: str, size: int) -> None:
    assert written_out(pattern) == size
