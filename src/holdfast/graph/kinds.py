"""Kinds of nodes: one row each. Checks, drawings and the kernel read the row and never compare a kind's name.

To add a kind, add a row to `KINDS`. The kernel acts by the row's behaviour; the flags add its special rules.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec


class Behaviour(StrEnum):
    PASS = "pass"  # noqa: S105 — a behaviour, not a secret: decided at once, inside the core
    WORK = "work"  # a handler runs outside any transaction
    CALL = "call"  # a function runs inside the engine's transaction
    REST = "rest"  # waits for a named event, a decision or a child
    TIMER = "timer"  # waits for a moment
    EMIT = "emit"  # writes an effect to the outbox
    JOIN = "join"  # meets other tokens
    END = "end"  # finishes

    __hash__ = str.__hash__  # an enum's own is written in Python, and behaviours are looked up all the time


class Shape(StrEnum):
    """The outline of a node in a drawing."""

    ROUNDED = "rounded"
    RECTANGLE = "rectangle"
    SUBROUTINE = "subroutine"
    STADIUM = "stadium"
    CIRCLE = "circle"
    PARALLELOGRAM = "parallelogram"
    TRAPEZOID = "trapezoid"
    FUNNEL = "funnel"
    DOUBLE_CIRCLE = "double_circle"
    RHOMBUS = "rhombus"
    FLAG = "flag"


class Kind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The row of one kind of node: its behaviour, its drawing and its flags."""

    behaviour: Behaviour
    shape: Shape
    label: str = ""  # in drawings
    promise: str = ""  # beside a node that no token has reached yet
    step_type: str = ""  # for people who use the workflow: action, approval, system, …
    fields: frozenset[str] = frozenset()  # of the fields that only some kinds take, those that this one takes
    asks_person: bool = False  # opens a task
    signs: bool = False  # where the graph's rules sign approvals: the answer is signed with the actor's name
    is_gate: bool = False  # a transition of a document: entered along its edges only, with no input from outside
    splits: bool = False  # opens a scope with one token per branch
    branches: bool = False  # exists to choose an edge
    undoable: bool = False  # may name a compensation as its `undo`
    undoes: bool = False  # is a compensation: no edge leads there
    stops_rollback: bool = False  # a rollback of the steps after it ends here
    starts_flow: bool = False  # needs a `child`
    listens_to_edges: bool = False  # only its edges name the events it waits for
    in_slots: bool = False  # organisations may use it in the slots of a document
    best_effort: bool = False  # a delivery that failed completes the step
    ends_instance: bool = False  # reaching it escapes every scope

    @property
    def ends_token(self) -> bool:
        """An end for one token; a scope may hold several."""
        return self.behaviour is Behaviour.END and not self.ends_instance


UNKNOWN: Final = Kind(behaviour=Behaviour.PASS, shape=Shape.FLAG)  # of a graph that does not compile

_PLAIN: Final[dict[Behaviour, Kind]] = {
    row.behaviour: row
    for row in (
        Kind(behaviour=Behaviour.PASS, shape=Shape.ROUNDED),
        Kind(
            behaviour=Behaviour.WORK,
            shape=Shape.RECTANGLE,
            undoable=True,
            fields=frozenset({"output", "best_effort"}),
        ),
        Kind(behaviour=Behaviour.CALL, shape=Shape.SUBROUTINE, undoable=True, fields=frozenset({"output"})),
        Kind(behaviour=Behaviour.REST, shape=Shape.STADIUM, undoable=True, fields=frozenset({"capabilities"})),
        Kind(behaviour=Behaviour.TIMER, shape=Shape.CIRCLE),
        Kind(behaviour=Behaviour.EMIT, shape=Shape.PARALLELOGRAM, fields=frozenset({"output", "best_effort"})),
        Kind(behaviour=Behaviour.JOIN, shape=Shape.FUNNEL),
        Kind(behaviour=Behaviour.END, shape=Shape.DOUBLE_CIRCLE),
    )
}


def kind(name: str, behaviour: Behaviour, **special: Any) -> Kind:
    """Make a row for `KINDS`: the plain row of the behaviour with the special fields of this kind."""
    label = name.replace("_", " ")
    return msgspec.structs.replace(_PLAIN[behaviour], **{"label": label, "promise": label, "step_type": name} | special)


_PERSON: Final = {
    "asks_person": True,
    "fields": _PLAIN[Behaviour.REST].fields | {"assignee", "self_approval"},
}
_CHOICE: Final = {"branches": True, "shape": Shape.RHOMBUS}

KINDS: Final[dict[str, Kind]] = {
    "start": kind("start", Behaviour.PASS),
    "condition": kind("condition", Behaviour.PASS, in_slots=True, **_CHOICE),
    "split": kind("split", Behaviour.PASS, in_slots=True, splits=True, shape=Shape.TRAPEZOID, promise="fork"),
    "save_point": kind("save_point", Behaviour.PASS, stops_rollback=True),
    "script": kind("script", Behaviour.PASS, in_slots=True),
    "slot": kind("slot", Behaviour.PASS),
    "stage": kind("stage", Behaviour.PASS),
    "task": kind("task", Behaviour.WORK, promise="", step_type="system"),
    "compensation": kind(
        "compensation", Behaviour.WORK, undoes=True, undoable=False, fields=frozenset({"best_effort"})
    ),
    "action": kind("action", Behaviour.CALL, in_slots=True, step_type="system"),
    "lifecycle_gate": kind("lifecycle_gate", Behaviour.CALL, is_gate=True, **_CHOICE),
    "policy_gate": kind("policy_gate", Behaviour.CALL, in_slots=True),
    "rule": kind("rule", Behaviour.CALL, in_slots=True, **_CHOICE),
    "state": kind("state", Behaviour.REST, listens_to_edges=True),
    "human": kind("human", Behaviour.REST, step_type="action", **_PERSON),
    "approval": kind("approval", Behaviour.REST, in_slots=True, signs=True, **_PERSON),
    "wait_event": kind("wait_event", Behaviour.REST, in_slots=True, step_type="wait"),
    "sub_flow": kind("sub_flow", Behaviour.REST, in_slots=True, starts_flow=True),
    "wait_timer": kind("wait_timer", Behaviour.TIMER, in_slots=True, promise="timer", step_type="wait"),
    "webhook_out": kind("webhook_out", Behaviour.EMIT, in_slots=True),
    "notification": kind("notification", Behaviour.EMIT, in_slots=True, best_effort=True),
    "effect": kind("effect", Behaviour.EMIT),
    "join": kind("join", Behaviour.JOIN, in_slots=True),
    "end": kind("end", Behaviour.END, step_type="terminal"),
    "terminal": kind("terminal", Behaviour.END, ends_instance=True),
}
