"""Simulation of a document: an effective graph, decided by the core in memory, with simulated people and calls.

Nothing is stored. Gates pass, actions change the simulated document, decision tables decide, effects are delivered, and
sub-flows complete, unless `failing` says otherwise. Time passes only as the script says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import singledispatchmethod
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
    Decided,
    EntityChanged,
    EventArrived,
    Failure,
    ReceiptArrived,
    Signal,
    Started,
    TimerDue,
    VerbCalled,
    WorkDone,
    WorkFailed,
)
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.core.model.timestamps import from_datetime, seconds, to_datetime, to_iso
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.graph.compiled import Compiled
from holdfast.graph.envelope import state_id
from holdfast.graph.windows import LOCKED
from holdfast.payloads import encode
from holdfast.runtime.envelopes.calls import Answered, Calls, Scope
from holdfast.runtime.envelopes.recording import Recording
from holdfast.runtime.envelopes.script import Arrive, CallVerb, Decide, Edit, Elapse, Input
from holdfast.runtime.envelopes.simulated import Answer, Simulation

_STATE: Final = state_id("")


def simulate(
    effective: Compiled,
    document: Mapping[str, Any],
    script: Iterable[Input] = (),
    *,
    now: datetime | None = None,
    org: Mapping[str, Any] | None = None,
    outputs: Mapping[str, dict[str, Any]] | None = None,
    failing: Mapping[str, str] | None = None,
) -> Simulation:
    """Send a document with these fields through an effective graph.

    `outputs` has the answers of actions, effects and sub-flows by name of their node, `failing` the codes of those that
    fail. What cannot be done is refused in the `answers`, and the script goes on.
    """
    run = _Run(effective, dict(document), Outside(dict(org or {}), dict(outputs or {}), dict(failing or {})), now)
    run.start()
    for given in script:
        run.answer(given)
    return run.result()


class Outside(msgspec.Struct, frozen=True):
    """What is not of the document: the settings of the organisation, and what calls answer."""

    org: dict[str, Any]
    outputs: dict[str, dict[str, Any]]
    failing: dict[str, str]


class _Run:
    def __init__(self, compiled: Compiled, document: dict[str, Any], outside: Outside, now: datetime | None) -> None:
        self.program = link(compiled)
        self.calls = Calls(compiled)
        self.every = _capabilities(compiled)
        self.outside = outside
        self.document = document
        self.version = 1
        self.count = 0
        self.now = from_datetime(datetime.now(UTC) if now is None else now)
        self.state = ""
        self.window = LOCKED
        self.tasks: dict[bytes, str] = {}
        self.timers: dict[bytes, Timer] = {}
        self.waits: list[KeyWait] = []
        self.due: list[Dispatch | Effect | ChildFlow] = []
        self.answers: list[Answer] = []
        self.recording = Recording(self.program)
        self.number = 1  # of the instance
        self.instance = _instance(self.program, self.number)

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

    # --- the script -----------------------------------------------------------------------------------------------

    def answer(self, given: Input) -> None:
        at = to_datetime(self.now)
        try:
            self.perform(given)
        except HoldfastError as error:
            refused = Answer(input=given, at=at, applied=False, code=error.code, message=error.message)
            self.answers.append(refused)
        else:
            self.answers.append(Answer(input=given, at=at))

    @singledispatchmethod
    def perform(self, given: Any) -> None:
        raise TypeError(f"{given!r} is no input of a simulation.")

    @perform.register
    def _(self, given: CallVerb) -> None:
        actor = self.actor(given.by, given.capabilities)
        self.permit(given.verb, actor)
        if self.is_over:
            self.begin_again(given.verb, actor)
            return
        raw = None if given.payload is None else encode(given.payload, "The payload")
        self.apply(VerbCalled(self.next_id(), given.verb, self.version + 1, raw), actor)
        self.version += 1

    @perform.register
    def _(self, given: Decide) -> None:
        task = next((id for id, node in self.tasks.items() if _is_called(node, given.node)), None)
        if task is None:
            raise NotFound(f"Nobody is asked at {given.node!r} now.", code="TASK_NOT_FOUND")
        raw = None if given.data is None else encode(given.data, "The data")
        self.apply(Decided(self.next_id(), task, given.decision, raw), self.actor(given.by, None))

    @perform.register
    def _(self, given: Edit) -> None:
        actor = self.actor(given.by, given.capabilities)
        self.permit("update", actor)
        unknown = sorted(given.fields.keys() - self.calls.fields.keys())
        if unknown:
            raise Refused(f"The contract has no field {unknown[0]!r}.", code="DOCUMENT_FIELD_UNKNOWN")
        found = stance(self.program, self.instance)
        if (self.window if found is None else found.window) == LOCKED:
            raise Refused("The document is locked here.", code="WORKFLOW_EDIT_LOCKED")
        before = self.document
        self.document = {**before, **given.fields}
        try:
            if not self.is_over:
                material = self.calls.is_material(given.fields)
                self.apply(EntityChanged(self.version + 1, "update", material), actor)
        except HoldfastError:
            self.document = before
            raise
        self.version += 1

    @perform.register
    def _(self, given: Arrive) -> None:
        raw = None if given.data is None else encode(given.data, "The data")
        if given.key is None:
            self.apply(EventArrived(self.next_id(), given.event, raw, early=False), SYSTEM)
            return
        wait = next((wait for wait in self.waits if (wait.event, wait.key) == (given.event, given.key)), None)
        if wait is None:
            raise NotFound(f"Nothing waits for {given.event!r} with the key {given.key!r}.", code="WAIT_NOT_FOUND")
        self.apply(EventArrived(self.next_id(), given.event, raw, token=wait.token, keyed=True), SYSTEM)

    @perform.register
    def _(self, given: Elapse) -> None:
        end = self.now + seconds(given.seconds)
        while due := [timer for timer in self.timers.values() if timer.due <= end]:
            timer = min(due, key=lambda each: (each.due, each.id))
            del self.timers[timer.id]
            self.now = max(self.now, timer.due)
            self.apply(TimerDue(timer.path, timer.wait, timer.purpose), SYSTEM)
        self.now = max(self.now, end)

    def begin_again(self, verb: str, actor: Actor) -> None:
        """Let a verb begin a new instance where the document was left."""
        area = self.program.areas.get(state_id(self.state))
        way = None if area is None else area.verbs.get(verb)
        if way is None:
            raise Refused(f"The verb {verb!r} is not offered now.", code="VERB_NOT_OFFERED")
        if way.guard is not None and way.guard not in actor.capabilities:
            raise Refused(f"{verb!r} needs the capability {way.guard!r}.", code="CAPABILITY_MISSING")
        if way.when is not None and way.when.evaluate(self.scope(actor).values) is not True:
            raise Refused(f"The condition of {verb!r} does not hold.", code="GUARD_REFUSED")
        self.version += 1
        self.number += 1
        self.instance = _instance(self.program, self.number)
        self.start(way.target)

    def permit(self, call: str, actor: Actor) -> None:
        broken = self.calls.broken_policy(call, self.scope(actor))
        if broken is not None:
            raise Refused(f"The policy {broken!r} refuses {call!r}.", code="POLICY_REFUSED")

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

    def result(self) -> Simulation:
        return Simulation(
            path=self.recording.path,
            windows=tuple(self.recording.outlooks),
            questions=tuple(self.recording.questions.values()),
            answers=tuple(self.answers),
            document=self.document,
            version=self.version,
            state=self.state,
            status=str(self.instance.status),
            waits=tuple(sorted(token.node for token in self.instance.state.tokens.values())),
            error=self.recording.error,
            data=msgspec.json.decode(self.instance.data),
        )


def _instance(program: Program, number: int) -> Instance:
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


def _is_called(node: str, name: str) -> bool:
    return node == name or node.rpartition(":")[2] == name


def _find(given: Mapping[str, Any], node: str) -> Any:
    return next((value for name, value in given.items() if _is_called(node, name)), None)
