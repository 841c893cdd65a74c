"""Simulation of a document: an effective graph, decided by the core in memory, with simulated people and calls.

Nothing is stored. Gates pass, actions change the simulated document, decision tables decide, effects are delivered, and
sub-flows complete, unless `failing` says otherwise. Time passes only as the script says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import singledispatchmethod
from typing import Any

import msgspec

from holdfast.core.documents.stance import stance
from holdfast.core.model.signals import SYSTEM, Actor, Decided, EntityChanged, EventArrived, TimerDue, VerbCalled
from holdfast.core.model.timestamps import seconds, to_datetime
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.graph.compiled import Compiled
from holdfast.graph.envelope import state_id
from holdfast.graph.windows import LOCKED
from holdfast.payloads import encode
from holdfast.runtime.envelopes.recording import TooLong
from holdfast.runtime.envelopes.script import Arrive, CallVerb, Decide, Edit, Elapse, Input
from holdfast.runtime.envelopes.simulated import Answer, Simulation
from holdfast.runtime.envelopes.world import Outside, World, is_called, new_instance


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
    fail. A refused input is among the `answers` with its code; the rest of the script follows.
    """
    run = _Run(effective, dict(document), Outside(dict(org or {}), dict(outputs or {}), dict(failing or {})), now)
    try:
        run.start()
        for given in script:
            run.answer(given)
    except OverflowError:
        raise Refused(
            "The simulation leaves the years that there are.",
            code="INPUT_INVALID",
            hint="Begin it earlier, or let less time pass.",
        ) from None
    return run.result()


class _Run(World):
    """A world in which a script is played."""

    def __init__(self, compiled: Compiled, document: dict[str, Any], outside: Outside, now: datetime | None) -> None:
        super().__init__(compiled, document, outside, now)
        self.answers: list[Answer] = []

    def answer(self, given: Input) -> None:
        at = to_datetime(self.now)
        try:
            self.perform(given)
        except TooLong:
            raise
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
        task = next((id for id, node in self.tasks.items() if is_called(node, given.node)), None)
        if task is None:
            raise NotFound(f"Nobody is asked at {given.node!r} now.", code="TASK_UNKNOWN")
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
            raise Refused(f"{verb!r} needs the capability {way.guard!r}.", code="GUARD_REFUSED")
        if way.when is not None and way.when.evaluate(self.scope(actor).values) is not True:
            raise Refused(f"The condition of {verb!r} does not hold.", code="NO_EDGE_MATCHED")
        self.version += 1
        self.number += 1
        self.instance = new_instance(self.program, self.number)
        self.start(way.target)

    def permit(self, call: str, actor: Actor) -> None:
        broken = self.calls.broken_policy(call, self.scope(actor))
        if broken is not None:
            raise Refused(f"The policy {broken!r} refuses {call!r}.", code="POLICY_REFUSED")

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
