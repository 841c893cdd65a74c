"""The published JSON Schema and the reader agree: what one of them takes or refuses, so does the other."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from steps_yaml import EXAMPLES, FULL

from holdfast.doors.shapes import (
    Choice,
    Expressions,
    Field,
    Fields,
    Flag,
    Items,
    Json,
    Number,
    Shape,
    Span,
    Text,
    Variants,
    Whole,
)
from holdfast.doors.steps import steps_schema
from holdfast.doors.steps.format import FILE
from holdfast.doors.steps.load import load_steps
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.reading import read_yaml
from holdfast.doors.yaml.tree import plain

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "steps.schema.json"
VALIDATOR = jsonschema_rs.validator_for(steps_schema())

STRUCTURAL = {
    "STEPS_DURATION_INVALID", "STEPS_KEY_MISPLACED", "STEPS_KEY_MISSING", "STEPS_KEY_UNKNOWN",
    "STEPS_OPERATION_INVALID", "STEPS_TYPE_WRONG", "STEPS_VALUE_INVALID",
}  # fmt: skip
Path_ = tuple[str | int, ...]


def test_the_published_schema_is_current() -> None:
    """`holdfast schema > docs/schemas/steps.schema.json` makes it so."""
    assert json.loads(PUBLISHED.read_text()) == steps_schema()


def test_it_is_a_schema() -> None:
    jsonschema_rs.meta.validate(steps_schema())


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_fit(file: Path) -> None:
    tree, _ = read_yaml(file.read_text(), Findings(file.name))
    assert tree is not None
    assert [error.message for error in VALIDATOR.iter_errors(plain(tree))] == []


def test_everything_at_once_fits() -> None:
    assert VALIDATOR.is_valid(FULL)
    assert load_steps(json.dumps(FULL)).is_sound


def wrong(shape: Shape) -> list[Any]:
    """Values that do not fit, whatever stands around them."""
    match shape:
        case Text(pattern=pattern, longest=longest):
            return [5, None, [], "", " ", "x" * (longest + 1), *(["\x07"] if pattern else [])]
        case Choice():
            return [5, "nothing of the kind", []]
        case Flag():
            return ["true", 1, None]
        case Whole(least, most):
            return [least - 1, most + 1, str(least), True, least + 0.5]
        case Number(least, most):
            return [least - 1, most + 1, str(least), True]
        case Span(zero_allowed):
            return [5, "soon", "P1Y", "P", None, "-1s", *([] if zero_allowed else ["0s", "PT0S"])]
        case Expressions():
            return ["a", [], {"a": []}, {"a": ""}, {"a": {}}]
        case Json():
            return ["a", [], None, True]
        case Items(least=least, distinct=distinct):
            return ["a", {}, None, *([[]] if least else []), *([["a", "a"]] if distinct else [])]
        case Fields() | Variants():
            return ["a", [], None, 5]


def changes(shape: Shape, value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Each place of a document with a value that must not stand there; `...` is for no value at all."""
    for other in wrong(shape):
        yield path, other
    match shape:
        case Items(of):
            for index, item in enumerate(value):
                yield from changes(of, item, (*path, index))
        case Variants(_, by, tables):
            kind = tables[value[by]]
            yield (*path, by), "no such kind"
            yield from changes_of_fields({k: v for k, v in kind.table.items() if k != by}, value, path)
            yield (*path, by), ...
        case Fields():
            yield from changes_of_fields(shape.table, value, path)
        case _:
            pass


def changes_of_fields(table: dict[str, Field], value: dict[str, Any], path: Path_) -> Iterator[tuple[Path_, Any]]:
    yield (*path, "no_such_key"), 1
    for key, field in table.items():
        if field.required:
            yield (*path, key), ...
        if key in value:
            yield from changes(field.shape, value[key], (*path, key))


def changed(document: dict[str, Any], path: Path_, value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    place: Any = document
    for part in path[:-1]:
        place = place[part]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


ALL = list(changes(FILE, FULL))
CHUNK = 40


@pytest.mark.parametrize("begin", range(0, len(ALL), CHUNK))
def test_what_does_not_fit_is_refused_by_both(begin: int) -> None:
    for path, value in ALL[begin : begin + CHUNK]:
        document = changed(FULL, path, value)
        found = {problem.code for problem in load_steps(json.dumps(document)).problems}
        assert found & STRUCTURAL or "YAML_EMPTY" in found, (path, value)
        assert not VALIDATOR.is_valid(document), (path, value)


def test_every_key_of_the_format_is_covered() -> None:
    assert len(ALL) > 300
    seen = {part for path, _ in ALL for part in path if isinstance(part, str)}
    workflows: Any = FILE.table["workflows"].shape
    steps: Any = workflows.of.table["steps"].shape
    keys = set(workflows.of.table) | {key for kind in steps.of.tables.values() for key in kind.table}
    assert keys - seen == set()
