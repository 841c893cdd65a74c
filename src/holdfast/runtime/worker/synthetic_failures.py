"""Synthetic failures, raised by no handler: for steps that are not run, or whose run has no known end."""

from __future__ import annotations

from typing import Final

from holdfast.core.model.program import Place, Program
from holdfast.core.model.signals import Failure, WorkFailed
from holdfast.core.signals.results import STOPPED
from holdfast.runtime.worker.context import Job
from holdfast.store.queue.work import ClaimedWork

_STOPPED: Final = Failure(STOPPED, "The step was stopped before it had a result.")
_LOST: Final = Failure("LEASE_LOST", "The worker was lost while it ran, and the step is not to be run again.")
_CALLED_BEFORE: Final = Failure("NOT_CALLED_AGAIN", "The step was called before and is not to be called again.")


def most_calls(program: Program, place: Place) -> int:
    """The number of times a step may begin. In a workflow of steps the calls of `retry` are for failures; an idempotent
    step also begins again when its worker is lost, however few they are.
    """
    return place.retry.calls + (program.rules.lost_calls if place.node.idempotent else 0)


def stopped(job: Job) -> WorkFailed:
    """Failure of a handler that stopped on request."""
    return WorkFailed(job.path, job.step, job.fence, _STOPPED, job.calls, False, job.input)


def not_begun(job: Job) -> WorkFailed:
    """Failure of a job that waited for its turn and is not called. An earlier call may still have left traces."""
    made = job.calls - 1  # the lease counted one more, which is never made
    return WorkFailed(job.path, job.step, job.fence, _CALLED_BEFORE if made else _STOPPED, made, False, job.input)


def not_run(work: ClaimedWork) -> WorkFailed:
    """Failure of work that was claimed only to be settled. The end of an earlier call is unknown."""
    failure = _LOST if work.calls else _STOPPED
    return WorkFailed(work.path, work.step, work.fence, failure, work.calls, False, work.input)


def undecidable(work: ClaimedWork, failure: Exception) -> WorkFailed:
    """Failure of work with an unusable graph: the commit cannot decide on it and makes a dead letter."""
    told = Failure(getattr(failure, "code", "NODE_UNKNOWN"), f"The step cannot be run: {failure}")
    return WorkFailed(work.path, work.step, work.fence, told, work.calls, False, work.input)


def worn_out(work: ClaimedWork, idempotent: bool) -> WorkFailed:
    """Failure of work whose allowed calls were all begun, and none returned."""
    message = "The worker was lost while it ran and no call is left."
    if not idempotent:
        message = "The worker was lost while it ran; whether it took effect is unknown and it may not be called twice."
    failure = Failure("LEASE_LOST" if idempotent else "OUTCOME_UNKNOWN", message)
    made = work.calls - 1  # the claim counted one more, which is never made
    return WorkFailed(work.path, work.step, work.fence, failure, made, False, work.input)
