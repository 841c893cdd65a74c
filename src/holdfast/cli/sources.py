"""Sources given to a command: workflows in YAML files and flows in Python modules, read and checked together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.cli.commands.validate import read_files
from holdfast.cli.process import application
from holdfast.cli.render.output import warn
from holdfast.doors.envelope import ContractFile
from holdfast.doors.registry import load_source, source_of
from holdfast.doors.source import Source
from holdfast.errors import DefinitionError, NotFound
from holdfast.graph.compile import compile_graph

NO_FLOW: Final = "CONTRACT_NO_FLOW"


def read_sources(sources: Sequence[str]) -> list[Source]:
    """Read all named sources; a DefinitionError lists every problem of every file."""
    paths = [Path(source) for source in sources if not _is_module(source)]
    files = read_files(paths)
    problems = files.problems
    flows, complaints = _read_flows([source for source in sources if _is_module(source)])
    wrong: list[Any] = [
        *(problem for problem in problems if problem.severity == "error"),
        *complaints,
        *map(_no_flow, files.contracts),
    ]
    if wrong:
        count = f"{len(wrong)} {'problem stands' if len(wrong) == 1 else 'problems stand'}"
        raise DefinitionError(f"{count} in the way; nothing was published.", diagnostics=tuple(wrong))
    for warning in problems:
        warn(str(warning))
    if not files.workflows and not flows:
        raise NotFound(
            "There is nothing to publish.", code="NOTHING_TO_PUBLISH", hint="Name files or directories with *.yaml."
        )
    return [*map(source_of, files.workflows), *flows]


def _no_flow(read: ContractFile) -> str:
    return f"{read.file}: {NO_FLOW} Contracts and patches are no flows, and are not published as such."


def _is_module(source: str) -> bool:
    return ":" in source and not Path(source).exists()


def _read_flows(sources: Sequence[str]) -> tuple[list[Source], list[Any]]:
    flows: list[Source] = []
    complaints: list[Any] = []
    for source in sources:
        try:
            flow = _flow(source)
            compile_graph(flow.lower())
            flows.append(flow)
        except DefinitionError as error:
            complaints += error.diagnostics or (f"{source}: {error.code} {error.message}",)
    return flows, complaints


def _flow(source: str) -> Source:
    found = load_source(application.load(source))
    if found is not None:
        return found
    raise DefinitionError(
        f"{source!r} is no flow.", code="FLOW_INVALID", hint="Name what `Flow(…)` or its `build()` answers."
    )
