"""The YAML front door: `load_steps` reads a file and reports every problem with its line and column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.doors.steps.building import Draft, read_drafts
from holdfast.doors.steps.checks import check_cycles, check_expressions, check_graph, check_schemas
from holdfast.doors.steps.lowering import to_graph
from holdfast.doors.steps.model import Document, Workflow
from holdfast.doors.steps.problems import findings_of
from holdfast.doors.steps.rules import check_rules
from holdfast.doors.yaml.problems import Findings, Problem, in_order
from holdfast.errors import DefinitionError

__all__ = ["is_steps", "load_steps", "read_workflow", "repeated", "to_graph"]


def load_steps(text: str, *, name: str = "file.yaml") -> Document:
    """Load the sound workflows of a file, and every problem of the file; no text makes it raise."""
    findings = findings_of(name)
    drafts = read_drafts(text, findings)
    sound = tuple(draft.workflow for draft in drafts if _is_sound(draft, findings))
    problems = in_order([*findings.problems, *repeated(draft.workflow for draft in drafts)])
    return Document(file=name, workflows=sound, problems=problems)


def _is_sound(draft: Draft, findings: Findings) -> bool:
    before = findings.errors
    workflow = draft.workflow
    leads_somewhere = check_rules(draft, findings)
    check_expressions(workflow, findings)
    check_schemas(workflow, findings)
    # A name that leads nowhere would make half of the workflow look unreachable.
    if draft.is_whole and leads_somewhere:
        check_cycles(workflow, findings)
        check_graph(workflow, findings)
    return draft.errors == 0 and findings.errors == before


def repeated(workflows: Iterable[Workflow]) -> list[Problem]:
    """Report workflows of the same id and version, in one file or in several."""
    first: dict[tuple[str, int], Workflow] = {}
    problems: list[Problem] = []
    for workflow in workflows:
        known = first.setdefault((workflow.id, workflow.version), workflow)
        if known is not workflow:
            findings = findings_of(workflow.file)
            place = f"{known.file}:{known.mark('id').line}"
            message = f"{workflow.id!r} version {workflow.version} is there twice, first at {place}."
            findings.add("STEPS_DUPLICATE", message, workflow.mark("id"))
            problems.extend(findings.problems)
    return problems


def is_steps(source: Mapping[str, Any]) -> bool:
    """Check whether the source of a published definition is YAML."""
    return source.get("kind") == "steps" and "yaml" in source


def read_workflow(source: Mapping[str, Any]) -> Workflow:
    """Read the workflow of a published source."""
    name, version = source["name"], source["version"]
    found = load_steps(source["yaml"], name=f"{name}.yaml").workflows
    named = [each for each in found if each.id == name]
    workflow = next((each for each in named if each.version == version), named[0] if named else None)
    if workflow is None:
        raise DefinitionError(
            f"The source of {name!r} version {version} cannot be read as steps.",
            code="SOURCE_UNREADABLE",
            hint="It was published by another release; the graph that runs is not affected.",
        )
    # A changed file may be published under the next version while its text still has the old one.
    return msgspec.structs.replace(workflow, version=version)
