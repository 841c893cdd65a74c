"""The protocol between a door and everything that takes definitions: publishing, printing, the command line, a server.

A door is one folder that reads one way of writing a workflow, and one row in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from holdfast.graph.diagnostics import Diagnostic
from holdfast.graph.drawing.outline import outline
from holdfast.graph.drawing.text_tree import Twig
from holdfast.graph.model import Child, Graph, dump_graph

JSON: Final = "application/json"


class Document(msgspec.Struct, frozen=True):
    """A definition as a request body."""

    body: bytes
    media: str
    file: str


@runtime_checkable
class Source(Protocol):
    """A definition as one door wrote it. A class that inherits it takes the methods with a body as they are."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def stored(self) -> dict[str, Any]:
        """JSON data kept beside the compiled graph, from which the door reads the definition back."""
        ...

    def lower(self) -> Graph:
        """Make the graph that runs."""
        ...

    def code(self) -> str | None:
        """Print the definition as it would be written again. None: the door has no text form."""
        ...

    @property
    def content_hash(self) -> str | None:
        """The hash of a definition whose versions the engine numbers. None: its author numbers it."""
        return None

    def numbered(self, version: int) -> Source:
        """Make the same definition under another version, where the engine numbers it."""
        return self

    def check_follows(self, newest: Source) -> None:
        """Refuse a definition that cannot follow the newest version, where the engine numbers it."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Handlers that came with the definition, to be registered with the engine that publishes it."""
        return {}

    @property
    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Functions that came with the definition and run inside the engine's transaction."""
        return {}

    def children(self) -> Sequence[Child]:
        """The flows that every instance starts unless it fails: publishing looks for circles among them."""
        return ()

    def outline(self) -> tuple[Twig, ...]:
        """Draw the definition as a tree of text."""
        return outline(self.lower())

    def document(self) -> Document:
        """Pack the definition for a server."""
        graph = self.lower()
        return Document(msgspec.json.encode(dump_graph(graph)), JSON, graph.name)


class Finding(Protocol):
    """A problem or a warning of a document. Some doors know a file, a line and a column as well."""

    @property
    def severity(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str: ...


class Received(msgspec.Struct, frozen=True):
    """The sound definitions of a request body, and its warnings."""

    sources: tuple[Source, ...]
    findings: tuple[Diagnostic | Finding, ...]


def _never(found: object) -> Source | None:
    return None


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the registry: how definitions come in by this door."""

    take: Callable[[object], Source | None]  # a value that was handed to `publish`; None: not of this door
    open: Callable[[Mapping[str, Any]], Source | None]  # a stored source; None: not of this door
    load: Callable[[object], Source | None] = _never  # what `module:name` names on the command line
    media: tuple[str, ...] = ()  # media types of request bodies
    # A body and its name; raises if anything is wrong with it. None: not of this door, though of its media types.
    receive: Callable[[bytes, str], Received | None] | None = None
