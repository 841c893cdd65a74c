"""Does a value fit? Asked of a JSON Schema, a Pydantic model, or any type msgspec knows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from holdfast.errors import HoldfastError
from holdfast.payloads import canonical

MOST_MISFITS: Final = 20
QUOTED: Final = 200  # characters at each end of what is told
_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)  # a pattern must not take for ever


class Misfit(NamedTuple):
    path: str  # `$` is the whole value, `$.items[2].price` a part of it
    message: str


Check = Callable[[Any], list[Misfit]]


def check_of(schema: Any) -> Check:
    """How to check a value against this; the same schema is compiled once."""
    if isinstance(schema, dict | bool):
        return _of_json_schema(schema)
    validate = getattr(schema, "model_validate", None)
    return _of_type(schema) if validate is None else _of_pydantic(validate)


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


def _of_pydantic(validate: Callable[[Any], Any]) -> Check:
    invalid: type[Exception] = importlib.import_module("pydantic").ValidationError

    def check(value: Any) -> list[Misfit]:
        try:
            validate(value)
        except invalid as failure:
            errors: list[Any] = getattr(failure, "errors")(include_url=False)  # noqa: B009
            return [Misfit(_path(error["loc"]), error["msg"]) for error in errors[:MOST_MISFITS]]
        return []

    return check


def _of_type(wanted: Any) -> Check:
    try:
        msgspec.json.Decoder(wanted)
    except TypeError as failure:
        raise HoldfastError(
            f"{wanted!r} is neither a JSON Schema nor a type to check against: {failure}",
            code="SCHEMA_INVALID",
            hint="Give a dictionary with a JSON Schema, a Pydantic model, a dataclass or a msgspec struct.",
        ) from None

    def check(value: Any) -> list[Misfit]:
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as failure:
            message, _, path = str(failure).partition(" - at `")
            return [Misfit(_short(path.rstrip("`")) or "$", message)]
        return []

    return check


def _path(parts: Sequence[Any]) -> str:
    return _short("$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts))


def _short(text: str) -> str:
    """A message quotes the value before it says what is wrong with it, and a value may be megabytes."""
    return text if len(text) <= 2 * QUOTED else f"{text[:QUOTED]} … {text[-QUOTED:]}"
