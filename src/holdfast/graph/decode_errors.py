"""All misfits of a document with its model: the decoder stops at the first, an author wants every one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, get_args, get_origin

import msgspec

Misfit = tuple[str, str]  # a sentence without its full stop, and the place: "nodes[0].retry.calls"


def find_misfits(document: Any, model: type[msgspec.Struct], place: str = "") -> Iterator[Misfit]:
    """Find the misfits of a document and of every struct in it: unknown fields first, then in the model's order."""
    if not isinstance(document, dict):
        yield from _misfit(document, model, place)
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(model)}
    given = cast(dict[str, Any], document)
    for name in given:
        if name not in fields:
            yield f"Object contains unknown field `{name}`", place
    for name, field in fields.items():
        if name in given:
            yield from _field_misfits(given[name], field.type, f"{place}.{name}" if place else name)
        elif field.required:
            yield f"Object missing required field `{name}`", place


def _field_misfits(value: Any, kind: Any, place: str) -> Iterator[Misfit]:
    origin, parts = get_origin(kind), get_args(kind)
    model = next((part for part in (kind, *parts) if _is_struct(part)), None)
    if model is not None and origin is tuple and isinstance(value, list):
        for position, item in enumerate(cast(list[Any], value)):
            yield from find_misfits(item, model, f"{place}[{position}]")
    elif model is not None and origin not in (tuple, dict) and isinstance(value, dict):
        yield from find_misfits(value, model, place)
    else:
        yield from _misfit(value, kind, place)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _misfit(value: Any, kind: Any, place: str) -> Iterator[Misfit]:
    try:
        msgspec.convert(value, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        sentence, path = read_complaint(error)
        yield sentence, f"{place}{path}" if path.startswith("[") or not place else f"{place}.{path}".rstrip(".")


def read_complaint(error: Exception) -> Misfit:
    """Split a complaint of the decoder into its sentence and the place it names at its end."""
    sentence, _, path = str(error).partition(" - at `")
    return sentence, path.removesuffix("`").removeprefix("$").removeprefix(".")
