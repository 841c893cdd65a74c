"""The format of a file of steps: every key with the shape of its value and its meaning."""

from __future__ import annotations

from typing import Final

from holdfast.doors.shapes import (
    EVENT,
    ID,
    VISIBLE,
    WORKFLOW_ID,
    Choice,
    Expressions,
    Field,
    Fields,
    Flag,
    Items,
    Json,
    Number,
    Span,
    Text,
    Variants,
    Whole,
)

LONGEST_EXPRESSION: Final = 500
BACKOFFS: Final = ("fixed", "linear", "exponential")

_STEP_ID: Final = Text("a step's id: a letter, then letters, digits, _ and -", ID, 100)
_TITLE: Final = Text("one line of visible text", VISIBLE)
_PROSE: Final = Text("text", None, 5000)
_CAPABILITY: Final = Text("the name of a capability", VISIBLE)
_EXPRESSION: Final = Text("an expression", None, LONGEST_EXPRESSION)
_EVENT: Final = Text("an event's name: a letter, then letters, digits, _ . : and -", EVENT, 100)
_OPERATION: Final = Text("KIND:NAME", "^[a-z][a-z0-9_-]*:[A-Za-z_][A-Za-z0-9_./-]*$", 200, "STEPS_OPERATION_INVALID")
_CAPABILITIES: Final = Items(_CAPABILITY, distinct=True, most=50)

_ASSIGNEE: Final = Fields(
    "assignee",
    {
        "user": Field(_TITLE, "The person the task is assigned to."),
        "role": Field(_TITLE, "Whoever has this role may claim the task."),
        "expression": Field(_EXPRESSION, "An expression that gives the person, such as `workflow.manager`."),
    },
)
_RETRY: Final = Fields(
    "retry",
    {
        "calls": Field(Whole(1, 1000), "All calls, the first included.", required=True),
        "delay": Field(Span(zero_allowed=True), "The pause before the second call."),
        "backoff": Field(Choice(BACKOFFS), "How the pause grows."),
        "max_delay": Field(Span(zero_allowed=True), "The longest pause."),
        "jitter": Field(Number(0, 1), "The share of the pause that is spread, from 0 to 1."),
    },
)

_COMMON: Final = {
    "id": Field(_STEP_ID, "The step's name in transitions; unique in the workflow.", required=True),
    "type": Field(Choice(()), "What kind of step this is.", required=True),
    "name": Field(_TITLE, "What people see."),
    "description": Field(_PROSE, "What people may read about it."),
    "metadata": Field(Json(), "Anything of yours; it is kept and shown, never read."),
}
_ON_TIMEOUT: Final = Field(_STEP_ID, "The step to go to when the time is up; without it the workflow's.")
_PATIENCE: Final = {
    "timeout": Field(Span(), "How long the step may last, all calls and waiting included."),
    "on_timeout": _ON_TIMEOUT,
}
_OPERATION_MEANS: Final = "What is called: python:NAME or openapi:DOCUMENT.OPERATION, or another kind."
_CALLED: Final = {
    "input": Field(Expressions(), "What it is called with: name → expression over workflow, context and input."),
    "output": Field(Expressions(), "What is kept of its answer: name → expression over response as well."),
    "retry": Field(_RETRY, "How often a failing call is repeated."),
    "call_timeout": Field(Span(), "How long one call may last; then it counts as failed."),
}
_PERSON: Final = {
    "form": Field(Json(), "A JSON Schema of what the person fills in; it is checked and merged into the state."),
    "capabilities": Field(_CAPABILITIES, "All of them are needed to act here."),
    "assignee": Field(_ASSIGNEE, "Who is asked: a user, a role or an expression."),
    "operation": Field(_OPERATION, f"{_OPERATION_MEANS} The call is made when somebody has answered."),
    "call_on": Field(
        Items(_EVENT, least=1, distinct=True, most=50),
        "The answers after which the call is made; all but rejected and reject if left out.",
    ),
    **_CALLED,
    **_PATIENCE,
}
_CALL: Final = {"operation": Field(_OPERATION, _OPERATION_MEANS, required=True), **_CALLED, **_PATIENCE}
_WAIT: Final = {
    "duration": Field(Span(zero_allowed=True), "Wait this long."),
    "until": Field(_EXPRESSION, "Wait until this moment: an expression, or a moment in ISO 8601."),
    "event": Field(_EVENT, "Wait for this event."),
    "key": Field(_EXPRESSION, "With event: an expression whose value addresses the wait from outside."),
    "capabilities": Field(_CAPABILITIES, "With event: all of them are needed to send it."),
    "timeout": Field(Span(), "With event: how long to wait for it."),
    "on_timeout": _ON_TIMEOUT,
}

STEP_TYPES: Final[dict[str, Fields]] = {
    name: Fields(f"{name} step", {**_COMMON, **own})
    for name, own in {
        "action": _PERSON,
        "approval": {
            **_PERSON,
            "self_approval": Field(Flag(), "May whoever started the workflow decide this? Otherwise they may not."),
        },
        "system": _CALL,
        "wait": _WAIT,
        "notification": _CALL,
        "terminal": {},
    }.items()
}

TRANSITION: Final = Fields(
    "transition",
    {
        "from": Field(_STEP_ID, "The step that is left.", required=True),
        "to": Field(_STEP_ID, "The step that is entered.", required=True),
        "event": Field(
            _EVENT, "The event that takes it: completed, error, timeout, or a name of yours.", required=True
        ),
        "condition": Field(_EXPRESSION, "Taken only if this holds; the first that holds is taken."),
        "guard": Field(_CAPABILITY, "The capability whoever sends the event needs."),
    },
)

WORKFLOW: Final = Fields(
    "workflow",
    {
        "id": Field(
            Text("a workflow's id: a letter, then letters, digits, _ . and -", WORKFLOW_ID),
            "Its name in addresses and calls, such as orders.approval.",
            required=True,
        ),
        "name": Field(_TITLE, "What people see."),
        "description": Field(_PROSE, "What people may read about it."),
        "version": Field(Whole(1, 2**31 - 1), "A published version never changes; 1 if left out."),
        "timeout": Field(Span(), "How long an instance may last."),
        "on_timeout": Field(_STEP_ID, "The step an instance goes to when its time is up; without it it fails."),
        "capabilities": Field(_CAPABILITIES, "All of them are needed to start an instance, any of them to see one."),
        "initial_step": Field(_STEP_ID, "Where instances begin; the first step if left out."),
        "input_schema": Field(Json(), "A JSON Schema of what an instance is started with."),
        "steps": Field(Items(Variants("step", "type", STEP_TYPES), least=1, most=500), "The steps.", required=True),
        "transitions": Field(Items(TRANSITION, most=2000), "What leads from step to step; tried in this order."),
        "metadata": Field(Json(), "Anything of yours; it is kept, never read."),
    },
)

FILE: Final = Fields(
    "file", {"workflows": Field(Items(WORKFLOW, least=1, most=100), "The workflows of this file.", required=True)}
)
