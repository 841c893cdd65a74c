"""A blueprint and a policy as they were written, with the position of each part in its list.

A part that cannot be read is left out; `has_all_…` tell if any was. Events are kept as they were written, as code or
name: only the blueprint knows which of its events a code means.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec

EventRef = int | str


class State(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    name: str
    is_initial: bool = False
    is_final: bool = False
    category: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    code: int
    name: str


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    source: str
    event: EventRef
    target: str
    when: str | None = None
    guard: str | None = None


class Blueprint(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    name: str = ""
    environment: str = ""
    version: int = 1
    states: tuple[State, ...] = ()
    events: tuple[Event, ...] = ()
    transitions: tuple[Transition, ...] = ()
    has_all_states: bool = True
    has_all_events: bool = True
    has_all_transitions: bool = True

    def event(self, ref: EventRef) -> str | None:
        """Find the name of the event that a code or a name means."""
        return self._names.get(ref)

    @cached_property
    def _names(self) -> dict[EventRef, str]:
        events = tuple(reversed(self.events))  # of two that share a code or a name the first counts
        return {event.code: event.name for event in events} | {event.name: event.name for event in events}


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    success: EventRef | None = None
    failure: EventRef | None = None


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `emit`."""

    index: int
    code: str | None
    codes: int = 1  # the keys that give its code: event and route
    type: Literal["gate", "effect"] | None = None
    order: int | None = None
    ack: Literal["all", "any"] = "all"
    not_before: float | None = None
    deadline: float | None = None
    label: str | None = None
    params: tuple[str, ...] = ()
    complete: Completed | None = None


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    state: str
    via: EventRef | None = None
    params: tuple[str, ...] = ()
    complete: Completed | None = None
    emit: tuple[Emitted, ...] = ()


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    state: str
    after: float  # seconds
    mode: Literal["once", "repeat"] = "once"
    event: EventRef | None = None


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    code: str
    data: Any = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    definition: str | None = None
    version: int | None = None
    params: tuple[Parameter, ...] = ()
    rules: tuple[PolicyRule, ...] = ()
    timeouts: tuple[Timeout, ...] = ()
    stale: float | None = None  # seconds
    has_all_params: bool = True
