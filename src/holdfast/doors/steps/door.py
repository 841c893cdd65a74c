"""The door of workflows of steps: files of YAML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from holdfast.doors.source import Document, Door, Received, Source
from holdfast.doors.steps.load import is_steps, load_steps, read_workflow, to_graph
from holdfast.doors.steps.model import Workflow
from holdfast.errors import DefinitionError
from holdfast.graph.model import Graph

YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")


class StepsSource(Source):
    def __init__(self, written: Workflow | Mapping[str, Any]) -> None:
        self._written = written

    @cached_property
    def workflow(self) -> Workflow:
        return self._written if isinstance(self._written, Workflow) else read_workflow(self._written)

    @property
    def name(self) -> str:
        return self.workflow.id

    @property
    def version(self) -> int:
        return self.workflow.version

    @property
    def stored(self) -> dict[str, Any]:
        return self._written.source if isinstance(self._written, Workflow) else dict(self._written)

    def lower(self) -> Graph:
        return to_graph(self.workflow)

    def code(self) -> str:
        return self.stored["yaml"]

    def document(self) -> Document:
        """The workflow's text, which may be a file with other workflows in it."""
        return Document(self.workflow.text.encode(), YAML[0], self.workflow.file or "body")


def _take(written: object) -> Source | None:
    return StepsSource(written) if isinstance(written, Workflow) else None


def _open(stored: Mapping[str, Any]) -> Source | None:
    return StepsSource(stored) if is_steps(stored) else None


def _receive(body: bytes, file: str) -> Received:
    document = load_steps(_text(body), name=file)
    return Received(tuple(map(StepsSource, document.require_sound())), document.problems)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise DefinitionError(
            f"The file is not UTF-8: byte {error.start} cannot be read.",
            code="YAML_CHARACTER",
            hint="Save it as UTF-8.",
        ) from None


DOOR: Final = Door(take=_take, open=_open, media=YAML, receive=_receive)
