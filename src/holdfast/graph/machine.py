"""The machine in a graph: what the nodes and the graph of a machine carry beyond places and edges.

`Node.config` has a state's rules, timeout and category; `Graph.config` has the environment, the codes of the events and
the versions it was made of. The door that compiles a blueprint and a policy writes them, the core reads
them. Everything is resolved when the graph is compiled: parameters are data, events are names, durations are seconds,
and each event that leads into a state finds its own rule.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

GATE: Final = "gate"
EFFECT: Final = "effect"
ONCE: Final = "once"
REPEAT: Final = "repeat"


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of parameters out of the policy's catalogue."""

    code: str
    data: Any = None


class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events that a consumer should send when the work is done, and when it failed; names, never codes."""

    success: str | None = None
    failure: str | None = None


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call by name to the consumers that take it. With an `order` it belongs to a phase; a gate holds the next."""

    code: str
    type: Literal["gate", "effect"] = GATE
    order: int | None = None  # None: goes out with its transition and holds nothing
    ack: Literal["all", "any"] = "all"  # of its consumers, before a gate is done
    not_before: float | None = None  # seconds after its creation
    deadline: float | None = None  # effects: seconds after its creation; what is open then ends
    label: str | None = None
    params: tuple[Param, ...] = ()
    complete: Completion | None = None

    @property
    def holds(self) -> bool:
        """Check if later phases and events wait for it."""
        return self.order is not None and self.type == GATE


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rule of a state for one event that led there."""

    params: tuple[Param, ...] = ()
    complete: Completion | None = None
    hooks: tuple[Hook, ...] = ()


class StateTimeout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time a stay may last. With an event it is decided as that event; without one it is a notice."""

    after: float  # seconds
    event: str | None = None
    mode: Literal["once", "repeat"] = ONCE


class StateConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`Node.config` of a state."""

    category: str | None = None
    rules: dict[str, Rule] = {}  # by the name of the event that leads here; an event without a rule has no entry
    timeout: StateTimeout | None = None


class MachineConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`Graph.config` of a machine."""

    environment: str
    definition: str
    blueprint: int  # the version of the blueprint: with the external reference it names an instance
    codes: dict[str, int] = {}  # event → code
    policy: str | None = None  # the hash of the policy
    policy_name: str | None = None
    stale: float | None = None  # seconds without anything open before a stay is called stale; None: as the engine says
