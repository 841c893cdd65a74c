"""The outcome of `decide`: data for the store to write and for the shell to act on, never an action itself."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.core.model.program import Program
from holdfast.core.model.signals import SYSTEM, Actor
from holdfast.core.model.state import Instance, Parked
from holdfast.core.model.status import StepStatus
from holdfast.payloads.bounds import MAX_CONTEXT_BYTES


class TaskFacts(msgspec.Struct, frozen=True, gc=False):
    """The task a decision is about, as it was when its row was locked."""

    assignee: str | None = None
    roles: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, gc=False):
    """The world as the shell saw it under the instance's lock."""

    now: int
    actor: Actor = SYSTEM
    entity: Any = None
    org: dict[str, Any] = {}  # its settings
    idle: frozenset[str] = frozenset()  # paths whose dispatched work no worker has claimed (for a cancel)
    answers: dict[bytes, bytes] = {}  # results of calls already run in this transaction, by step
    inline_calls: bool = False  # this transaction may run calls
    task: TaskFacts | None = None  # of the task that is being decided
    target: Program | None = None  # the version an instance is migrated to
    visited: frozenset[str] | None = None  # the nodes it has been to, by today's names; None: perhaps all
    max_context: int = MAX_CONTEXT_BYTES  # what an instance may keep, and pass from step to step


class Opened(msgspec.Struct, frozen=True, gc=False):
    """A new step row. The row of a step that is decided at once carries its end too."""

    id: bytes
    node: str
    behaviour: str
    path: str
    hop: int
    token: str
    key: bytes
    run: int
    version: int
    ordinal: int
    cause: str
    status: StepStatus
    input: bytes | None
    fence: int = 0
    calls: int = 0
    detail: bytes | None = None
    kind: str = "forward"
    closed: bool = False
    chosen: bytes | None = None  # JSON list of edge ids
    output: bytes | None = None
    closing: bytes | None = None
    error: bytes | None = None


