"""A decision in the making: the one mutable thing in the kernel, born in `decide` and gone when it returns.

It collects rows, keeps the numbering within the decision and offers the small verbs every behaviour shares: open a
step, close it, note an event, set a timer, read the data. The modules around it decide which of them to use.
"""

from __future__ import annotations

from typing import Any, Final, cast
from uuid import UUID

import msgspec

from holdfast.core.model.arrival import Arrival
from holdfast.core.model.control_rows import ControlRow, Suspended
from holdfast.core.model.decision import (
    Answered,
    Child,
    Closed,
    Dispatch,
    Effect,
    Event,
    Fact,
    Facts,
    KeyWait,
    Letter,
    Moved,
    Need,
    Notice,
    Opened,
    Outgoing,
    Release,
    Retried,
    TaskChange,
    TaskClosed,
    Timer,
)
from holdfast.core.model.ids import CONTROL, FORWARD, receipt_key, step_id, timer_id, token_id
from holdfast.core.model.program import Place, Program
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import Instance, Rollback, Stopping, Token, Wait
from holdfast.core.model.status import InstanceStatus, StepStatus
from holdfast.core.model.timestamps import to_iso
from holdfast.errors import Refused
from holdfast.graph.expressions import REQUEST_FACTS, Expression
from holdfast.payloads.bounds import MAX_COMPOSED_DEPTH, is_deep, stored_size
from holdfast.payloads.numbers import spelled

encode = msgspec.json.encode
decode = msgspec.json.decode

NULL: Final = b"null"
TIMED: Final = frozenset({"timer", "deadline", "retry", "due", "prompt", "stale"})  # waits with a timer row
CONTEXT_TOO_LARGE: Final = "CONTEXT_TOO_LARGE"
NOTHING_CHOSEN: Final = b"[]"


class Overflow(Exception):
    """Error: the instance would have to keep more than its limits allow."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(CONTEXT_TOO_LARGE, message)

    def refusal(self) -> Refused:
        """The refusal for the sender of data that does not fit any more."""
        return Refused(self.failure.message, code=CONTEXT_TOO_LARGE, hint="Store the content elsewhere, send less.")


def within(raw: bytes, most: int, what: str = "The state of the instance") -> bytes:
    if (size := stored_size(raw, most)) > most:
        raise Overflow(f"{what} would be {size} bytes of JSON; an instance keeps at most {most}.")
    return raw


class Move(msgspec.Struct, frozen=True, gc=False):
    """A token on its way into a node.

    `held` is the fence of the work row it brings along, 0 for none. `fence` is the last one it used, because fences
    live as long as the token.
    """

    path: str
    hop: int
    node: str
    raw: bytes
    held: int = 0
    last: str | None = None
    cause: str = "moved"
    run: int = 0
    fence: int = 0


def counted(calls: int) -> dict[str, Any]:
    """The number of calls for the detail of an event; left out for a single call."""
    return {"calls": calls} if calls > 1 else {}


def about(failure: Failure, calls: int = 0) -> dict[str, Any]:
    """A failure as the detail of an event."""
    return {"code": failure.code, "message": failure.message, **counted(calls)}


def encode_data(value: Any) -> bytes:
    """Encode users' values such that their numbers come back from the database as they are."""
    return spelled(encode(value))


def merged(context: bytes, output: bytes) -> bytes:
    """Merge an output into the context, shallowly, key by key. An output that is no object changes nothing."""
    patch = decode(output)
    if not isinstance(patch, dict) or not patch:
        return context
    return encode_data({**decode(context), **cast(dict[str, Any], patch)})


def without_own(own: frozenset[str], given: bytes) -> bytes:
    """Remove the names that only the engine writes from data of any other origin.

    This comes before the row is written, so a commit and a replay store and merge the same data.
    """
    if not own:
        return given
    fields = decode(given)
    if not isinstance(fields, dict) or own.isdisjoint(cast(dict[str, Any], fields)):
        return given
    return encode_data({name: value for name, value in cast(dict[str, Any], fields).items() if name not in own})


# The one empty list for all outputs that most decisions lack. Never append to it: to add to such an output, make a new
# list. A dozen fresh lists per decision cost more than the decision itself.
NONE: Final[list[Any]] = []


