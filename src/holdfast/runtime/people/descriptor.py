"""Description of a workflow for one person: its current step, the actions open to them, its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.core.model.program import Place, Program, Way
from holdfast.core.model.signals import Actor
from holdfast.core.model.state import State, Token
from holdfast.core.model.status import Phase
from holdfast.core.model.timestamps import to_datetime
from holdfast.graph.expressions import REQUEST_FACTS
from holdfast.graph.model import Behaviour, Node
from holdfast.runtime.people.advance import events_of
from holdfast.runtime.people.start_rules import CORRELATION, PARTITION
from holdfast.runtime.people.visibility import Named, Person, may_act, may_take, sees_step, task_of
from holdfast.store.reads.instances import Instance, Step
from holdfast.store.reads.positions import Whereabouts
from holdfast.store.tasks import Task
from holdfast.views.history import HistoryEvent, history, object_of
from holdfast.views.statuses import ACTIVE, shown_status

MOST_HISTORY: Final = 200  # visits that are told
_KNOWN_BEFORE: Final = frozenset({"context", "workflow", "actor", "instance_id", "step_name"})


class WorkflowRef(msgspec.Struct, frozen=True):
    id: str
    name: str
    version: int


class CurrentStep(msgspec.Struct, frozen=True):
    """Current step of a workflow. `task_id` and `assignee` are those of the person it waits for."""

    id: str
    name: str
    type: str
    form: Any = None
    assignee: str | None = None
    roles: Sequence[str] = ()
    due_at: datetime | None = None
    task_id: str | None = None


class VisibleStep(msgspec.Struct, frozen=True):
    """A step of the workflow as far as the person may know it: upcoming, current, completed, failed or skipped."""

    id: str
    name: str
    type: str
    status: str


class Descriptor(msgspec.Struct, frozen=True):
    id: str
    workflow: WorkflowRef
    status: str
    current_step: CurrentStep | None
    allowed_events: Sequence[str]
    steps: Sequence[VisibleStep]
    state: Any
    version: int
    tenant_id: str
    subject_id: str | None
    partition_id: str | None
    correlation_id: str | None
    business_key: str | None
    reason: str | None
    created_at: datetime | None
    updated_at: datetime | None
    completed_at: datetime | None
    expires_at: datetime | None
    history: Sequence[HistoryEvent]


def describe(
    found: Whereabouts, steps: Sequence[Step], tasks: Sequence[Task], program: Program, named: Named, person: Person
) -> Descriptor:
    view, state = found.view, found.state
    token, visible = current_token(state), _visible(program, state, steps, named, person)
    seen = {step.id for step in visible}
    attributes: Mapping[str, Any] = view.attributes or {}
    return Descriptor(
        id=view.id,
        workflow=workflow_of(program, view),
        status=shown_status(view.status),
        current_step=_current(program, token, steps, tasks, seen),
        allowed_events=_allowed(found, program, tasks, person),
        steps=visible,
        state=view.data,
        version=view.version,
        tenant_id=view.org,
        subject_id=view.created_by,
        partition_id=attributes.get(PARTITION),
        correlation_id=attributes.get(CORRELATION),
        business_key=view.business_key,
        reason=view.reason,
        created_at=view.created_at,
        updated_at=view.updated_at,
        completed_at=view.completed_at,
        expires_at=expiry_of(state),
        history=[event for event in history(view, steps, program) if event.step is None or event.step in seen],
    )


def workflow_of(program: Program, view: Instance) -> WorkflowRef:
    name = object_of(program.places[program.entry].node.metadata.get("workflow")).get("name")
    return WorkflowRef(view.flow, name if isinstance(name, str) else view.flow, view.flow_version)


def expiry_of(state: State) -> datetime | None:
    return None if state.expires is None or state.expires.due is None else to_datetime(state.expires.due)


def current_token(state: State) -> Token | None:
    """The token to show: one that waits for a person, else the first."""
    tokens = list(state.tokens.values())
    return next((token for token in tokens if task_of(token) is not None), tokens[0] if tokens else None)


def last_step(steps: Sequence[Step], program: Program) -> str | None:
    """The step where an ended instance has ended."""
    return next((s.name for s in reversed(steps) if s.kind == "forward" and s.name in program.places), None)


def step_name(node: Node) -> str:
    name = node.metadata.get("name")
    return name if isinstance(name, str) else node.id


def step_type(node: Node) -> str:
    return "notification" if node.best_effort else node.traits.step_type


def _current(
    program: Program, token: Token | None, steps: Sequence[Step], tasks: Sequence[Task], seen: set[str]
) -> CurrentStep | None:
    """The current step; of an ended workflow the last one. A caller who may not see the step learns no more than its
    name.
    """
    if token is not None:
        node = program.places[token.node].node
    else:
        ended = last_step(steps, program)
        if ended is None:
            return None
        node = program.places[ended].node
    named = CurrentStep(node.id, step_name(node), step_type(node))
    task = None if token is None else _task(token, tasks)
    if node.id not in seen:
        return named
    if task is None:
        return msgspec.structs.replace(named, form=node.form)
    return msgspec.structs.replace(
        named, form=task.form, assignee=task.assignee, roles=task.roles, due_at=task.due_at, task_id=task.id
    )


def _task(token: Token, tasks: Sequence[Task]) -> Task | None:
    id = task_of(token)
    return None if id is None else next((task for task in tasks if task.id.replace("-", "") == id.hex()), None)


# --- what the person can do ---------------------------------------------------------------------------------------


def _allowed(found: Whereabouts, program: Program, tasks: Sequence[Task], person: Person) -> list[str]:
    if shown_status(found.view.status) != ACTIVE:
        return []
    events: set[str] = set()
    for token in found.state.tokens.values():
        place = program.places[token.node]
        if token.phase is Phase.RESTING and may_act(place, person, found.view.created_by, _task(token, tasks)):
            events |= {e for e in events_of(token, place) if _is_open(place, e, found.view, person)}
    return sorted(events)


def _is_open(place: Place, event: str, view: Instance, person: Person) -> bool:
    ways = place.ways.get(event) or place.ways.get("completed", ())
    return any(may_take(way, person) and _may_hold(way, place, view, person) for way in ways)


def _may_hold(way: Way, place: Place, view: Instance, person: Person) -> bool:
    """Evaluate a condition before the answer; one that reads the answer counts as possible."""
    if way.when is None or any(path.split(".")[0] not in _KNOWN_BEFORE for path in way.when.reads):
        return True
    attributes: Mapping[str, Any] = view.attributes or {}
    facts = (view.org, attributes.get(PARTITION), view.created_by, attributes.get(CORRELATION))
    state = object_of(view.data)
    actor = Actor(person.id, tuple(sorted(person.capabilities or ())), tuple(sorted(person.roles or ())))
    scope = {
        "context": {**state, **dict(zip(REQUEST_FACTS, facts, strict=True))},
        "workflow": state,
        "actor": actor.facts(person.id),
        "instance_id": view.id,
        "step_name": place.id,
        "input": None,
    }
    return way.when.evaluate(scope) is True


# --- the way so far -----------------------------------------------------------------------------------------------


def _visible(program: Program, state: State, steps: Sequence[Step], named: Named, person: Person) -> list[VisibleStep]:
    last = {step.name: step for step in steps if step.kind == "forward"}
    current = {token.node for token in state.tokens.values()}
    return [
        VisibleStep(place.id, step_name(place.node), step_type(place.node), _stage(place.id, current, last))
        for place in _in_order(program)
        if place.behaviour is not Behaviour.PASS and sees_step(person, named, place.id)
    ]


def _in_order(program: Program) -> list[Place]:
    """The steps in the order a workflow reaches them, from its first."""
    found = {program.entry: program.places[program.entry]}
    ahead = [program.entry]
    for node in ahead:
        for ways in program.places[node].ways.values():
            new = [way.target for way in ways if way.target not in found]
            found |= {target: program.places[target] for target in new}
            ahead += new
    return [*found.values(), *(place for id, place in sorted(program.places.items()) if id not in found)]


def _stage(node: str, current: set[str], last: dict[str, Step]) -> str:
    if node in current:
        return "current"
    visit = last.get(node)
    if visit is None:
        return "upcoming"
    if visit.failed:
        return "failed"
    return "skipped" if visit.status == "skipped" else "completed"
