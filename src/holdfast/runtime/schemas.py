"""Does a value fit? Asked of a JSON Schema, a Pydantic model, or any type msgspec knows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import jsonschema_rs
import msgspec

from holdfast.errors import HoldfastError
from holdfast.payloads import canonical

MOST_MISFITS: Final = 20
QUOTED: Final = 200  # characters at each end of what is told
_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)  # a pattern must not take for ever
_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`(?P<path>[^`]*)`$")  # "… - at `key` in `$.prices`"


class Misfit(NamedTuple):
    path: str  # `$` is the whole value, `$.items[2].price` a part of it
    message: str


Check = Callable[[Any], list[Misfit]]
Read = Callable[[Any], Any]


def check_of(schema: Any) -> Check:
    """How to check a value against this; the same schema is compiled once."""
    if isinstance(schema, dict | bool):
        return _of_json_schema(schema)
    return _of_pydantic(schema) if _is_pydantic(schema) else _of_type(schema)


def reader_of(wanted: Any) -> Read:
    """How a payload becomes an object of this type. It is read as the JSON it is, in which moments are texts, and so
    are the keys of objects."""
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
    try:
        validator = jsonschema_rs.validator_for(
            msgspec.json.decode(schema), validate_formats=True, pattern_options=_PATTERNS, offline=True
        )
    except (ValueError, jsonschema_rs.ReferencingError) as failure:
        raise HoldfastError(
            f"This is no JSON Schema: {str(failure).splitlines()[0]}",
            code="SCHEMA_INVALID",
            hint="Only references within the schema are followed; nothing is fetched.",
        ) from None

    def check(value: Any) -> list[Misfit]:
        if validator.is_valid(value):
            return []
        found: list[Misfit] = []
        for error in validator.iter_errors(value):
            found.append(Misfit(_path(error.instance_path), _short(error.message)))
            if len(found) == MOST_MISFITS:
                break
        return found

    return check


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
    """Of msgspec, which names no place if it is the whole value."""
    place = _PLACE.search(text)
    if place is None:
        return Misfit("$", text)
    return Misfit(_short(place["path"]), text[: place.start()] + (" as a key" if place["key"] else ""))


def _path(parts: Sequence[Any]) -> str:
    return _short("$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts))


def _short(text: str) -> str:
    """A message quotes the value before it says what is wrong with it, and a value may be megabytes."""
    return text if len(text) <= 2 * QUOTED else f"{text[:QUOTED]} … {text[-QUOTED:]}"
