"""Signals: the inputs of an instance. Values travel as JSON bytes, encoded once at the edge where they came from."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.model.state import Instance
from holdfast.core.rollback.pending import Undo


class Actor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The actor of a signal, as authenticated when it was submitted; never taken from a payload."""

    id: str
    capabilities: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # as given with a decision

    def facts(self, id: str) -> dict[str, Any]:
        """The facts about the actor that an expression may read, under the name the actor acts by."""
        return {"id": id, "user_id": id, "capabilities": list(self.capabilities), "roles": list(self.roles)}


SYSTEM = Actor("system")


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why a step failed, fit to be stored and shown."""

    code: str
    message: str
    detail: dict[str, str] = {}


class Started(msgspec.Struct, frozen=True, gc=False):
    raw: bytes
    node: str | None = None  # where to begin; None: at the entry
    origin: str | None = None  # the instance, long over, that this one runs again


def started_by(instance: Instance, actor: Actor) -> Instance:
    """Set the actor as the starter of the instance, unless it has one or the engine itself starts it."""
    if instance.starter is not None or actor.id == SYSTEM.id:
        return instance
    return msgspec.structs.replace(instance, starter=actor.id)


class WorkDone(msgspec.Struct, frozen=True, gc=False):
    path: str
    step: bytes
    fence: int
    raw: bytes
    calls: int = 1
    input: bytes | None = None  # of the call: if the result does not fit, the step fails with it


class WorkFailed(msgspec.Struct, frozen=True, gc=False):
    path: str
    step: bytes
    fence: int
    failure: Failure
    calls: int
    retryable: bool = True
    input: bytes | None = None  # of the call: a retry at once needs it, and so does a dead token


class CallsSpent(msgspec.Struct, frozen=True, gc=False):
    """The failure and the input of the last call of a step that has no call left, as its row has them."""

    path: str
    step: bytes
    failure: Failure
    input: bytes | None = None


class CallDue(msgspec.Struct, frozen=True, gc=False):
    """The turn of a call step, for which `decide` returns the call to run in this very transaction."""

    path: str
    step: bytes
    fence: int
    calls: int
    input: bytes


class TimerDue(msgspec.Struct, frozen=True, gc=False):
    path: str
    wait: str
    purpose: str  # timer | deadline | retry | expiry


class EventArrived(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    event: str
    raw: bytes | None = None
    node: str | None = None
    token: str | None = None  # of the waiting token: its id, or that of one of its waits
    if_version: int | None = None
    kept: bool = False  # it comes out of this instance's inbox; an early one by key brings its token instead
    keyed: bool = False  # it was sent to a key, and the id is that of the event, not of this delivery
    comment: str | None = None  # of the person who sent it
    only_waits: bool = False  # the sender may not decide a task with it
    early: bool = True  # it is kept for a step that is still to wait for it


class EventsExpired(msgspec.Struct, frozen=True, gc=False):
    """The expiry of kept events that no step took in time, with the audit trail's detail of each."""

    events: tuple[dict[str, Any], ...]


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A person's decision on a task; the actor is that person."""

    id: bytes
    task: bytes
    decision: str
    raw: bytes | None = None
    comment: str | None = None
    roles: tuple[str, ...] | None = None  # of the actor; None: the sender has checked them
    if_version: int | None = None


class ChildFinished(msgspec.Struct, frozen=True, gc=False):
    token: str
    status: str
    raw: bytes | None = None
    failure: Failure | None = None
    child: bytes | None = None  # which child: a step that is run again has another one


class ReceiptArrived(msgspec.Struct, frozen=True, gc=False):
    """The end of an awaited effect: delivered, or given up."""

    token: str
    raw: bytes | None = None
    failure: Failure | None = None
    effect: bytes | None = None


