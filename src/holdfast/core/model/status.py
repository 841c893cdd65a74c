"""Every status and every legal move between them. No other module of the kernel knows the legal moves.

The database guards the same tables by trigger, the diagrams in `docs/status.md` are drawn from them, and a test
compares all three.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class InstanceStatus(StrEnum):
    PENDING = "pending"  # stored, not yet decided on
    RUNNING = "running"
    SUSPENDED = "suspended"  # parked with a reason; resume continues
    DLQ = "dlq"  # a dead token waits for a person
    ROLLING_BACK = "rolling_back"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABORTED = "aborted"

    __hash__ = str.__hash__  # an enum's own is written in Python, and these are looked up all the time


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING_DECISION = "waiting_decision"
    WAITING = "waiting"
    COMPLETED = "completed"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    FAILED = "failed"
    PAUSED = "paused"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    COMPENSATION = "compensation"
    ROLLED_BACK = "rolled_back"
    SUPERSEDED = "superseded"

    __hash__ = str.__hash__  # an enum's own is written in Python, and these are looked up all the time


class Phase(StrEnum):
    """The activity of a live token at its node."""

    __hash__ = str.__hash__  # an enum's own is written in Python, and these are looked up all the time

    WORKING = "working"  # its step is dispatched or being run
    RETRYING = "retrying"  # waits for the next attempt
    RESTING = "resting"  # waits for an event, a moment, a child or a receipt
    HELD = "held"  # may not enter its node yet: suspended or at the chain limit
    DEAD = "dead"  # its step failed for good; a requeue or a resume decides its fate
    CANCELLING = "cancelling"  # its handler or sub-flow still runs; the result will be recorded, not followed
    EXPIRING = "expiring"  # the same after a timeout in DLQ mode; a success counts, but no step begins after it


_I, _S, _P = InstanceStatus, StepStatus, Phase

# Constants for comparisons on the hot path: reading a member off its class costs four times as much.
SUSPENDED: Final = InstanceStatus.SUSPENDED
RUNNING: Final = InstanceStatus.RUNNING
ROLLING_BACK: Final = InstanceStatus.ROLLING_BACK
COMPLETED: Final = InstanceStatus.COMPLETED
STEP_RUNNING: Final = StepStatus.RUNNING
STEP_COMPLETED: Final = StepStatus.COMPLETED
WORKING: Final = Phase.WORKING
CANCELLING: Final = Phase.CANCELLING

_ENDS = {_I.COMPLETED, _I.FAILED, _I.CANCELLED, _I.ABORTED}

TERMINAL: Final = frozenset(_ENDS)

INSTANCE_TRANSITIONS: Final[dict[InstanceStatus, frozenset[InstanceStatus]]] = {
    _I.PENDING: frozenset({_I.RUNNING, _I.SUSPENDED, _I.DLQ, _I.ROLLING_BACK, *_ENDS}),
    _I.RUNNING: frozenset({_I.SUSPENDED, _I.DLQ, _I.ROLLING_BACK, *_ENDS}),
    _I.SUSPENDED: frozenset({_I.RUNNING, _I.DLQ, _I.ROLLING_BACK, *_ENDS}),
    _I.DLQ: frozenset({_I.RUNNING, _I.SUSPENDED, _I.ROLLING_BACK, *_ENDS}),
    _I.ROLLING_BACK: frozenset({_I.SUSPENDED, _I.FAILED, _I.CANCELLED, _I.ABORTED}),
    _I.COMPLETED: frozenset(),
    _I.FAILED: frozenset(),
    _I.CANCELLED: frozenset(),
    _I.ABORTED: frozenset(),
}

_CLOSES = {_S.COMPLETED, _S.CONFIRMED, _S.REJECTED, _S.FAILED, _S.PAUSED, _S.SKIPPED, _S.CANCELLED}
_CARRIED = {_S.SUPERSEDED}  # a step at rest goes on as a row of the present month

STEP_TRANSITIONS: Final[dict[StepStatus, frozenset[StepStatus]]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.WAITING, _S.WAITING_DECISION, *_CLOSES}),
    _S.RUNNING: frozenset({_S.WAITING, _S.WAITING_DECISION, *_CLOSES}),
    _S.WAITING_DECISION: frozenset(_CLOSES | _CARRIED),
    _S.WAITING: frozenset(_CLOSES | _CARRIED),
    _S.COMPLETED: frozenset({_S.COMPENSATION, _S.ROLLED_BACK}),  # straight back where nothing compensates the step
    _S.CONFIRMED: frozenset({_S.COMPENSATION, _S.ROLLED_BACK}),
    _S.REJECTED: frozenset(),
    _S.FAILED: frozenset({_S.COMPENSATION, _S.ROLLED_BACK, _S.SUPERSEDED}),
    _S.PAUSED: frozenset({_S.SUPERSEDED, _S.SKIPPED}),
    _S.SKIPPED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.COMPENSATION: frozenset({_S.ROLLED_BACK, _S.FAILED}),
    _S.ROLLED_BACK: frozenset(),
    _S.SUPERSEDED: frozenset(),
}

# A step that fails and is the first to be taken back goes through `failed` within one commit: its row skips it.
STEP_SHORTCUTS: Final[dict[StepStatus, frozenset[StepStatus]]] = {
    _S.RUNNING: frozenset({_S.COMPENSATION, _S.ROLLED_BACK})
}

OPEN_STEP: Final = frozenset({_S.PENDING, _S.RUNNING, _S.WAITING, _S.WAITING_DECISION})

FAILURES: Final = frozenset({"error", "timeout", "failed", "paused"})  # outcomes of a step that failed itself


def undo_of(status: str, outcome: str | None) -> str | None:
    """The progress of a step's compensation, as far as its own row tells: running, done, failed; None: there was none.

    A step keeps its outcome under any later status. So one with the status `failed` but no failure as its outcome was
    done and could not be compensated.
    """
    if status == StepStatus.FAILED:
        return None if outcome is None or outcome in FAILURES else "failed"
    return {StepStatus.COMPENSATION: "running", StepStatus.ROLLED_BACK: "done"}.get(StepStatus(status))


PHASE_TRANSITIONS: Final[dict[Phase, frozenset[Phase]]] = {
    _P.WORKING: frozenset({_P.RETRYING, _P.DEAD, _P.CANCELLING, _P.EXPIRING}),
    _P.RETRYING: frozenset({_P.WORKING, _P.DEAD}),
    _P.RESTING: frozenset({_P.DEAD, _P.CANCELLING, _P.EXPIRING, _P.HELD}),  # held: asked again during a suspension
    _P.HELD: frozenset({_P.WORKING, _P.RETRYING, _P.RESTING, _P.DEAD}),
    _P.DEAD: frozenset({_P.WORKING, _P.RETRYING, _P.RESTING, _P.HELD}),
    _P.CANCELLING: frozenset(),
    _P.EXPIRING: frozenset({_P.DEAD, _P.CANCELLING}),
}
