"""The formats of a blueprint and of a policy: every key with the shape of its value and its meaning."""

from __future__ import annotations

from typing import Final

from holdfast.doors.shapes import Anything, Choice, Either, Field, Fields, Flag, Items, Shape, Span, Text, Whole
from holdfast.graph.machine import EFFECT, GATE, ONCE, REPEAT

MOST_INTEGER: Final = 2**31 - 1
MOST_ORDER: Final = 2**31 - 2
MOST_MINUTES: Final = 52_596_000  # 100 years
MODES: Final = (ONCE, REPEAT)  # a number stands for the mode at its place
LONGEST_EXPRESSION: Final = 500

_CONTROL: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
NAME: Final = "^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
DOTTED: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,89}$"
VISIBLE: Final = rf"^(?!\s)[^{_CONTROL}]*[^\s{_CONTROL}]$"
STATE: Final = rf"^(?!\s)[^@{_CONTROL}]*[^\s@{_CONTROL}]$"
EVENT: Final = rf"^(?!\s)(?!-?[0-9]+$)[^{_CONTROL}]*[^\s{_CONTROL}]$"

_STATE: Final = Text("a state's name: visible text without @", STATE, 100, "MACHINE_NAME_INVALID")
_EVENT_NAME: Final = Text("an event's name: visible text that is no number", EVENT, 100, "MACHINE_NAME_INVALID")
_EVENT_CODE: Final = Whole(0, MOST_INTEGER)
_EVENT: Final = Either("an event's code or name", (_EVENT_CODE, _EVENT_NAME))
_VISIBLE: Final = Text("one line of visible text", VISIBLE)
_CODE: Final = Text("a code: one line of visible text", VISIBLE)
_EXPRESSION: Final = Text("an expression", None, LONGEST_EXPRESSION)
_VERSION: Final = Whole(1, MOST_INTEGER)
_SPAN: Final = Span(is_iso=True)
_MINUTES: Final = Whole(1, MOST_MINUTES, "MACHINE_DURATION_INVALID")
_DEFINITION: Final = Text(
    "a machine's name: a letter or digit, then letters, digits, _ . and -", DOTTED, 90, "MACHINE_NAME_INVALID"
)
_ENVIRONMENT: Final = Text(
    "an environment's name: a letter or digit, then letters, digits, _ and -", NAME, 100, "MACHINE_NAME_INVALID"
)
_SCHEMA: Final = {"$schema": Field(Text("the address of a JSON Schema", None, 2000), "For editors; never read.")}

_STATES: Final = Fields(
    "state",
    {
        "name": Field(_STATE, "Its name, unique in the blueprint.", required=True),
        "is_initial": Field(Flag(), "Instances begin here; true for exactly one state."),
        "is_final": Field(Flag(), "Instances end here."),
        "category": Field(_VISIBLE, "A group of states, for reports."),
    },
)
_EVENTS: Final = Fields(
    "event",
    {
        "code": Field(_EVENT_CODE, "Its number, unique in the blueprint.", required=True),
        "name": Field(_EVENT_NAME, "Its name, unique in the blueprint.", required=True),
    },
)
_TRANSITIONS: Final = Fields(
    "transition",
    {
        "from": Field(_STATE, "The state that is left.", required=True),
        "event": Field(_EVENT, "The event that moves the instance, by code or name.", required=True),
        "to": Field(_STATE, "The state that is entered.", required=True),
        "when": Field(_EXPRESSION, "Taken only if this expression holds; the first that holds is taken."),
        "guard": Field(_VISIBLE, "The capability that the sender of the event needs."),
    },
)
BLUEPRINT: Final = Fields(
    "blueprint",
    {
        **_SCHEMA,
        "name": Field(_DEFINITION, "The machine's name within its environment.", required=True),
        "environment": Field(_ENVIRONMENT, "The environment, such as prod; no dot.", required=True),
        "version": Field(_VERSION, "The blueprint's version; with a reference it names an instance.", required=True),
        "states": Field(Items(_STATES, least=1, most=500), "The states.", required=True),
        "events": Field(Items(_EVENTS, most=1000), "The events, each with a code and a name.", required=True),
        "transitions": Field(Items(_TRANSITIONS, most=5000), "The transitions between states.", required=True),
    },
)