class Cancel(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None
    if_version: int | None = None


class Abort(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None
    if_version: int | None = None


class Suspend(msgspec.Struct, frozen=True, gc=False):
    reason: str = "SUSPENDED_BY_OPERATOR"
    if_version: int | None = None


class Resume(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None
    if_version: int | None = None


class ForceFail(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None
    if_version: int | None = None


class PastStep(msgspec.Struct, frozen=True, gc=False):
    """A step row as a rollback sees it."""

    id: bytes
    at: int
    hop: int
    run: int
    version: int
    ordinal: int
    fence: int
    node: str
    path: str
    kind: str
    status: str
    input: bytes | None
    output: bytes | None
    detail: bytes | None = None


class HistoryRead(msgspec.Struct, frozen=True, gc=False):
    """The history that a rollback needs: every step of the instance so far."""

    steps: list[PastStep]


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """Run the step or compensation of a dead letter again, with the same input or another one."""

    letter: bytes
    step: bytes
    raw: bytes | None = None
    reason: str | None = None
    undo: Undo | None = None  # the letter is about a compensation


class RequeueMany(msgspec.Struct, frozen=True, gc=False):
    """Several dead letters of one instance, all of them or none; either all about steps or all about compensations."""

    parts: tuple[Requeue, ...]


class Reschedule(msgspec.Struct, frozen=True, gc=False):
    """Another moment for a timer, deadline or timeout: `at`, or `delay` seconds from now; never, if `cancelled`."""

    node: str | None  # None: the instance's own timeout
    at: int | None = None
    delay: float | None = None
    cancelled: bool = False
    token: str | None = None
    reason: str | None = None
    if_version: int | None = None


class Migrate(msgspec.Struct, frozen=True, gc=False):
    """Continue under another version of the flow, which is a fact; `nodes` map by name, `tokens` by `path@hop`."""

    definition: bytes
    nodes: dict[str, str] = {}
    tokens: dict[str, str] = {}
    reason: str | None = None
    if_version: int | None = None


class Rerun(msgspec.Struct, frozen=True, gc=False):
    """Run a step again that was visited before, found in the rows of the version `if_version`."""

    node: str
    path: str
    hop: int  # of the new visit
    run: int
    raw: bytes  # what arrives at the step
    step: bytes  # the earlier visit
    at: int
    status: str
    last: str | None = None
    fence: int = 0  # the highest of the path so far
    given: bytes | None = None  # the edited input
    reason: str | None = None
    if_version: int | None = None


class Triggered(msgspec.Struct, frozen=True, gc=False):
    """An event for a machine. One that cannot be applied is an answer and no error."""

    event: str | int  # name or code
    raw: bytes | None = None
    expected: int | None = None  # the number of the entry the sender has seen
    needs_ack: bool = True
    occurred_at: int | None = None  # when it happened, if that was before now


class PastEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that happened before the instance was there."""

    event: str | int
    occurred_at: int
    raw: bytes | None = None
    by: str | None = None


class Backfilled(msgspec.Struct, frozen=True, gc=False):
    """The past of an object, for a new instance."""

    events: tuple[PastEvent, ...]


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """A consumer's answer to a fact, or the end of the engine's attempts to get one."""

    ack: bytes
    at: int  # created_at of the fact
    consumer: bytes
    outcome: str  # processed | failed | exhausted | expired
    message: str | None = None
    verdict: str | None = None  # of a gate: success | failure
    then: Triggered | None = None  # the next event, decided in the same commit


class FailedDelivery(msgspec.Struct, frozen=True, gc=False):
    """A dead letter about a delivery, and the delivery's address."""

    letter: bytes
    ack: bytes
    at: int  # created_at of the fact
    consumer: bytes


class RequeueDeliveries(msgspec.Struct, frozen=True, gc=False):
    """Send the failed deliveries of several dead letters again, all of them or none."""

    parts: tuple[FailedDelivery, ...]
    reason: str | None = None


class GateDone(msgspec.Struct, frozen=True, gc=False):
    """The answers of a gate's consumers have settled it."""

    gate: bytes  # the fact
    verdict: str  # success | failure


# Signals that may name the version of the instance they are based on.
CONDITIONAL = (EventArrived, Decided, Cancel, Abort, Suspend, Resume, ForceFail, Reschedule, Migrate, Rerun)

Signal = (
    Started
    | WorkDone
    | WorkFailed
    | CallDue
    | CallsSpent
    | TimerDue
    | EventArrived
    | EventsExpired
    | Decided
    | ChildFinished
    | ReceiptArrived
    | Cancel
    | Abort
    | Suspend
    | Resume
    | ForceFail
    | Reschedule
    | HistoryRead
    | Requeue
    | RequeueMany
    | Migrate
    | Rerun
    | Triggered
    | Backfilled
    | Acknowledged
    | RequeueDeliveries
    | GateDone
)