class Closed(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    at: int
    status: StepStatus
    outcome: str
    version: int
    ordinal: int
    chosen: bytes | None = None
    output: bytes | None = None
    error: bytes | None = None
    closing: bytes | None = None
    node: str = ""


class Retried(msgspec.Struct, frozen=True, gc=False):
    """A step that stays open for another call."""

    id: bytes
    at: int
    calls: int
    fence: int
    error: bytes | None


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """Work to hand to a handler. `held` is the fence of the token's present work row, 0 when it has none."""

    path: str
    step: bytes
    at: int
    queue: str
    node: str
    fence: int
    held: int
    calls: int
    input: bytes | None  # None: only the step row knows it, so a claim must bring it
    priority: int
    timeout: float | None = None
    call: bool = False


class Release(msgspec.Struct, frozen=True, gc=False):
    """A work row that ends. `fence` 0: end it under any lease."""

    path: str
    fence: int


class Timer(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    path: str
    wait: str
    purpose: str
    due: int


class TaskOpened(msgspec.Struct, frozen=True, gc=False):
    """Work for a person."""

    id: bytes
    step: bytes
    node: str
    token: str
    roles: tuple[str, ...]
    priority: int
    due: int | None
    form: bytes | None
    payload: bytes
    assignee: str | None = None


class TaskClosed(msgspec.Struct, frozen=True, gc=False):
    """A person's work that is over: decided, or not needed any more for a reason."""

    id: bytes
    step: bytes
    status: str = ""
    decision: str | None = None
    comment: str | None = None
    data: bytes | None = None
    reason: str | None = None


class TaskRenamed(msgspec.Struct, frozen=True, gc=False):
    """A person's work whose step has another name since a migration."""

    id: bytes
    was: str
    now: str


TaskChange = TaskOpened | TaskClosed | TaskRenamed


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Message of a machine's entry to consumers. The store writes a delivery for each consumer that takes it."""

    id: bytes
    kind: str  # transition | hook | complete
    step: bytes
    state: str
    event: str
    body: bytes
    number: int | None  # of the event: its code
    needs_ack: bool = True
    code: str | None = None  # of a hook, as all that follows
    type: str | None = None  # gate | effect
    mode: str | None = None  # all | any
    starts: int | None = None
    ends: int | None = None


class Notice(msgspec.Struct, frozen=True, gc=False):
    """Message about an instance to operators."""

    code: str
    kind: str  # info | warn | overdue | error
    message: str
    node: str | None = None
    detail: dict[str, Any] = {}


class Effect(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    step: bytes
    token: str
    type: str
    payload: bytes
    key: str
    awaited: bool


class KeyWait(msgspec.Struct, frozen=True, gc=False):
    event: str
    key: str
    token: str
    step: bytes


class Child(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    flow: str
    version: int | None
    input: bytes
    token: str


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A signal for another instance (a parent that waits, a child that must stop)."""

    instance: bytes
    id: bytes
    kind: str
    payload: bytes


class Event(msgspec.Struct, frozen=True, gc=False):
    """One line of the audit trail."""

    version: int
    ordinal: int
    type: str
    node: str | None
    token: str | None
    actor: str
    detail: bytes | None = None


class EarlyEvents(msgspec.Struct, frozen=True, gc=False):
    """Need: events that came before this wait existed. The decision is valid; each event found is decided next."""

    token: str
    step: bytes
    event: str
    key: str | None = None


class ParkedTimers(msgspec.Struct, frozen=True, gc=False):
    """Need: fire these, each with the moment it was due, among the events kept meanwhile in the order of both."""

    timers: tuple[tuple[int, Parked], ...]
    token: str = ""


class Call(msgspec.Struct, frozen=True, gc=False):
    """Need: run this operation in the present transaction. Void until `Facts.answers` has the result."""

    step: bytes
    path: str
    node: str
    operation: str
    token: str
    input: bytes
    calls: int


class Moved(msgspec.Struct, frozen=True, gc=False):
    """A new status for a step closed before: it is being compensated, or has been."""

    id: bytes
    at: int
    status: StepStatus
    node: str = ""  # the step's node, where a compensation was called for it


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A dead letter: a step out of calls in DLQ mode, or a compensation out of calls."""

    id: bytes
    source: str  # step | compensation
    step: bytes
    at: int
    path: str
    token: str
    node: str
    behaviour: str
    input: bytes | None
    error: bytes | None
    reason: str
    calls: int


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The settlement of the dead letter about a step: the step runs again, or is not needed any more."""

    step: bytes
    resolution: str
    by: str
    why: str | None = None


class History(msgspec.Struct, frozen=True, gc=False):
    """Need: every step so far, to plan a rollback. The decision is valid; the history read is decided on next."""

    token: str = ""


class LastCall(msgspec.Struct, frozen=True, gc=False):
    """Need: the input and the error of a step's last call, because it is not called again. Only its row has them."""

    token: str
    path: str
    step: bytes
    at: int


Need = EarlyEvents | ParkedTimers | Call | History | LastCall
Plain = Literal["", "begin", "advance", "finish", "fail", "plan", "undo", "undone"]


class Decision(msgspec.Struct, frozen=True, gc=False):
    instance: Instance
    opened: list[Opened]
    closed: list[Closed]
    events: list[Event]
    dispatches: list[Dispatch]
    released: list[Release]
    retried: list[Retried]
    timers: list[Timer]
    timers_ended: list[bytes]
    effects: list[Effect]
    key_waits: list[KeyWait]
    key_waits_ended: list[KeyWait]
    children: list[Child]
    outgoing: list[Outgoing]
    superseded: list[tuple[bytes, int]]
    keep: bool  # the event is early: it goes to the inbox
    needs: list[Need]
    error: bytes | None  # the instance's last error, if this decision brought one
    tasks: list[TaskChange]
    plain: Plain = ""  # made by a fast path: one of the plain decisions and nothing else
    stops: tuple[str, ...] = ()  # paths whose running handler is asked to stop; its result is still recorded
    halts: tuple[str, ...] = ()  # paths whose handler may finish if it runs, and must not start if it does not
    moved: tuple[Moved, ...] = ()  # closed forward steps that are being, or have been, taken back
    letters: tuple[Letter, ...] = ()  # new dead letters
    letters_resolved: tuple[Answered, ...] = ()
    paused: tuple[str, ...] = ()  # paths whose handler may finish if it runs; if it does not, it begins after a resume
    resumed: tuple[tuple[str, str], ...] = ()  # paths whose paused work may begin again, and its queue
    facts: tuple[Fact, ...] = ()  # what consumers are told, in order
    notices: tuple[Notice, ...] = ()
    rearms: bool = False  # deliveries that failed are tried again
    answer: bytes | None = None  # to a trigger
