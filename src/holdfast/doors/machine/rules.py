"""Rules of a blueprint that no single key can break: names that exist, states that are reached and left."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from holdfast.doors.machine.model import Blueprint, State, Transition
from holdfast.doors.machine.places import Path
from holdfast.doors.machine.problems import Findings
from holdfast.errors import ExpressionError
from holdfast.graph.expressions import compile_expression
from holdfast.graph.topology import walk

RESERVED: Final = frozenset({"completed", "error", "timeout"})
VARIABLES: Final[dict[str, str]] = {
    "input": "any",
    "context": "any",
    "actor.id": "string",
    "actor.user_id": "string",
    "actor.capabilities": "list",
    "actor.roles": "list",
    "now": "time",
}


def check_blueprint(blueprint: Blueprint, findings: Findings) -> None:
    """Report every rule that the blueprint breaks."""
    _check_states(blueprint, findings)
    _check_events(blueprint, findings)
    _check_transitions(blueprint, findings)
    _check_expressions(blueprint, findings)
    _check_ways(blueprint, findings)


def _check_states(blueprint: Blueprint, findings: Findings) -> None:
    repeated(
        ((state.name, ("states", state.index, "name")) for state in blueprint.states),
        "MACHINE_DUPLICATE_STATE",
        findings,
    )
    if not blueprint.has_all_states:
        return
    initial = [state for state in blueprint.states if state.is_initial]
    if not initial:
        findings.add("MACHINE_INITIAL_MISSING", ("states",), "No state is marked with is_initial.")
    for state in initial[1:]:
        message = f"{state.name!r} is another initial state, beside {initial[0].name!r}."
        findings.add("MACHINE_INITIAL_AMBIGUOUS", ("states", state.index, "is_initial"), message)
    for state in initial:
        if state.is_final:
            message = f"{state.name!r} is the initial state and final."
            findings.add("MACHINE_INITIAL_FINAL", ("states", state.index, "is_final"), message)
    if not any(state.is_final for state in blueprint.states):
        findings.warn("CIRCULAR_ONLY", ("states",), "No state is final: instances never end by themselves.")


def repeated(named: Iterable[tuple[Hashable, Path]], code: str, findings: Findings) -> None:
    """Report names that are given twice."""
    seen: set[Hashable] = set()
    for name, path in named:
        if name in seen:
            findings.add(code, path, f"There is another {name!r} before this one.")
        seen.add(name)


def _check_events(blueprint: Blueprint, findings: Findings) -> None:
    events = blueprint.events
    repeated(
        ((event.code, ("events", event.index, "code")) for event in events), "MACHINE_DUPLICATE_EVENT_CODE", findings
    )
    repeated(
        ((event.name, ("events", event.index, "name")) for event in events), "MACHINE_DUPLICATE_EVENT_NAME", findings
    )
    for event in events:
        if event.name in RESERVED:
            message = f"{event.name!r} is an event of the engine."
            findings.add("MACHINE_EVENT_RESERVED", ("events", event.index, "name"), message)


def _check_transitions(blueprint: Blueprint, findings: Findings) -> None:
    states = {state.name: state for state in blueprint.states}
    seen: dict[Hashable, Transition] = {}
    for transition in blueprint.transitions:
        place: Path = ("transitions", transition.index)
        for key, name in (("from", transition.source), ("to", transition.target)):
            if name not in states and blueprint.has_all_states:
                hint = findings.nearest(name, states)
                findings.add("MACHINE_STATE_UNKNOWN", (*place, key), f"There is no state {name!r}.", hint=hint)
        check_event(transition.event, (*place, "event"), blueprint, findings)
        if transition.source in states and states[transition.source].is_final:
            message = f"A transition leaves {transition.source!r}, which is final."
            findings.add("MACHINE_FINAL_LEFT", (*place, "from"), message)
        event = blueprint.event(transition.event) or transition.event
        first = seen.setdefault((transition.source, event, transition.when, transition.guard), transition)
        if first is not transition:
            message = f"{transition.source!r} has this transition on {event!r} already, at transitions[{first.index}]."
            findings.add("MACHINE_DUPLICATE_TRANSITION", place, message)


def check_event(ref: int | str, path: Path, blueprint: Blueprint, findings: Findings) -> str | None:
    """Find the name of an event, or report that there is none."""
    name = blueprint.event(ref)
    if name is None and blueprint.has_all_events:
        hint = findings.nearest(ref, [event.name for event in blueprint.events]) if isinstance(ref, str) else ""
        findings.add("MACHINE_EVENT_UNKNOWN", path, f"There is no event {ref!r}.", hint=hint)
    return name


def _check_expressions(blueprint: Blueprint, findings: Findings) -> None:
    for transition in blueprint.transitions:
        if transition.when is None:
            continue
        try:
            compile_expression(transition.when, VARIABLES)
        except ExpressionError as error:
            path: Path = ("transitions", transition.index, "when")
            findings.add("MACHINE_EXPRESSION_INVALID", path, f"[{error.code}] {error.message}", hint=error.hint)


def _check_ways(blueprint: Blueprint, findings: Findings) -> None:
    """Report states that are never left and never reached; silent where a missing part would make that look so."""
    if not (blueprint.has_all_states and blueprint.has_all_transitions):
        return
    targets: dict[str, list[str]] = {state.name: [] for state in blueprint.states}
    is_whole = True
    for transition in blueprint.transitions:
        is_whole &= transition.source in targets and transition.target in targets
        targets.setdefault(transition.source, []).append(transition.target)
    for state in blueprint.states:
        if not state.is_final and not targets[state.name]:
            message = f"No transition leaves {state.name!r}, and it is not final."
            findings.add("MACHINE_STATE_STUCK", ("states", state.index), message)
    initial = [state for state in blueprint.states if state.is_initial]
    if is_whole and initial:
        _check_reach(initial, blueprint, targets, findings)


def _check_reach(initial: list[State], blueprint: Blueprint, targets: dict[str, list[str]], findings: Findings) -> None:
    reached = walk([state.name for state in initial], lambda name: targets.get(name, ()))
    for state in blueprint.states:
        if state.name not in reached:
            message = f"No transitions lead from {initial[0].name!r} to {state.name!r}."
            findings.add("MACHINE_STATE_UNREACHABLE", ("states", state.index), message)
