"""Checks of a workflow of steps that need the compiler: expressions, forms, cycles, and the checks of its graph.

The checks of the graph name nodes and edges. Here their places become places in the file, and their codes those of the
format, so that the author finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from holdfast.doors.literals import moment
from holdfast.doors.steps.lowering import Lowered, lower_steps
from holdfast.doors.steps.model import Step, Transition, Workflow
from holdfast.doors.steps.problems import REMEDIES
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import START, Mark, Path
from holdfast.errors import ExpressionError
from holdfast.graph.checks.check import check
from holdfast.graph.checks.schemas import schema_problem
from holdfast.graph.expressions import compile_expression, with_response
from holdfast.graph.order import find_cycles

AUTOMATIC: Final = frozenset({"system", "notification"})
TRANSLATED: Final[dict[str, str]] = {
    "NO_DEFAULT_EDGE": "STEPS_NO_DEFAULT",
    "UNREACHABLE_NODE": "STEPS_UNREACHABLE",
    "NO_END": "STEPS_WITHOUT_TERMINAL",
}
# Reported already, in the words of the format and at a better place.
KNOWN: Final = frozenset(
    {
        "AUTOMATIC_CYCLE", "BAD_EXPRESSION", "BAD_FORM", "END_WITH_EDGES", "FIELD_MISPLACED", "MISSING_HANDLER",
        "NO_WAY_ON", "REST_WITHOUT_EVENT", "TIMEOUT_EDGE_MISSING", "TIMER_AMBIGUOUS", "TIMER_WITHOUT_TIME",
    }
)  # fmt: skip

Written = tuple[Path, str, Literal["boolean", "any"], bool]  # place, text, type of its value, whether it has a response


def check_expressions(workflow: Workflow, findings: Findings) -> None:
    for path, text, result, reads_response in _expressions(workflow):
        try:
            compile_expression(text, with_response({}) if reads_response else {}, result=result)
        except ExpressionError as error:
            mark = workflow.mark(*path).inside(error.position)
            sentence = error.message.removesuffix(f" (column {error.position}).")  # the place says it better
            message = f"[{error.code}] {sentence.rstrip('.')}."
            findings.add("STEPS_EXPRESSION_INVALID", message, mark, hint=error.hint)


def _expressions(workflow: Workflow) -> Iterator[Written]:
    for transition in workflow.transitions:
        if transition.condition is not None:
            yield ("transitions", transition.index, "condition"), transition.condition, "boolean", False
    for step in workflow.steps:
        place: Path = ("steps", step.index)
        if step.assignee is not None and step.assignee.expression is not None:
            yield (*place, "assignee", "expression"), step.assignee.expression, "any", False
        if step.until is not None:
            yield (*place, "until"), moment(step.until), "any", False
        if step.key is not None:
            yield (*place, "key"), step.key, "any", False
        for name, text in (step.input or {}).items():
            yield (*place, "input", name), text, "any", False
        for name, text in (step.output or {}).items():
            yield (*place, "output", name), text, "any", True


def check_schemas(workflow: Workflow, findings: Findings) -> None:
    """Check forms and the input's schema: an invalid schema would refuse all data later."""
    if workflow.input_schema is not None:
        _check_schema(workflow.input_schema, workflow, ("input_schema",), findings)
    for step in workflow.steps:
        if step.form is not None:
            _check_schema(step.form, workflow, ("steps", step.index, "form"), findings)


def _check_schema(schema: dict[str, Any], workflow: Workflow, path: Path, findings: Findings) -> None:
    found = schema_problem(schema)
    if found is not None:
        findings.add("STEPS_SCHEMA_INVALID", found.message, workflow.mark(*path, *found.path))


def check_cycles(workflow: Workflow, findings: Findings) -> None:
    """Report cycles without a waiting step: an error if no transition leaves it, else a warning."""
    automatic = {step.id: step for step in workflow.steps if _is_automatic(step)}
    completed: dict[str, list[Transition]] = {id: [] for id in automatic}
    leading: dict[str, list[str]] = {id: [] for id in automatic}
    for transition in workflow.transitions:
        if transition.source in automatic:
            leading[transition.source].append(transition.target)
            if transition.event == "completed":
                completed[transition.source].append(transition)
    forced = {
        id: (ways[0].target,) if len(ways) == 1 and ways[0].condition is None else () for id, ways in completed.items()
    }
    endless: set[str] = set()
    for cycle in find_cycles(list(automatic), lambda id: forced.get(id, ())):
        endless.update(cycle)
        _add_cycle(cycle, automatic, workflow, findings, "Nothing in this cycle waits, and nothing leaves it", "error")
    for cycle in find_cycles(list(automatic), lambda id: tuple(leading.get(id, ()))):
        if endless.isdisjoint(cycle):
            message = "Nothing in this cycle waits; after ten steps in a row the workflow is suspended"
            _add_cycle(cycle, automatic, workflow, findings, message, "warning")


def _add_cycle(
    cycle: Any, steps: dict[str, Step], workflow: Workflow, findings: Findings, message: str, severity: Any
) -> None:
    way = " → ".join([*cycle, cycle[0]])
    mark = workflow.mark("steps", steps[cycle[0]].index)
    findings.add("STEPS_CYCLE", f"{message}: {way}.", mark, severity=severity)


def _is_automatic(step: Step) -> bool:
    return step.type in AUTOMATIC or (step.type == "wait" and step.duration == 0)


def check_graph(workflow: Workflow, findings: Findings) -> None:
    """Run the checks of the graph, and report their findings at places in the file."""
    lowered = lower_steps(workflow)
    is_broken_off = any(problem.code == "STEPS_TRANSITION_MISSING" for problem in findings.problems)
    for found in check(lowered.graph):
        if found.code in KNOWN or (found.code == "NO_END" and is_broken_off):
            continue
        code = TRANSLATED.get(found.code, found.code)
        hint = REMEDIES.get(code, found.hint)
        message = found.message.replace("edge", "transition")
        findings.add(code, message, _mark(found.place, workflow, lowered), hint=hint, severity=found.severity)


def _mark(place: str, workflow: Workflow, lowered: Lowered) -> Mark:
    collection, _, rest = place.partition("@")[0].partition(".")
    if collection == "nodes" and rest:
        id, *fields = rest.split(".")
        step = next((step for step in workflow.steps if step.id == id), None)
        return START if step is None else workflow.mark("steps", step.index, *fields)
    if collection == "edges":
        edge = next((id for id in lowered.origins if rest == id or rest.startswith(f"{id}.")), None)
        return START if edge is None else workflow.mark(*lowered.origins[edge])
    if collection == "nodes":
        return workflow.mark("steps")
    return workflow.mark(*rest.split(".")) if collection == "policy" else workflow.mark()
