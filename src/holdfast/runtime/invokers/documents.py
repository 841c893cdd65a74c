"""OpenAPI document as given: a mapping, a file, or text in JSON or YAML; made plain and bounded.

A document is the operator's, but often a third party wrote it. So it is limited in size, in depth and in the number of
its values, and neither a YAML alias nor a chain of references can grow without end.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from holdfast.runtime.invokers.errors import DocumentError, shown

MOST_BYTES: Final = 16 * 1024 * 1024
MOST_VALUES: Final = 1_000_000
MOST_DEPTH: Final = 100
_VERSION: Final = re.compile(r"3\.[01]\.\d+(-.+)?")

Node = dict[str, Any]
Source = Mapping[str, Any] | Path | str


class Document:
    """The plain document; `is_old` for 3.0, whose schemas are written in a dialect of their own."""

    def __init__(self, root: Node) -> None:
        version = root.get("openapi")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise DocumentError(
                f"This is no OpenAPI document of version 3.0 or 3.1: `openapi` is {shown(version)}.",
                hint="Convert older documents first.",
            )
        self.root = root
        self.is_old = version.startswith("3.0.")

    def target(self, reference: Any) -> Any:
        """The target of a local reference."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise DocumentError(
                f"The reference {shown(reference)} leads out of the document; nothing is fetched.",
                hint="Bundle the document into one file.",
            )
        found: Any = self.root
        for part in reference[2:].split("/") if len(reference) > 1 else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = cast("Node", found)[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(key)]
            else:
                raise DocumentError(f"The reference {shown(reference)} leads nowhere.")
        return found

    def follow(self, value: Any) -> Any:
        """The value itself where it is a reference, also to another reference."""
        seen: set[str] = set()
        while isinstance(value, dict) and "$ref" in value:
            reference = cast("Node", value)["$ref"]
            if reference in seen:
                raise DocumentError(f"The reference {shown(reference)} leads back to itself.")
            seen.add(reference)
            value = self.target(reference)
        return cast("Any", value)

    def part(self, value: Any, what: str) -> Node:
        """A mapping of the document, references followed."""
        found = self.follow(value)
        if not isinstance(found, dict):
            raise DocumentError(f"{what} is not a mapping.")
        return cast("Node", found)


def read_document(source: Source) -> Document:
    if isinstance(source, Path):
        try:
            source = _decoded(source.read_bytes())
        except OSError as failure:
            raise DocumentError(f"The document {source} cannot be read: {failure.strerror}.") from None
    loaded = _parse(source) if isinstance(source, str) else source
    if not isinstance(loaded, Mapping):
        raise DocumentError("The document is not a mapping.", hint="Pass its text, its content, or a Path to its file.")
    return Document(_Plain().mapping(cast("Mapping[Any, Any]", loaded), 1))


def _decoded(raw: bytes) -> str:
    try:
        return raw[: MOST_BYTES + 1].decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise DocumentError(f"The document is not text in UTF-8: byte {failure.start}.") from None


def _parse(text: str) -> Any:
    if len(text) > MOST_BYTES:
        raise DocumentError(f"The document is longer than {MOST_BYTES} characters.")
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass  # a mapping in YAML may begin with a brace too, and its reader names the line
    yaml = import_module("ruamel.yaml")  # only where a document is YAML
    try:
        return yaml.YAML(typ="safe", pure=True).load(text)
    except yaml.error.YAMLError as failure:
        raise DocumentError(f"The document is neither JSON nor YAML: {_first_words(failure)}") from None
    except (RecursionError, ValueError) as failure:
        raise DocumentError(f"The document cannot be read: {type(failure).__name__}.") from None


def _first_words(failure: Exception) -> str:
    mark, problem = getattr(failure, "problem_mark", None), getattr(failure, "problem", None)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    return f"{problem or 'it makes no sense'}{where}."


class _Plain:
    """The same of dict, list, str, int, float, bool and None; YAML also knows dates, and keys that are no text."""

    def __init__(self) -> None:
        self._count = 0

    def mapping(self, value: Mapping[Any, Any], depth: int) -> Node:
        return {_key(key): self._value(item, depth + 1) for key, item in value.items()}

    def _value(self, value: Any, depth: int) -> Any:
        self._count += 1
        if self._count > MOST_VALUES or depth > MOST_DEPTH:
            raise DocumentError("The document is too deep or too large.", hint="Leave out what no step calls.")
        if isinstance(value, Mapping):
            return self.mapping(cast("Mapping[Any, Any]", value), depth)
        if isinstance(value, list | tuple):
            return [self._value(item, depth + 1) for item in cast("list[Any]", value)]
        if isinstance(value, datetime.date):  # a datetime is a date
            return value.isoformat()
        if value is None or isinstance(value, str | int | float | bool):
            return value
        raise DocumentError(f"The document holds a {type(value).__name__}, which JSON does not have.")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    return msgspec.json.encode(key).decode() if isinstance(key, int | float | bool) else str(key)
