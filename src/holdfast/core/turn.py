"""A decision in the making: the one mutable thing in the kernel, born in `decide` and gone when it returns.

It collects rows, keeps the numbering within the decision and offers the small verbs every behaviour shares: open a
step, close it, note an event, set a timer, read the data. What to do when is decided elsewhere.
"""

from __future__ import annotations

from typing import Any, Final, cast
from uuid import UUID

import msgspec

from holdfast.compiler.expressions import REQUEST_FACTS, Expression
from holdfast.core.decision import (
    Answered,
    Child,
    Closed,
    Dispatch,
    Effect,
    Event,
    Facts,
    KeyWait,
    Letter,
    Moved,
    Need,
    Opened,
    Outgoing,
    Release,
    Retried,
    TaskChange,
    TaskClosed,
    Timer,
)
from holdfast.core.ids import CONTROL, FORWARD, receipt_key, step_id, timer_id, token_id
from holdfast.core.moments import to_iso
from holdfast.core.program import Place, Program
from holdfast.core.signals import Failure
from holdfast.core.state import Instance, Rollback, Stopping, Token, Wait
from holdfast.core.status import InstanceStatus, StepStatus

encode = msgspec.json.encode
decode = msgspec.json.decode

NULL: Final = b"null"
NOTHING_CHOSEN: Final = b"[]"


class Move(msgspec.Struct, frozen=True, gc=False):
    """A token on its way into a node. `held` is the fence of the work row it brings along, 0 for none; `fence` the last
    one it used, because fences live as long as the token."""

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
    """How often something was called, as an event tells it: only where it was more than once."""
    return {"calls": calls} if calls > 1 else {}


def about(failure: Failure, calls: int = 0) -> dict[str, Any]:
    """A failure as an event tells it."""
    return {"code": failure.code, "message": failure.message, **counted(calls)}


def merged(context: bytes, output: bytes) -> bytes:
    """Shallow, key by key; what is no object leaves the context as it is."""
    patch = decode(output)
    if not isinstance(patch, dict) or not patch:
        return context
    return encode({**decode(context), **cast(dict[str, Any], patch)})


# The one empty list of all that a plain step does not bring. Nobody appends to it: what is seldom is added by making a
# new list, because a dozen fresh lists per decision cost more than the decision itself.
NONE: Final[list[Any]] = []


class Turn:
    __slots__ = (
        "actor",
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
        "now",
        "opened",
        "outgoing",
        "overtime",
        "parked",
        "program",
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
        "version",
    )

    def __init__(self, program: Program, instance: Instance, facts: Facts) -> None:
        state = instance.state
        self.program = program
        self.instance = instance
        self.facts = facts
        self.now = facts.now
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
        self.overtime: Failure | None = None  # why nothing may begin in this decision
        self.keep = False
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
        """A new step row: the token stands on it until something closes it, unless it is `closed` at once."""
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

    def control(self, name: str, detail: dict[str, Any], input: bytes | None = None) -> None:
        """A row for what no step tells and replay must know. Its token has no path and the version as its hop."""
        instance = self.instance
        node, token = f"@{name}", token_id("", self.version)
        key = receipt_key(instance.id, node.encode(), token, instance.entity_version, CONTROL, self.controls)
        self.opened.append(
            Opened(
                step_id(self.now, key, instance.id[15]), node, CONTROL, "", self.version, token, key, self.controls,
                self.version, self.seq, name, StepStatus.COMPLETED, input, 0, 0, encode(detail), CONTROL, True,
            )
        )  # fmt: skip
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
                token.step, token.at, status, outcome, self.version, self.seq, chosen, output, error, closing,
                token.node,
            )
        )  # fmt: skip
        self.seq += 1

    def release(self, move: Move) -> None:
        """The token goes where it needs no work row."""
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
        """`message` is that of an error which no row of a step tells: nothing of the node has happened."""
        self.status, self.reason = status, reason
        told = {} if message is None else {"node": node, "message": message}
        self.control("suspend", {"status": status, "reason": reason, **told})
        self.note(f"instance_{status}", node, token, {"by": self.actor, "reason": reason})

    # --- waits --------------------------------------------------------------------------------------------------

    def timer(self, path: str, wait: str, purpose: str, due: int) -> Wait:
        id = timer_id(self.instance.id, wait)
        self.timers = [*self.timers, Timer(id, path, wait, purpose, due)]
        return Wait(wait, purpose, due=due, ref=id)

    def end_waits(self, path: str, token: Token) -> None:
        """Whatever the token still waited for is void; correctness never depends on the rows being gone."""
        for wait in token.waits:
            if wait.kind in ("timer", "deadline", "retry", "due") and wait.ref is not None:
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
        """What an expression of this node may read at this moment."""
        state = decode(self.context)
        return {
            "input": decode(raw),
            "context": {**state, **self._request_facts()} if self.program.is_steps else state,
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
        """What a node gets: its mapping if it has one, else what its front door says: the context or the value."""
        if place.mapping is not None:
            return self.evaluate_all(place, place.mapping, raw)
        return self.context if self.program.merges else raw

    def evaluate_all(
        self, place: Place, mapping: dict[str, Expression], raw: bytes, response: bytes | None = None
    ) -> bytes:
        scope = self.namespaces(place, raw)
        if response is not None:
            scope["response"] = decode(response)
        return encode({name: expression.evaluate(scope) for name, expression in mapping.items()})

    def take_output(self, raw: bytes) -> None:
        """In a graph of steps an output that is an object merges into the context, key by key."""
        if not self.program.merges:
            return
        self.context = merged(self.context, raw)
