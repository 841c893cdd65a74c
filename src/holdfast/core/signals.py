"""What can happen to an instance. Values travel as JSON bytes, encoded once at the edge where they came from."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.state import Instance
from holdfast.core.undos import Undo


class Actor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who did it, as authenticated when the signal was submitted; never taken from a payload."""

    id: str
    capabilities: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # as told with a decision

    def facts(self, id: str) -> dict[str, Any]:
        """What an expression reads of whoever acts, under the name they act by."""
        return {"id": id, "user_id": id, "capabilities": list(self.capabilities), "roles": list(self.roles)}


SYSTEM = Actor("system")


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a step failed, fit to be stored and shown."""

    code: str
    message: str
    detail: dict[str, str] = {}


class Started(msgspec.Struct, frozen=True, gc=False):
    raw: bytes
    node: str | None = None  # where to begin; None: at the entry
    origin: str | None = None  # the instance, long over, that this one runs again


def started_by(instance: Instance, actor: Actor) -> Instance:
    """Who starts it is known from now on, unless it was stored with that before."""
    if instance.starter is not None or actor.id == SYSTEM.id:
        return instance
    return msgspec.structs.replace(instance, starter=actor.id)


class WorkDone(msgspec.Struct, frozen=True, gc=False):
    path: str
    step: bytes
    fence: int
    raw: bytes
    calls: int = 1


class WorkFailed(msgspec.Struct, frozen=True, gc=False):
    path: str
    step: bytes
    fence: int
    failure: Failure
    calls: int
    retryable: bool = True
    input: bytes | None = None  # what the step was called with: a retry at once needs it, and so does a dead token


class CallsSpent(msgspec.Struct, frozen=True, gc=False):
    """What the row tells of a step that has no call left: how the last one ended, and what it was called with."""

    path: str
    step: bytes
    failure: Failure
    input: bytes | None = None


class CallDue(msgspec.Struct, frozen=True, gc=False):
    """A call step's turn has come: `decide` answers with the call to run in this very transaction."""

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
    comment: str | None = None  # what the person who sent it had to say
    only_waits: bool = False  # whoever sent it decides for nobody: a task must be decided instead


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A person's decision on a task; who it was is the actor."""

    id: bytes
    task: bytes
    decision: str
    raw: bytes | None = None
    comment: str | None = None
    roles: tuple[str, ...] | None = None  # of the actor; None: whoever sent it has checked them
    if_version: int | None = None


class ChildFinished(msgspec.Struct, frozen=True, gc=False):
    token: str
    status: str
    raw: bytes | None = None
    failure: Failure | None = None
    child: bytes | None = None  # which child: a step that is run again has another one


class ReceiptArrived(msgspec.Struct, frozen=True, gc=False):
    """An awaited effect was delivered, or given up on."""

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
    """What a rollback asked for: every step of the instance so far."""

    steps: list[PastStep]


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """Run again what a dead letter is about, with the same input or another one."""

    letter: bytes
    step: bytes
    raw: bytes | None = None
    reason: str | None = None
    undo: Undo | None = None  # the letter is about a compensation


class RequeueMany(msgspec.Struct, frozen=True, gc=False):
    """Several dead letters of one instance, all of them or none; either all about steps or all about compensations."""

    parts: tuple[Requeue, ...]


class Reschedule(msgspec.Struct, frozen=True, gc=False):
    """Another moment for what a token waits for: at `at`, or `delay` seconds from now; never, if it is `cancelled`."""

    node: str | None  # None: the instance's own timeout
    at: int | None = None
    delay: float | None = None
    cancelled: bool = False
    token: str | None = None
    reason: str | None = None
    if_version: int | None = None


class Migrate(msgspec.Struct, frozen=True, gc=False):
    """Go on under another version of the flow, which is a fact; `nodes` are mapped by name, `tokens` by `path@hop`."""

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
    fence: int = 0  # the highest the path has seen
    given: bytes | None = None  # the edited input
    reason: str | None = None
    if_version: int | None = None


# These may name the version they were decided on.
CONDITIONAL = (EventArrived, Decided, Cancel, Abort, Suspend, Resume, ForceFail, Reschedule, Migrate, Rerun)

Signal = (
    Started
    | WorkDone
    | WorkFailed
    | CallDue
    | CallsSpent
    | TimerDue
    | EventArrived
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
)
