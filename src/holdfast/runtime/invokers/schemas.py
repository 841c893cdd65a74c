"""Schemas of a document as self-contained JSON Schemas: references copied in, the dialect of 3.0 translated.

A schema may contain itself further down in the data, as that of a tree does. One that contains itself at the same place
never comes to an end, so the document is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, cast

from holdfast.errors import HoldfastError
from holdfast.payloads.plain import HASHED_INTEGERS
from holdfast.runtime.invokers.documents import MOST_DEPTH, Document, Node
from holdfast.runtime.invokers.errors import DocumentError, shown
from holdfast.runtime.schemas.schemas import Check, check_of

MOST_PARTS: Final = 50_000  # of one schema with all it refers to
_DATA: Final = frozenset({"const", "default", "enum"})  # values, not schemas
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_MUTE: Final = frozenset({
    "$id", "$schema", "$anchor", "$defs", "definitions", "discriminator", "example", "examples", "externalDocs", "xml",
})  # fmt: skip
_AT_THE_SAME_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_HERE: Final = "#/$defs/"


class Schemas:
    def __init__(self, document: Document) -> None:
        self._document = document

    def standing_alone(self, schema: Any, where: str) -> Any:
        try:
            return _Writing(self._document).write(schema)
        except DocumentError as failure:
            raise DocumentError(f"{where}: {failure.message}", hint=failure.hint) from None

    def check(self, schema: Any, where: str) -> Check | None:
        """A function that tells the misfits of a value."""
        if schema is None:
            return None
        alone = self.standing_alone(schema, where)
        try:
            return check_of(alone)
        except HoldfastError as failure:
            raise DocumentError(f"{where}: {failure.message}", hint="Leave out what no step calls.") from None


class _Writing:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}  # by reference
        self._waiting: deque[str] = deque()
        self._parts = 0

    def write(self, schema: Any) -> Any:
        root = self._schema(schema, 1)
        found: Node = {}
        while self._waiting:
            reference = self._waiting.popleft()
            found[self._names[reference]] = self._schema(self._document.target(reference), 1)
        if not found:
            return root
        self._refuse_endless(found)
        return {**root, "$defs": found}

    def _schema(self, schema: Any, depth: int) -> Any:
        self._parts += 1
        if self._parts > MOST_PARTS or depth > MOST_DEPTH:
            raise DocumentError("a schema is too deep or too large.")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise DocumentError(f"{shown(schema)} is no schema.")
        given = {key: value for key, value in cast("Node", schema).items() if key not in _MUTE}
        if "$dynamicRef" in given:
            raise DocumentError("dynamic references are not followed.")
        if "$ref" in given:
            here = {"$ref": _HERE + self._name(given.pop("$ref"))}
            # In 3.0, what stands beside a reference does not count.
            return here if self._document.is_old else {**self._translated(given, depth), **here}
        return self._translated(given, depth)

    def _name(self, reference: Any) -> str:
        if not isinstance(reference, str):
            raise DocumentError(f"{shown(reference)} is no reference.")
        if reference not in self._names:
            self._names[reference] = f"part{len(self._names)}"
            self._waiting.append(reference)
        return self._names[reference]

    def _translated(self, given: Node, depth: int) -> Node:
        found = {key: self._member(key, value, depth) for key, value in given.items()}
        if isinstance(found.get("required"), list):
            _drop_read_only(found)
        return _in_the_new_dialect(found) if self._document.is_old else found

    def _member(self, key: str, value: Any, depth: int) -> Any:
        if isinstance(value, int) and value not in HASHED_INTEGERS:
            return float(value)  # bounds such as the largest 64-bit integer, which are only compared with
        if key in _DATA or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self._schema(item, depth + 1) if isinstance(item, dict) else item for item in items]
        if key in _NAMED:
            return {name: self._schema(item, depth + 1) for name, item in cast("Node", value).items()}
        return self._schema(value, depth + 1)

    def _refuse_endless(self, found: Node) -> None:
        leads = {name: set(_same_place(schema)) for name, schema in found.items()}
        while leads:
            ends = {name for name, others in leads.items() if not others & leads.keys()}
            if not ends:
                [reference, *_] = [reference for reference, name in self._names.items() if name in leads]
                raise DocumentError(f"the schema {shown(reference)} is made of itself, which never ends.")
            leads = {name: others for name, others in leads.items() if name not in ends}


def _same_place(schema: Any) -> Iterator[str]:
    """Names of the parts that a value is held against together with this schema."""
    for part in _together(schema):
        reference = part.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_HERE)


def _together(schema: Any) -> Iterator[Node]:
    if not isinstance(schema, dict):
        return
    given = cast("Node", schema)
    yield given
    for key in _AT_THE_SAME_PLACE:
        value = given.get(key)
        if key == "dependentSchemas" and isinstance(value, dict):
            value = list(cast("Node", value).values())
        for part in cast("list[Any]", value if isinstance(value, list) else [value]):
            yield from _together(part)


def properties_of(schema: Any) -> set[str]:
    """Property names that a value of this schema may have, as far as the schema lists them."""
    if not isinstance(schema, dict):
        return set()
    parts = cast("Node", cast("Node", schema).get("$defs") or {})
    names: set[str] = set()
    waiting, seen = list[Any]([schema]), set[str]()
    while waiting:
        for part in _together(waiting.pop()):
            names |= cast("Node", part.get("properties") or {}).keys()
            name = str(part.get("$ref", "")).removeprefix(_HERE)
            if name in parts and name not in seen:
                seen.add(name)
                waiting.append(parts[name])
    return names


def _drop_read_only(schema: Node) -> None:
    """Remove read-only properties from `required`: only an answer has them."""
    properties = cast("Node", schema.get("properties") or {})
    mute = {name for name, item in properties.items() if isinstance(item, dict) and cast("Node", item).get("readOnly")}
    schema["required"] = [name for name in cast("list[Any]", schema["required"]) if name not in mute]


def _in_the_new_dialect(schema: Node) -> Node:
    for exclusive, bound in _BOUNDS:
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    if schema.pop("nullable", False) is True and "type" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema
