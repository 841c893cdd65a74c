"""The door for graphs that need no lowering: written by hand or by a program, as JSON data or as `Graph`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, cast

from holdfast.doors.source import JSON, Door, Received, Source
from holdfast.errors import DefinitionError
from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Graph, dump_graph, load_graph
from holdfast.payloads.encoding import decode


class RawSource(Source):
    def __init__(self, written: Any) -> None:
        self._written = written

    @cached_property
    def graph(self) -> Graph:
        return self._written if isinstance(self._written, Graph) else load_graph(self._written)

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def version(self) -> int:
        return self.graph.version

    @property
    def stored(self) -> dict[str, Any]:
        return dump_graph(self.graph)

    def lower(self) -> Graph:
        return self.graph

    def code(self) -> None:
        return None


def _take(written: object) -> Source | None:
    return RawSource(written) if isinstance(written, Graph | Mapping) else None


def _open(stored: Mapping[str, Any]) -> Source | None:
    return RawSource(dict(stored)) if "nodes" in stored else None


def _receive(body: bytes, file: str) -> Received:
    graph = load_graph(_document(body))
    compile_graph(graph)
    return Received((RawSource(graph),), check(graph))


def _document(body: bytes) -> dict[str, Any]:
    document = decode(body, "The body")
    if not isinstance(document, dict):
        raise DefinitionError(
            "The body is not a graph.",
            code="GRAPH_INVALID",
            hint="`holdfast docs graph` lists every field with its type.",
        )
    return cast(dict[str, Any], document)


DOOR: Final = Door(take=_take, open=_open, media=(JSON,), receive=_receive)