class Turn:
    __slots__ = (
        "actor",
        "after",
        "answer",
        "arrival",
        "chain",
        "children",
        "closed",
        "context",
        "controls",
        "dispatches",
        "early",
        "effects",
        "entered",
        "error",
        "events",
        "expires",
        "facts",
        "facts_told",
        "ghosts",
        "halts",
        "instance",
        "keep",
        "key_waits",
        "key_waits_ended",
        "letters",
        "letters_resolved",
        "moved",
        "moves",
        "needs",
        "notices",
        "now",
        "opened",
        "outgoing",
        "overtime",
        "parked",
        "program",
        "rearms",
        "reason",
        "released",
        "result",
        "retried",
        "rollback",
        "scopes",
        "seq",
        "status",
        "stopping",
        "stops",
        "superseded",
        "tasks",
        "timers",
        "timers_ended",
        "tokens",
        "unguarded",
        "version",
    )

    def __init__(self, program: Program, instance: Instance, facts: Facts) -> None:
        state = instance.state
        self.program = program
        self.instance = instance
        self.facts = facts
        self.now = facts.now
        self.after = facts.now  # the next match of a cron expression is after this
        self.actor = facts.actor.id
        self.version = instance.version + 1
        self.seq = 0
        self.controls = 0
        self.entered = 0
        self.status = instance.status
        self.reason = instance.reason
        self.tokens = dict(state.tokens)
        self.scopes = dict(state.scopes) if state.scopes else state.scopes
        self.chain = state.chain
        self.early = state.early
        self.parked = state.parked
        self.stopping: Stopping | None = state.stopping
        self.expires: Wait | None = state.expires
        self.rollback: Rollback | None = state.rollback
        self.ghosts = state.ghosts
        self.context = instance.data
        self.result: bytes | None = None
        self.error: bytes | None = None
        self.overtime: Failure | None = None  # the failure for which no step may begin in this decision
        self.keep = False
        self.arrival: Arrival | None = None  # the event of a machine that moves its token in this decision
        self.unguarded = False  # edges are chosen for the system, which passes every guard
        self.answer: bytes | None = None
        self.rearms = False
        self.facts_told: list[Fact] = NONE
        self.notices: list[Notice] = NONE
        self.moves: list[Move] = []
        self.opened: list[Opened] = []
        self.closed: list[Closed] = []
        self.events: list[Event] = []
        self.dispatches: list[Dispatch] = []
        self.released: list[Release] = []
        self.retried: list[Retried] = NONE
        self.timers: list[Timer] = NONE
        self.timers_ended: list[bytes] = NONE
        self.effects: list[Effect] = NONE
        self.key_waits: list[KeyWait] = NONE
        self.key_waits_ended: list[KeyWait] = NONE
        self.children: list[Child] = NONE
        self.outgoing: list[Outgoing] = NONE
        self.superseded: list[tuple[bytes, int]] = NONE
        self.needs: list[Need] = NONE
        self.tasks: list[TaskChange] = NONE
        self.stops: tuple[str, ...] = ()
        self.halts: tuple[str, ...] = ()
        self.moved: tuple[Moved, ...] = ()
        self.letters: tuple[Letter, ...] = ()
        self.letters_resolved: tuple[Answered, ...] = ()

    # --- rows ---------------------------------------------------------------------------------------------------

    def note(self, type: str, node: str | None = None, token: str | None = None, detail: Any = None) -> None:
        self.events.append(
            Event(self.version, self.seq, type, node, token, self.actor, None if detail is None else encode(detail))
        )
        self.seq += 1

    def open(
        self,
        place: Place,
        move: Move,
        status: StepStatus,
        *,
        input: bytes,
        detail: dict[str, Any] | None = None,
        fence: int = 0,
        calls: int = 0,
        closed: bool = False,
        chosen: bytes | None = None,
        output: bytes | None = None,
        closing: bytes | None = None,
        error: bytes | None = None,
    ) -> Opened:
        """Add a new step row. The token stays on it until a later row closes it, unless it is `closed` at once."""
        instance = self.instance
        token = token_id(move.path, move.hop)
        key = receipt_key(instance.id, place.id_bytes, token, instance.entity_version, FORWARD, move.run)
        if move.cause == "started" and input != move.raw:
            detail = {**(detail or {}), "start": msgspec.Raw(move.raw)}
        step = Opened(
            step_id(self.now, key, instance.id[15]),
            place.id,
            place.behaviour,
            move.path,
            move.hop,
            token,
            key,
            move.run,
            self.version,
            self.seq,
            move.cause,
            status,
            input,
            fence,
            calls,
            None if detail is None else encode(detail),
            FORWARD,
            closed,
            chosen,
            output,
            closing,
            error,
        )
        self.opened.append(step)
        self.seq += 1
        return step

    def control(self, row: ControlRow, input: bytes | None = None) -> None:
        """Add a row for a fact that replay needs and no step row has. Its token has no path; its hop is the version."""
        instance = self.instance
        node, token = row.node, token_id("", self.version)
        key = receipt_key(instance.id, node.encode(), token, instance.entity_version, CONTROL, self.controls)
        self.opened.append(
            Opened(
                id=step_id(self.now, key, instance.id[15]),
                node=node,
                behaviour=CONTROL,
                path="",
                hop=self.version,
                token=token,
                key=key,
                run=self.controls,
                version=self.version,
                ordinal=self.seq,
                cause=node[1:],
                status=StepStatus.COMPLETED,
                input=input,
                detail=encode(row),
                kind=CONTROL,
                closed=True,
            )
        )
        self.seq += 1
        self.controls += 1

    def close(
        self,
        token: Token,
        status: StepStatus,
        outcome: str,
        *,
        chosen: bytes | None = None,
        output: bytes | None = None,
        error: bytes | None = None,
        closing: bytes | None = None,
    ) -> None:
        self.closed.append(
            Closed(
                id=token.step,
                at=token.at,
                status=status,
                outcome=outcome,
                version=self.version,
                ordinal=self.seq,
                chosen=chosen,
                output=output,
                error=error,
                closing=closing,
                node=token.node,
            )
        )
        self.seq += 1

    def release(self, move: Move) -> None:
        """Release the work row that the token brings along, if any: the next node needs none."""
        if move.held:
            self.released.append(Release(move.path, move.held))

    def suspend(
        self,
        status: InstanceStatus,
        reason: str,
        node: str | None = None,
        token: str | None = None,
        *,
        message: str | None = None,
    ) -> None:
        """Put the instance into `status`, suspended or DLQ mode, with a reason and a control row.

        `message` is that of an error which no step row has, because nothing of the node has happened.
        """
        self.status, self.reason = status, reason
        if message is None:
            self.control(Suspended(status=status, reason=reason))
        else:
            self.control(Suspended(status=status, reason=reason, at=node, message=message))
        self.note(f"instance_{status}", node, token, {"by": self.actor, "reason": reason})

    # --- waits --------------------------------------------------------------------------------------------------

    def timer(self, path: str, wait: str, purpose: str, due: int) -> Wait:
        id = timer_id(self.instance.id, wait)
        self.timers = [*self.timers, Timer(id, path, wait, purpose, due)]
        return Wait(wait, purpose, due=due, ref=id)

    def end_waits(self, path: str, token: Token) -> None:
        """End the timers, key waits and tasks of the token. Correctness never depends on the rows being gone."""
        for wait in token.waits:
            if wait.kind in TIMED and wait.ref is not None:
                self.timers_ended = [*self.timers_ended, wait.ref]
            elif wait.kind == "event" and wait.event is not None and wait.key is not None:
                self.key_waits_ended = [
                    *self.key_waits_ended,
                    KeyWait(wait.event, wait.key, token_id(path, token.hop), token.step),
                ]
            elif wait.kind == "task" and wait.ref is not None:
                self.tasks = [*self.tasks, TaskClosed(wait.ref, token.step)]

    # --- data ---------------------------------------------------------------------------------------------------

    def namespaces(self, place: Place, raw: bytes) -> dict[str, Any]:
        """The values that an expression of this node may read at this moment."""
        state = decode(self.context)
        return {
            "input": decode(raw),
            "context": {**state, **self._request_facts()} if self.program.rules.reads_request else state,
            "workflow": state,
            "entity": self.facts.entity,
            "actor": self.facts.actor.facts(self.actor),
            "org": {**self.facts.org, "id": self.instance.org},
            "now": to_iso(self.now),
            "instance_id": str(UUID(bytes=self.instance.id)),
            "step_name": place.id,
        }

    def _request_facts(self) -> dict[str, str | None]:
        instance = self.instance
        facts = (instance.org, instance.partition, instance.starter, instance.correlation)
        return dict(zip(REQUEST_FACTS, facts, strict=True))

    def input_for(self, place: Place, raw: bytes) -> bytes:
        """The input of a node: its mapping if it has one, else the context or the token's value, as its door says."""
        if place.mapping is not None:
            return self.evaluate_all(place, place.mapping, raw)
        return self.context if self.program.merges else raw

    def evaluate_all(
        self, place: Place, mapping: dict[str, Expression], raw: bytes, response: bytes | None = None
    ) -> bytes:
        scope = self.namespaces(place, raw)
        if response is not None:
            scope["response"] = decode(response)
        return self.composed(
            encode_data({name: expression.evaluate(scope) for name, expression in mapping.items()}),
            f"What {place.id!r} maps",
        )

    def composed(self, raw: bytes, what: str) -> bytes:
        """Check the depth and the size of data composed of values that may have been large or deep already."""
        if is_deep(raw, MAX_COMPOSED_DEPTH):
            raise Overflow(f"{what} would be nested deeper than {MAX_COMPOSED_DEPTH} levels.")
        return self.bounded(raw, what)

    def bounded(self, raw: bytes, what: str) -> bytes:
        return within(raw, self.facts.max_context, what)

    def take_output(self, raw: bytes) -> bytes:
        """Take data from outside the engine: a step's answer, a mapping, a new input. Return the part that counts."""
        raw = without_own(self.program.own, raw)
        self.take_signed(raw)
        return raw

    def take_signed(self, raw: bytes) -> None:
        """Merge an object into the context, in a graph of steps. The engine vouches for its own names in it."""
        if self.program.merges:
            self.context = self.bounded(merged(self.context, raw), "The state of the instance")
