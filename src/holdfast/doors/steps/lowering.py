"""Lower a workflow of steps to the graph: each step is one node, each transition one edge.

If a call follows a person's answer, the transition leads over a node of its own, `STEP.EVENT`: the answer chooses the
transition, and the call is made on it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.doors.literals import moment, quoted
from holdfast.doors.steps.model import PEOPLE, Step, Transition, Workflow
from holdfast.doors.yaml.tree import Path
from holdfast.graph.model import Edge, Graph, Node, Policy, Retry, Wait

CHAIN_LIMIT: Final = 10
PYTHON: Final = "python:"
LONGEST_ID: Final = 200


class Lowered(msgspec.Struct, frozen=True):
    """The graph, and the place of each of its edges in the workflow."""

    graph: Graph
    origins: dict[str, Path]


def lower_steps(workflow: Workflow) -> Lowered:
    edges: dict[str, Edge] = {}
    origins: dict[str, Path] = {}
    for number, (edge, origin) in enumerate(_edges(workflow), 1):
        id = edge.id if len(edge.id) <= LONGEST_ID and edge.id not in edges else f"edge#{number}"
        edges[id] = msgspec.structs.replace(edge, id=id)
        origins[id] = origin
    graph = Graph(
        name=workflow.id,
        version=workflow.version,
        kind="steps",
        entry=workflow.entry,
        nodes=(*(_node(step, workflow) for step in workflow.steps), *_calls(workflow)),
        edges=tuple(edges.values()),
        policy=Policy(
            on_error="suspend",
            on_cancel="stop",
            data="context",
            missing="null",
            chain_limit=CHAIN_LIMIT,
            timeout=workflow.timeout,
            on_timeout=workflow.on_timeout,
            keeps_error=True,
            capabilities=workflow.capabilities,
        ),
    )
    return Lowered(graph, origins)


def to_graph(workflow: Workflow) -> Graph:
    """Lower a workflow to its graph."""
    return lower_steps(workflow).graph


def _edges(workflow: Workflow) -> list[tuple[Edge, Path]]:
    found: list[tuple[Edge, Path]] = []
    calls = call_names(workflow)
    callers = {step.id for step in workflow.steps if step.operation is not None and step.type in PEOPLE}
    for transition in workflow.transitions:
        origin: Path = ("transitions", transition.index)
        source, target, event, call = transition.source, transition.target, transition.event, calls.get(transition)
        if source in callers and event == "error":  # any of the step's calls may fail
            found += [
                (_edge(transition, name, target), origin) for taken, name in calls.items() if taken.source == source
            ]
        else:
            found.append((_edge(transition, source, call or target), origin))
            if call is not None:
                found.append((Edge(id=f"{call}>{target}", source=call, target=target, on="completed"), origin))
    timed = {transition.source for transition in workflow.transitions if transition.event == "timeout"}
    for step in workflow.steps:
        # A step without a target of its own falls back to the workflow's; the graph has an edge for it.
        target = step.on_timeout or (workflow.on_timeout if step.timeout is not None else None)
        if target is not None and step.id not in timed:
            edge = Edge(id=f"{step.id}:timeout>{target}", source=step.id, target=target, on="timeout")
            found.append((edge, ("steps", step.index, "on_timeout")))
    return found


def _edge(transition: Transition, source: str, target: str) -> Edge:
    return Edge(
        id=f"{source}:{transition.event}>{target}",
        source=source,
        target=target,
        on=transition.event,
        when=transition.condition,
        guard=transition.guard,
        priority=transition.index,
    )


def call_names(workflow: Workflow) -> dict[Transition, str]:
    """The transitions that lead over a call, each with the name of the call's node."""
    steps = {step.id: step for step in workflow.steps if step.type in PEOPLE}
    names: dict[Transition, str] = {}
    for transition in workflow.transitions:
        step = steps.get(transition.source)
        if step is not None and step.calls_after(transition.event):
            name = f"{step.id}.{transition.event}"
            number = sum(other == name or other.startswith(f"{name}#") for other in names.values())
            names[transition] = f"{name}#{number + 1}" if number else name
    return names


def _calls(workflow: Workflow) -> list[Node]:
    steps = {step.id: step for step in workflow.steps}
    nodes: list[Node] = []
    for transition, name in call_names(workflow).items():
        step = steps[transition.source]
        metadata = {"type": "system", "name": f"{step.name or step.id}: {transition.event}"}
        # The timeout of the step limits the person, not the call.
        nodes.append(Node(id=name, metadata=metadata, **_call(msgspec.structs.replace(step, timeout=None))))
    return nodes


def _node(step: Step, workflow: Workflow) -> Node:
    metadata = {**step.metadata, "type": step.type, "name": step.name or step.id}
    if step.description is not None:
        metadata["description"] = step.description
    if step.id == workflow.entry:
        metadata |= _about(workflow)
    return Node(id=step.id, metadata=metadata, **_BEHAVIOURS[step.type](step))


def _about(workflow: Workflow) -> dict[str, Any]:
    """The metadata of the whole workflow, kept on its entry node."""
    about = {"name": workflow.name or workflow.id, "description": workflow.description, "metadata": workflow.metadata}
    schema = {} if workflow.input_schema is None else {"input_schema": workflow.input_schema}
    return {"workflow": {key: value for key, value in about.items() if value}, **schema}


def _person(step: Step) -> dict[str, Any]:
    asked = step.assignee
    fields: dict[str, Any] = {
        "kind": "human",
        "form": step.form,
        "capabilities": step.capabilities,
        "deadline": step.timeout,
    }
    if asked is not None:
        fields["roles"] = (asked.role,) if asked.role is not None else ()
        fields["assignee"] = asked.expression if asked.user is None else quoted(asked.user)
    return fields


def _approval(step: Step) -> dict[str, Any]:
    return {**_person(step), "kind": "approval", "self_approval": step.self_approval}


def _call(step: Step) -> dict[str, Any]:
    retry = step.retry
    return {
        "kind": "task",
        "handler": step.operation and handler_of(step.operation),
        "input": step.input,
        "output": step.output,
        "retry": Retry(**msgspec.structs.asdict(retry)) if retry is not None and retry.calls > 1 else None,
        "timeout": step.call_timeout,
        "deadline": step.timeout,
    }


def _notification(step: Step) -> dict[str, Any]:
    return {**_call(step), "best_effort": True}


def _wait(step: Step) -> dict[str, Any]:
    if step.event is not None:
        return {
            "kind": "wait_event",
            "wait": Wait(event=step.event, key=step.key),
            "capabilities": step.capabilities,
            "deadline": step.timeout,
        }
    return {"kind": "wait_timer", "delay": step.duration, "until": step.until and moment(step.until)}


def _terminal(step: Step) -> dict[str, Any]:
    return {"kind": "terminal"}


_BEHAVIOURS: Final = {
    "action": _person,
    "approval": _approval,
    "system": _call,
    "wait": _wait,
    "notification": _notification,
    "terminal": _terminal,
}


def handler_of(operation: str) -> str:
    """The handler of an operation: a function goes by its name alone, every other kind keeps its prefix."""
    return operation.removeprefix(PYTHON)
