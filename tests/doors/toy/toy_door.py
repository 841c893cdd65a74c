"""A door of its own: one line of text per step, each the name of a handler. Nothing of the package knows it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from holdfast.doors import Door, Source
from holdfast.doors.source import Received
from holdfast.graph.model import Edge, Graph, Node


class Lines(Source):
    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int:
        return 1

    @property
    def stored(self) -> dict[str, Any]:
        return {"kind": "machine", "name": self._name, "lines": self._text}

    def lower(self) -> Graph:
        handlers = self._text.splitlines()
        ids = [*handlers, "end"]
        return Graph(
            name=self._name,
            kind="machine",
            entry=ids[0],
            nodes=(*(Node(id=id, kind="task", handler=id) for id in handlers), Node(id="end", kind="end")),
            edges=tuple(Edge(id=f"{a}>{b}", source=a, target=b) for a, b in pairwise(ids)),
        )

    def code(self) -> str:
        return self._text


def _take(written: object) -> Source | None:
    return written if isinstance(written, Lines) else None


def _open(stored: Mapping[str, Any]) -> Source | None:
    return Lines(stored["name"], stored["lines"]) if "lines" in stored else None


def _receive(body: bytes, file: str) -> Received:
    return Received((Lines(file, body.decode()),), ())


DOOR: Final = Door(take=_take, open=_open, load=_take, media=("text/x-lines",), receive=_receive)
