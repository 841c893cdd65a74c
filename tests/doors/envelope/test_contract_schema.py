"""The published JSON Schemas and the reader agree: what one of them takes or refuses, so does the other."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from contract_samples import house_rules, invoice
from random_contracts import random_contract, random_patch

from holdfast.doors.envelope import contract_schema, load_contracts, patch_schema
from holdfast.doors.envelope.reading.format import CONTRACT, PATCH
from holdfast.doors.envelope.written import contract_data, patch_data
from holdfast.doors.shapes import (
    Choice,
    Either,
    Expressions,
    Fields,
    Flag,
    Items,
    Named,
    Shape,
    Span,
    Text,
    Variants,
    Whole,
)

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas"
SCHEMAS = {"contract": contract_schema(), "patch": patch_schema()}
VALIDATORS = {name: jsonschema_rs.validator_for(schema) for name, schema in SCHEMAS.items()}
SHAPES = {"contract": CONTRACT, "patch": PATCH}
FULL: dict[str, Any] = {"contract": contract_data(invoice()), "patch": patch_data(house_rules())}
STRUCTURAL = {"DURATION_INVALID", "KEY_MISPLACED", "KEY_MISSING", "KEY_UNKNOWN", "TYPE_WRONG", "VALUE_INVALID"}
Place = tuple[str | int, ...]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_current(name: str) -> None:
    """`holdfast schema contract > docs/schemas/contract.schema.json` makes it so."""
    assert json.loads((PUBLISHED / f"{name}.schema.json").read_text()) == SCHEMAS[name]
    jsonschema_rs.meta.validate(SCHEMAS[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_random_ones_fit(name: str) -> None:
    for seed in range(50):
        data = contract_data(random_contract(seed)) if name == "contract" else patch_data(random_patch(seed))
        plural = "contracts" if name == "contract" else "patches"
        VALIDATORS[name].validate({name: data})
        VALIDATORS[name].validate({plural: [data, data]})
    assert not VALIDATORS[name].is_valid({})
    assert not VALIDATORS[name].is_valid({plural: []})


def wrong(shape: Shape) -> list[Any]:
    match shape:
        case Text(pattern=pattern, longest=longest):
            return [5, None, [], "", " ", "x" * (longest + 1), *(["\x07"] if pattern else [])]
        case Choice():
            return [5, "nothing of the kind", []]
        case Flag():
            return ["true", 1, None]
        case Whole(least, most):
            return [least - 1, most + 1, str(least), True, least + 0.5]
        case Span(zero_allowed):
            return [5, "soon", "P1Y", None, "-1s", *([] if zero_allowed else ["0s"])]
        case Expressions():
            return ["a", [], {"a": []}, {"a": ""}, {"a": {}}]
        case Items(least=least, distinct=distinct):
            return ["a", {}, None, *([[]] if least else []), *([["a", "a"]] if distinct else [])]
        case Either():
            return [5, {}, None, "", [], ["a", "a"], [5]]
        case Named():
            return ["a", [], None, {"": {}}]
        case _:
            return ["a", [], None, 5]


def changes(shape: Shape, value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Each place of a document with a value that must not stand there; `...` is for no value at all."""
    for other in wrong(shape):
        yield path, other
    match shape:
        case Items(of):
            for index, item in enumerate(value):
                yield from changes(of, item, (*path, index))
        case Named(of):
            for name, item in value.items():
                yield from changes(of, item, (*path, name))
        case Variants(_, by, tables):
            table = tables[value[by]].table
            yield (*path, by), "no such kind"
            yield (*path, by), ...
            yield from changes_of(Fields("", {key: field for key, field in table.items() if key != by}), value, path)
        case Fields():
            yield from changes_of(shape, value, path)
        case _:
            pass


def changes_of(shape: Fields, value: dict[str, Any], path: Place) -> Iterator[tuple[Place, Any]]:
    yield (*path, "no_such_key"), 1
    for key, field in shape.table.items():
        if field.required:
            yield (*path, key), ...
        if key in value:
            yield from changes(field.shape, value[key], (*path, key))


def changed(document: dict[str, Any], path: Place, value: Any) -> Any:
    document = copy.deepcopy(document)
    place: Any = document
    for part in path[:-1]:
        place = place[part]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


CHANGES = [(name, path, value) for name in SCHEMAS for path, value in changes(SHAPES[name], FULL[name], (name,))]
CHUNK = 60


@pytest.mark.parametrize("begin", range(0, len(CHANGES), CHUNK))
def test_what_does_not_fit_is_refused_by_both(begin: int) -> None:
    for name, path, value in CHANGES[begin : begin + CHUNK]:
        document = changed({name: FULL[name]}, path, value)
        found = {problem.code.partition("_")[2] for problem in load_contracts(json.dumps(document)).problems}
        assert found & STRUCTURAL, (path, value)
        assert not VALIDATORS[name].is_valid(document), (path, value)


def test_every_key_of_the_formats_is_covered() -> None:
    assert len(CHANGES) > 800
    seen = {part for _, path, _ in CHANGES for part in path if isinstance(part, str)}
    assert {key for shape in SHAPES.values() for key in keys(shape)} - seen == set()


def keys(shape: Shape) -> Iterator[str]:
    match shape:
        case Items(of) | Named(of):
            yield from keys(of)
        case Variants(tables=tables):
            for table in tables.values():
                yield from keys(table)
        case Fields(table=table):
            for key, field in table.items():
                if key != "initial":  # the written form of a contract puts the initial state first
                    yield key
                    yield from keys(field.shape)
        case _:
            pass
