"""The row of the saga builder: flows written in Python."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from holdfast.doors.saga.flow import Flow
from holdfast.doors.saga.lowering import lower
from holdfast.doors.saga.model import Definition, Function
from holdfast.doors.saga.picture import saga_outline
from holdfast.doors.saga.printing import code_of
from holdfast.doors.saga.shape import certain_sub_flows
from holdfast.doors.saga.source import is_written, read_source
from holdfast.doors.source import Door, Source
from holdfast.errors import DefinitionError
from holdfast.graph.drawing.text_tree import Twig
from holdfast.graph.model import Child, Graph


class SagaSource(Source):
    def __init__(self, written: Definition | Mapping[str, Any]) -> None:
        self._written = written

    @cached_property
    def definition(self) -> Definition:
        return self._written if isinstance(self._written, Definition) else read_source(self._written)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def version(self) -> int:
        return self.definition.version

    @property
    def stored(self) -> dict[str, Any]:
        return self._written.source if isinstance(self._written, Definition) else dict(self._written)

    @property
    def functions(self) -> Mapping[str, Function]:
        return {name: function for name, function in self._handlers if name in self.definition.steps}

    @property
    def calls(self) -> Mapping[str, Function]:
        return {name: function for name, function in self._handlers if name in self.definition.calls}

    @property
    def _handlers(self) -> ItemsView[str, Function]:
        return self.definition.handlers.items()

    def lower(self) -> Graph:
        return lower(self.definition)

    def code(self) -> str:
        return code_of(self.stored)

    def children(self) -> Sequence[Child]:
        return [Child(flow=item.flow, version=item.version) for item in certain_sub_flows(self.definition.items)]

    def outline(self) -> tuple[Twig, ...]:
        return saga_outline(self.definition)


def _take(written: object) -> Source | None:
    if isinstance(written, Flow):
        raise DefinitionError(
            "The flow was written and not built.",
            code="FLOW_NOT_BUILT",
            hint="Write `.build()` behind its last step.",
        )
    return SagaSource(written) if isinstance(written, Definition) else None


def _open(stored: Mapping[str, Any]) -> Source | None:
    return SagaSource(stored) if is_written(stored) else None


def _load(found: object) -> Source | None:
    return _take(found.build() if isinstance(found, Flow) else found)


DOOR: Final = Door(take=_take, open=_open, load=_load)
