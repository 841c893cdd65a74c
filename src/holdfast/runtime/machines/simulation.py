"""Simulation: events sent to an instance in memory, decided by the core as the engine would decide them.

Consumers and timeouts are left out: every gate counts as done at once, and time passes only as `now` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.core.decide import decide
from holdfast.core.machine.gates import GATE, SUCCESS
from holdfast.core.machine.triggers import NotApplied
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import Actor, GateDone, Started, Triggered
from holdfast.core.model.state import EMPTY, ROOT, Instance, Wait
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.core.model.timestamps import from_datetime
from holdfast.doors.machine.definition import MachineDefinition
from holdfast.errors import HoldfastError, NotFound
from holdfast.graph.compile import compile_graph
from holdfast.graph.machine import Hook, MachineConfig, Param, Rule, StateConfig
from holdfast.payloads import encode

Tried = int | str | tuple[int | str, Any]  # an event by code or name, perhaps with its payload

REASONS: Final[dict[str, str]] = {
    "GUARD_REFUSED": "guard_refused",
    "CAPABILITY_MISSING": "guard_refused",
}
_ID: Final = bytes(16)


class SimulatedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one event: where it led and what the state emits, or the reason why it does not apply."""

    from_state: str
    to_state: str
    event: str
    code: int
    applied: bool
    reason: str | None = None
    rule: Rule | None = None

    @property
    def params(self) -> tuple[Param, ...]:
        return () if self.rule is None else self.rule.params

    @property
    def on_success(self) -> str | None:
        return None if self.rule is None or self.rule.complete is None else self.rule.complete.success

    @property
    def on_failure(self) -> str | None:
        return None if self.rule is None or self.rule.complete is None else self.rule.complete.failure

    @property
    def hooks(self) -> tuple[Hook, ...]:
        return () if self.rule is None else self.rule.hooks


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The way of one simulated instance."""

    initial: str
    entries: tuple[SimulatedEntry, ...]
    is_over: bool
    data: Any

    @property
    def states(self) -> tuple[str, ...]:
        """Every state it was in, the initial one first; an event that does not apply adds none."""
        return (self.initial, *(entry.to_state for entry in self.entries if entry.applied))

    @property
    def state(self) -> str:
        return self.states[-1]


def simulate(
    machine: MachineDefinition,
    events: Iterable[Tried],
    *,
    actor: str = "simulation",
    capabilities: Iterable[str] = (),
    now: datetime | None = None,
    data: dict[str, Any] | None = None,
) -> Simulation:
    """Send events to an instance of the machine that exists only in memory."""
    who = Actor(actor, tuple(capabilities))
    facts = Facts(now=from_datetime(datetime.now(UTC) if now is None else now), actor=who)
    run = _Run(link(compile_graph(machine.graph())), facts, encode({} if data is None else data, "The data"))
    config = msgspec.convert(machine.graph().config, MachineConfig)
    entries = tuple(run.send(*_event(tried, config)) for tried in events)
    is_over = run.instance.status in TERMINAL
    return Simulation(
        initial=run.program.entry, entries=entries, is_over=is_over, data=msgspec.json.decode(run.instance.data)
    )


def _event(tried: Tried, config: MachineConfig) -> tuple[str, int, bytes | None]:
    """The name and the code of an event, and its payload as JSON."""
    ref, payload = tried if isinstance(tried, tuple) else (tried, None)
    name = next((name for name, code in config.codes.items() if ref in (name, code)), None)
    if name is None:
        raise NotFound(
            f"The machine has no event {ref!r}.",
            code="MACHINE_EVENT_UNKNOWN",
            hint=f"Its events are {', '.join(f'{name} ({code})' for name, code in config.codes.items())[:500]}.",
        )
    return name, config.codes[name], None if payload is None else encode(payload, "The payload")


class _Run:
    def __init__(self, program: Program, facts: Facts, data: bytes) -> None:
        self.program = program
        self.facts = facts
        self.state = program.entry
        self.instance = Instance(
            id=_ID,
            org="",
            definition=b"",
            flow=program.name,
            flow_version=program.version,
            version=0,
            status=InstanceStatus.PENDING,
            state=EMPTY,
            data=data,
        )
        self.apply(decide(program, self.instance, Started(data), facts))

    def apply(self, decision: Decision) -> None:
        self.instance = decision.instance
        token = self.instance.state.tokens.get(ROOT)
        self.state = decision.opened[-1].node if token is None else token.node

    def refused(self, event: str, code: int, reason: str) -> SimulatedEntry:
        state = self.state
        return SimulatedEntry(from_state=state, to_state=state, event=event, code=code, applied=False, reason=reason)

    def pass_gates(self) -> None:
        """Let every gate succeed, phase by phase."""
        while gates := [wait.ref for wait in self.waits() if wait.kind == GATE and wait.ref is not None]:
            self.apply(decide(self.program, self.instance, GateDone(gates[0], SUCCESS), self.facts))

    def waits(self) -> tuple[Wait, ...]:
        token = self.instance.state.tokens.get(ROOT)
        return () if token is None else token.waits

    def send(self, event: str, code: int, raw: bytes | None) -> SimulatedEntry:
        before = self.state
        try:
            self.apply(decide(self.program, self.instance, Triggered(event, raw), self.facts))
        except NotApplied as told:
            return self.refused(event, code, msgspec.json.decode(told.answer)["reason"])
        except HoldfastError as error:
            if error.code not in REASONS:
                raise
            return self.refused(event, code, REASONS[error.code])
        self.pass_gates()
        config = msgspec.convert(self.program.places[self.state].node.config, StateConfig)
        rule = config.rules.get(event)
        return SimulatedEntry(from_state=before, to_state=self.state, event=event, code=code, applied=True, rule=rule)
