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
    token: str | None = None
    if_version: int | None = None
    kept: bool = False  # it comes out of this instance's inbox; an early one by key brings its token instead


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


CONDITIONAL = (EventArrived, Cancel, Abort, Suspend, Resume, ForceFail)  # may name the version they were decided on

Signal = (
    Started
    | WorkDone
    | WorkFailed
    | CallDue
    | TimerDue
    | EventArrived
    | ChildFinished
    | ReceiptArrived
    | Cancel
    | Abort
    | Suspend
    | Resume
    | ForceFail
)
