"""The stored source of a saga, read back into the definition it was written as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.doors.saga.model import Definition
from holdfast.errors import DefinitionError

_FIELDS: Final = frozenset({"name", "version", "items", "dlq", "retries", "timeout", "data"})


def is_written(source: Mapping[str, Any]) -> bool:
    """Check whether the source came from the builder; a graph that was written by hand has nodes instead of items."""
    return source.get("kind") == "saga" and "items" in source


def read_source(source: Mapping[str, Any]) -> Definition:
    """The definition without its functions: those are code, and stay where they were written."""
    if not is_written(source):
        raise _unreadable("it is a graph that was not written with Flow")
    try:
        return msgspec.convert({key: source[key] for key in _FIELDS & source.keys()}, Definition)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(why: str) -> DefinitionError:
    return DefinitionError(
        f"The source cannot be read as a flow: {why}.",
        code="SOURCE_UNREADABLE",
        hint="Only what the builder wrote can be read back; print other definitions as a graph.",
    )
