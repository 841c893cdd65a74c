"""One attempt to deliver one effect, and the two ways it can end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.core.kernel.retry import delay_before
from holdfast.core.model.signals import Failure
from holdfast.errors import PayloadError
from holdfast.graph.model import Retry
from holdfast.runtime.validation import take_payload
from holdfast.runtime.worker.context import NotBegun
from holdfast.runtime.worker.failures import MOST_MESSAGE, MOST_NAME
from holdfast.store.effects import ClaimedEffect, FinishedEffect

DEFAULT_RETRY: Final = Retry(calls=5, delay=30.0, backoff="exponential", max_delay=3600.0, jitter=0.5)
DEFAULT_TIMEOUT: Final = 30.0  # seconds for a whole attempt


class Delivery(msgspec.Struct, frozen=True):
    """An effect to deliver. `key` is the same on every attempt: the receiver recognises repetitions by it."""

    id: str
    instance: str
    org: str
    token: str
    kind: str
    target: str
    key: str
    attempt: int
    config: dict[str, Any]
    data: Any
    created_at: int  # microseconds of the database's clock: the same on every attempt
    timeout: float
    trace: str | None = None
    is_lost: Callable[[], bool] = lambda: False  # another worker may deliver it by now

    def check(self) -> None:
        """Ask immediately before the message leaves this process, after all waits: for a thread, a name, a login."""
        if self.is_lost():
            raise NotBegun


class Delivered(msgspec.Struct, frozen=True):
    """Success. `output` is the value a waiting node continues with."""

    output: Any = None
    evidence: dict[str, Any] = {}


class EffectFailed(Exception):
    """Failure of a delivery. `final`: another attempt would not help. `elsewhere`: this worker could not try; another
    may.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        final: bool = False,
        evidence: dict[str, Any] | None = None,
        retry_after: float | None = None,
        elsewhere: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = clean(code, MOST_NAME)
        self.message = clean(message, MOST_MESSAGE)
        self.final = final
        self.evidence = evidence or {}
        self.retry_after = retry_after
        self.elsewhere = elsewhere


class Asked(msgspec.Struct):
    """The payload of an effect row."""

    config: dict[str, Any] = {}
    data: Any = None
    retry: Retry = DEFAULT_RETRY
    timeout: float = DEFAULT_TIMEOUT


_decode = msgspec.json.Decoder(Asked).decode


def clean(text: str, limit: int) -> str:
    """Make text storable in the database and fit for a log."""
    return text[:limit].replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


def read_payload(claimed: ClaimedEffect) -> Asked:
    return _decode(claimed.payload)


def delivered(claimed: ClaimedEffect, result: Delivered) -> FinishedEffect:
    output = None if result.output is None else take_payload(result.output, f"the result of {claimed.kind!r}")
    return FinishedEffect(
        claimed.row, claimed.worker, "completed", 0, _evidence(claimed, result.evidence), None, output
    )


def failed(claimed: ClaimedEffect, failure: EffectFailed, retry: Retry = DEFAULT_RETRY) -> FinishedEffect:
    """Another attempt after a pause, or a dead letter when none is left or none would help."""
    error = msgspec.json.encode(Failure(failure.code, failure.message))
    try:
        evidence = _evidence(claimed, failure.evidence)
    except PayloadError as unfit:  # the failure is what matters
        evidence = _evidence(claimed, {"unfit": unfit.code})
    if failure.final or claimed.attempts >= claimed.max_attempts:
        return FinishedEffect(claimed.row, claimed.worker, "dead_letter", 0, evidence, error)
    delay = delay_before(retry, claimed.attempts, claimed.row.id)
    if failure.retry_after is not None:
        delay = max(delay, round(min(failure.retry_after, retry.max_delay) * 1_000_000))
    return FinishedEffect(claimed.row, claimed.worker, "failed", delay, evidence, error)


def interrupted(claimed: ClaimedEffect) -> FinishedEffect:
    """The outcome of a delivery cut short by a worker that leaves: another worker may begin at once."""
    error = Failure("EFFECT_INTERRUPTED", "The worker left before the delivery was done.")
    return FinishedEffect(claimed.row, claimed.worker, "failed", 0, None, msgspec.json.encode(error))


def worn_out(claimed: ClaimedEffect, retry: Retry) -> FinishedEffect:
    """The outcome of an effect whose allowed attempts were all begun, and the last never returned."""
    once = retry.calls == 1
    message = "The worker was lost while it delivered and no attempt is left."
    if once:
        message = "The worker was lost while it delivered; whether the target was reached is unknown."
    return failed(claimed, EffectFailed("OUTCOME_UNKNOWN" if once else "LEASE_LOST", message, final=True))


def _evidence(claimed: ClaimedEffect, given: dict[str, Any]) -> bytes:
    return take_payload({"attempt": claimed.attempts, **given}, f"the evidence of {claimed.kind!r}")
