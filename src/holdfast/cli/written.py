"""What a person has written: workflows in YAML files and flows in Python modules, read and checked together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.cli import target
from holdfast.cli.output import warn
from holdfast.cli.validate import read_files
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.graph import Graph, load_graph
from holdfast.compiler.lowering import lower
from holdfast.compiler.steps import to_graph
from holdfast.definitions.flow import Flow
from holdfast.definitions.model import Definition
from holdfast.definitions.steps.model import Workflow
from holdfast.errors import DefinitionError, NotFound
from holdfast.runtime.publishing import Publishable

Written = Definition | Workflow


def read_sources(sources: Sequence[str]) -> list[Written]:
    """Everything that is named; a DefinitionError lists every problem of every file."""
    paths = [Path(source) for source in sources if not _is_module(source)]
    workflows, problems = read_files(paths) if paths else ((), ())
    flows, complaints = _read_flows([source for source in sources if _is_module(source)])
    wrong: list[Any] = [*(problem for problem in problems if problem.severity == "error"), *complaints]
    if wrong:
        count = f"{len(wrong)} {'problem stands' if len(wrong) == 1 else 'problems stand'}"
        raise DefinitionError(f"{count} in the way; nothing was published.", diagnostics=tuple(wrong))
    for warning in problems:
        warn(str(warning))
    if not workflows and not flows:
        raise NotFound(
            "There is nothing to publish.", code="NOTHING_TO_PUBLISH", hint="Name files or directories with *.yaml."
        )
    return [*workflows, *flows]


def graph_of(definition: Publishable) -> Graph:
    """What would run."""
    if isinstance(definition, Definition):
        return lower(definition)
    if isinstance(definition, Workflow):
        return to_graph(definition)
    return definition if isinstance(definition, Graph) else load_graph(definition)


def _is_module(source: str) -> bool:
    return ":" in source and not Path(source).exists()


def _read_flows(sources: Sequence[str]) -> tuple[list[Definition], list[Any]]:
    flows: list[Definition] = []
    complaints: list[Any] = []
    for source in sources:
        try:
            flow = _flow(source)
            compile_graph(lower(flow))
            flows.append(flow)
        except DefinitionError as error:
            complaints += error.diagnostics or (f"{source}: {error.code} {error.message}",)
    return flows, complaints


def _flow(source: str) -> Definition:
    found = target.load(source)
    if isinstance(found, Flow):
        found = found.build()
    if isinstance(found, Definition):
        return found
    raise DefinitionError(
        f"{source!r} is no flow.", code="FLOW_INVALID", hint="Name what `Flow(…)` or its `build()` answers."
    )
