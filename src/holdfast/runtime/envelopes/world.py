"""The world of a simulated document: the core decides, and what it asks of the world is answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.core.decide import decide
from holdfast.core.documents.stance import stance
from holdfast.core.model.decision import Child as ChildFlow
from holdfast.core.model.decision import Decision, Dispatch, Effect, Facts, KeyWait, TaskClosed, TaskOpened, Timer
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import (
    SYSTEM,
    Actor,
    ChildFinished,
    EntityChanged,
    Failure,
    ReceiptArrived,
    Signal,
    Started,
    WorkDone,
    WorkFailed,
)
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.core.model.timestamps import from_datetime, to_iso
from holdfast.graph.compiled import Compiled
from holdfast.graph.envelope import state_id
from holdfast.graph.windows import LOCKED
from holdfast.payloads import encode
from holdfast.runtime.envelopes.calls import Answered, Calls, Scope
from holdfast.runtime.envelopes.recording import Recording

_STATE: Final = state_id("")


class Outside(msgspec.Struct, frozen=True):
    """What is not of the document: the settings of the organisation, and what calls answer."""

    org: dict[str, Any]
    outputs: dict[str, dict[str, Any]]
    failing: dict[str, str]


class World:
    """One document and what is around it."""

    def __init__(self, compiled: Compiled, document: dict[str, Any], outside: Outside, now: datetime | None) -> None:
        self.program = link(compiled)
        self.calls = Calls(compiled)
        self.every = _capabilities(compiled)
        self.outside = outside
        self.document = document
        self.version: int = 1  # of the document
        self.count = 0
        self.now = from_datetime(datetime.now(UTC) if now is None else now)
        self.state = ""
        self.window = LOCKED
        self.tasks: dict[bytes, str] = {}
        self.timers: dict[bytes, Timer] = {}
        self.waits: list[KeyWait] = []
        self.due: list[Dispatch | Effect | ChildFlow] = []
        self.recording = Recording(self.program)
        self.number = 1  # of the instance
        self.instance = new_instance(self.program, self.number)

    # --- the core -------------------------------------------------------------------------------------------------

    def start(self, node: str | None = None) -> None:
        self.apply(Started(b"{}", node), SYSTEM)

    def apply(self, signal: Signal, actor: Actor) -> None:
        """Decide a signal, and then everything that follows by itself."""
        self.decide(signal, actor)
        while self.due:
            self.settle(self.due.pop(0))

    def decide(self, signal: Signal, actor: Actor) -> None:
        facts = Facts(self.now, actor, entity=self.document, org=self.outside.org)
        decision = decide(self.program, self.instance, signal, facts)
        self.instance = decision.instance
        self.keep(decision)
        for row in decision.opened:
            if row.node.startswith(_STATE):
                self.state = row.node.removeprefix(_STATE)
        self.recording.take(decision, self.now, actor, stance(self.program, self.instance))
        if (found := self.program.areas.get(state_id(self.state))) is not None:
            self.window = found.window

    def keep(self, decision: Decision) -> None:
        released = {released.path for released in decision.released}
        self.due = [due for due in self.due if not isinstance(due, Dispatch) or due.path not in released]
        self.due += [*decision.dispatches, *(each for each in decision.effects if each.awaited), *decision.children]
        self.timers |= {timer.id: timer for timer in decision.timers}
        for id in decision.timers_ended:
            self.timers.pop(id, None)
        self.waits = [wait for wait in (*self.waits, *decision.key_waits) if wait not in decision.key_waits_ended]
        for task in decision.tasks:
            if isinstance(task, TaskOpened):
                self.tasks[task.id] = task.node
            elif isinstance(task, TaskClosed):
                self.tasks.pop(task.id, None)

    def settle(self, due: Dispatch | Effect | ChildFlow) -> None:
        """Answer a call, an effect or a sub-flow; one that nobody waits for any more is left alone."""
        tokens = self.instance.state.tokens.values()
        if isinstance(due, Dispatch):
            if any(token.step == due.step for token in tokens):
                self.call(due)
            return
        ref = due.id
        token = next((token for token in tokens if any(wait.ref == ref for wait in token.waits)), None)
        if token is None:
            return
        name, raw = token.node, encode(self.output(token.node), "The output")
        failure = self.failure(name)
        if isinstance(due, Effect):
            self.decide(ReceiptArrived(due.token, None if failure else raw, failure, due.id), SYSTEM)
        else:
            status = "failed" if failure else "completed"
            self.decide(ChildFinished(due.token, status, None if failure else raw, failure, due.id), SYSTEM)

    def call(self, due: Dispatch) -> None:
        node, payload = self.program.places[due.node].node, msgspec.json.decode(due.input or b"{}")
        answer = self.failure(node.id) or self.calls.answer(node, payload, self.scope(self.actor("system", None)))
        if isinstance(answer, Failure):
            self.decide(WorkFailed(due.path, due.step, due.fence, answer, due.calls, False, due.input), SYSTEM)
            return
        if answer.changes:
            self.change(answer, node.config["action"])
        output = encode({**answer.output, **self.output(node.id)}, "The output")
        self.decide(WorkDone(due.path, due.step, due.fence, output, due.calls, due.input), SYSTEM)

    def change(self, answer: Answered, action: str) -> None:
        """Follow a change by the instance's own call."""
        self.document = {**self.document, **answer.changes}
        self.version += 1
        material = self.calls.is_material(answer.changes)
        self.decide(EntityChanged(self.version, action, material, self.instance.id), SYSTEM)

    def output(self, node: str) -> dict[str, Any]:
        return _find(self.outside.outputs, node) or {}

    def failure(self, node: str) -> Failure | None:
        code = _find(self.outside.failing, node)
        return None if code is None else Failure(code, "The simulation was told to let it fail.")

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.instance.status in TERMINAL

    def actor(self, name: str, capabilities: tuple[str, ...] | None) -> Actor:
        return Actor(name, self.every if capabilities is None else capabilities)

    def scope(self, actor: Actor) -> Scope:
        context = msgspec.json.decode(self.instance.data)
        return Scope(self.document, context, self.outside.org, actor.facts(actor.id), to_iso(self.now))

    def next_id(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")


def new_instance(program: Program, number: int) -> Instance:
    return Instance(
        id=number.to_bytes(16, "big"),
        org="",
        definition=b"",
        flow=program.name,
        flow_version=program.version,
        version=0,
        status=InstanceStatus.PENDING,
        state=EMPTY,
        data=b"{}",
    )


def _capabilities(compiled: Compiled) -> tuple[str, ...]:
    """Every capability that the graph knows: in a simulation people have them unless the script says otherwise."""
    guards = {guard for region in compiled.regions.values() for guard in region.guards.values()}
    guards |= {edge.guard for edge in compiled.edges.values() if edge.guard is not None}
    guards |= {node.config["capability"] for node in compiled.nodes.values() if "capability" in node.config}
    guards |= {policy.capability for policy in Calls(compiled).policies if policy.capability is not None}
    return tuple(sorted(guards))


def is_called(node: str, name: str) -> bool:
    return node == name or node.rpartition(":")[2] == name


def _find(given: Mapping[str, Any], node: str) -> Any:
    return next((value for name, value in given.items() if is_called(node, name)), None)