_COMPLETE: Final = Fields(
    "completion",
    {
        "success": Field(_EVENT, "The event to send when the work is done."),
        "failure": Field(_EVENT, "The event to send when the work failed."),
    },
)
_PARAMS: Final = Items(_CODE, most=100, distinct=True)
_EMIT: Final = Fields(
    "hook",
    {
        "event": Field(_CODE, "The hook's code: the method that a consumer runs."),
        "route": Field(_CODE, "Another name of `event`."),
        "type": Field(Choice((GATE, EFFECT)), "A gate with an order holds what follows; an effect never does."),
        "order": Field(Whole(1, MOST_ORDER, "MACHINE_ORDER_INVALID"), "The phase; without it, at once."),
        "ack": Field(Choice(("all", "any")), "A gate is done when all of its consumers are, or any."),
        "not_before": Field(_SPAN, "The earliest delivery, counted from the transition."),
        "deadline": Field(_SPAN, "The time after which an effect is not delivered any more."),
        "label": Field(_VISIBLE, "A title for people."),
        "params": Field(_PARAMS, "Codes of parameters that go with it."),
        "complete": Field(_COMPLETE, "The events that end the phase of a gate."),
    },
)
_RULES: Final = Fields(
    "rule",
    {
        "state": Field(_STATE, "The state that is entered.", required=True),
        "via": Field(_EVENT, "Only for this event; without it, for all events without a rule of their own."),
        "params": Field(_PARAMS, "Codes of parameters that go with the transition."),
        "complete": Field(_COMPLETE, "The events to send when the work of this state is done."),
        "emit": Field(Items(_EMIT, most=100), "The hooks."),
    },
)
_TIMEOUTS: Final = Fields(
    "timeout",
    {
        "state": Field(_STATE, "The state whose stay is limited.", required=True),
        "timeout": Field(_SPAN, "The longest stay, in ISO 8601, such as P2D."),
        "timeout_minutes": Field(_MINUTES, "The longest stay in minutes."),
        "timeout_mode": Field(
            Either("once, repeat, 0 or 1", (Choice(MODES), Whole(0, 1))), "once (0) per stay, or repeat (1)."
        ),
        "timeout_event": Field(_EVENT, "The event that is decided then; without it, only a notice."),
    },
)
_CATALOGUE: Final = Fields(
    "parameter",
    {
        "code": Field(_CODE, "Its code, unique in the policy.", required=True),
        "data": Field(Anything(), "Any JSON; consumers get it as it is."),
    },
)
_FOR: Final = Fields(
    "target",
    {
        "definition": Field(_DEFINITION, "The machine's name.", required=True),
        "version": Field(_VERSION, "The version of the blueprint it was written for."),
    },
)
POLICY: Final = Fields(
    "policy",
    {
        **_SCHEMA,
        "policy_name": Field(_VISIBLE, "A name for people."),
        "for": Field(_FOR, "The machine this policy is for.", required=True),
        "params": Field(Items(_CATALOGUE, most=1000), "The catalogue of parameters."),
        "rules": Field(Items(_RULES, most=2000), "The rules; of two that match, the later one counts."),
        "timeouts": Field(Items(_TIMEOUTS, most=500), "Limits of stays, at most one per state."),
        "stale": Field(
            Either("a duration in ISO 8601, or minutes", (_SPAN, _MINUTES)), "A stay this long without work is stale."
        ),
        "stale_minutes": Field(_MINUTES, "The same in minutes."),
    },
)
SHAPES: Final[dict[str, Shape]] = {"blueprint": BLUEPRINT, "policy": POLICY}
