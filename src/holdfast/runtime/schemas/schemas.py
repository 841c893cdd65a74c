"""Checks of values against a JSON Schema, a Pydantic model, or any type msgspec knows.

A publisher writes the schema, a sender the value. Their joint cost is known beforehand (`graph/checks/schema_cost.py`);
an expensive check runs in a helper process that can be ended (`runtime/schemas/deadline.py`).
"""

from __future__ import annotations

import asyncio
import importlib
import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import jsonschema_rs
import msgspec

from holdfast.errors import HoldfastError
from holdfast.graph.checks.schema_cost import Cost, cost_of
from holdfast.graph.checks.schemas import MOST_PATTERNS
from holdfast.payloads import canonical
from holdfast.runtime.schemas.deadline import helpers, threads
from holdfast.runtime.schemas.helper import MOST_MISFITS, misfits, validator_of

QUOTED: Final = 200  # characters kept at each end of a quotation
QUICK: Final = 2_000_000  # bytes of a value times the weight of its schema, up to which a check is done here
_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`(?P<path>[^`]*)`$")  # "… - at `key` in `$.prices`"


class Misfit(NamedTuple):
    path: str  # `$` is the whole value, `$.items[2].price` a part of it
    message: str


Check = Callable[[Any], list[Misfit]]
Read = Callable[[Any], Any]


def check_of(schema: Any) -> Check:
    """Compile the check of a schema or type; the same schema is compiled once."""
    if isinstance(schema, dict | bool):
        return _of_json_schema(schema)
    return _of_pydantic(schema) if _is_pydantic(schema) else _of_type(schema)


def reader_of(wanted: Any) -> Read:
    """Compile the conversion of a payload to this type. The payload is read as JSON: moments and keys of objects are
    texts.
    """
    if _is_pydantic(wanted):
        read = wanted.model_validate_json
        return lambda value: read(msgspec.json.encode(value))
    return lambda value: msgspec.convert(value, wanted, str_keys=True)


def _is_pydantic(wanted: Any) -> bool:
    return callable(getattr(wanted, "model_validate_json", None))


def told(misfits: Sequence[Misfit]) -> str:
    """One sentence: the first misfits with their paths, and how many more there are."""
    shown = "; ".join(f"{path}: {message}" for path, message in misfits[:3])
    return shown + (f"; and {len(misfits) - 3} more." if len(misfits) > 3 else ".")


def _of_json_schema(schema: Any) -> Check:
    return _compiled(canonical(schema))


@lru_cache(maxsize=512)
def _compiled(schema: bytes) -> Check:
    written = msgspec.json.decode(schema)
    cost = cost_of(written)
    if cost.patterns > MOST_PATTERNS:  # checked first: patterns are compiled in this process
        raise HoldfastError(
            f"With their repetitions written out its patterns have more than {MOST_PATTERNS} characters.",
            code="SCHEMA_INVALID",
            hint="Write fewer patterns, and smaller numbers of repetitions.",
        )
    try:
        validator = validator_of(written)
    except (ValueError, jsonschema_rs.ReferencingError) as failure:
        raise HoldfastError(
            f"This is no JSON Schema: {str(failure).splitlines()[0]}",
            code="SCHEMA_INVALID",
            hint="Only references within the schema are followed; nothing is fetched.",
        ) from None
    return SchemaCheck(schema, validator, cost)


class SchemaCheck:
    """The check of one JSON Schema: here while it is known to be quick, else by a helper."""

    def __init__(self, schema: bytes, validator: Any, cost: Cost) -> None:
        self._schema = schema
        self._validator = validator
        self._most_bytes = QUICK // max(1, cost.weight) if cost.is_bounded else 0

    def __call__(self, value: Any) -> list[Misfit]:
        raw = msgspec.json.encode(value)
        found = misfits(self._validator, value) if self.is_quick(raw) else helpers().misfits(self._schema, raw)
        return _told_apart(found)

    def is_quick(self, raw: bytes) -> bool:
        return len(raw) <= self._most_bytes

    async def off_the_loop(self, value: Any) -> list[Misfit]:
        raw = msgspec.json.encode(value)
        if self.is_quick(raw):
            return _told_apart(misfits(self._validator, value))
        asked = asyncio.get_running_loop().run_in_executor(
            threads(), helpers().misfits, self._schema, raw, time.monotonic()
        )
        return _told_apart(await asked)


async def misfits_of(check: Check, value: Any) -> list[Misfit]:
    """Run a check without blocking the loop."""
    return await check.off_the_loop(value) if isinstance(check, SchemaCheck) else check(value)


def is_quick(check: Check | None, value: Any) -> bool:
    return not isinstance(check, SchemaCheck) or check.is_quick(msgspec.json.encode(value))


def _told_apart(found: Sequence[tuple[Sequence[Any], str]]) -> list[Misfit]:
    return [Misfit(_path(path), _short(message)) for path, message in found]


def _of_pydantic(wanted: Any) -> Check:
    read, invalid = reader_of(wanted), cast(type[Exception], importlib.import_module("pydantic").ValidationError)

    def check(value: Any) -> list[Misfit]:
        try:
            read(value)
        except invalid as failure:
            errors: list[Any] = getattr(failure, "errors")(include_url=False)  # noqa: B009
            return [Misfit(_path(error["loc"]), error["msg"]) for error in errors[:MOST_MISFITS]]
        return []

    return check


def _of_type(wanted: Any) -> Check:
    if wanted is None:  # a type to msgspec, and a mistake from anybody else
        raise _no_schema("None")
    try:
        msgspec.json.Decoder(wanted)
    except TypeError as failure:
        raise _no_schema(repr(wanted), f": {failure}") from None
    read = reader_of(wanted)

    def check(value: Any) -> list[Misfit]:
        try:
            read(value)
        except msgspec.ValidationError as failure:
            return [_complaint(str(failure))]
        return []

    return check


def _no_schema(given: str, why: str = ".") -> HoldfastError:
    return HoldfastError(
        f"The schema {given} is neither a JSON Schema nor a type to check against{why}",
        code="SCHEMA_INVALID",
        hint="Give a dictionary with a JSON Schema, a Pydantic model, a dataclass or a msgspec struct.",
    )


def _complaint(text: str) -> Misfit:
    """Convert an error of msgspec, which names no place if it is about the whole value."""
    place = _PLACE.search(text)
    if place is None:
        return Misfit("$", text)
    return Misfit(_short(place["path"]), text[: place.start()] + (" as a key" if place["key"] else ""))


def _path(parts: Sequence[Any]) -> str:
    return _short("$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts))


def _short(text: str) -> str:
    """Shorten a message: it quotes the value before its complaint, and a value may be megabytes."""
    return text if len(text) <= 2 * QUOTED else f"{text[:QUOTED]} … {text[-QUOTED:]}"
