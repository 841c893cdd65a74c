"""What can happen to an instance. Values travel as JSON bytes, encoded once at the edge where they came from."""

from __future__ import annotations

import msgspec


class Actor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who did it, as authenticated when the signal was submitted; never taken from a payload."""

    id: str
    capabilities: tuple[str, ...] = ()


SYSTEM = Actor("system")


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a step failed, fit to be stored and shown."""

    code: str
    message: str
    detail: dict[str, str] = {}


class Started(msgspec.Struct, frozen=True, gc=False):
    raw: bytes


class WorkDone(msgspec.Struct, frozen=True, gc=False):
    path: str
    step: bytes
    fence: int
    raw: bytes


class WorkFailed(msgspec.Struct, frozen=True, gc=False):
    path: str
    step: bytes
    fence: int
    failure: Failure
    calls: int
    retryable: bool = True
    input: bytes | None = None  # what the step was called with: a retry at once needs it, and so does a dead token


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
    if_version: int | None = None


class ForceFail(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None
    if_version: int | None = None


class Reschedule(msgspec.Struct, frozen=True, gc=False):
    """Another moment for what a token waits for: at `at`, or `delay` seconds from now; never, if it is `cancelled`."""

    node: str | None  # None: the instance's own timeout
    at: int | None = None
    delay: float | None = None
    cancelled: bool = False
    token: str | None = None
    reason: str | None = None
    if_version: int | None = None


# These may name the version they were decided on.
CONDITIONAL = (EventArrived, Decided, Cancel, Abort, Suspend, Resume, ForceFail, Reschedule)

Signal = (
    Started
    | WorkDone
    | WorkFailed
    | CallDue
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
)
