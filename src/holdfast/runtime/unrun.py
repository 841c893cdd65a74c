"""Failures that no handler raised: of steps that are not run, or whose run nobody knows the end of."""

from __future__ import annotations

from typing import Final

from holdfast.core.program import Place, Program
from holdfast.core.results import STOPPED
from holdfast.core.signals import Failure, WorkFailed
from holdfast.runtime.context import Job
from holdfast.store.queue import ClaimedWork

LOST_CALLS: Final = 2  # of a system step whose worker is lost: it is tried again, but not for ever
_STOPPED: Final = Failure(STOPPED, "The step was stopped before it had a result.")
_LOST: Final = Failure("LEASE_LOST", "The worker was lost while it ran, and the step is not to be run again.")
_CALLED_BEFORE: Final = Failure("NOT_CALLED_AGAIN", "The step was called before and is not to be called again.")


def most_calls(program: Program, place: Place) -> int:
    """How often a step may be begun. In a workflow of steps the calls of `retry` are for failures; one that may be
    repeated is begun again when its worker is lost, however few they are."""
    return place.retry.calls + (LOST_CALLS if program.is_steps and place.node.idempotent else 0)


def stopped(job: Job) -> WorkFailed:
    """It was told to stop and obeyed."""
    return WorkFailed(job.path, job.step, job.fence, _STOPPED, job.calls, False, job.input)


def not_begun(job: Job) -> WorkFailed:
    """It waited for its turn and is not called. An earlier call may have left something behind all the same."""
    made = job.calls - 1  # the lease counted one more, which is never made
    return WorkFailed(job.path, job.step, job.fence, _CALLED_BEFORE if made else _STOPPED, made, False, job.input)


def not_run(work: ClaimedWork) -> WorkFailed:
    """Claimed only to be answered for. Where a call was begun before, nobody knows how far it came."""
    failure = _LOST if work.calls else _STOPPED
    return WorkFailed(work.path, work.step, work.fence, failure, work.calls, False, work.input)


def undecidable(work: ClaimedWork, failure: Exception) -> WorkFailed:
    """Its graph cannot be used: the commit that finds nothing to decide on makes a dead letter of it."""
    told = Failure(getattr(failure, "code", "NODE_UNKNOWN"), f"The step cannot be run: {failure}")
    return WorkFailed(work.path, work.step, work.fence, told, work.calls, False, work.input)


def worn_out(work: ClaimedWork, idempotent: bool) -> WorkFailed:
    """Every call it may have was begun and none came back."""
    message = "The worker was lost while it ran and no call is left."
    if not idempotent:
        message = "The worker was lost while it ran; whether it took effect is unknown and it may not be called twice."
    failure = Failure("LEASE_LOST" if idempotent else "OUTCOME_UNKNOWN", message)
    made = work.calls - 1  # the claim counted one more, which is never made
    return WorkFailed(work.path, work.step, work.fence, failure, made, False, work.input)
